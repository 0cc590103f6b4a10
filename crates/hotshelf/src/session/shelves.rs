//! Where tables are: `CREATE TABLE … WITH (shelf = …)` and `ALTER TABLE … SET (shelf = …)`.

use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, CreateTableOptions, ObjectName, SqlOption,
    Statement as SqlStatement,
};
use hotshelf_store::placement::Placement;

use super::index::{normalise, once, option_word, shelf_named};
use super::{Answer, Session, index};
use crate::error::{Error, Result};
use crate::index::Shelf;

/// What CREATE TABLE says that the engine knows nothing of.
#[derive(Debug, Default)]
pub(super) struct TableClauses {
    /// Columns of the index whose order the rows get; none without one.
    pub cluster_by: Vec<String>,
    /// Where the table is to be.
    pub placement: Placement,
}

impl TableClauses {
    /// Takes the clauses out of a statement.
    pub fn take(statement: &mut ParsedStatement) -> Result<Self> {
        let ParsedStatement::Statement(own) = statement else {
            return Ok(Self::default());
        };
        let SqlStatement::CreateTable(create) = own.as_mut() else {
            return Ok(Self::default());
        };
        let clustering = create.cluster_by.take();
        let cluster_by = clustering.map(|clustering| index::clustering_columns(&clustering));
        let options = match std::mem::take(&mut create.table_options) {
            CreateTableOptions::With(options) => options,
            others => {
                create.table_options = others;
                Vec::new()
            }
        };
        Ok(Self {
            cluster_by: cluster_by.transpose()?.unwrap_or_default(),
            placement: placement_of(&options, Placement::default())?,
        })
    }
}

impl Session {
    /// Runs `ALTER TABLE … SET (shelf = …)`; `None` if it is another statement, or names no table.
    pub(super) async fn alter_table(&self, alter: &AlterTable) -> Option<Result<Answer>> {
        let [AlterTableOperation::SetOptionsParens { options }] = alter.operations.as_slice()
        else {
            return None;
        };
        Some(self.place_table(&alter.name, options).await)
    }

    async fn place_table(&self, name: &ObjectName, options: &[SqlOption]) -> Result<Answer> {
        let name = self.full_table_name(name)?;
        let storage = self.database.storage();
        let table = storage.require_table(&name)?;
        let before = storage.opener.shelves().placement(&table.folder);
        let placement = placement_of(options, (*before).clone())?;
        let shelf = placement.shelf.clone();
        let bytes = storage.place_table(&name, placement).await?;
        Ok(Answer::done(match shelf {
            Shelf::File => format!("table {name} is in the database's folder"),
            shelf => format!("table {name}: {bytes} bytes on shelf {shelf}"),
        }))
    }
}

/// The placement that options make of another: `shelf = 'node:1'`, `shelf_columns = 'a, b'`.
fn placement_of(options: &[SqlOption], before: Placement) -> Result<Placement> {
    let mut placement = before;
    let mut seen = Vec::new();
    let wrong = |option: &SqlOption| Error::InvalidValue {
        what: "table option",
        value: option.to_string(),
        expected: format!(
            "shelf = {}; shelf_columns = 'column, …' or 'all'",
            Shelf::words()
        ),
    };
    for option in options {
        let SqlOption::KeyValue { key, value } = option else {
            return Err(wrong(option));
        };
        let word = option_word(key, value).ok_or_else(|| wrong(option))?;
        let key = normalise(key);
        once(&mut seen, &key)?;
        match key.as_str() {
            "shelf" => {
                placement.shelf = shelf_named("shelf of a table", &word)?;
                // Other columns than those that were on the shelf before have to be named again.
                if !seen.iter().any(|key| key == "shelf_columns") {
                    placement.columns.clear();
                }
            }
            "shelf_columns" => placement.columns = column_names(&word),
            _ => return Err(wrong(option)),
        }
    }
    match &placement.shelf {
        Shelf::Dax(device) if !device.is_dir() => Err(Error::NotSupported {
            what: "a table on a devdax device (a folder of a DAX file system holds tables)".into(),
        }),
        Shelf::File | Shelf::Folder(_) | Shelf::Dax(_) if !placement.columns.is_empty() => {
            Err(Error::InvalidValue {
                what: "table option",
                value: "shelf_columns".into(),
                expected: "dram, node:N or emulated:NAME as the shelf of some columns: files hold \
                           all of them"
                    .into(),
            })
        }
        _ => Ok(placement),
    }
}

/// The names in a list; none for all columns.
fn column_names(list: &str) -> Vec<String> {
    if list.eq_ignore_ascii_case("all") {
        return Vec::new();
    }
    let names = list.split(',').map(str::trim);
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.dedup();
    names
}
