//! Looks for wrong answers: random databases and queries against an oracle and against each other.

mod changes;
mod check;
mod data;
mod engine;
mod features;
pub mod flags;
mod fuzz;
mod known;
mod oracle;
mod query;
mod reduce;
mod render;
mod report;
mod rows;
mod schema;
mod settings;
pub mod sqllogictest;
#[cfg(test)]
mod tests;

pub use check::FuzzError;
