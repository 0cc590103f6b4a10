//! Of the workers of a scan, one at a time looks for more row groups, while the others take those that are ready.

use tokio::sync::MutexGuard;

/// What a worker does next.
pub(super) enum Turn<'a, M, D> {
    /// It takes what is ready.
    Work(M),
    /// It looks for more. No other worker does so meanwhile.
    Discover(MutexGuard<'a, D>),
}

/// Lets one worker look for more, while the others take what is ready or wait.
pub(super) async fn turn<M, D>(
    discovery: &tokio::sync::Mutex<D>,
    next_ready: impl Fn() -> Option<M>,
) -> Turn<'_, M, D> {
    if let Ok(discovery) = discovery.try_lock() {
        return Turn::Discover(discovery);
    }
    if let Some(morsel) = next_ready() {
        return Turn::Work(morsel);
    }
    // Who has waited for the lock keeps it: two workers that give it back and try again hand it to each other without
    // end.
    let discovery = discovery.lock().await;
    match next_ready() {
        Some(morsel) => Turn::Work(morsel),
        None => Turn::Discover(discovery),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use parking_lot::Mutex;

    #[test]
    fn of_workers_that_wait_the_first_looks_for_more() {
        let discovery = tokio::sync::Mutex::new(());
        let held = discovery.try_lock().unwrap();
        let nothing_ready = || None::<()>;
        let mut first = pin!(turn(&discovery, nothing_ready));
        let mut second = pin!(turn(&discovery, nothing_ready));
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(held);
        let looks_for_more = |turn| matches!(turn, Poll::Ready(Turn::Discover(_)));
        assert!(looks_for_more(first.as_mut().poll(&mut context)));
        assert!(looks_for_more(second.as_mut().poll(&mut context)));
    }

    #[test]
    fn what_became_ready_is_taken_by_who_waited() {
        let discovery = tokio::sync::Mutex::new(());
        let ready = Mutex::new(None);
        let held = discovery.try_lock().unwrap();
        let mut waiting = pin!(turn(&discovery, || ready.lock().take()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        *ready.lock() = Some(7);
        drop(held);
        let taken = waiting.as_mut().poll(&mut context);
        assert!(matches!(taken, Poll::Ready(Turn::Work(7))));
    }
}
