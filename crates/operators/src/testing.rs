//! Environments and batches for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow_array::builder::{StringDictionaryBuilder, StringViewBuilder};
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray,
};
use hotshelf_tier::io::{Backend, IoEngine, IoOptions};

use crate::memory::Broker;
use crate::spill::{SpillFolder, SpillOptions};
use crate::{Environment, Stop, TableShelf};

/// A broker, and a spill folder that goes with the test.
pub(crate) struct TestEnvironment {
    pub(crate) environment: Environment,
    pub(crate) folder: tempfile::TempDir,
}

impl TestEnvironment {
    pub(crate) fn new(broker: Arc<dyn Broker>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spill = spill_folder(folder.path(), u64::MAX);
        let environment = Environment {
            broker,
            spill,
            spilled: crate::spill::uncounted(),
            stop: Stop::default(),
            table_shelf: None,
        };
        Self {
            environment,
            folder,
        }
    }
}

/// A shelf that counts what happens to it.
#[derive(Debug, Default)]
pub(crate) struct CountingShelf {
    pub(crate) placed_bytes: AtomicU64,
    /// What was placed last.
    pub(crate) last_bytes: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) updates: AtomicU64,
    /// The largest tables.
    pub(crate) table_bytes: AtomicU64,
}

impl TableShelf for CountingShelf {
    fn place(&self, memory: &[u8]) {
        self.placed_bytes.fetch_add(memory.len() as u64, Relaxed);
        self.last_bytes.store(memory.len() as u64, Relaxed);
    }

    fn read(&self, table_bytes: u64, count: u64) {
        self.table_bytes.fetch_max(table_bytes, Relaxed);
        self.reads.fetch_add(count, Relaxed);
    }

    fn update(&self, table_bytes: u64, count: u64) {
        self.table_bytes.fetch_max(table_bytes, Relaxed);
        self.updates.fetch_add(count, Relaxed);
    }
}

pub(crate) fn spill_folder(path: &std::path::Path, limit_bytes: u64) -> Arc<SpillFolder> {
    let io = IoOptions {
        backend: Backend::Pread,
        pread_threads: 2,
        ..IoOptions::default()
    };
    let options = SpillOptions {
        path: path.to_path_buf(),
        limit_bytes,
    };
    SpillFolder::open(options, IoEngine::start(io).unwrap()).unwrap()
}

/// Rows of many types with duplicates and NULLs. Column `row` numbers the rows from `first_row` on.
pub(crate) fn batch(row_count: usize, first_row: usize, seed: u64) -> RecordBatch {
    let mut random = fastrand::Rng::with_seed(seed);
    let picks: Vec<Option<u32>> = (0..row_count)
        .map(|_| (random.u8(..10) > 0).then(|| random.u32(..row_count as u32 / 2 + 2)))
        .collect();
    let text = |pick: u32| match pick % 3 {
        0 => format!("t{pick}"),
        1 => format!("a longer text with number {pick}"),
        _ => String::new(),
    };
    let texts = || picks.iter().map(|pick| pick.map(text));
    let mut views = StringViewBuilder::new();
    views.extend(texts());
    let mut words = StringDictionaryBuilder::<Int8Type>::new();
    words.extend(
        picks
            .iter()
            .map(|pick| pick.map(|pick| ["red", "green", "blue"][pick as usize % 3])),
    );
    let mut numbers = || -> Vec<Option<i64>> {
        let pick = |pick: &Option<u32>| pick.map(|pick| i64::from(pick) * random.i64(-1..2));
        picks.iter().map(pick).collect()
    };
    let decimals = Decimal128Array::from_iter(numbers().into_iter().map(|n| n.map(i128::from)));
    let decimals = decimals.with_precision_and_scale(20, 2).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i64", Arc::new(Int64Array::from_iter(numbers()))),
        (
            "i32",
            Arc::new(Int32Array::from_iter(
                numbers().into_iter().map(|n| n.map(|n| n as i32 % 7)),
            )),
        ),
        (
            "f64",
            Arc::new(Float64Array::from_iter(
                numbers().into_iter().map(|n| n.map(|n| n as f64 / 8.0)),
            )),
        ),
        ("decimal", Arc::new(decimals)),
        ("text", Arc::new(StringArray::from_iter(texts()))),
        ("view", Arc::new(views.finish())),
        ("word", Arc::new(words.finish())),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(
                picks.iter().map(|pick| pick.map(|pick| pick % 2 == 0)),
            )),
        ),
        (
            "row",
            Arc::new(Int64Array::from_iter_values(
                (first_row..first_row + row_count).map(|row| row as i64),
            )),
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap()
}
