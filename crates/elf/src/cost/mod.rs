//! What a query will cost, and which columns an index should have in which order.
//!
//! Everything here computes from statistics: there are no clocks. Constants come from [`Costs::fit`] over
//! measurements that the engine makes on its machine.

mod advisor;
mod histogram;
mod model;

#[cfg(test)]
mod tests;

pub use advisor::{Advice, LoggedQuery, advise};
pub use histogram::Histogram;
pub use model::{Choice, CostModel, Costs, Path, ScanCost, Work};
