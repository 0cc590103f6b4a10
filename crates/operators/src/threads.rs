//! Work that several threads share while one waits for it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;

use parking_lot::{Condvar, Mutex};

use crate::Result;

/// Does the same on several threads, or on as many as the system lets it start; what each has come to.
pub(crate) fn on_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let start = |_| Builder::new().spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mine = work();
        let others = others.into_iter().map(|other| other.join());
        let others =
            others.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        std::iter::once(mine).chain(others).collect()
    })
}

/// Threads make pieces with the numbers from 0 to `count` side by side; `take` gets them in order, one at a time. Each
/// thread has at most one piece.
///
/// # Errors
/// The first one of `make` and `take`. Then no more pieces are begun or taken.
pub(crate) fn in_turns<T>(
    threads: usize,
    count: usize,
    make: impl Fn(usize) -> Result<T> + Sync,
    take: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let turns = Turns {
        state: Mutex::new(State {
            piece: 0,
            has_failed: false,
            take,
        }),
        changed: Condvar::new(),
    };
    let work = || loop {
        let piece = next.fetch_add(1, Relaxed);
        if piece >= count || !turns.give(piece, || make(piece))? {
            return Ok(());
        }
    };
    on_threads(threads, work).into_iter().collect()
}

struct Turns<F> {
    state: Mutex<State<F>>,
    changed: Condvar,
}

struct State<F> {
    /// The piece that is taken next.
    piece: usize,
    has_failed: bool,
    take: F,
}

impl<F> Turns<F> {
    /// Makes a piece, and has it taken when those before it have been. False: something else has failed.
    fn give<T>(&self, piece: usize, make: impl FnOnce() -> Result<T>) -> Result<bool>
    where
        F: FnMut(T) -> Result<()>,
    {
        let mut outcome = Outcome {
            turns: self,
            is_good: false,
        };
        let made = make()?;
        let mut state = self.state.lock();
        while state.piece != piece && !state.has_failed {
            self.changed.wait(&mut state);
        }
        if !state.has_failed {
            (state.take)(made)?;
            state.piece += 1;
            self.changed.notify_all();
        }
        outcome.is_good = true;
        Ok(!state.has_failed)
    }
}

/// Tells the other threads if this one fails, in whatever way, as they would wait for its piece.
struct Outcome<'a, F> {
    turns: &'a Turns<F>,
    is_good: bool,
}

impl<F> Drop for Outcome<'_, F> {
    fn drop(&mut self) {
        if !self.is_good {
            self.turns.state.lock().has_failed = true;
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OperatorError;

    #[test]
    fn pieces_are_taken_in_order() {
        for threads in [1, 2, 7] {
            let mut taken = Vec::new();
            let make = |piece: usize| {
                if piece.is_multiple_of(5) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Ok(piece)
            };
            let take = |piece| {
                taken.push(piece);
                Ok(())
            };
            in_turns(threads, 100, make, take).unwrap();
            assert!(taken.into_iter().eq(0..100));
        }
    }

    #[test]
    fn a_failure_ends_all_threads() {
        for threads in [1, 2, 7] {
            let mut taken = 0;
            let make = |piece: usize| match piece {
                20 => Err(OperatorError::Stopped),
                piece => Ok(piece),
            };
            let take = |_| {
                taken += 1;
                Ok(())
            };
            assert!(in_turns(threads, 100, make, take).is_err());
            assert!(taken <= 20);
            let take = |piece| match piece {
                20 => Err(OperatorError::Stopped),
                _ => Ok(()),
            };
            assert!(in_turns(threads, 100, Ok, take).is_err());
        }
    }

    #[test]
    #[should_panic(expected = "piece 20")]
    fn a_panic_ends_all_threads() {
        let make = |piece: usize| {
            assert_ne!(piece, 20, "piece 20");
            Ok(piece)
        };
        let _ = in_turns(3, 100, make, |_| Ok(()));
    }
}
