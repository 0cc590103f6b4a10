//! Hotshelf's own operators in DataFusion's plans. The operators themselves know nothing of DataFusion: here they get
//! their rows, their memory and their place in a plan.
//!
//! | file | what |
//! |---|---|
//! | `memory` | the operators' broker, on top of DataFusion's pool |
//! | `original` | what an operator leaves to the one in whose place it is |
//! | `names` | what EXPLAIN calls DataFusion's |
//! | `columns` | keys that are expressions, as columns |
//! | `work` | calls that block, run from streams that must not |
//! | `sort` | the operator that sorts all rows, or many first ones |
//! | `shared_sort` | the same for the rows of all partitions, by all workers |
//! | `threshold` | what they tell the scan below it |
//! | `join` | the hash join that spills |
//! | `aggregate` | the aggregation that spills |
//! | `window` | window functions that keep the rows of a partition |
//! | `cluster` | rows in the order of a clustered index, on their way into data files |
//! | `numbering` | `row_number()` over all rows |
//! | `fetch` | columns that are read of the rows that a sort with a limit left |
//! | `stored_values` | the values of a column without its rows |
//! | `exchange` | how rows get from partitions to others |

mod aggregate;
mod cluster;
mod columns;
mod exchange;
mod fetch;
mod join;
mod memory;
mod names;
mod numbering;
mod original;
mod shared_sort;
mod sort;
mod stored_values;
mod threshold;
mod window;
mod work;

/// Why an operator of DataFusion's is not replaced.
pub(crate) type Reason = &'static str;

pub(crate) use aggregate::SpillingAggregateExec;
pub(crate) use cluster::in_elf_order;
pub(crate) use exchange::ExchangeExec;
pub(crate) use fetch::{FetchRowsExec, Fetched};
pub(crate) use join::SpillingHashJoinExec;
pub(crate) use names::{aggregate_name, join_name};
pub(crate) use numbering::NumberingExec;
pub(crate) use original::statistics_of;
pub(crate) use shared_sort::SharedSortExec;
pub(crate) use sort::SpillingSortExec;
pub(crate) use stored_values::StoredValuesExec;
pub(crate) use window::SpillingWindowExec;
pub(crate) use work::{blocking, environment, partitions_max};
