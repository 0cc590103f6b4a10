//! Rows on their way from some threads to others.
//!
//! An [`Exchange`] has a lane for each receiver. Senders put batches on lanes without waiting. Small batches are joined
//! there, and a lane that its receiver is behind with is spilled when memory is short. Rows of a lane keep their order
//! where there is one sender. A sender should pause while the exchange [is full](Exchange::is_full): then every
//! receiver has something to do. As long as one has nothing, the others' lanes grow, on disk in the end, so that
//! nothing deadlocks whatever the order in which receivers take their rows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use parking_lot::Mutex;

use crate::batches::{needed_bytes, slices, with_schema, with_small_buffers};
use crate::memory::{Charge, Grant};
use crate::spill::{SpillFile, SpilledBatch, write_bytes};
use crate::{Environment, Result};

/// An exchange's memory in any case, for each lane. What a lane has below this stays.
const LANE_BYTES: u64 = 64 << 10;
/// Small batches are written together up to this many bytes.
const WRITTEN_BYTES: u64 = 256 << 10;
/// Rows that all lanes together may keep to join them with further ones.
const JOINED_ROWS: usize = 64 << 10;

/// Rows between senders and receivers. All of them share it.
pub struct Exchange {
    schema: SchemaRef,
    grant: Arc<Grant>,
    environment: Environment,
    /// One for each receiver.
    lanes: Vec<Mutex<Lane>>,
    batch_row_count: usize,
    /// Fewer rows wait for more of them.
    joined_row_count: usize,
    /// Is made when something is spilled first.
    file: Mutex<Option<Arc<SpillFile>>>,
    sender_count: AtomicUsize,
    spilled_batch_count: AtomicU64,
}

#[derive(Default)]
struct Lane {
    /// Rows that are too few yet, or none.
    small: Vec<Held>,
    /// What its receiver takes first: rows of a sender that is alone are spilled before others come.
    spilled: VecDeque<SpilledBatch>,
    rows: VecDeque<Held>,
    /// Whether its receiver is gone.
    is_closed: bool,
}

/// Rows in memory.
struct Held {
    batch: RecordBatch,
    charge: Charge,
}

/// What a receiver finds.
pub enum Taken {
    /// Rows.
    Batch(RecordBatch),
    /// Rows that are to be read: see [`Exchange::read`].
    Spilled(SpilledBatch),
    /// Nothing yet.
    Nothing,
    /// Nothing, and there will be nothing.
    End,
}

/// What happens to a batch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// The receiver has something new to take.
    pub has_arrived: bool,
    /// Memory is short: the sender should call [`Exchange::spill`] next.
    pub is_crowded: bool,
}

/// What an exchange did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeStats {
    /// Batches that were written.
    pub spilled_batch_count: u64,
    /// The most memory that it held.
    pub used_bytes_max: u64,
}

impl Exchange {
    /// Rows of `schema` from `sender_count` senders for `lane_count` receivers, in batches of about
    /// `batch_row_count` rows.
    pub fn new(
        environment: &Environment,
        name: &str,
        schema: SchemaRef,
        sender_count: usize,
        lane_count: usize,
        batch_row_count: usize,
    ) -> Self {
        let minimum_bytes = LANE_BYTES * lane_count as u64;
        Self {
            lanes: (0..lane_count).map(|_| Mutex::default()).collect(),
            schema,
            batch_row_count: batch_row_count.max(1),
            joined_row_count: (JOINED_ROWS / lane_count.max(1)).min(batch_row_count / 2),
            grant: Arc::new(Grant::open(&*environment.broker, name, minimum_bytes)),
            environment: environment.clone(),
            file: Mutex::default(),
            sender_count: AtomicUsize::new(sender_count),
            spilled_batch_count: AtomicU64::new(0),
        }
    }

    /// Puts rows on a lane. Does not block. What has no receiver any more is dropped.
    ///
    /// # Errors
    /// [`Arrow`](crate::OperatorError::Arrow) for rows of another schema.
    pub fn push(&self, lane: usize, batch: RecordBatch) -> Result<Pushed> {
        let mut pushed = Pushed::default();
        for rows in slices(&batch, self.batch_row_count) {
            let now = self.push_rows(lane, rows)?;
            pushed.has_arrived |= now.has_arrived;
            pushed.is_crowded |= now.is_crowded;
        }
        Ok(pushed)
    }

