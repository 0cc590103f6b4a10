//! Signals: the first Ctrl-C ends the work cleanly, the second ends the program; what else ends a program ends
//! it after cleaning up.
//!
//! Signals arrive on a thread of their own with its own runtime, so that no operator can keep them waiting.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hotshelf::Database;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::failure::{Failure, Result, note};

/// What is being ended may take this long to clean up by itself. People take 200 ms for at once.
pub const PATIENCE: Duration = Duration::from_millis(40);
/// After this time the program ends even if the work has not let go.
const GRACE: Duration = Duration::from_millis(120);
/// Opening a database may keep a signal waiting for this long.
const HELD_MAX: Duration = Duration::from_millis(500);
/// A signal's exit code is its number and this.
const SIGNAL_CODE: i32 = 128;
/// What ends the program, and its names.
const SIGNALS: [(SignalKind, &str); 4] = [
    (SignalKind::interrupt(), "interrupted"),
    (SignalKind::terminate(), "ended by SIGTERM"),
    (SignalKind::hangup(), "ended by SIGHUP"),
    (SignalKind::quit(), "ended by SIGQUIT"),
];

static STATE: Mutex<State> = Mutex::new(State {
    work: None,
    at_prompt: false,
    interrupted: false,
    held: false,
    ending: false,
    is_reported: false,
    undo_count: 0,
    undos: BTreeMap::new(),
});

/// Undoes what must not remain if the program ends here; it may wait this long for others.
type Undo = Box<dyn FnOnce(Duration) + Send>;

struct State {
    /// What Ctrl-C stops, if anything runs.
    work: Option<Work>,
    /// Ctrl-C ends statements, not the program.
    at_prompt: bool,
    /// A signal has stopped something.
    interrupted: bool,
    /// Something is being made that is not yet known to `undos`.
    held: bool,
    /// The program is about to end on the signals' thread.
    ending: bool,
    /// A message about it was printed.
    is_reported: bool,
    undo_count: u64,
    undos: BTreeMap<u64, Undo>,
}

