//! Hotshelf: an embedded analytical database for data bigger than memory.
//!
//! Give it a memory budget; it works out which bytes are worth keeping in DRAM and reads the rest from
//! slower shelves the way their hardware likes. See `docs/ARCHITECTURE.md` for where everything is.
//!
//! ```
//! use hotshelf::{Database, Options};
//!
//! # fn main() -> hotshelf::Result<()> {
//! # let scratch = tempfile::tempdir().unwrap();
//! # let folder = scratch.path().join("mydb");
//! let options = Options { budget_bytes: 256 << 20, ..Options::default() };
//! let database = Database::open(folder, options)?;
//! let session = database.session();
//! session.query("CREATE TABLE t AS VALUES (1, 'one'), (2, 'two')")?;
//! let rows = session.query("SELECT count(*) FROM t")?;
//! assert_eq!(rows[0].num_rows(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! [`Database`] opens a folder, [`Session`] runs SQL in it, [`Answer`] streams the rows as Arrow batches ([`arrow`] is
//! re-exported). What the cache, the tuner and the storage do is SQL, too: `SELECT * FROM cache_stats()`.
//!
//! [`Database`], [`Session`], [`Options`] and [`Error`] are `Send + Sync`; an [`Answer`] is `Send`. No call needs a
//! runtime of the caller's: [`Session::query`] and [`Database::block_on`] work on the database's own threads.
#![forbid(unsafe_code)]

mod begun;
mod database;
mod engine;
mod error;
mod functions;
#[doc(hidden)]
pub mod host;
mod import;
mod index;
mod input;
#[doc(hidden)]
pub mod internals;
mod interrupt;
mod kept_plans;
mod learned;
mod look_ups;
mod machine;
mod measure;
mod operators;
mod options;
mod outline;
mod past_runs;
mod pipelines;
mod plan;
mod prices;
#[doc(hidden)]
pub mod probe;
mod rewriting;
mod scan;
mod session;
mod settings;
mod shared;
mod star;
mod statistics;
mod storage;
mod stored_table;
mod table;

pub use arrow;
pub use database::{Damage, Database, VerifyReport};
pub use error::public::{Error, ErrorKind, Result};
pub use hotshelf_cache::PolicyKind;
pub use hotshelf_store::{RepairReport, RepairedTable};
pub use import::{BatchIter, ExistingTable, ImportOptions, ImportProgress, ImportReport};
pub use input::FileFormat;
pub use measure::Measurement;
pub use options::{BUDGET_BYTES_MIN, Options};
pub use session::{Answer, Session, Statement, Value};
pub use table::TableSummary;

/// The Rust of README and guide, run as tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/rust.md")]
    struct Rust;
}
