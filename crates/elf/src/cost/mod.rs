//! What a query will cost, and which columns an index should have in which order.
//!
//! Everything here computes from statistics: there are no clocks. Constants come from [`calibrate`], whose
//! caller brings a clock, or from [`Costs::fit`] over the caller's own measurements.

mod advisor;
mod calibrate;
mod histogram;
mod model;

#[cfg(test)]
mod tests;

pub use advisor::{Advice, LoggedQuery, advise};
pub use calibrate::{Calibration, calibrate, sample_queries};
pub use histogram::Histogram;
pub use model::{Choice, CostModel, Costs, Path, ScanCost, Work};
