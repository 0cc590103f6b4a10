//! A no-op stand-in for the `custom-labels` crate.
//!
//! `vortex-io` tags its tasks with labels for an external profiler. The published crate needs
//! libclang and a C++ compiler to build; Hotshelf promises a build with a Rust toolchain and a C
//! compiler only. These are the few items `vortex-io` calls, doing nothing.

/// An empty set of profiler labels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Labelset;

impl Labelset {
    /// The labels of the current thread: none.
    pub fn clone_from_current() -> Self {
        Self
    }

    /// Runs `f` under these labels.
    pub fn enter<R>(&mut self, f: impl FnOnce() -> R) -> R {
        f()
    }
}

/// Labels that travel with a future.
pub mod asynchronous {
    /// Attaches the current labels to a future.
    pub trait Label: Sized {
        /// The future itself, unchanged.
        fn with_current_labels(self) -> Self {
            self
        }
    }

    impl<F: Future> Label for F {}
}