    /// Puts a batch of the usual size on a lane.
    fn push_rows(&self, lane: usize, batch: RecordBatch) -> Result<Pushed> {
        let lane = &self.lanes[lane];
        if lane.lock().is_closed {
            return Ok(Pushed::default());
        }
        let batch = with_small_buffers(with_schema(batch, &self.schema)?)?;
        let bytes = needed_bytes(&batch);
        let mut charge = Charge::adopt(&self.grant, 0);
        let mut lane = lane.lock();
        if lane.is_closed {
            return Ok(Pushed::default());
        }
        let fits = charge.try_grow(bytes);
        if !fits {
            charge.grow(bytes);
        }
        lane.small.push(Held { batch, charge });
        // Where memory is short, rows do not wait for more of them.
        let has_arrived = !fits || lane.small_row_count() >= self.joined_row_count;
        if has_arrived {
            lane.arrive(&self.schema)?;
        }
        Ok(Pushed {
            has_arrived,
            is_crowded: !fits,
        })
    }

    /// Whether every receiver has something to take.
    pub fn is_full(&self) -> bool {
        let lanes = self.lanes.iter().map(|lane| lane.lock());
        lanes
            .filter(|lane| !lane.is_closed)
            .all(|lane| !lane.rows.is_empty() || !lane.spilled.is_empty())
    }

    /// Whether a lane has rows in memory that are worth writing.
    pub fn can_spill(&self) -> bool {
        self.fullest_lane().is_some()
    }

    /// The lane that has most in memory, if that is worth writing.
    fn fullest_lane(&self) -> Option<usize> {
        let lanes = self.lanes.iter().enumerate();
        let sizes = lanes.map(|(number, lane)| (lane.lock().row_bytes(), number));
        let (bytes, number) = sizes.max()?;
        (bytes > LANE_BYTES).then_some(number)
    }

    /// Writes the lane that has most in memory, and tells which one that was. Blocks.
    ///
    /// # Errors
    /// Those of [`SpillFile::write`], and [`Stopped`](crate::OperatorError::Stopped).
    pub fn spill(&self) -> Result<Option<usize>> {
        let Some(number) = self.fullest_lane() else {
            return Ok(None);
        };
        let file = self.file()?;
        // Senders that write at the same time take different rows; those of one sender stay in order, as it waits.
        let mut rows = std::mem::take(&mut self.lanes[number].lock().rows);
        while !rows.is_empty() {
            self.environment.stop.check()?;
            let written: Vec<Held> = rows.drain(..written_together(&rows)).collect();
            let spilled = self.write(&file, &written)?;
            let mut lane = self.lanes[number].lock();
            if !lane.is_closed {
                lane.spilled.push_back(spilled);
            }
        }
        Ok(Some(number))
    }

    fn write(&self, file: &Arc<SpillFile>, rows: &[Held]) -> Result<SpilledBatch> {
        let bytes = bytes_of(rows);
        let mut charge = Charge::adopt(&self.grant, 0);
        // Once more to join them.
        charge.grow(bytes + write_bytes(bytes));
        let batches = rows.iter().map(|held| &held.batch);
        let spilled = file.write(&concat_batches(&self.schema, batches)?)?;
        self.spilled_batch_count.fetch_add(1, Ordering::Relaxed);
        Ok(spilled)
    }

    /// What comes next in a lane. Does not block.
    pub fn take(&self, lane: usize) -> Taken {
        // Read before the lane is: what the last sender left there is seen.
        let has_ended = self.sender_count.load(Ordering::SeqCst) == 0;
        let mut lane = self.lanes[lane].lock();
        if let Some(spilled) = lane.spilled.pop_front() {
            return Taken::Spilled(spilled);
        }
        match lane.rows.pop_front() {
            Some(held) => Taken::Batch(held.batch),
            None if has_ended => Taken::End,
            None => Taken::Nothing,
        }
    }

    /// Rows that were spilled. Blocks.
    ///
    /// # Errors
    /// Those of [`SpilledBatch::read`], and [`Stopped`](crate::OperatorError::Stopped).
    pub fn read(&self, spilled: &SpilledBatch) -> Result<RecordBatch> {
        self.environment.stop.check()?;
        let mut charge = Charge::adopt(&self.grant, 0);
        charge.grow(spilled.read_bytes());
        spilled.read()
    }

