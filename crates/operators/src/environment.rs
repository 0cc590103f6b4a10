//! What an operator needs from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::SchemaRef;

use crate::memory::Broker;
use crate::spill::{OnSpill, SpillFile, SpillFolder};
use crate::{OperatorError, Result, TableShelf};

/// What an operator needs from outside: memory, a place for what does not fit, and when to stop.
#[derive(Clone)]
pub struct Environment {
    /// Lends memory.
    pub broker: Arc<dyn Broker>,
    /// Keeps what does not fit.
    pub spill: Arc<SpillFolder>,
    /// Counts how much that is.
    pub spilled: OnSpill,
    /// Is raised when the result is not wanted any more.
    pub stop: Stop,
    /// Where tables of joins and groups lie. None: in ordinary memory.
    pub table_shelf: Option<Arc<dyn TableShelf>>,
}

impl Environment {
    /// An empty file for batches of this schema that do not fit.
    ///
    /// # Errors
    /// Those of [`SpillFolder::create_file`].
    pub fn spill_file(&self, schema: SchemaRef) -> Result<Arc<SpillFile>> {
        self.spill.create_file(schema, &self.spilled)
    }
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
