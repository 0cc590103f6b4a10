//! Elf indexes of tables: an Elf for every stretch of rows of every data file.
//!
//! The store has the files (`hotshelf_store::index`). `build` makes the index file of a data file, `predicate`
//! reads filters, `question` is what they ask the Elfs together with
//! `join_keys`, `choose` decides between Elf and scan, `access` is its answer. While a scan runs `selection` asks the
//! Elfs, and `covering` takes rows from them alone, which `decode` turns into values. `point` asks small questions
//! without a plan, and `values` which values a column has.

mod access;
mod build;
mod choose;
mod covering;
mod decode;
mod join_keys;
mod point;
mod predicate;
mod question;
mod selection;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use hotshelf_store::StoreError;
use hotshelf_store::index::{STRETCH_ROWS_MAX, STRETCH_ROWS_MIN, elfs, file, keys, zones};
use hotshelf_tier::Corruption;

pub(crate) use access::AccessPath;
pub(crate) use build::{IndexWriter, Indexed, advise_order};
pub(crate) use choose::Request;
pub(crate) use covering::CoveringRows;
pub(crate) use elfs::ElfStore;
pub(crate) use file::{IndexFile, Indexes, Stretch};
pub(crate) use hotshelf_store::index::policy::BlockPolicyKind;
pub(crate) use hotshelf_store::index::{IndexCache, IndexDefinition, IndexPaths};
pub(crate) use hotshelf_store::shelf::{MissingShelf, Shelf};
pub(crate) use join_keys::{JOIN_KEYS_MAX, JoinKeys, KeyList};
pub(crate) use keys::is_indexable;
pub(crate) use point::{PointAsker, PointQuestion, Sought};
pub(crate) use predicate::{Condition, among, column_of, compared, condition, literal_as};
pub(crate) use question::{Conjunct, Wanted};
pub(crate) use selection::{Outcome, Selected, Selection};
pub(crate) use values::ElfValues;

/// An index with its open files.
#[derive(Debug, Clone)]
pub(crate) struct TableIndex {
    pub definition: IndexDefinition,
    /// By the number of the data file. Files that could not be indexed are missing.
    pub files: OpenFiles,
    /// Data files whose index files are not open: the table was not used yet, or they could not be opened though
    /// nothing says that they are damaged.
    pub unavailable: BTreeSet<u64>,
    /// Data files that cannot be indexed, as far as this process tried.
    pub refused: BTreeSet<u64>,
}

/// Index files by the number of their data file.
pub(crate) type OpenFiles = BTreeMap<u64, Result<Arc<IndexFile>, Corruption>>;

impl TableIndex {
    /// An index with the files that were opened.
    pub fn new(definition: IndexDefinition, files: OpenFiles) -> Self {
        Self {
            definition,
            files,
            unavailable: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    /// Adds the index file of a data file, or what kept it from being opened.
    pub fn add(&mut self, number: u64, opened: Result<Arc<IndexFile>, StoreError>) {
        let opened = match opened.map_err(StoreError::into_unavailable) {
            Ok(file) => Ok(file),
            Err(Ok(_)) => {
                self.unavailable.insert(number);
                return;
            }
            Err(Err(error)) => {
                let name = format!("elf/{number}-{}.elf", self.definition.id);
                Err(error.into_damage(name.as_ref(), "index file"))
            }
        };
        self.unavailable.remove(&number);
        self.files.insert(number, opened);
    }

    /// Whether there is an index file of a data file, usable or not.
    pub fn has(&self, number: u64) -> bool {
        let passed_over = self.unavailable.contains(&number) || self.refused.contains(&number);
        self.files.contains_key(&number) || passed_over
    }

    /// The first damage, if there is one.
    pub fn damage(&self) -> Option<&Corruption> {
        self.files.values().find_map(|file| file.as_ref().err())
    }

    /// The names of its columns.
    pub fn column_names<'a>(&self, schema: &'a Schema) -> Vec<&'a str> {
        let columns = self.definition.columns.iter();
        columns
            .map(|column| schema.field(*column).name().as_str())
            .collect()
    }
}

/// Rows of a stretch such that sorting one takes about an eighth of the budget.
pub(crate) fn stretch_rows(schema: &SchemaRef, budget_bytes: u64) -> u64 {
    let widths = schema.fields().iter().map(|field| {
        let width = field.data_type().primitive_width();
        width.map_or(32, |bytes| bytes as u64)
    });
    let row_bytes = 32 + widths.sum::<u64>();
    let rows = (budget_bytes / 8 / row_bytes).clamp(STRETCH_ROWS_MIN, STRETCH_ROWS_MAX);
    1 << rows.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field};

    #[test]
    fn stretches_are_powers_of_two_that_follow_the_budget() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        assert_eq!(stretch_rows(&schema, 1 << 20), STRETCH_ROWS_MIN);
        assert_eq!(stretch_rows(&schema, 1 << 27), 1 << 18);
        assert_eq!(stretch_rows(&schema, 1 << 40), STRETCH_ROWS_MAX);
    }
}
