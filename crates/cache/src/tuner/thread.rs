//! The thread that tunes a cache while queries run, off their path.

use super::{Tuner, TunerInput, TunerOptions, TunerStep};
use crate::manager::CacheManager;
use crate::model::Observation;
use parking_lot::{Condvar, Mutex};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Observations beyond this wait for no step: the oldest are dropped.
const INBOX_MAX: usize = 65_536;

/// How fast the operators' peak is forgotten, per step.
const PEAK_DECAY: f64 = 0.95;

/// Tunes a cache every so often. Dropping it ends the thread; the last placement stays in force.
pub struct TunerThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    cache: Weak<CacheManager>,
    tuner: Mutex<Tuner>,
    inbox: Mutex<Vec<Observation>>,
    stop: Mutex<bool>,
    wake: Condvar,
    started: Instant,
    operator_peak_bytes: Mutex<f64>,
    period: Duration,
}

impl TunerThread {
    /// Starts tuning a cache.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(cache: &Arc<CacheManager>, options: TunerOptions) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            cache: Arc::downgrade(cache),
            period: Duration::from_millis(options.period_ms.max(1)),
            tuner: Mutex::new(Tuner::new(options)),
            inbox: Mutex::default(),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            started: Instant::now(),
            operator_peak_bytes: Mutex::new(0.0),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("hotshelf-tuner".into())
            .spawn(move || of_thread.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Hands in an observation; it counts from the next step on. Cheap.
    pub fn observe(&self, observation: Observation) {
        let mut inbox = self.shared.inbox.lock();
        if inbox.len() >= INBOX_MAX {
            inbox.drain(..INBOX_MAX / 2);
        }
        inbox.push(observation);
    }

    /// Takes a step now, for example at the end of a query, instead of waiting for the next period.
    pub fn step_now(&self) {
        self.shared.step();
    }

    /// Looks at the tuner, for its rows and statistics. Do not hold on to it: the next step waits.
    pub fn inspect<T>(&self, look: impl FnOnce(&Tuner) -> T) -> T {
        look(&self.shared.tuner.lock())
    }
}

impl Drop for TunerThread {
    fn drop(&mut self) {
        *self.shared.stop.lock() = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic of the tuner has been printed; queries go on without it
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut stop = self.stop.lock();
        while !*stop {
            let timed_out = self.wake.wait_for(&mut stop, self.period).timed_out();
            if *stop {
                return;
            }
            if timed_out {
                parking_lot::MutexGuard::unlocked(&mut stop, || self.step());
            }
        }
    }

    fn step(&self) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        let mut tuner = self.tuner.lock();
        let observations = std::mem::take(&mut *self.inbox.lock());
        let sizes = cache.column_sizes();
        let begun = Instant::now();
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let input = TunerInput {
            observations: &observations,
            storage: cache.storage_progress(),
            sizes: &sizes,
            capacity_bytes: self.capacity_bytes(&cache),
            policy: cache.policy(),
        };
        match tuner.step(now_ns, &input) {
            TunerStep::Skipped => {}
            TunerStep::Placed(placement) => {
                let solve_ns = begun.elapsed().as_nanos();
                tuner.note_solve_ns(u64::try_from(solve_ns).unwrap_or(u64::MAX));
                cache.set_placement(placement);
            }
            TunerStep::Failed(error) => {
                tracing::warn!(%error, "tuning failed; the last placement stays in force");
            }
        }
    }

    /// What may be kept, with the operators at their recent peak, and without metadata.
    fn capacity_bytes(&self, cache: &CacheManager) -> u64 {
        let budget = cache.budget();
        budget.decay_transit();
        let now = budget.snapshot();
        let mut peak = self.operator_peak_bytes.lock();
        *peak = (*peak * PEAK_DECAY).max(now.operator_bytes as f64);
        now.limit_bytes
            .saturating_sub(budget.transit_bytes())
            .saturating_sub(*peak as u64)
            .saturating_sub(now.metadata_bytes)
    }
}
