//! `hotshelf` on the command line: reads flags, calls the library, prints.
//!
//! Exit code 0: done; 1: failed; 2: the call makes no sense; 130: interrupted. Results go to standard output,
//! everything else to standard error.
#![forbid(unsafe_code)]

mod command;
mod failure;
mod flags;
mod interrupt;
mod output;
mod progress;
mod script;

use std::process::ExitCode;

fn main() -> ExitCode {
    hotshelf::keep_freed_memory();
    let done = flags::read().and_then(|flags| {
        flags.start_log();
        command::run(flags.command)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
