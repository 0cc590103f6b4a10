//! Measuring what a tier can do.

mod axes;

pub use axes::{Grouping, Operation, Pattern, PersistInstruction, Pinning, Placement, Point, Row};
