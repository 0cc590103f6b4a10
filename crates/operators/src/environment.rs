//! What an operator needs from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::memory::Broker;
use crate::spill::SpillFolder;
use crate::{OperatorError, Result};

/// What an operator needs from outside: memory, a place for what does not fit, and when to stop.
#[derive(Clone)]
pub struct Environment {
    /// Lends memory.
    pub broker: Arc<dyn Broker>,
    /// Keeps what does not fit.
    pub spill: Arc<SpillFolder>,
    /// Is raised when the result is not wanted any more.
    pub stop: Stop,
}

/// A flag that ends operators. All clones are the same flag.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends all operators that have this flag, at their next [`Stop::check`].
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is raised.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`OperatorError::Stopped`] once the flag is raised. Operators call this between pieces of work of a few
    /// milliseconds.
    pub fn check(&self) -> Result<()> {
        if self.is_raised() {
            return Err(OperatorError::Stopped);
        }
        Ok(())
    }
}
