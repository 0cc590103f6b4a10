//! Measuring what a tier can do.
//!
//! A [`Plan`] lists the points: access size, threads, grouping, pinning, placement, instruction, mixture, and for files
//! block size and depth. [`probe`] measures them, refuses what cannot be true, and survives interruption;
//! [`derive`](fn@crate::profile::derive) turns the rows into advice. Emulated tiers are run in simulated time.

mod file;
mod file_reads;
mod journal;
mod kernels;
mod median;
mod memory;
mod options;
mod plan;
mod regions;
mod report;
mod run;
mod target;

#[cfg(test)]
mod tests;

pub use crate::axes::{
    Grouping, Operation, Pattern, PersistInstruction, Pinning, Placement, Point, Row,
};
pub use options::ProbeOptions;
pub use plan::{Plan, PlanOptions};
pub use report::{Outcome, ProbeReport, Progress, Refusal, Round};
pub use run::{probe, resumable_count};
pub use target::ProbeTarget;
