//! How a database is opened, and the words in which users write sizes and rates.

use std::path::PathBuf;

use hotshelf_cache::PolicyKind;
use hotshelf_tier::memory_limit::memory_limit_bytes;

use crate::error::{Error, Result};

/// The least budget the engine accepts: enough for the metadata of a few files and single segments.
pub const BUDGET_BYTES_MIN: u64 = 1 << 20;

/// Settings of a database. `Default` suits a laptop: a quarter of the memory it may use, all cores.
///
/// ```
/// use hotshelf::{Options, PolicyKind};
///
/// let options = Options { budget_bytes: 64 << 20, policy: PolicyKind::Lru, ..Options::default() };
/// assert!(options.merge_files);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// DRAM that cached segments, reads in flight and operators share, in bytes.
    pub budget_bytes: u64,
    /// Worker threads; also the number of scan partitions.
    pub threads: usize,
    /// Which segments stay in DRAM.
    pub policy: PolicyKind,
    /// Cap on reads from storage, in bytes per second. It imitates slower volumes.
    pub storage_bandwidth_max: Option<u64>,
    /// Whether to bypass the operating system's page cache (O_DIRECT) where the file system allows.
    pub direct_io: bool,
    /// Operators may always use this much, even when the budget is smaller, in bytes.
    pub operator_bytes_min: u64,
    /// Where rows go that do not fit in memory; `None`: `spill` in the database's folder.
    pub spill_folder: Option<PathBuf>,
    /// The most that they may take there, in bytes; `None`: nine tenths of what is free on opening.
    pub spill_bytes_max: Option<u64>,
    /// Whether the process is there for the database alone, as the program `hotshelf` is. What it holds beyond cache
    /// and operators is then taken off the budget where it is much.
    pub owns_process: bool,
    /// Whether small files are merged in the background.
    pub merge_files: bool,
    /// Whether a folder that does not exist is created.
    pub create: bool,
    /// Whether to follow the machine profile that `hotshelf probe` has stored in the folder.
    pub machine_profile: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            budget_bytes: default_budget_bytes(),
            threads: std::thread::available_parallelism().map_or(2, usize::from),
            policy: PolicyKind::HpCache,
            storage_bandwidth_max: None,
            direct_io: true,
            operator_bytes_min: 64 << 20,
            spill_folder: None,
            spill_bytes_max: None,
            owns_process: false,
            merge_files: true,
            create: true,
            machine_profile: true,
        }
    }
}

impl Options {
    pub(crate) fn validate(&self) -> Result<()> {
        if self.budget_bytes < BUDGET_BYTES_MIN {
            return Err(Error::BudgetTooSmall {
                budget_bytes: self.budget_bytes,
                needed_bytes: BUDGET_BYTES_MIN,
            });
        }
        if self.threads == 0 {
            return Err(invalid("number of threads", "0", "one thread at least"));
        }
        if self.storage_bandwidth_max == Some(0) {
            return Err(invalid(
                "storage bandwidth",
                "0",
                "a rate above zero, or 'none' for no cap",
            ));
        }
        Ok(())
    }
}

/// A quarter of the memory that the process may use.
fn default_budget_bytes() -> u64 {
    (memory_limit_bytes() / 4).max(BUDGET_BYTES_MIN)
}

fn invalid(what: &'static str, value: &str, expected: &str) -> Error {
    Error::InvalidValue {
        what,
        value: value.to_owned(),
        expected: expected.to_owned(),
    }
}

const SIZE_EXPECTED: &str = "expected a number with a unit such as 64MB, 1.5GiB or 800000000";

/// Reads a size such as `64MB`, `1.5 GiB` or `4096` into bytes. Decimal and binary units differ:
/// 1 KB = 1000, 1 KiB = 1024.
pub fn parse_size(text: &str) -> crate::Result<u64> {
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let number: f64 = number
        .replace('_', "")
        .parse()
        .map_err(|_| invalid("size", text, SIZE_EXPECTED))?;
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(invalid("size", text, SIZE_EXPECTED).into()),
    };
    let bytes = number * factor;
    if !bytes.is_finite() || bytes > 9e18 {
        return Err(invalid("size", text, "that is more than any machine has").into());
    }
    Ok(bytes as u64)
}

/// Reads a rate such as `300MB/s`, `1.5GB` (per second) or `none` (no cap).
pub fn parse_bandwidth(text: &str) -> crate::Result<Option<u64>> {
    let lower = text.trim().to_ascii_lowercase();
    if matches!(lower.as_str(), "none" | "unlimited" | "off" | "") {
        return Ok(None);
    }
    let size = lower
        .strip_suffix("/s")
        .or_else(|| lower.strip_suffix("ps"))
        .unwrap_or(&lower);
    match parse_size(size) {
        Ok(0) => Err(invalid(
            "storage bandwidth",
            text,
            "a rate above zero, or 'none' for no cap",
        )
        .into()),
        Ok(rate) => Ok(Some(rate)),
        Err(_) => Err(invalid(
            "storage bandwidth",
            text,
            "expected a rate such as 300MB/s, or 'none'",
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_decimal_and_binary_units() {
        assert_eq!(parse_size("64MB").unwrap(), 64_000_000);
        assert_eq!(parse_size(" 1.5 GiB ").unwrap(), 1_610_612_736);
        assert_eq!(parse_size("4096").unwrap(), 4096);
    }

    #[test]
    fn nonsense_sizes_are_refused() {
        for text in ["", "MB", "12 parsecs", "1e400GB", "-5MB", "9999999999999TB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_per_second_and_zero_is_refused() {
        assert_eq!(parse_bandwidth("300MB/s").unwrap(), Some(300_000_000));
        assert_eq!(parse_bandwidth("none").unwrap(), None);
        assert!(parse_bandwidth("0").is_err());
    }

    #[test]
    fn a_budget_below_the_minimum_is_refused() {
        let options = Options {
            budget_bytes: 10,
            ..Options::default()
        };
        assert!(matches!(
            options.validate(),
            Err(Error::BudgetTooSmall { .. })
        ));
    }
}
