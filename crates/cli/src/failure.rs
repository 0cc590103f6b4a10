//! What ends the program, what it then prints, and its exit code.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hotshelf_datagen::GenerateError;

use crate::interrupt;

/// Everything a command can fail with; the messages say what the variants and fields are.
#[allow(missing_docs)]
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The flags make no sense together or hold a bad value.
    #[error("{message}")]
    Usage {
        message: String,
        hint: Option<String>,
    },
    #[error(transparent)]
    Engine(#[from] hotshelf::Error),
    #[error(transparent)]
    Tier(#[from] hotshelf::probe::TierError),
    /// A file that should hold measurements holds something else.
    #[error("{} is not the result of a probe: {what}", path.display())]
    NotAProbe { path: PathBuf, what: String },
    /// Measurements of another machine.
    #[error("{} was measured on another machine ({differences})", path.display())]
    OtherMachine { path: PathBuf, differences: String },
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A query of a benchmark failed.
    #[error("{query}: {source}")]
    Query {
        query: String,
        source: Box<hotshelf::Error>,
    },
    /// A benchmark has no query of this name.
    #[error("there is no query '{name}'; there are {}", known.join(", "))]
    UnknownQuery {
        name: String,
        known: Vec<&'static str>,
    },
    /// A database holds tables of the same names that are not those of this scale.
    #[error("table {table} has {found} rows; at scale {scale} it should have {expected}")]
    OtherScale {
        table: String,
        scale: f64,
        expected: u64,
        found: u64,
    },
    /// A picture could not be drawn or written.
    #[error("cannot write the chart {}: {what}", path.display())]
    Chart { path: PathBuf, what: String },
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("cannot write to standard output: it is closed")]
    NoStdout,
    /// Rows could not be written in the format asked for.
    #[error("cannot write the answer as {format}: {what}")]
    Format { format: &'static str, what: String },
    /// A statement of several failed.
    #[error("statement {number}: {source}{}", not_run(*number, *count))]
    Statement {
        number: usize,
        count: usize,
        source: Box<Failure>,
    },
    /// Statements of a script failed; each failure has been printed.
    #[error("{failure_count} of the statements failed")]
    Script { failure_count: usize },
    /// Tables that would be replaced.
    #[error("the database has {} already", names.join(", "))]
    TablesExist { names: Vec<String> },
    #[error("database {} is damaged in {damage_count} places", path.display())]
    Damaged { path: PathBuf, damage_count: usize },
    /// A bug in an operator; its message is above.
    #[error("the statement ended without an answer: its thread panicked")]
    Panicked,
    #[error("interrupted")]
    Interrupted,
    /// The reader of the answer has closed its end.
    #[error("the answer is no longer read")]
    BrokenPipe,
}

/// Result of a command.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// The call makes no sense; the hint says what would.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage {
            message: message.into(),
            hint: Some(hint.into()),
        }
    }

    /// Wraps an operating-system error with what was being done to which path.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            operation,
            path,
            source,
        }
    }

    /// A sentence that says what to do about it, where there is one.
    fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } => hint.clone(),
            Self::Engine(error) => error.hint(),
            Self::Tier(error) => error.hint(),
            Self::NotAProbe { .. } => Some("`hotshelf probe --out FILE` writes one".to_owned()),
            Self::OtherMachine { .. } => {
                Some("measure here: `hotshelf probe --db DIR`; nothing was stored".to_owned())
            }
            Self::Query { source, .. } => source.hint(),
            Self::OtherScale { .. } => {
                Some("name another folder, or the scale it was made with".to_owned())
            }
            Self::Statement { source, .. } => source.hint(),
            Self::TablesExist { .. } => Some(
                "--replace replaces them with the generated ones; --db DIR takes another database"
                    .to_owned(),
            ),
            Self::Damaged { .. } => {
                Some(
                    "put damaged data files back from a copy, or import their tables again; OPTIMIZE TABLE builds \
                     index files again, `hotshelf repair` the catalog"
                        .to_owned(),
                )
            }
            _ => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            Self::Usage { .. } => 2,
            Self::Interrupted => 130,
            Self::Statement { source, .. } => source.exit_code(),
            _ => 1,
        }
    }

    fn is_quiet(&self) -> bool {
        match self {
            Self::BrokenPipe => true,
            Self::Statement { source, .. } => source.is_quiet(),
            _ => false,
        }
    }

    /// Whether nothing more can be written to standard output.
    pub fn ends_output(&self) -> bool {
        self.is_quiet() || matches!(self, Self::NoStdout)
    }

    /// Whether Ctrl-C is the cause.
    pub fn is_interruption(&self) -> bool {
        match self {
            Self::Interrupted => true,
            Self::Statement { source, .. } => source.is_interruption(),
            _ => false,
        }
    }

    /// Prints it on standard error.
    pub fn print(&self) {
        if self.is_quiet() || self.is_interruption() && !interrupt::take_report() {
            return;
        }
        let hint = self.hint().map(|hint| format!("\n\nhint: {hint}"));
        note(&format!("error: {self}{}", hint.unwrap_or_default()));
    }

    /// Tells it and gives the exit code.
    pub fn report(self) -> ExitCode {
        self.print();
        ExitCode::from(self.exit_code())
    }
}

/// A line for humans, on standard error. It may be lost: standard error may be closed.
pub fn note(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}

/// Says which of `count` statements come after the failed one.
fn not_run(number: usize, count: usize) -> String {
    match count - number.min(count) {
        0 => String::new(),
        1 => format!("\nstatement {count} did not run"),
        _ => format!("\nstatements {} to {count} did not run", number + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_of_a_statement_is_that_of_its_cause() {
        let stopped = Failure::Statement {
            number: 2,
            count: 2,
            source: Box::new(Failure::Interrupted),
        };
        assert_eq!(stopped.exit_code(), 130);
        assert_eq!(Failure::usage("no", "yes").exit_code(), 2);
        let damaged = Failure::Damaged {
            path: "db".into(),
            damage_count: 1,
        };
        assert_eq!(damaged.exit_code(), 1);
    }

    #[test]
    fn a_failed_statement_tells_which_others_did_not_run() {
        assert_eq!(not_run(3, 3), "");
        assert_eq!(not_run(2, 3), "\nstatement 3 did not run");
        assert_eq!(not_run(1, 3), "\nstatements 2 to 3 did not run");
    }

    #[test]
    fn a_broken_pipe_is_quiet_and_no_failure() {
        let broken = Failure::Statement {
            number: 1,
            count: 1,
            source: Box::new(Failure::BrokenPipe),
        };
        assert!(broken.is_quiet());
        assert_eq!(broken.exit_code(), 0);
    }
}