    /// A sender has put its last rows. Once all have, receivers find the end behind the rows that remain.
    ///
    /// # Errors
    /// [`Arrow`](crate::OperatorError::Arrow): the last rows could not be joined.
    pub fn end_sender(&self) -> Result<()> {
        for lane in &self.lanes {
            lane.lock().arrive(&self.schema)?;
        }
        self.sender_count.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// A lane has no receiver any more.
    pub fn close(&self, lane: usize) {
        *self.lanes[lane].lock() = Lane {
            is_closed: true,
            ..Lane::default()
        };
    }

    /// What it did so far.
    pub fn stats(&self) -> ExchangeStats {
        ExchangeStats {
            spilled_batch_count: self.spilled_batch_count.load(Ordering::Relaxed),
            used_bytes_max: self.grant.used_bytes_max(),
        }
    }

    fn file(&self) -> Result<Arc<SpillFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let made = self.environment.spill_file(Arc::clone(&self.schema))?;
        Ok(Arc::clone(file.insert(made)))
    }
}

impl Lane {
    fn small_row_count(&self) -> usize {
        let counts = self.small.iter().map(|held| held.batch.num_rows());
        counts.sum()
    }

    /// The memory of rows that are there for the receiver.
    fn row_bytes(&self) -> u64 {
        bytes_of(&self.rows)
    }

    /// Gives the receiver what is small.
    fn arrive(&mut self, schema: &SchemaRef) -> Result<()> {
        let mut small = std::mem::take(&mut self.small);
        if small.len() > 1 {
            let batches = small.iter().map(|held| &held.batch);
            let batch = concat_batches(schema, batches)?;
            let mut charge = small[0].charge.empty();
            charge.grow(needed_bytes(&batch));
            small = vec![Held { batch, charge }];
        }
        self.rows.extend(small);
        Ok(())
    }
}

fn bytes_of<'a>(rows: impl IntoIterator<Item = &'a Held>) -> u64 {
    let bytes = rows.into_iter().map(|held| held.charge.bytes());
    bytes.sum()
}

