//! Hotshelf's store: the folder of a database, its catalog, its data and index files, and their checks.
//!
//! The catalog says what exists, `docs/FORMAT.md` how it is stored. Nothing here knows SQL: rows come in as
//! Arrow batches, queries ask for segments of data files and Elfs of index files.
#![forbid(unsafe_code)]

mod arrow_stream;
pub mod catalog;
pub mod data_file;
mod description;
pub mod descriptors;
mod error;
mod fields;
pub mod folder;
mod head;
mod ids;
mod in_use;
pub mod index;
pub mod learned;
mod left_on_shelves;
mod links;
mod names_file;
pub mod placement;
mod recent;
mod repair;
mod reservation;
pub mod root;
pub mod shelf;
mod shelf_use;
mod side_by_side;
pub mod statistics;
mod store;
mod sweep;
pub mod verify;

pub use error::{Result, StoreError};
pub use head::Change;
pub use ids::random_id;
pub use repair::{RepairReport, RepairedTable, repair};
pub use shelf_use::ShelfUse;
pub use side_by_side::side_by_side;
pub use store::Store;

use vortex::VortexSessionDefault;
use vortex::io::session::RuntimeSessionExt;
use vortex::session::VortexSession;

/// A Vortex session that runs its tasks wherever it is called from.
pub fn vortex_session() -> VortexSession {
    VortexSession::default().with_tokio()
}
