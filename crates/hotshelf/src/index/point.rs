//! Small questions that an index answers alone, asked without a plan: how many rows have certain values, or what their
//! other indexed columns hold.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::compute::concat;
use arrow::datatypes::SchemaRef;
use futures::future::join_all;
use hotshelf_store::index::shelf::OpenElf;

use super::TableIndex;
use super::decode::decode;
use super::elfs::{Asked, ElfStore};
use super::join_keys::JoinKeys;
use super::predicate::Condition;
use super::question::{Conjunct, FileQuery, Wanted};
use super::selection::keys_to_look_up;
use crate::prices::PriceBook;
use crate::table::Table;

/// Questions that are expected to find more rows are planned: workers share the work then.
const ROWS_MAX: f64 = 4096.0;
/// Rows of an answer at most, whatever was expected.
const FOUND_MAX: usize = 1 << 16;
/// Elfs that are asked together at most.
const ELFS_MAX: usize = 64;

/// What is asked about the rows that meet the conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sought {
    /// Their number.
    Count,
    /// Some of their columns, by index in the table.
    Columns(Vec<usize>),
}

/// A small question to an index of a table.
#[derive(Debug, Clone)]
pub(crate) struct PointQuestion {
    /// Which of the table's indexes.
    pub index: usize,
    pub sought: Sought,
    /// Columns of the answer.
    pub schema: SchemaRef,
}

/// What a query asks with.
#[derive(Clone, Copy)]
pub(crate) struct PointAsker<'a> {
    pub elfs: &'a ElfStore,
    pub prices: &'a PriceBook,
    /// Of the query.
    pub weight: f64,
}

/// What one Elf found.
#[derive(Default)]
struct Found {
    count: u64,
    columns: Vec<ArrayRef>,
}

impl PointQuestion {
    /// The index of a table that can answer, if there is one: it has the columns of all conditions and of the answer,
    /// and its first one is among the conditions'.
    pub fn index_for(table: &Table, conditions: &[usize], sought: &Sought) -> Option<usize> {
        let has_all = |columns: &[usize], wanted: &[usize]| {
            wanted.iter().all(|column| columns.contains(column))
        };
        let length = |columns: &[usize]| {
            let leading = columns.iter().take_while(|one| conditions.contains(one));
            leading.count()
        };
        let indexes = table.indexes.iter().enumerate();
        let able = indexes.filter(|(_, index)| {
            let columns = index.definition.columns.as_slice();
            let covers = match sought {
                Sought::Count => true,
                Sought::Columns(wanted) => has_all(columns, wanted),
            };
            covers && has_all(columns, conditions) && length(columns) > 0
        });
        let best = able.max_by_key(|(_, index)| length(&index.definition.columns));
        best.map(|(idx, _)| idx)
    }

    /// The answer for rows of the table that meet all conditions and have one of the keys, if some are listed. `None`
    /// if the question is not small or the index cannot be used: it has to be planned then.
    pub async fn ask(
        &self,
        table: &Table,
        asker: PointAsker<'_>,
        conditions: Vec<Condition>,
        keys: &JoinKeys,
    ) -> Option<RecordBatch> {
        let conjuncts: Vec<Conjunct> = conditions
            .into_iter()
            .map(|condition| Conjunct {
                columns: vec![condition.column],
                condition: Some(condition),
            })
            .collect();
        let index = table.indexes.get(self.index)?;
        let dimensions = self.dimensions(index);
        let questions = questions(table, index, (&conjuncts, keys), &dimensions)?;
        let (mut asked, mut expected) = (Vec::new(), 0.0);
        let prices = asker.prices.now();
        for question in &questions {
            for (stretch_idx, stretch) in question.file.stretches.iter().enumerate() {
                let walk = stretch.model.work(&question.query).ok()?;
                let (work, keys) = match &question.keys {
                    Some(keys) => (keys.part_of(&walk), Some(keys.codes.clone())),
                    None => {
                        let keys = keys_to_look_up(&question.query, &walk, &prices);
                        (walk, keys.map(Arc::from))
                    }
                };
                expected += work.results;
                asked.push(self.ask_elf(asker, question, (stretch_idx, keys), &dimensions));
            }
        }
        if expected > ROWS_MAX || asked.len() > ELFS_MAX {
            return None;
        }
        let found = join_all(asked).await.into_iter().collect::<Option<_>>()?;
        self.answer(found)
    }

