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
    leave_panics_to_statements();
    let done = flags::read().and_then(|flags| {
        flags.start_log();
        command::run(flags.command)
    });
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
