//! `hotshelf` on the command line.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    hotshelf_cli::main()
}
