//! What the command line and the experiments need beyond the public interface. It changes without notice.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use hotshelf_cache::CacheManager;
use hotshelf_cache::tuner::TunerThread;
use hotshelf_tier::io::IoEngine;

use crate::{Database, Session};

pub use crate::options::{parse_bandwidth, parse_size};

/// The segment cache.
pub fn cache(database: &Database) -> &Arc<CacheManager> {
    &database.engine().cache
}

/// What decides how much of each column HPCache keeps; `None` if the system refused it a thread.
pub fn tuner(database: &Database) -> Option<&Arc<TunerThread>> {
    database.engine().tuner.as_ref()
}

/// The I/O engine.
pub fn io_engine(database: &Database) -> &Arc<IoEngine> {
    &database.machine().io
}

/// The query engine's context behind a session.
pub fn context(session: &Session) -> &SessionContext {
    session.context()
}
