//! Which values a column of a data file has, said by an index: by the dictionary of its codes, or by the lists of the
//! first dimension.
//!
//! A dictionary has the values of the file's rows and no others: it is learned from all of them, and a file does not
//! change. Where codes are offsets from the least value, only the Elfs know which of them rows have. Floats are left
//! out: codes stand for numbers, and do not keep the bits of a NaN.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use hotshelf_elf::keys::{QueryBox, Restriction};
use hotshelf_store::index::elfs::{Asked, ElfStore, Unavailable};

use super::decode::decode;
use super::{IndexFile, Stretch};
use crate::error::Result as OwnResult;
use crate::table::Table;

/// The values of a column in a data file, from an index.
pub(crate) struct ElfValues {
    name: String,
    file: Arc<IndexFile>,
    dimension: usize,
    source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Dictionary,
    FirstDimension,
}

impl ElfValues {
    /// From a dictionary, which is in memory.
    pub fn listed(table: &Table, number: u64, column: usize) -> Option<Self> {
        let mut found = indexed(table, number, column, Source::Dictionary);
        found.find(|values| values.file.keys[values.dimension].dictionary_bytes() > 0)
    }

    /// From the first dimension of the Elfs, whose heads are read: not more than these bytes.
    pub fn first(table: &Table, number: u64, column: usize, bytes_max: u64) -> Option<Self> {
        let head_bytes = |file: &IndexFile| -> u64 {
            let stretches = file.stretches.iter();
            stretches.map(Stretch::head_memory_bytes).sum()
        };
        let mut found = indexed(table, number, column, Source::FirstDimension);
        found.find(|values| values.dimension == 0 && head_bytes(&values.file) <= bytes_max)
    }

    /// What EXPLAIN calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many there are, NULL included, if that is known.
    pub fn count(&self) -> Option<u64> {
        let encoding = self.file.keys[self.dimension].exact();
        let is_listed = self.source == Source::Dictionary;
        encoding
            .filter(|_| is_listed)
            .map(|encoding| encoding.code_count())
    }

    /// The values, each once, as columns of at most as many rows as a batch, for a query of this weight. `None` if the
    /// index cannot be asked: the rows have to be read then.
    pub async fn read(
        &self,
        elfs: &ElfStore,
        weight: f64,
        (data_type, batch_rows): (&DataType, usize),
    ) -> Option<Vec<ArrayRef>> {
        let codes = match self.count() {
            Some(count) => (0..count as u32).collect(),
            None => self.first_codes(elfs, weight).await.ok()?,
        };
        let encoding = self.file.keys[self.dimension].exact()?;
        let columns = codes.chunks(batch_rows.max(1));
        let columns = columns.map(|codes| decode(encoding, codes, data_type));
        let decoded: OwnResult<Vec<ArrayRef>> = columns.collect();
        let note = |error: &_| tracing::warn!(%error, "the codes of an index have no values");
        decoded.inspect_err(note).ok()
    }

    async fn first_codes(&self, elfs: &ElfStore, weight: f64) -> Result<Vec<u32>, Unavailable> {
        // The root is in the upper levels of a head: a question that nothing meets reads no others.
        let mut nothing = vec![Restriction::Any; self.file.keys.len()];
        nothing[self.dimension] = Restriction::NONE;
        let nothing = QueryBox::new(nothing);
        let mut codes = Vec::new();
        for stretch_idx in 0..self.file.stretches.len() {
            let asked = Asked {
                query: Some(&nothing),
                keys: None,
                weight,
            };
            let mut elf = elfs.open_for(&self.file, stretch_idx, asked).await?;
            codes.extend(elf.first_codes().await.map_err(Unavailable::damaged)?);
        }
        codes.sort_unstable();
        codes.dedup();
        Ok(codes)
    }
}

/// What the indexes of a data file know about a column.
fn indexed(
    table: &Table,
    number: u64,
    column: usize,
    source: Source,
) -> impl Iterator<Item = ElfValues> {
    let is_float = table.schema.field(column).data_type().is_floating();
    let indexes = table.indexes.iter().filter(move |_| !is_float);
    indexes.filter_map(move |index| {
        let mut columns = index.definition.columns.iter();
        let dimension = columns.position(|one| *one == column)?;
        let file = index.files.get(&number)?.as_ref().ok()?;
        file.keys.get(dimension)?.exact()?;
        Some(ElfValues {
            name: format!("elf {}", index.definition.name),
            file: file.clone(),
            dimension,
            source,
        })
    })
}
