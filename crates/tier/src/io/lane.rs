//! The queue between callers and the I/O thread (or threads) that serve them.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::request::Read;
use crate::TierError;

/// Where reads arrive.
pub(super) struct Lane {
    inbox: Mutex<Mail>,
    arrived: Condvar,
    /// Wakes a thread that waits inside `io_uring_enter` instead of on `arrived`.
    bell: Option<OwnedFd>,
}

/// What has arrived since the last look.
#[derive(Default)]
pub(super) struct Mail {
    pub reads: Vec<Arc<Read>>,
    /// Some waiting read has been cancelled.
    pub sweep: bool,
    /// The engine is being dropped. Never taken back.
    pub stop: bool,
    /// The thread sleeps and wants to be woken by mail.
    asleep: bool,
}

impl Mail {
    fn is_empty(&self) -> bool {
        self.reads.is_empty() && !self.sweep && !self.stop
    }

    fn take(&mut self) -> Mail {
        let stop = self.stop;
        std::mem::replace(
            self,
            Mail {
                stop,
                ..Mail::default()
            },
        )
    }
}

impl Lane {
    /// A lane whose threads wait on [`Self::wait`].
    pub(super) fn new() -> Self {
        Self {
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            bell: None,
        }
    }

    /// A lane that rings an eventfd, see [`Self::bell`].
    pub(super) fn with_bell() -> Result<Self, TierError> {
        use rustix::event::{EventfdFlags, eventfd};
        let bell = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|error| TierError::system("create an eventfd", error.into()))?;
        Ok(Self {
            bell: Some(bell),
            ..Self::new()
        })
    }

    /// Waits for the bell outside of a ring.
    pub(super) fn wait_for_bell(&self) {
        if let Some(bell) = &self.bell {
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
    }

    /// The eventfd to poll while asleep.
    pub(super) fn bell(&self) -> Option<RawFd> {
        self.bell.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Delivers reads; one wake-up for all of them.
    pub(super) fn send(&self, reads: impl IntoIterator<Item = Arc<Read>>) {
        let mut inbox = self.inbox.lock();
        inbox.reads.extend(reads);
        let asleep = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if asleep {
            self.wake();
        }
    }

    /// Has cancelled reads answered that are still waiting.
    pub(super) fn sweep(&self) {
        if !std::mem::replace(&mut self.inbox.lock().sweep, true) {
            self.wake();
        }
    }

    pub(super) fn stop(&self) {
        self.inbox.lock().stop = true;
        self.wake();
    }

    /// Wakes the sleeping threads, which then look for work.
    pub(super) fn wake(&self) {
        match &self.bell {
            // A full eventfd counter means that a wake-up is pending already.
            Some(bell) => drop(rustix::io::write(bell.as_fd(), &1u64.to_ne_bytes())),
            None => drop(self.arrived.notify_all()),
        }
    }

    /// Takes what has arrived.
    pub(super) fn collect(&self) -> Mail {
        self.inbox.lock().take()
    }

    /// Declares the thread asleep; false if there is mail to look at first.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut inbox = self.inbox.lock();
        inbox.asleep = inbox.is_empty();
        inbox.asleep
    }

    /// Takes what has arrived, after waiting for it (no longer than `time_max`, if given).
    pub(super) fn wait(&self, time_max: Option<Duration>) -> Mail {
        let mut inbox = self.inbox.lock();
        if inbox.is_empty() {
            inbox.asleep = true;
            match time_max {
                Some(time) => drop(self.arrived.wait_for(&mut inbox, time)),
                None => self.arrived.wait(&mut inbox),
            }
        }
        inbox.take()
    }
}
