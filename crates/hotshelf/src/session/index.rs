//! `CREATE INDEX`, `ALTER INDEX`, `DROP INDEX`, `OPTIMIZE TABLE` and `CLUSTER BY`: what DataFusion does not run.

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, BinaryOperator, CreateIndex, Expr, IndexType, ObjectName,
    ObjectType, SqlOption, Statement as SqlStatement,
};

use super::options::{normalise, once, option_word, shelf_named};
use super::{Answer, Session};
use crate::error::{Error, Result};
use crate::index::{BlockPolicyKind, IndexCache, Shelf};
use crate::options::parse_size;
use crate::rewriting::{IndexSpec, Rewritten};
use crate::storage::default_index_name;

impl Session {
    /// Runs the statement if it is about indexes or files.
    pub(super) async fn run_own(&self, statement: &SqlStatement) -> Option<Result<Answer>> {
        match statement {
            SqlStatement::CreateIndex(create) => Some(self.create_index(create).await),
            SqlStatement::AlterTable(alter) => match self.alter_index(alter) {
                Some(altered) => Some(altered),
                None => self.alter_table(alter).await,
            },
            SqlStatement::Drop {
                object_type: ObjectType::Index,
                if_exists,
                names,
                ..
            } => Some(self.drop_indexes(names, *if_exists)),
            SqlStatement::OptimizeTable { name, .. } => Some(self.optimize(name).await),
            _ => None,
        }
    }

    async fn create_index(&self, create: &CreateIndex) -> Result<Answer> {
        let spec = self.index_spec(create)?;
        if create.if_not_exists && self.database.storage().table_of_index(&spec.name).is_some() {
            return Ok(Answer::done(format!("index {} exists already", spec.name)));
        }
        let rows = self.database.parts().rewriter().create_index(&spec).await?;
        let name = &spec.name;
        Ok(Answer::done(format!("index {name}: {rows} rows")))
    }

    /// Runs `ALTER INDEX … SET (…)`; `None` if it is about a table.
    fn alter_index(&self, alter: &AlterTable) -> Option<Result<Answer>> {
        let [AlterTableOperation::SetOptionsParens { options }] = alter.operations.as_slice()
        else {
            return None;
        };
        let storage = self.database.storage();
        let table = self.full_table_name(&alter.name).ok();
        let index = last_part(&alter.name).ok();
        let is_index = index.is_some_and(|name| storage.table_of_index(&name).is_some());
        if !is_index && table.is_some_and(|name| storage.table(&name).is_some()) {
            return None;
        }
        Some(self.set_index(&alter.name, alter.if_exists, options))
    }

    fn set_index(
        &self,
        name: &ObjectName,
        if_exists: bool,
        options: &[SqlOption],
    ) -> Result<Answer> {
        let name = last_part(name)?;
        let altered = self
            .database
            .storage()
            .alter_index(&name, |cache, shelf, column_count| {
                let mut choices = Choices { cache, shelf };
                let keeps_none = choices.cache.keeps_none();
                let mut seen = Vec::new();
                for option in options {
                    let SqlOption::KeyValue { key, value } = option else {
                        return Err(wrong_option(option.to_string()));
                    };
                    let word = option_word(key, value);
                    let word = word.ok_or_else(|| wrong_option(option.to_string()))?;
                    let key = key.value.to_ascii_lowercase();
                    once(&mut seen, &key)?;
                    if key == "cache" && keeps_none && word != "none" {
                        choices.cache.limit_bytes = None;
                    }
                    if !choices.take(&key, &word)? {
                        return Err(match key.as_str() {
                            "order" | "clustered" => Error::NotSupported {
                                what: format!(
                                    "{key} in ALTER INDEX (drop the index and make it again)"
                                ),
                            },
                            _ => wrong_option(option.to_string()),
                        });
                    }
                }
                check_levels(choices.cache, column_count)
            });
        match altered {
            Err(Error::UnknownIndex { .. }) if if_exists => {
                Ok(Answer::done(format!("no index {name}")))
            }
            altered => altered.map(|()| Answer::done(format!("index {name} altered"))),
        }
    }

