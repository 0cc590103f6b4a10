//! Hotshelf: an embedded analytical database for data bigger than memory.
//!
//! Give it a memory budget; it works out which bytes are worth keeping in DRAM and reads the rest from
//! slower shelves the way their hardware likes. See `docs/ARCHITECTURE.md` for where everything is.
//!
//! ```no_run
//! use hotshelf::{Database, Options};
//!
//! # fn main() -> hotshelf::Result<()> {
//! let database = Database::open("mydb", Options { budget_bytes: 256 << 20, ..Options::default() })?;
//! let session = database.session();
//! let rows = database.block_on(async {
//!     session.sql("CREATE TABLE t AS VALUES (1, 'one'), (2, 'two')").await?;
//!     session.sql("SELECT count(*) FROM t").await?.collect().await
//! })?;
//! assert_eq!(rows[0].num_rows(), 1);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod database;
mod error;
mod functions;
pub mod host;
mod import;
mod index;
mod input;
mod measure;
mod memory;
mod options;
mod pipelines;
mod plan;
mod prices;
pub mod probe;
mod profile;
mod scan;
mod session;
mod settings;
mod star;
mod statistics;
mod table;

pub use database::{Database, IndexSpec, TableSummary, VerifyReport};
pub use error::{Error, Result};
pub use hotshelf_cache::PolicyKind;
pub use hotshelf_store::{RepairReport, RepairedTable, StoreError};
pub use import::{
    BatchIter, ExistingTable, FileFormat, ImportOptions, ImportProgress, ImportReport,
};
pub use measure::Measurement;
pub use options::{BUDGET_BYTES_MIN, Options, parse_bandwidth, parse_size};
pub use session::{Answer, Session, Statement, Value};

/// The Rust of README and guide, run as tests.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/rust.md")]
    struct Rust;
}
