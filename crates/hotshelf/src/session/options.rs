//! What statements say about tables and indexes beyond what the planner knows: options in parentheses, CLUSTER BY.

use std::collections::HashSet;

use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    CreateTableOptions, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, SqlOption,
    Statement as SqlStatement, Value, WrappedCollection,
};
use hotshelf_store::placement::Placement;

use crate::error::{Error, Result};
use crate::index::{MissingShelf, Shelf};

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
        let cluster_by = clustering.map(|clustering| clustering_columns(&clustering));
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

/// The placement that options make of another: `shelf = 'node:1'`, `shelf_columns = 'a, b'`.
pub(super) fn placement_of(options: &[SqlOption], before: Placement) -> Result<Placement> {
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
    match placement.is_file() && !placement.columns.is_empty() {
        false => Ok(placement),
        true => Err(Error::InvalidValue {
            what: "table option",
            value: "shelf_columns".into(),
            expected: "another shelf than file, which has all columns".into(),
        }),
    }
}

/// The names in a list; none for all columns.
fn column_names(list: &str) -> Vec<String> {
    if list.eq_ignore_ascii_case("all") {
        return Vec::new();
    }
    let names = list.split(',').map(str::trim);
    let mut known = HashSet::new();
    let names = names.filter(|name| known.insert(*name));
    names.map(str::to_owned).collect()
}

/// The columns of `CLUSTER BY elf (a, b)`.
fn clustering_columns(clustering: &WrappedCollection<Vec<Expr>>) -> Result<Vec<String>> {
    elf_columns(clustering).ok_or_else(|| Error::InvalidValue {
        what: "clustering",
        value: clustering.to_string(),
        expected: "CLUSTER BY elf (column, …)".into(),
    })
}

/// The columns of `elf (a, b)`.
fn elf_columns(clustering: &WrappedCollection<Vec<Expr>>) -> Option<Vec<String>> {
    let WrappedCollection::NoWrapping(kinds) = clustering else {
        return None;
    };
    let [Expr::Function(kind)] = kinds.as_slice() else {
        return None;
    };
    let is_elf = kind.name.to_string().eq_ignore_ascii_case("elf");
    let FunctionArguments::List(list) = &kind.args else {
        return None;
    };
    let column = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(ident))) => {
            Some(normalise(ident))
        }
        _ => None,
    };
    let columns: Option<Vec<String>> = list.args.iter().map(column).collect();
    columns.filter(|columns| is_elf && !columns.is_empty())
}

/// Refuses an option that was given before.
pub(super) fn once(seen: &mut Vec<String>, key: &str) -> Result<()> {
    if seen.iter().any(|one| one == key) {
        return Err(Error::InvalidValue {
            what: "option",
            value: key.to_owned(),
            expected: "every option once".into(),
        });
    }
    seen.push(key.to_owned());
    Ok(())
}

/// The value of an option as a word: in lower case unless it is a shelf or names columns, as folders are not.
pub(super) fn option_word(key: &Ident, value: &Expr) -> Option<String> {
    let word = key.value.to_ascii_lowercase();
    let is_shelf = matches!(word.as_str(), "shelf" | "shelf_columns");
    Some(match value {
        Expr::Value(value) => match &value.value {
            Value::Boolean(value) => value.to_string(),
            Value::SingleQuotedString(text) if is_shelf => text.clone(),
            Value::SingleQuotedString(text) => text.to_ascii_lowercase(),
            Value::Number(digits, _) => digits.to_string(),
            _ => return None,
        },
        Expr::Identifier(word) => word.value.to_ascii_lowercase(),
        _ => return None,
    })
}

/// The shelf of this name, if this machine has it.
pub(super) fn shelf_named(what: &'static str, name: &str) -> Result<Shelf> {
    let invalid = |expected| Error::InvalidValue {
        what,
        value: name.to_owned(),
        expected,
    };
    let shelf: Shelf = name.parse().map_err(|_| invalid(Shelf::words()))?;
    let missing = |why: MissingShelf| invalid(why.to_string());
    shelf.on_this_machine().map_err(missing)
}

/// Names are lower case unless quoted.
pub(super) fn normalise(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}
