//! The 22 queries with the validation parameters of the specification (clause 2.4), as plain SQL that DataFusion and
//! DuckDB both accept. Q15 uses a common table expression in place of a view; "return the first N rows" is `LIMIT`.

use crate::Query;

/// The queries by name, in order: `("Q01", "select …")`.
pub fn queries() -> &'static [Query] {
    &QUERIES
}

static QUERIES: [Query; 22] = [
    ("Q01", include_str!("../../queries/tpch/Q01.sql")),
    ("Q02", include_str!("../../queries/tpch/Q02.sql")),
    ("Q03", include_str!("../../queries/tpch/Q03.sql")),
    ("Q04", include_str!("../../queries/tpch/Q04.sql")),
    ("Q05", include_str!("../../queries/tpch/Q05.sql")),
    ("Q06", include_str!("../../queries/tpch/Q06.sql")),
    ("Q07", include_str!("../../queries/tpch/Q07.sql")),
    ("Q08", include_str!("../../queries/tpch/Q08.sql")),
    ("Q09", include_str!("../../queries/tpch/Q09.sql")),
    ("Q10", include_str!("../../queries/tpch/Q10.sql")),
    ("Q11", include_str!("../../queries/tpch/Q11.sql")),
    ("Q12", include_str!("../../queries/tpch/Q12.sql")),
    ("Q13", include_str!("../../queries/tpch/Q13.sql")),
    ("Q14", include_str!("../../queries/tpch/Q14.sql")),
    ("Q15", include_str!("../../queries/tpch/Q15.sql")),
    ("Q16", include_str!("../../queries/tpch/Q16.sql")),
    ("Q17", include_str!("../../queries/tpch/Q17.sql")),
    ("Q18", include_str!("../../queries/tpch/Q18.sql")),
    ("Q19", include_str!("../../queries/tpch/Q19.sql")),
    ("Q20", include_str!("../../queries/tpch/Q20.sql")),
    ("Q21", include_str!("../../queries/tpch/Q21.sql")),
    ("Q22", include_str!("../../queries/tpch/Q22.sql")),
];