    fn drop_indexes(&self, names: &[ObjectName], if_exists: bool) -> Result<Answer> {
        let mut done = Vec::new();
        for name in names {
            let name = last_part(name)?;
            done.push(match self.database.storage().drop_index(&name) {
                Err(Error::UnknownIndex { .. }) if if_exists => format!("no index {name}"),
                result => result.map(|()| format!("index {name} dropped"))?,
            });
        }
        Ok(Answer::done(done.join("\n")))
    }

    async fn optimize(&self, name: &ObjectName) -> Result<Answer> {
        let table = self.full_table_name(name)?;
        let rewriter = self.database.parts().rewriter();
        let Rewritten {
            files_before,
            files_after,
        } = rewriter.optimize_table(&table).await?;
        Ok(Answer::done(match files_before {
            0 => format!("table {table}: nothing to merge"),
            _ => format!("table {table}: {files_before} files became {files_after}"),
        }))
    }

    /// The full name of a table that is written with or without its schema.
    pub(super) fn full_table_name(&self, name: &ObjectName) -> Result<String> {
        let schema = match name.0.len() {
            0 | 1 => None,
            count => name.0[count - 2].as_ident().map(normalise),
        };
        let table = last_part(name)?;
        self.stored_name(&match schema {
            Some(schema) => TableReference::partial(schema, table),
            None => TableReference::bare(table),
        })
    }

    fn index_spec(&self, create: &CreateIndex) -> Result<IndexSpec> {
        match &create.using {
            Some(IndexType::Custom(kind)) if kind.value.eq_ignore_ascii_case("elf") => {}
            Some(kind) => {
                return Err(Error::InvalidValue {
                    what: "kind of index",
                    value: kind.to_string(),
                    expected: "USING elf".into(),
                });
            }
            None => {
                return Err(Error::InvalidValue {
                    what: "kind of index",
                    value: String::new(),
                    expected: "CREATE INDEX … ON … USING elf (…)".into(),
                });
            }
        }
        let unsupported = [
            (create.unique, "UNIQUE"),
            (create.concurrently, "CONCURRENTLY"),
            (!create.include.is_empty(), "INCLUDE"),
            (create.nulls_distinct.is_some(), "NULLS DISTINCT"),
            (create.predicate.is_some(), "WHERE"),
            (!create.index_options.is_empty(), "an index option"),
            (!create.alter_options.is_empty(), "an option"),
        ];
        if let Some((_, what)) = unsupported.iter().find(|(asked, _)| *asked) {
            return Err(Error::NotSupported {
                what: format!("{what} in CREATE INDEX"),
            });
        }
        let table = self.full_table_name(&create.table_name)?;
        let columns = create
            .columns
            .iter()
            .map(|column| {
                let plain = column.operator_class.is_none()
                    && column.column.options.asc != Some(false)
                    && column.column.options.nulls_first != Some(false);
                match &column.column.expr {
                    Expr::Identifier(ident) if plain => Ok(normalise(ident)),
                    other => Err(Error::NotSupported {
                        what: format!(
                            "'{other}' as an indexed column (columns ascend, NULL first)"
                        ),
                    }),
                }
            })
            .collect::<Result<Vec<String>>>()?;
        let name = match &create.name {
            Some(name) => last_part(name)?,
            None => default_index_name(&table, &columns),
        };
        let mut spec = IndexSpec {
            name,
            table,
            columns,
            advise: false,
            clustered: false,
            cache: IndexCache::default(),
            shelf: Shelf::default(),
        };
        take_options(&create.with, &mut spec)?;
        Ok(spec)
    }
}

fn take_options(options: &[Expr], spec: &mut IndexSpec) -> Result<()> {
    let mut seen = Vec::new();
    for option in options {
        let key = take_option(option, spec)?;
        once(&mut seen, &key)?;
    }
    check_levels(&spec.cache, spec.columns.len())
}

