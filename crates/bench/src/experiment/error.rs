//! What can go wrong in an experiment.

use std::path::PathBuf;

/// Errors of the experiments.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// The Elf refused a table or a query.
    #[error(transparent)]
    Elf(#[from] hotshelf_elf::ElfError),
    /// The engine failed.
    #[error(transparent)]
    Engine(Box<hotshelf::Error>),
    /// A query of the experiment failed.
    #[error("{query}: {source}")]
    Query {
        /// Its name.
        query: String,
        /// The cause.
        source: Box<hotshelf::Error>,
    },
    /// The benchmark has no query of this name.
    #[error("there is no query '{name}'; there are {}", known.join(", "))]
    UnknownQuery {
        /// What was asked for.
        name: String,
        /// The queries there are.
        known: Vec<&'static str>,
    },
    /// A database holds tables of the same names that are not those of this scale.
    #[error("{table} has {found} rows, at scale {scale} it has {expected}")]
    OtherScale {
        /// The table.
        table: String,
        /// The scale asked for.
        scale: f64,
        /// Rows it has at that scale.
        expected: u64,
        /// Rows it has.
        found: u64,
    },
    /// The paper has no such figure, or not one that can be shown so.
    #[error("figure {number} of the HPCache paper cannot be {how}; there are {}", known.join(", "))]
    UnknownFigure {
        /// What was asked for.
        number: u32,
        /// Simulated or measured.
        how: &'static str,
        /// The figures there are.
        known: Vec<String>,
    },
    /// A chart could not be drawn or written.
    #[error("cannot write the chart {}: {what}", path.display())]
    Chart {
        /// The file.
        path: PathBuf,
        /// The cause.
        what: String,
    },
}

impl From<hotshelf::Error> for ExperimentError {
    fn from(error: hotshelf::Error) -> Self {
        Self::Engine(Box::new(error))
    }
}

impl ExperimentError {
    /// A sentence that says what to do about it, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Engine(error) | Self::Query { source: error, .. } => error.hint(),
            Self::OtherScale { .. } => {
                Some("name another folder, or the scale it was made with".into())
            }
            _ => None,
        }
    }
}