enum Work {
    /// Hears of the first Ctrl-C and is dropped.
    Dropped(oneshot::Sender<()>),
    /// Looks at a flag now and then, and may take its time.
    Asked(Arc<AtomicBool>),
    /// Has been stopped and is not yet done.
    Stopping,
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to receive signals. Until then they end the program without cleaning up.
pub fn listen() -> Result<()> {
    let failure = || Failure::io("listen to", Path::new("signals"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failure())?;
    let listener = Listener::new(runtime).map_err(failure())?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let started = thread.spawn(move || listener.listen());
    started.map(drop).map_err(failure())
}

/// Runs `work` in the database until it is done or Ctrl-C is pressed; then it is dropped, which cancels queries
/// and takes imports back.
pub fn run<T>(database: &Database, work: impl Future<Output = Result<T>>) -> Result<T> {
    let (stop, stopped) = oneshot::channel();
    state().work = Some(Work::Dropped(stop));
    let done = database.block_on(async {
        tokio::select! {
            biased;
            Ok(()) = stopped => Err(Failure::Interrupted),
            done = work => done,
        }
    });
    // Ctrl-C may have come after the work's last step.
    let ended = state().work.take();
    wait_if_ending();
    match ended {
        Some(Work::Stopping) => Err(Failure::Interrupted),
        _ => done,
    }
}

/// Leaves it to the signals' thread to end the program, if it is about to: it knows the exit code, and what is
/// being cleaned up is not to be reported as a failure.
pub fn wait_if_ending() {
    while state().ending {
        std::thread::park();
    }
}

/// A flag that Ctrl-C raises, for work that looks at it now and then.
pub fn flag() -> Arc<AtomicBool> {
    let raised = Arc::new(AtomicBool::new(false));
    state().work = Some(Work::Asked(raised.clone()));
    raised
}

/// From now on Ctrl-C ends statements, not the program.
pub fn stay_at_prompt() {
    state().at_prompt = true;
}

/// Whether a signal has stopped something, whose threads may still be busy.
pub fn has_stopped_work() -> bool {
    state().interrupted
}

/// Whether to print that the user interrupted something: once per program, but each time at a prompt. A call counts
/// as printed.
pub fn take_report() -> bool {
    let mut state = state();
    !std::mem::replace(&mut state.is_reported, true) || state.at_prompt
}

/// Something to take back if a signal ends the program. Dropping it forgets it.
pub struct AtSignal(u64);

impl AtSignal {
    /// Remembers what to do then.
    pub fn new(undo: impl FnOnce(Duration) + Send + 'static) -> Self {
        let mut state = state();
        state.undo_count += 1;
        let number = state.undo_count;
        state.undos.insert(number, Box::new(undo));
        Self(number)
    }
}

impl Drop for AtSignal {
    fn drop(&mut self) {
        // What it holds is dropped without the lock.
        let undo = state().undos.remove(&self.0);
        drop(undo);
    }
}

/// Keeps signals from ending the program, for a moment, until what is being made is known to an [`AtSignal`].
pub struct Held(());

impl Held {
    /// From now on.
    pub fn hold() -> Self {
        state().held = true;
        Self(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        state().held = false;
        wait_if_ending();
    }
}

/// The thread that signals arrive on.
struct Listener {
    runtime: Runtime,
    signals: Vec<Signal>,
}

impl Listener {
    fn new(runtime: Runtime) -> io::Result<Self> {
        let entered = runtime.enter();
        let signals = SIGNALS.iter().map(|(kind, _)| signal(*kind));
        let signals = signals.collect::<io::Result<_>>()?;
        drop(entered);
        Ok(Self { runtime, signals })
    }

    fn listen(mut self) {
        loop {
            let idx = self.next();
            if idx > 0 {
                self.end(idx, PATIENCE);
            }
            match press() {
                Press::Stopped | Press::Nothing => {}
                Press::StoppedProgram => {
                    let second = self.next_within(GRACE).unwrap_or(0);
                    self.end(second, Duration::ZERO);
                }
                Press::Again => self.end(idx, Duration::ZERO),
                Press::Idle => self.end(idx, PATIENCE),
            }
        }
    }

    /// The next signal, as its place in [`SIGNALS`].
    fn next(&mut self) -> usize {
        let signals = self
            .signals
            .iter_mut()
            .map(|signal| Box::pin(signal.recv()));
        let next = futures::future::select_all(signals);
        self.runtime.block_on(next).1
    }

    fn next_within(&mut self, time: Duration) -> Option<usize> {
        let signals = self
            .signals
            .iter_mut()
            .map(|signal| Box::pin(signal.recv()));
        let next = futures::future::select_all(signals);
        let next = self
            .runtime
            .block_on(async { tokio::time::timeout(time, next).await });
        next.ok().map(|(_, idx, _)| idx)
    }

    /// Cleans up and ends the program. A further signal ends it at once.
    fn end(&mut self, idx: usize, patience: Duration) -> ! {
        let (kind, name) = SIGNALS[idx];
        let code = SIGNAL_CODE + kind.as_raw_value();
        let (done, cleaned) = oneshot::channel();
        state().ending = true;
        std::thread::spawn(move || {
            stop_work(patience);
            let undos = std::mem::take(&mut state().undos);
            undos.into_values().rev().for_each(|undo| undo(patience));
            if take_report() {
                note(&format!("error: {name}"));
            }
            done.send(()).ok();
        });
        let signals = self
            .signals
            .iter_mut()
            .map(|signal| Box::pin(signal.recv()));
        let further = futures::future::select_all(signals);
        self.runtime.block_on(async {
            tokio::select! {
                _ = cleaned => {}
                _ = further => {}
            }
        });
        std::process::exit(code)
    }
}

/// What a Ctrl-C has met.
enum Press {
    /// Work that ends and leaves the program running, or that takes its time.
    Stopped,
    /// Work that ends, and the program with it.
    StoppedProgram,
    /// Work that was already asked to end.
    Again,
    /// A program that does nothing that could be stopped.
    Idle,
    /// A prompt.
    Nothing,
}

/// Stops what runs.
fn press() -> Press {
    let mut state = state();
    match state.work.take() {
        Some(Work::Dropped(stop)) => {
            stop.send(()).ok();
            state.work = Some(Work::Stopping);
            state.interrupted = true;
            match state.at_prompt {
                true => Press::Stopped,
                false => Press::StoppedProgram,
            }
        }
        Some(Work::Asked(flag)) => match flag.swap(true, Ordering::Relaxed) {
            true => Press::Again,
            false => {
                state.work = Some(Work::Asked(flag));
                Press::Stopped
            }
        },
        Some(Work::Stopping) => Press::Again,
        None if state.at_prompt => Press::Nothing,
        None => Press::Idle,
    }
}

/// Stops what runs and waits for its end, but not longer than `patience`.
fn stop_work(patience: Duration) {
    let started = Instant::now();
    press();
    let is_busy = || {
        let state = state();
        match state.held {
            true => started.elapsed() < HELD_MAX,
            false => matches!(state.work, Some(Work::Stopping)) && started.elapsed() < patience,
        }
    };
    while is_busy() {
        std::thread::sleep(Duration::from_millis(2));
    }
}
