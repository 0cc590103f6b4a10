//! The flag by which a running statement is asked to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::error::Result as QueryResult;

use crate::error::Error;

/// A statement's flag. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Asks the statement to end.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// An error if the statement is to end.
    pub fn check(&self) -> QueryResult<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Error::Cancelled.into()),
            false => Ok(()),
        }
    }
}
