//! The command line: reads flags, calls the library, prints.
//!
//! Exit code 0: done; 1: failed; 2: the call makes no sense; 130: interrupted; 128 and a
//! signal's number: ended by it. Results go to standard output,
//! everything else to standard error.
//!
//! What is public here serves `hotshelf-lab` too, whose commands read flags, stop at Ctrl-C, print and draw alike.
#![forbid(unsafe_code)]

pub mod benchmark;
mod command;
pub mod failure;
mod flags;
pub mod interrupt;
mod opened;
pub mod output;
pub mod picture;
pub mod progress;
mod script;

use std::process::ExitCode;

pub use flags::{Engine, Resources, bad_value, policy, start_log, text_format, thread_count};
pub use opened::Opened;

use failure::Result;

/// The program `hotshelf`.
pub fn main() -> ExitCode {
    match program(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Does what a program is for, which opens databases and may be ended by signals.
pub fn program<T>(work: impl FnOnce() -> T) -> T {
    hotshelf::host::keep_freed_memory();
    leave_panics_to_statements();
    let done = work();
    interrupt::wait_if_ending();
    done
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
            start_log(flags.verbose);
            command::run(flags.command)
        }
        None => Ok(()),
    }
}
