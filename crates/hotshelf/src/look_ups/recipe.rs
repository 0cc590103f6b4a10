//! What a look-up is made of: equal recipes make equal look-ups.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use hotshelf_cache::FileId;

/// A build side, and what is looked up in it. It holds neither the files nor the snapshot of the table, only their
/// names: a table that is dropped or changed is not kept by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    pub rows: Rows,
    /// What is done with these rows, from the last operator down.
    pub steps: Vec<Step>,
    /// Over the columns that come out: the key, then what rows are grouped by.
    pub exprs: Vec<Arc<dyn PhysicalExpr>>,
    /// Whether a key may occur once only.
    pub is_unique: bool,
    /// Whether rows without a match have a group.
    pub keeps_unmatched: bool,
    /// Whether build rows can be found by their keys.
    pub has_rows: bool,
}

/// Rows of a table's files that meet the filters. Files do not change, and no two ever have the same number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Rows {
    pub table: i64,
    pub table_name: String,
    pub files: Vec<FileId>,
    /// Of the table, by index.
    pub columns: Vec<usize>,
    /// Of these columns.
    pub schema: SchemaRef,
    pub filters: Vec<Arc<dyn PhysicalExpr>>,
}

/// An operator above the scan of a build side.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Rows that meet a predicate, with some of their columns.
    Filter(Arc<dyn PhysicalExpr>, Option<Vec<usize>>),
    /// Expressions over the columns.
    Project(Vec<Arc<dyn PhysicalExpr>>),
}

impl Recipe {
    /// Its number among the items of the memory market.
    pub fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the table still has the files.
    pub fn is_current(&self, files_of: &HashMap<i64, Vec<FileId>>) -> bool {
        files_of.get(&self.rows.table) == Some(&self.rows.files)
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rows.table_name)?;
        let Some(key) = self.exprs.first() else {
            return Ok(());
        };
        match key.downcast_ref::<Column>() {
            Some(column) => write!(f, " by {}", column.name()),
            None => write!(f, " by {key}"),
        }
    }
}