/// Reads `order = 'auto'`, `clustered = true`, `cache = 'lru'`, `cache_bytes = '64MB'` and `shelf = 'node:1'`.
/// Returns the option's name.
fn take_option(option: &Expr, spec: &mut IndexSpec) -> Result<String> {
    let wrong = || wrong_option(option.to_string());
    let Expr::BinaryOp { left, op, right } = option else {
        return Err(wrong());
    };
    let (Expr::Identifier(key), BinaryOperator::Eq) = (left.as_ref(), op) else {
        return Err(wrong());
    };
    let word = option_word(key, right).ok_or_else(wrong)?;
    let key = key.value.to_ascii_lowercase();
    match (key.as_str(), word.as_str()) {
        ("order", "auto") => spec.advise = true,
        ("order", "given") => spec.advise = false,
        ("clustered", "true" | "on") => spec.clustered = true,
        ("clustered", "false" | "off") => spec.clustered = false,
        _ => {
            let mut choices = Choices {
                cache: &mut spec.cache,
                shelf: &mut spec.shelf,
            };
            if !choices.take(&key, &word)? {
                return Err(wrong());
            }
        }
    }
    Ok(key)
}

/// Refuses more levels than an index has columns.
fn check_levels(cache: &IndexCache, column_count: usize) -> Result<()> {
    let levels = cache.policy.and_then(BlockPolicyKind::levels);
    match levels.filter(|levels| *levels > column_count) {
        Some(_) => Err(Error::InvalidValue {
            what: "cache of an index",
            value: cache.word(),
            expected: format!("at most as many levels as the index has columns, {column_count}"),
        }),
        None => Ok(()),
    }
}

fn wrong_option(option: String) -> Error {
    Error::InvalidValue {
        what: "index option",
        value: option,
        expected: format!(
            "order = 'auto' or 'given', clustered = true or false, cache = {}, \
             cache_bytes = a size or 'auto', shelf = {}",
            cache_words(),
            Shelf::words()
        ),
    }
}

/// What can be changed about an index that exists.
struct Choices<'a> {
    cache: &'a mut IndexCache,
    shelf: &'a mut Shelf,
}

impl Choices<'_> {
    /// Takes an option; false if it is another.
    fn take(&mut self, key: &str, word: &str) -> Result<bool> {
        match (key, word) {
            ("cache", word) => {
                let unknown = |_| Error::InvalidValue {
                    what: "cache of an index",
                    value: word.to_owned(),
                    expected: cache_words(),
                };
                *self.cache = self.cache.with_word(word).map_err(unknown)?;
            }
            ("cache_bytes", "auto") => {
                if !self.cache.keeps_none() {
                    self.cache.limit_bytes = None;
                }
            }
            ("cache_bytes", size) => {
                let bytes = parse_size(size)?;
                // What keeps nothing keeps nothing, whatever the size.
                if !self.cache.keeps_none() {
                    self.cache.limit_bytes = Some(bytes);
                }
            }
            ("shelf", name) => {
                let shelf = shelf_named("shelf of an index", name)?;
                if let Shelf::Folder(_) = shelf {
                    return Err(Error::NotSupported {
                        what: "an index on another disk".into(),
                    });
                }
                *self.shelf = shelf;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The words that say which blocks of an index stay in memory.
fn cache_words() -> String {
    let quoted = IndexCache::WORDS.map(|word| format!("'{word}'"));
    format!("{} or 'levels:N' for N from 1", quoted.join(", "))
}

/// The name without catalog and schema.
fn last_part(name: &ObjectName) -> Result<String> {
    let last = name.0.last().and_then(|part| part.as_ident());
    last.map(normalise).ok_or_else(|| Error::InvalidValue {
        what: "name",
        value: name.to_string(),
        expected: "an identifier".into(),
    })
}
