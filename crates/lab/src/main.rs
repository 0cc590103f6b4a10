//! `hotshelf-lab`: looks for wrong answers with random databases and queries.
//!
//! Exit code 0: nothing found; 1: something found, or failed; 2: the call makes no sense.
#![forbid(unsafe_code)]

mod changes;
mod check;
mod data;
mod engine;
mod features;
mod flags;
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
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    hotshelf::keep_freed_memory();
    let done = flags::Flags::parse().run();
    match done {
        Ok(found) => ExitCode::from(u8::from(found)),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
