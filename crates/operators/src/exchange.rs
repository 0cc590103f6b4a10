//! Rows on their way from some threads to others.
//!
//! An [`Exchange`] has a lane for each receiver. Senders put batches on lanes without waiting. Small batches are joined
//! there, and a lane that its receiver is behind with is spilled when memory is short. Rows of one sender keep their
//! order in a lane. A sender should pause while the exchange [is full](Exchange::is_full): then every receiver has
//! something to do. As long as one has nothing, the others' lanes grow, on disk in the end, so that nothing deadlocks
//! whatever the order in which receivers take their rows.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use parking_lot::Mutex;

use crate::batches::{needed_bytes, with_schema, with_small_buffers};
use crate::memory::Grant;
use crate::spill::{SpillFile, SpillFolder, SpilledBatch, write_bytes};
use crate::{Environment, Result, Stop};

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
    folder: Arc<SpillFolder>,
    stop: Stop,
    /// One for each receiver.
    lanes: Vec<Mutex<Lane>>,
    batch_row_count: usize,
    /// Fewer rows wait for more of them.
    joined_row_count: usize,
    /// Is made when something is spilled first.
    file: Mutex<Option<Arc<SpillFile>>>,
    sender_count: AtomicUsize,
    spilled_batch_count: AtomicU64,
    spilled_bytes: AtomicU64,
}

struct Lane {
    /// Rows that are too few yet, or none.
    small: Vec<RecordBatch>,
    small_row_count: usize,
    /// What the grant lends for `small`, in bytes.
    small_bytes: u64,
    rows: VecDeque<Held>,
    /// What the grant lends for `rows`, in bytes.
    rows_bytes: u64,
    /// Whether there is a receiver.
    is_open: bool,
}

enum Held {
    Batch { batch: RecordBatch, bytes: u64 },
    Spilled(SpilledBatch),
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
    /// Their bytes in memory.
    pub spilled_bytes: u64,
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
        let lane = || Lane {
            small: Vec::new(),
            small_row_count: 0,
            small_bytes: 0,
            rows: VecDeque::new(),
            rows_bytes: 0,
            is_open: true,
        };
        Self {
            lanes: (0..lane_count).map(|_| Mutex::new(lane())).collect(),
            schema,
            batch_row_count: batch_row_count.max(1),
            joined_row_count: (JOINED_ROWS / lane_count.max(1)).min(batch_row_count / 2),
            grant: Arc::new(Grant::open(&*environment.broker, name, minimum_bytes)),
            folder: Arc::clone(&environment.spill),
            stop: environment.stop.clone(),
            file: Mutex::default(),
            sender_count: AtomicUsize::new(sender_count),
            spilled_batch_count: AtomicU64::new(0),
            spilled_bytes: AtomicU64::new(0),
        }
    }

    /// Puts rows on a lane. Does not block. What has no receiver any more is dropped.
    ///
    /// # Errors
    /// [`Arrow`](crate::OperatorError::Arrow) for rows of another schema.
    pub fn push(&self, lane: usize, batch: RecordBatch) -> Result<Pushed> {
        let mut pushed = Pushed::default();
        let starts = (0..batch.num_rows()).step_by(self.batch_row_count);
        for start in starts {
            let rows = self.batch_row_count.min(batch.num_rows() - start);
            let now = self.push_rows(lane, batch.slice(start, rows))?;
            pushed.has_arrived |= now.has_arrived;
            pushed.is_crowded |= now.is_crowded;
        }
        Ok(pushed)
    }

    /// Puts a batch of the usual size on a lane.
    fn push_rows(&self, lane: usize, batch: RecordBatch) -> Result<Pushed> {
        let lane = &self.lanes[lane];
        if !lane.lock().is_open {
            return Ok(Pushed::default());
        }
        let batch = with_small_buffers(with_schema(batch, &self.schema)?)?;
        let bytes = needed_bytes(&batch);
        let mut lane = lane.lock();
        if !lane.is_open {
            return Ok(Pushed::default());
        }
        let fits = self.grant.try_grow(bytes);
        if !fits {
            self.grant.grow(bytes);
        }
        lane.small_bytes += bytes;
        lane.small_row_count += batch.num_rows();
        lane.small.push(batch);
        // Where memory is short, rows do not wait for more of them.
        let has_arrived = !fits || lane.small_row_count >= self.joined_row_count;
        if has_arrived {
            lane.arrive(&self.schema, &self.grant)?;
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
            .filter(|lane| lane.is_open)
            .all(|lane| !lane.rows.is_empty())
    }

    /// Whether a lane has rows in memory that are worth writing.
    pub fn can_spill(&self) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.any(|lane| lane.lock().rows_bytes > LANE_BYTES)
    }

    /// Writes the lane that has most in memory, and tells which one that was. Blocks.
    ///
    /// # Errors
    /// Those of [`SpillFile::write`], and [`Stopped`](crate::OperatorError::Stopped).
    pub fn spill(&self) -> Result<Option<usize>> {
        let lanes = self.lanes.iter().enumerate();
        let sizes = lanes.map(|(number, lane)| (lane.lock().rows_bytes, number));
        let Some((bytes, number)) = sizes.max() else {
            return Ok(None);
        };
        if bytes <= LANE_BYTES {
            return Ok(None);
        }
        let file = self.file()?;
        // Senders that write at the same time take different rows; those of one sender stay in order, as it waits.
        let taken = self.lanes[number].lock().take_unspilled();
        let mut taken = Returned {
            grant: &self.grant,
            rows: taken,
        };
        while let Some((count, bytes)) = taken.written_next() {
            self.stop.check()?;
            // Once more to join them.
            let write_bytes = bytes + write_bytes(bytes);
            self.grant.grow(write_bytes);
            let batches = taken.rows.iter().take(count).map(|(batch, _)| batch);
            let written = concat_batches(&self.schema, batches)
                .map_err(Into::into)
                .and_then(|batch| file.write(&batch));
            self.grant.shrink(write_bytes);
            let spilled = written?;
            self.spilled_batch_count.fetch_add(1, Ordering::Relaxed);
            self.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
            (0..count).for_each(|_| taken.pop());
            let mut lane = self.lanes[number].lock();
            if lane.is_open {
                lane.rows.push_back(Held::Spilled(spilled));
            }
        }
        Ok(Some(number))
    }

    /// What comes next in a lane. Does not block.
    pub fn take(&self, lane: usize) -> Taken {
        // Read before the lane is: what the last sender left there is seen.
        let has_ended = self.sender_count.load(Ordering::SeqCst) == 0;
        let mut lane = self.lanes[lane].lock();
        match lane.rows.pop_front() {
            Some(Held::Batch { batch, bytes }) => {
                lane.rows_bytes -= bytes;
                self.grant.shrink(bytes);
                Taken::Batch(batch)
            }
            Some(Held::Spilled(spilled)) => Taken::Spilled(spilled),
            None if has_ended => Taken::End,
            None => Taken::Nothing,
        }
    }

    /// Rows that were spilled. Blocks.
    ///
    /// # Errors
    /// Those of [`SpilledBatch::read`], and [`Stopped`](crate::OperatorError::Stopped).
    pub fn read(&self, spilled: &SpilledBatch) -> Result<RecordBatch> {
        self.stop.check()?;
        let bytes = spilled.read_bytes();
        self.grant.grow(bytes);
        let batch = spilled.read();
        self.grant.shrink(bytes);
        batch
    }

    /// A sender has put its last rows. Once all have, receivers find the end behind the rows that remain.
    ///
    /// # Errors
    /// [`Arrow`](crate::OperatorError::Arrow): the last rows could not be joined.
    pub fn end_sender(&self) -> Result<()> {
        for lane in &self.lanes {
            let mut lane = lane.lock();
            lane.arrive(&self.schema, &self.grant)?;
        }
        self.sender_count.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    /// A lane has no receiver any more.
    pub fn close(&self, lane: usize) {
        let mut lane = self.lanes[lane].lock();
        self.grant.shrink(lane.rows_bytes + lane.small_bytes);
        *lane = Lane {
            small: Vec::new(),
            small_row_count: 0,
            small_bytes: 0,
            rows: VecDeque::new(),
            rows_bytes: 0,
            is_open: false,
        };
    }

    /// What it did so far.
    pub fn stats(&self) -> ExchangeStats {
        ExchangeStats {
            spilled_batch_count: self.spilled_batch_count.load(Ordering::Relaxed),
            spilled_bytes: self.spilled_bytes.load(Ordering::Relaxed),
            used_bytes_max: self.grant.used_bytes_max(),
        }
    }

    fn file(&self) -> Result<Arc<SpillFile>> {
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let made = self.folder.create_file(Arc::clone(&self.schema))?;
        Ok(Arc::clone(file.insert(made)))
    }
}

