//! How long queries take: with star pipelines and without, beside plain Vortex, after they are cancelled, and one small
//! statement with many values.

pub mod cancellation;
pub mod pipeline_bandwidth;
pub mod points;
pub mod scan_compare;
pub mod star_times;

use std::path::{Path, PathBuf};

/// Result of a measurement.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The files of a folder whose names have this ending, in order.
fn files(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    found.retain(|path| path.extension().is_some_and(|found| found == ending));
    found.sort();
    Ok(found)
}

/// The middle of some values.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
