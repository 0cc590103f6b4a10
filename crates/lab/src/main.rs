//! `hotshelf-lab`: experiments with Hotshelf and its parts. A folder holds each one, with its flags.
//!
//! Exit code 0: done, nothing found; 1: something found, or failed; 2: the call makes no sense.
#![forbid(unsafe_code)]

mod answers;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use answers::flags as fuzz;

/// Experiments with Hotshelf
#[derive(Debug, Parser)]
#[command(name = "hotshelf-lab", version, max_term_width = 100)]
struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Random databases and queries against an oracle and against each other
    #[command(after_help = fuzz::EXAMPLES)]
    Fuzz(fuzz::Fuzz),
}

fn main() -> ExitCode {
    hotshelf::keep_freed_memory();
    let Command::Fuzz(fuzz) = Flags::parse().command;
    match fuzz.run() {
        Ok(found) => ExitCode::from(u8::from(found)),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