impl Lane {
    /// Gives the receiver what is small.
    fn arrive(&mut self, schema: &SchemaRef, grant: &Grant) -> Result<()> {
        let small = std::mem::take(&mut self.small);
        let charged = std::mem::take(&mut self.small_bytes);
        self.small_row_count = 0;
        grant.shrink(charged);
        let batch = match <[RecordBatch; 1]>::try_from(small) {
            Ok([batch]) => batch,
            Err(small) if small.is_empty() => return Ok(()),
            Err(small) => concat_batches(schema, &small)?,
        };
        let bytes = needed_bytes(&batch);
        grant.grow(bytes);
        self.rows_bytes += bytes;
        self.rows.push_back(Held::Batch { batch, bytes });
        Ok(())
    }

    /// The rows in memory. Those of a sender that is alone come after all that were spilled.
    fn take_unspilled(&mut self) -> VecDeque<(RecordBatch, u64)> {
        let mut taken = VecDeque::new();
        let mut spilled = VecDeque::new();
        for held in self.rows.drain(..) {
            match held {
                Held::Batch { batch, bytes } => taken.push_back((batch, bytes)),
                Held::Spilled(_) => spilled.push_back(held),
            }
        }
        (self.rows, self.rows_bytes) = (spilled, 0);
        taken
    }
}

/// Rows on their way to disk, whose memory is returned however that ends.
struct Returned<'a> {
    grant: &'a Grant,
    rows: VecDeque<(RecordBatch, u64)>,
}

impl Returned<'_> {
    /// How many batches are written as one, and their bytes.
    fn written_next(&self) -> Option<(usize, u64)> {
        let mut bytes = self.rows.front()?.1;
        let mut count = 1;
        for (_, more) in self.rows.iter().skip(1) {
            if bytes + more > WRITTEN_BYTES {
                break;
            }
            (bytes, count) = (bytes + more, count + 1);
        }
        Some((count, bytes))
    }

    fn pop(&mut self) {
        if let Some((_, bytes)) = self.rows.pop_front() {
            self.grant.shrink(bytes);
        }
    }
}

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        while !self.rows.is_empty() {
            self.pop();
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        for lane in &mut self.lanes {
            let lane = lane.get_mut();
            self.grant.shrink(lane.rows_bytes + lane.small_bytes);
        }
    }
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
