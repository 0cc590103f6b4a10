//! The product's hash join as a look-up: batches of keys in, their values out.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use hotshelf_operators::join::{HashJoin, JoinKind, JoinSpec, Prober, Side};
use hotshelf_operators::keys::Nulls;
use hotshelf_operators::memory::FixedPool;
use hotshelf_operators::spill::{SpillFolder, SpillOptions, uncounted};
use hotshelf_operators::{Environment, OperatorError, Stop};
use hotshelf_tier::io::{IoEngine, IoOptions};
use parking_lot::Mutex;
use tempfile::TempDir;

/// More than any table takes here: nothing is to be spilled.
const MEMORY_BYTES: u64 = 16 << 30;

/// A join whose left side has keys and their numbers.
pub struct ProductJoin {
    join: Arc<HashJoin>,
    /// One for each thread.
    probers: Mutex<Vec<Prober>>,
    _folder: TempDir,
}

impl ProductJoin {
    /// Builds it for this many threads.
    ///
    /// # Errors
    /// That there is no folder for what would be spilled, and those of the join.
    pub fn new(keys: impl Iterator<Item = i64>, threads: usize) -> Result<Self, OperatorError> {
        let folder = tempfile::tempdir().map_err(|source| OperatorError::Spill {
            path: std::env::temp_dir(),
            operation: "create a folder in",
            source: Arc::new(source),
        })?;
        let spill = SpillOptions {
            path: folder.path().to_path_buf(),
            limit_bytes: MEMORY_BYTES,
        };
        let environment = Environment {
            broker: FixedPool::new(MEMORY_BYTES),
            spill: SpillFolder::open(spill, IoEngine::start(IoOptions::default())?)?,
            spilled: uncounted(),
            stop: Stop::default(),
            table_shelf: None,
        };
        let keys: Vec<i64> = keys.collect();
        let numbers = (0..keys.len() as i64).collect();
        let left = batch([("key", keys), ("number", numbers)])?;
        let right = batch([("key", Vec::new())])?;
        let spec = JoinSpec {
            left: left.schema(),
            right: right.schema(),
            on: vec![(0, 0)],
            kind: JoinKind::Inner,
            nulls: Nulls::Distinct,
            null_aware: false,
            condition: None,
            output: vec![(Side::Left, 1)],
            schema: batch([("number", Vec::new())])?.schema(),
        };
        let join = HashJoin::try_new(spec, &environment, threads)?;
        join.builder().insert(left)?;
        join.finish_build(threads)?;
        let probers = (0..threads).map(|_| join.prober());
        Ok(Self {
            probers: Mutex::new(probers.collect::<Result<_, _>>()?),
            join,
            _folder: folder,
        })
    }

    /// Looks keys up, this many at a time, and says how many were found. Called by as many threads at a time as it was
    /// built for.
    ///
    /// # Errors
    /// Those of the join.
    pub fn look_up(&self, keys: &[i64], batch_rows: usize) -> Result<usize, OperatorError> {
        let prober = self.probers.lock().pop();
        let mut prober = prober.ok_or(OperatorError::Stopped)?;
        let mut found = 0;
        for keys in keys.chunks(batch_rows) {
            prober.push(batch([("key", keys.to_vec())])?)?;
            while let Some(values) = prober.next_batch()? {
                found += values.num_rows();
            }
        }
        self.probers.lock().push(prober);
        Ok(found)
    }

    /// What its table takes.
    pub fn bytes(&self) -> usize {
        self.join.stats().used_bytes_max as usize
    }
}

fn batch<const N: usize>(columns: [(&str, Vec<i64>); N]) -> Result<RecordBatch, OperatorError> {
    let columns =
        columns.map(|(name, values)| (name, Arc::new(Int64Array::from(values)) as ArrayRef));
    Ok(RecordBatch::try_from_iter(columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_finds_the_keys_that_are_there() {
        for spread in [1, 0x9e37_79b1] {
            let join = ProductJoin::new((0..1000).map(|key| key * 2 * spread), 1).unwrap();
            let keys: Vec<i64> = (0..2000).map(|key| key * spread).collect();
            assert_eq!(join.look_up(&keys, 300).unwrap(), 1000);
            assert_eq!(join.look_up(&keys[..1], 1).unwrap(), 1);
            assert!(join.bytes() > 8000);
        }
    }
}