    /// The dimension of each column of the answer.
    fn dimensions(&self, index: &TableIndex) -> Vec<usize> {
        let Sought::Columns(columns) = &self.sought else {
            return Vec::new();
        };
        let indexed = &index.definition.columns;
        let dimension = |column: &usize| indexed.iter().position(|one| one == column);
        columns.iter().filter_map(dimension).collect()
    }

    /// What the Elf of a stretch finds, by looking up keys where they are given; `None` if it cannot be asked, or finds
    /// more than expected.
    async fn ask_elf(
        &self,
        asker: PointAsker<'_>,
        question: &FileQuery,
        (stretch_idx, keys): (usize, Option<Arc<[u32]>>),
        dimensions: &[usize],
    ) -> Option<Found> {
        let (file, query) = (&question.file, &question.query);
        let asked = Asked {
            query: keys.is_none().then_some(query),
            keys: keys.as_deref(),
            weight: asker.weight,
        };
        let opened = asker.elfs.open_for(file, stretch_idx, asked);
        let mut elf = opened.await.ok()?;
        let mut codes = vec![Vec::new(); dimensions.len()];
        let count = if let Some(keys) = keys {
            look_up(&mut elf, &keys, dimensions, &mut codes).await?
        } else if dimensions.is_empty() {
            elf.count(query).await.ok()?
        } else {
            let rows = elf.select_rows(query).await.ok()?;
            let count: usize = rows.iter().map(ExactSizeIterator::len).sum();
            if count > FOUND_MAX {
                return None;
            }
            elf.read_rows(&rows, dimensions, &mut codes).await.ok()?;
            count as u64
        };
        let fields = self.schema.fields().iter().zip(dimensions).zip(&codes);
        let columns = fields.map(|((field, dimension), codes)| {
            let encoding = file.keys[*dimension].exact()?;
            decode(encoding, codes, field.data_type()).ok()
        });
        Some(Found {
            count,
            columns: columns.collect::<Option<_>>()?,
        })
    }

    fn answer(&self, found: Vec<Found>) -> Option<RecordBatch> {
        let count: u64 = found.iter().map(|found| found.count).sum();
        let columns = match &self.sought {
            Sought::Count => {
                let count = Int64Array::from(vec![i64::try_from(count).ok()?]);
                vec![Arc::new(count) as ArrayRef]
            }
            Sought::Columns(columns) => {
                let together = |idx: usize| {
                    let parts: Vec<&dyn Array> = found
                        .iter()
                        .map(|found| found.columns[idx].as_ref())
                        .collect();
                    concat(&parts).ok()
                };
                match found.is_empty() {
                    true => return Some(RecordBatch::new_empty(self.schema.clone())),
                    false => (0..columns.len()).map(together).collect::<Option<_>>()?,
                }
            }
        };
        let options = RecordBatchOptions::new();
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).ok()
    }
}

/// How many rows equal one of the keys; appends their codes in some dimensions, which are the keys'. `None` if the Elf
/// cannot be asked, or finds more than expected.
async fn look_up(
    elf: &mut OpenElf,
    keys: &[u32],
    dimensions: &[usize],
    codes: &mut [Vec<u32>],
) -> Option<u64> {
    let key_length = elf.head().dimension_count();
    let mut count = 0;
    let found = |key_idx: usize, _tid: u32| {
        count += 1;
        if count > FOUND_MAX as u64 {
            return;
        }
        for (codes, dimension) in codes.iter_mut().zip(dimensions) {
            codes.push(keys[key_idx * key_length + dimension]);
        }
    };
    elf.exact_batch(keys, found).await.ok()?;
    (dimensions.is_empty() || count <= FOUND_MAX as u64).then_some(count)
}

/// The question to each data file; `None` if the index does not answer for all of them.
fn questions(
    table: &Table,
    index: &TableIndex,
    (conjuncts, keys): (&[Conjunct], &JoinKeys),
    dimensions: &[usize],
) -> Option<Vec<FileQuery>> {
    let columns = &index.definition.columns;
    let wanted = Wanted {
        conjuncts,
        keys,
        key_count: 0,
        spared: &[],
        output: None,
    };
    let questions = table.files.iter().map(|data| {
        let file = index.files.get(&data.paths.number)?.as_ref().ok()?;
        let question = FileQuery::new(file, columns, wanted, false)?;
        // What single columns say about listed keys is not enough.
        let knows_keys = keys.lists.is_empty() || question.keys.is_some();
        (knows_keys && question.covers(dimensions)).then_some(question)
    });
    questions.collect()
}
