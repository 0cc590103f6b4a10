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
    leave_panics_to_statements();
    let done = run();
    interrupt::wait_if_ending();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// A panic of a statement becomes its error, which is printed; others print as usual.
fn leave_panics_to_statements() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| match std::thread::current().name() {
        Some("hotshelf" | "hotshelf-plan") => tracing::debug!(%panic, "a statement panicked"),
        _ => usual(panic),
    }));
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
