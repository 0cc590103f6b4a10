//! The benchmark's 13 queries (specification, section 3), as plain SQL that DataFusion and DuckDB both accept.

use crate::Query;

/// The queries by name, in order: `("Q1.1", "SELECT …")`. Tables are `lineorder`, `customer`, `supplier`, `part`,
/// `date`.
pub fn queries() -> &'static [Query] {
    &QUERIES
}

static QUERIES: [Query; 13] = [
    ("Q1.1", include_str!("../../queries/ssb/Q1.1.sql")),
    ("Q1.2", include_str!("../../queries/ssb/Q1.2.sql")),
    ("Q1.3", include_str!("../../queries/ssb/Q1.3.sql")),
    ("Q2.1", include_str!("../../queries/ssb/Q2.1.sql")),
    ("Q2.2", include_str!("../../queries/ssb/Q2.2.sql")),
    ("Q2.3", include_str!("../../queries/ssb/Q2.3.sql")),
    ("Q3.1", include_str!("../../queries/ssb/Q3.1.sql")),
    ("Q3.2", include_str!("../../queries/ssb/Q3.2.sql")),
    ("Q3.3", include_str!("../../queries/ssb/Q3.3.sql")),
    ("Q3.4", include_str!("../../queries/ssb/Q3.4.sql")),
    ("Q4.1", include_str!("../../queries/ssb/Q4.1.sql")),
    ("Q4.2", include_str!("../../queries/ssb/Q4.2.sql")),
    ("Q4.3", include_str!("../../queries/ssb/Q4.3.sql")),
];
