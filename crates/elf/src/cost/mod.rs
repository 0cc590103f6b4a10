//! What a query will cost, and which columns an index should have in which order.
//!
//! Everything here computes from statistics: there are no clocks. Prices are the caller's.

mod advisor;
mod histogram;
mod model;

#[cfg(test)]
mod tests;

pub use advisor::{Advice, LoggedQuery, advise};
pub use histogram::Histogram;
pub(crate) use histogram::HistogramBuilder;
pub use model::{CostModel, Costs, Work};
