//! The figures of *Maximizing Persistent Memory Bandwidth Utilization for OLAP Workloads* (Daase, Bollmeier, Benson,
//! Rabl, SIGMOD 2021), with every axis of each, on whatever memory there is.
//!
//! | file | what |
//! |---|---|
//! | `figures` | the axes of figures 3 to 13 as a table |
//! | `stated` | the values that the paper states in words |
//! | `case` | one combination of the axes |
//! | `device` | where a case is measured, and why it cannot be |
//! | `waiting` | threads that wait for an *emulated* device |
//! | `queries` | figure 14 and table 1, by `handcrafted` |
//! | `rows`, `drawing` | the result as rows and as SVG |
//! | `flags`, `command` | `hotshelf-lab pmem` |

mod case;
mod command;
mod device;
mod drawing;
mod figures;
pub mod flags;
mod queries;
mod rows;
mod stated;
#[cfg(test)]
mod tests;
mod waiting;

pub use command::run;
