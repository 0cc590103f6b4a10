//! `hotshelf` on the command line: reads flags, calls the library, prints.
//!
//! Exit code 0: done; 1: failed; 2: the call makes no sense; 130: interrupted; 128 and a
//! signal's number: ended by it. Results go to standard output,
//! everything else to standard error.
#![forbid(unsafe_code)]

mod command;
mod failure;
mod flags;
mod interrupt;
mod opened;
mod output;
mod progress;
mod script;

use std::process::ExitCode;

use failure::Result;

fn main() -> ExitCode {
    hotshelf::keep_freed_memory();
    let done = run();
    interrupt::wait_if_ending();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run() -> Result<()> {
    match flags::read()? {
        Some(flags) => {
            flags.start_log();
            command::run(flags.command)
        }
        None => Ok(()),
    }
}
