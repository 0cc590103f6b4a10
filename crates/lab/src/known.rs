//! Differences from DuckDB that are not ours to mend. Each has a name, a reason, and a predicate as narrow as possible.
//!
//! What differs by definition is better not generated at all; this list is for what cannot be told before it runs.

use crate::check::{Case, Check};
use crate::rows::Rows;

/// A difference that is known.
pub struct Known {
    pub name: &'static str,
    pub reason: &'static str,
    holds: fn(&Case, &Rows, &Rows) -> bool,
}

/// All of them.
pub const KNOWN: &[Known] = &[];

/// The known difference that explains these rows.
pub fn explain(case: &Case, found: &Rows, expected: &Rows) -> Option<&'static Known> {
    let applies = case.check == Check::Duckdb;
    KNOWN
        .iter()
        .find(|known| applies && (known.holds)(case, found, expected))
}
