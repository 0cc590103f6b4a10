//! From what pipelines did to what caching would have bought them (HPCache §4).
//!
//! [`LookBackWindow`] turns [`Observation`]s of pipeline runs into weighted [`Term`]s; a [`Problem`] puts the terms
//! of a moment together with the [`Item`]s that compete for the [`Shelf`]s, and predicts the time of any placement.
//! [`crate::tune`] minimises that time. Everything here is pure: no clocks, no threads.

mod item;
mod observation;
mod problem;
mod shelf;
mod window;

pub use item::{Choice, Item, ItemClass, ItemGroup, ItemId, ItemUse, Representation};
pub use observation::{Observation, RunningPipeline};
pub use problem::{Problem, Term, TermLoad, TermRead, TermTime};
pub use shelf::{SHELF_COUNT_MAX, Shelf, Tiers};
pub use window::{LookBackWindow, Smoothing, TemplateTerm, WindowOptions};
