//! The thread that tunes a cache while queries run, off their path.

use super::{Tuner, TunerInput, TunerOptions, TunerStep};
use crate::manager::{CacheManager, lent};
use crate::model::{Observation, RunningPipeline};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Observations beyond this wait for no step: the oldest are dropped.
const INBOX_MAX: usize = 65_536;

/// How fast the operators' peak is forgotten, per period.
const PEAK_DECAY: f64 = 0.95;

/// Pipelines that begin or end bring the next step forward, but not closer to the last one than this part of the
/// period. A pipeline that has begun runs for as long first, so that there is something to learn.
const STEPS_PER_PERIOD_MAX: u32 = 10;

/// Tunes a cache at regular intervals, and soon after each pipeline's begin and end. Dropping it ends the thread; the
/// last placement stays in force.
pub struct TunerThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    cache: Weak<CacheManager>,
    tuner: Mutex<Tuner>,
    inbox: Mutex<Vec<Observation>>,
    running: Mutex<Vec<Weak<dyn RunningPipeline>>>,
    signal: Mutex<Signal>,
    wake: Condvar,
    paused: AtomicBool,
    period_ms: AtomicU64,
    started: Instant,
    peaks: Mutex<Peaks>,
}

#[derive(Default)]
struct Signal {
    stop: bool,
    /// A pipeline has ended.
    ended: bool,
    /// When the first pipeline began since the last step.
    begun_at: Option<Instant>,
}

/// The time between a pipeline's begin or end and a step.
fn soon(period: Duration) -> Duration {
    period / STEPS_PER_PERIOD_MAX
}

impl Signal {
    /// When the next step is due.
    fn due(&self, last_step: Instant, period: Duration) -> Instant {
        let soon = soon(period);
        let after_end = self.ended.then_some(last_step + soon);
        let after_begin = self.begun_at.map(|begun_at| begun_at.max(last_step) + soon);
        let at = [after_end, after_begin].into_iter().flatten().min();
        at.map_or(last_step + period, |at| at.min(last_step + period))
    }
}

/// What operators lately needed at most, and when that was last forgotten a little.
struct Peaks {
    operator_bytes: f64,
    decayed_at: Instant,
}

