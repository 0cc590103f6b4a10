//! What a look-up is made of: equal recipes make equal look-ups.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use hotshelf_cache::FileId;
use hotshelf_store::shelf::Shelf;

/// About what a node of an expression takes, without the values of literals.
const NODE_BYTES: usize = 64;

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
    /// Where the look-up lies.
    pub shelf: Shelf,
}

/// Rows of a table's files that meet the filters. Files do not change, and no two ever have the same number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Rows {
    pub table: i64,
    pub table_name: String,
    pub files: Vec<FileId>,
    /// Of the table, by index.
    pub columns: Vec<usize>,
    /// Of the columns that come out. Filters name the table's.
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

    /// About what it takes in memory itself: lists of values may be long.
    pub fn memory_bytes(&self) -> u64 {
        let of_steps = self.steps.iter().flat_map(|step| match step {
            Step::Filter(predicate, _) => std::slice::from_ref(predicate),
            Step::Project(exprs) => exprs.as_slice(),
        });
        let exprs = self.rows.filters.iter().chain(&self.exprs).chain(of_steps);
        let (columns, files) = (self.rows.columns.len(), self.rows.files.len());
        exprs.map(memory_bytes).sum::<u64>()
            + (NODE_BYTES * columns + size_of::<FileId>() * files) as u64
    }

    /// Whether the table still has the files.
    pub fn is_current(&self, files_of: &HashMap<i64, Vec<FileId>>) -> bool {
        files_of.get(&self.rows.table) == Some(&self.rows.files)
    }
}

fn memory_bytes(expr: &Arc<dyn PhysicalExpr>) -> u64 {
    let value = expr.downcast_ref::<Literal>();
    let value = value.map_or(0, |literal| literal.value().size());
    let children: u64 = expr.children().into_iter().map(memory_bytes).sum();
    (NODE_BYTES + value) as u64 + children
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