/// How many of the first batches are written as one.
fn written_together(rows: &VecDeque<Held>) -> usize {
    let mut bytes = 0;
    let fits = |held: &&Held| {
        bytes += held.charge.bytes();
        bytes <= WRITTEN_BYTES
    };
    rows.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use proptest::prelude::*;

    use super::*;
    use crate::memory::FixedPool;
    use crate::memory::testing::FickleBroker;
    use crate::testing::{TestEnvironment, batch};

    /// The numbers of rows in a batch.
    fn numbers(batch: &RecordBatch) -> Vec<i64> {
        let rows = batch.column_by_name("row").unwrap();
        rows.as_primitive::<Int64Type>().values().to_vec()
    }

    fn exchange(test: &TestEnvironment, senders: usize, lanes: usize, rows: usize) -> Exchange {
        let schema = batch(1, 0, 1).schema();
        Exchange::new(&test.environment, "exchange", schema, senders, lanes, rows)
    }

    /// All remaining rows of a receiver.
    fn rest(exchange: &Exchange, lane: usize) -> Vec<i64> {
        let mut rows = Vec::new();
        loop {
            match exchange.take(lane) {
                Taken::Batch(batch) => rows.extend(numbers(&batch)),
                Taken::Spilled(spilled) => rows.extend(numbers(&exchange.read(&spilled).unwrap())),
                Taken::Nothing => std::thread::yield_now(),
                Taken::End => return rows,
            }
        }
    }

    #[test]
    fn what_a_receiver_is_behind_with_is_spilled_and_arrives_in_order() {
        let pool = FixedPool::new(1 << 20);
        let test = TestEnvironment::new(pool.clone());
        let exchange = exchange(&test, 1, 2, 1000);
        for first in (0..100_000).step_by(1000) {
            let pushed = exchange.push(1, batch(1000, first, first as u64)).unwrap();
            if pushed.is_crowded {
                assert_eq!(exchange.spill().unwrap(), Some(1));
            }
            assert!(!exchange.is_full(), "lane 0 is empty");
            assert!(pool.lent_bytes() < 3 << 20, "{}", pool.lent_bytes());
        }
        exchange.push(0, batch(10, 0, 0)).unwrap();
        assert!(!exchange.is_full(), "ten rows wait for more");
        exchange.end_sender().unwrap();
        assert!(exchange.is_full());
        assert_eq!(rest(&exchange, 1), (0..100_000).collect::<Vec<i64>>());
        assert_eq!(rest(&exchange, 0), (0..10).collect::<Vec<i64>>());
        let stats = exchange.stats();
        assert!(stats.spilled_batch_count > 10, "{stats:?}");
        drop(exchange);
        assert_eq!(pool.lent_bytes(), 0);
        assert_eq!(test.environment.spill.stats().used_bytes, 0);
    }

    #[test]
    fn lanes_without_receivers_hold_nothing_and_hold_nobody_up() {
        let pool = FixedPool::new(0);
        let test = TestEnvironment::new(pool.clone());
        let exchange = exchange(&test, 1, 2, 1000);
        let minimum = pool.lent_bytes();
        exchange.push(0, batch(5000, 0, 1)).unwrap();
        assert!(pool.lent_bytes() > minimum);
        exchange.close(0);
        let pushed = exchange.push(0, batch(5000, 0, 1)).unwrap();
        assert!(!pushed.has_arrived && !pushed.is_crowded);
        assert_eq!(pool.lent_bytes(), minimum);
        assert_eq!(exchange.push(1, batch(0, 0, 1)).unwrap(), pushed);
        exchange.push(1, batch(5000, 0, 1)).unwrap();
        assert!(exchange.is_full());
        exchange.close(1);
        assert_eq!(exchange.spill().unwrap(), None);
    }

    #[test]
    fn a_stopped_query_writes_nothing_and_returns_its_memory() {
        let pool = FixedPool::new(0);
        let test = TestEnvironment::new(pool.clone());
        let exchange = exchange(&test, 1, 1, 1000);
        exchange.push(0, batch(5000, 0, 1)).unwrap();
        test.environment.stop.raise();
        exchange.spill().unwrap_err();
        assert_eq!(exchange.stats().spilled_batch_count, 0);
        drop(exchange);
        assert_eq!(pool.lent_bytes(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn every_row_arrives_once_in_its_lane(
            senders in 1usize..4,
            lanes in 1usize..5,
            batch_rows in 1usize..3000,
            sizes in proptest::collection::vec(0usize..4000, 1..30),
            seed: u64,
        ) {
            let broker = FickleBroker::new(1 << 20, seed);
            let test = TestEnvironment::new(broker.clone());
            let exchange = exchange(&test, senders, lanes, batch_rows);
            // Row numbers tell the sender and the lane.
            let first = |sender: usize, number: usize, lane: usize| {
                (sender * 1000 + number) * 8 * 4000 + lane * 4000
            };
            let found = std::thread::scope(|scope| {
                for sender in 0..senders {
                    let (exchange, sizes) = (&exchange, &sizes);
                    scope.spawn(move || {
                        for (number, &size) in sizes.iter().enumerate() {
                            let lane = (number * 7 + sender) % lanes;
                            let rows = batch(size, first(sender, number, lane), number as u64);
                            if exchange.push(lane, rows).unwrap().is_crowded {
                                exchange.spill().unwrap();
                            }
                        }
                        exchange.end_sender().unwrap();
                    });
                }
                let receivers: Vec<_> = (0..lanes)
                    .map(|lane| { let exchange = &exchange; scope.spawn(move || rest(exchange, lane)) })
                    .collect();
                let rows = receivers.into_iter().map(|receiver| receiver.join().unwrap());
                rows.collect::<Vec<_>>()
            });
            for (lane, mut found) in found.into_iter().enumerate() {
                let mut expected = Vec::new();
                for sender in 0..senders {
                    for (number, &size) in sizes.iter().enumerate() {
                        if (number * 7 + sender) % lanes == lane {
                            let first = first(sender, number, lane) as i64;
                            expected.extend(first..first + size as i64);
                        }
                    }
                }
                if senders > 1 {
                    found.sort_unstable();
                }
                prop_assert_eq!(found, expected);
            }
            drop(exchange);
            prop_assert_eq!(broker.lent_bytes(), 0);
        }
    }
}