impl TunerThread {
    /// Starts tuning a cache.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(cache: &Arc<CacheManager>, options: TunerOptions) -> std::io::Result<Self> {
        let now = Instant::now();
        let shared = Arc::new(Shared {
            cache: Arc::downgrade(cache),
            period_ms: options.period_ms.into(),
            tuner: Mutex::new(Tuner::new(options)),
            inbox: Mutex::default(),
            running: Mutex::default(),
            signal: Mutex::default(),
            wake: Condvar::new(),
            paused: false.into(),
            started: now,
            peaks: Mutex::new(Peaks {
                operator_bytes: 0.0,
                decayed_at: now,
            }),
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

    /// Hands in an observation; it counts from the next step on. Cheap. Finished runs bring that step forward.
    pub fn observe(&self, observation: Observation) {
        let finished = observation.finished;
        let mut inbox = self.shared.inbox.lock();
        if inbox.len() >= INBOX_MAX {
            inbox.drain(..INBOX_MAX / 2);
        }
        inbox.push(observation);
        drop(inbox);
        if finished {
            self.shared.signal.lock().ended = true;
            self.shared.wake.notify_all();
        }
    }

    /// Asks a pipeline how it is doing at each step, as long as it lives; for the first time soon after this call.
    pub fn watch(&self, pipeline: Weak<dyn RunningPipeline>) {
        self.shared.running.lock().push(pipeline);
        let mut signal = self.shared.signal.lock();
        signal.begun_at.get_or_insert_with(Instant::now);
        drop(signal);
        self.shared.wake.notify_all();
    }

    /// Takes a step now, for example at the end of a query, instead of waiting for the next period.
    pub fn step_now(&self) {
        self.shared.step();
    }

    /// Stops tuning, or goes on. Meanwhile the last placement stands and what pipelines do is not learned.
    pub fn set_paused(&self, paused: bool) {
        self.shared.paused.store(paused, Relaxed);
    }

    /// Whether tuning is stopped.
    pub fn is_paused(&self) -> bool {
        self.shared.paused.load(Relaxed)
    }

    /// Forgets all that was learned and publishes an empty placement, as if the cache had been made now.
    pub fn forget(&self) {
        let Some(cache) = self.shared.cache.upgrade() else {
            return;
        };
        let mut tuner = self.shared.tuner.lock();
        self.shared.inbox.lock().clear();
        tuner.forget(self.shared.now_ns(), cache.storage_progress());
        cache.set_placement(crate::Placement::default());
        cache.price_board().publish(&tuner.prices());
        cache.market().appraise(None);
    }

    /// Changes the options; the next step follows them.
    pub fn configure(&self, change: impl FnOnce(&mut TunerOptions)) {
        let mut tuner = self.shared.tuner.lock();
        let mut options = tuner.options().clone();
        change(&mut options);
        self.shared.period_ms.store(options.period_ms, Relaxed);
        tuner.configure(options);
    }

    /// Looks at the tuner, for its rows and statistics. Do not hold on to it: the next step waits.
    pub fn inspect<T>(&self, look: impl FnOnce(&Tuner) -> T) -> T {
        look(&self.shared.tuner.lock())
    }

    /// Looks at the tuner unless it is at work; for those who cannot wait.
    pub fn try_inspect<T>(&self, look: impl FnOnce(&Tuner) -> T) -> Option<T> {
        let tuner = self.shared.tuner.try_lock()?;
        Some(look(&tuner))
    }
}

impl Drop for TunerThread {
    fn drop(&mut self) {
        self.shared.signal.lock().stop = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic of the tuner has been printed; queries go on without it
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut signal = self.signal.lock();
        while self.sleep(&mut signal) {
            MutexGuard::unlocked(&mut signal, || self.step());
        }
    }

    /// Waits until the next step is due. False: there is none.
    fn sleep(&self, signal: &mut MutexGuard<'_, Signal>) -> bool {
        let last_step = Instant::now();
        while !signal.stop {
            let (now, due) = (Instant::now(), signal.due(last_step, self.period()));
            if now >= due {
                signal.ended = false;
                let soon = soon(self.period());
                signal.begun_at = signal.begun_at.filter(|begun_at| *begun_at + soon > now);
                return true;
            }
            self.wake.wait_until(signal, due);
        }
        false
    }

    fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms.load(Relaxed).clamp(1, 3_600_000))
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn step(&self) {
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        let begun = Instant::now();
        let under_way = self.ask_running();
        if self.paused.load(Relaxed) {
            self.inbox.lock().clear();
            return;
        }
        let mut tuner = self.tuner.lock();
        let mut observations = std::mem::take(&mut *self.inbox.lock());
        observations.extend(under_way);
        let use_s = match observations.is_empty() {
            true => cache.clock().now_s(),
            false => cache.clock().note_use(),
        };
        let (sizes, resident) = (cache.column_sizes(), cache.resident_bytes());
        let uses = cache.uses();
        let held_bytes = lent(&uses).map(|item| item.held_bytes).sum();
        let input = TunerInput {
            observations: &observations,
            storage: cache.storage_progress(),
            sizes: &sizes,
            resident: &resident,
            capacity_bytes: self.capacity_bytes(&cache, held_bytes),
            policy: cache.policy(),
            between: &[],
            uses: &uses,
            use_s,
        };
        let solving = Instant::now();
        let step = tuner.step(self.now_ns(), &input);
        if !matches!(step, TunerStep::Failed(_)) {
            // Solved, or found to hold still.
            cache.price_board().publish(&tuner.prices());
        }
        match step {
            TunerStep::Skipped => {}
            TunerStep::Placed(placement) => {
                tuner.note_solve_ns(nanos(solving));
                cache.set_placement(placement);
            }
            TunerStep::Failed(error) => {
                tracing::warn!(%error, "tuning failed; the last placement stays in force");
            }
        }
        cache.market().appraise(tuner.appraisal());
        cache.note_holdings(&resident, &uses);
        tuner.note_step_ns(nanos(begun));
    }

    /// What the pipelines that run now did so far. Those that are gone are forgotten.
    fn ask_running(&self) -> Vec<Observation> {
        let mut alive = Vec::new();
        self.running.lock().retain(|pipeline| {
            let pipeline = pipeline.upgrade();
            let is_alive = pipeline.is_some();
            alive.extend(pipeline);
            is_alive
        });
        // Outside the lock: dropping the last reference drops a whole scan.
        alive
            .iter()
            .filter_map(|pipeline| pipeline.observe())
            .collect()
    }

    /// What may be kept, with the operators at their recent peak. Lenders' items, which are charged as operators',
    /// compete for it.
    fn capacity_bytes(&self, cache: &CacheManager, held_bytes: u64) -> u64 {
        let budget = cache.budget();
        let now = budget.snapshot();
        let mut peaks = self.peaks.lock();
        if peaks.decayed_at.elapsed() >= self.period() {
            peaks.decayed_at = Instant::now();
            peaks.operator_bytes *= PEAK_DECAY;
            budget.decay_transit();
        }
        let operator_bytes = now.operator_bytes.saturating_sub(held_bytes);
        peaks.operator_bytes = peaks.operator_bytes.max(operator_bytes as f64);
        now.limit_bytes
            .saturating_sub(budget.transit_bytes())
            .saturating_sub(peaks.operator_bytes as u64)
    }
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_and_ends_of_pipelines_bring_the_next_step_forward() {
        let (last_step, period) = (Instant::now(), Duration::from_millis(200));
        let due_ms = |ended, begun_ms: Option<u64>| {
            let begun_at = begun_ms.map(|ms| last_step + Duration::from_millis(ms));
            let signal = Signal {
                ended,
                begun_at,
                ..Signal::default()
            };
            signal
                .due(last_step, period)
                .duration_since(last_step)
                .as_millis()
        };
        assert_eq!(due_ms(false, None), 200);
        assert_eq!(due_ms(true, None), 20);
        assert_eq!(due_ms(false, Some(50)), 70);
        assert_eq!(due_ms(true, Some(50)), 20);
        assert_eq!(due_ms(false, Some(190)), 200);
    }
}
