//! Hotshelf's own operators in DataFusion's plans. The operators themselves know nothing of DataFusion: here they get
//! their rows, their memory and their place in a plan.
//!
//! | file | what |
//! |---|---|
//! | `memory` | the operators' broker, on top of DataFusion's pool |
//! | `keys` | what a sort compares, as columns |
//! | `sort` | the operator that sorts all rows |

mod keys;
mod memory;
mod sort;

pub(crate) use sort::SpillingSortExec;
