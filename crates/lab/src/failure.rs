//! What ends an experiment.

use std::process::ExitCode;

use hotshelf_cli::failure::{Failure, note};

use crate::answers::FuzzError;

/// Errors of the experiments.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// What commands of the product fail with, too.
    #[error(transparent)]
    Command(Box<Failure>),
    #[error(transparent)]
    Elf(#[from] hotshelf_elf::ElfError),
    #[error(transparent)]
    Fuzz(#[from] FuzzError),
    /// The paper has no such figure, or not one that can be shown so.
    #[error("figure {number} of the HPCache paper cannot be {how}; there are {}", known.join(", "))]
    UnknownFigure {
        number: u32,
        how: &'static str,
        known: Vec<String>,
    },
    /// Another engine or tool failed.
    #[error("{0}")]
    Other(#[from] Box<dyn std::error::Error>),
}

/// Result of an experiment.
pub type Result<T, E = ExperimentError> = std::result::Result<T, E>;

impl From<Failure> for ExperimentError {
    fn from(failure: Failure) -> Self {
        Self::Command(Box::new(failure))
    }
}

impl From<hotshelf::Error> for ExperimentError {
    fn from(error: hotshelf::Error) -> Self {
        Failure::from(error).into()
    }
}

impl ExperimentError {
    /// Prints it on standard error and gives the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Self::Command(failure) => failure.report(),
            other => {
                note(&format!("error: {other}"));
                let is_usage = matches!(other, Self::Fuzz(FuzzError::Usage(_)));
                ExitCode::from(if is_usage { 2 } else { 1 })
            }
        }
    }
}
