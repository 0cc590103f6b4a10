//! The Star Schema Benchmark by hand, after *Maximizing Persistent Memory Bandwidth Utilization for OLAP Workloads*
//! (Daase, Bollmeier, Benson, Rabl, SIGMOD 2021), section 6: what the hardware allows, beside the product.
//!
//! | file | what |
//! |---|---|
//! | `queries` | the 13 queries as conditions and groups |
//! | `dimension`, `fact` | tables: coded dimensions; the fact table shuffled, striped, as columns and as rows |
//! | `dash`, `unchained`, `lookup` | Dash, a table as the product's joins have it, and all look-ups |
//! | `plan` | a query with its look-ups and groups |
//! | `columns`, `rows`, `disk`, `unaware` | the loops |
//! | `crew` | threads on sockets and cores: the steps of table 1 |
//! | `pace` | waiting for *emulated* memory |
//! | `bandwidth` | the limit: consecutive reads by all threads |
//! | `bench` | all of these together: one query, one run |
//! | `engine` | the same queries through the product |
//! | `rates`, `product_join` | look-ups per second, those of the product's join among them |
//! | `price` | price and performance |
//! | `flags`, `command`, `report` | `hotshelf-lab ssb` |

mod bandwidth;
mod bench;
mod columns;
mod command;
mod crew;
mod dash;
mod dimension;
mod disk;
mod engine;
mod fact;
pub mod flags;
mod lookup;
mod pace;
mod plan;
mod price;
mod product_join;
mod queries;
mod rates;
mod report;
mod rows;
#[cfg(test)]
mod tests;
mod unaware;
mod unchained;

pub use bench::{Contender, Settings, Tier};
pub use command::{measure, run};
pub use crew::Step;
pub use flags::Handcrafted;
pub use lookup::Kind;
pub use queries::QUERIES;
pub use report::QueryRow;
