//! DuckDB gives the same rows.

use super::{Bench, Case, FuzzError, Verdict, compare, is_crash, is_ordered};
use crate::answers::render;
use crate::answers::schema::Dialect;

impl Bench {
    /// The oracle works while we do.
    pub(super) fn against_oracle(&mut self, case: &Case) -> Result<Verdict, FuzzError> {
        let Some(oracle) = &mut self.oracle else {
            return Err(FuzzError::Usage("the check 'duckdb' needs --oracle".into()));
        };
        oracle.send(&render::query(&case.query, Dialect::Duckdb))?;
        let sql = render::query(&case.query, Dialect::Hotshelf);
        let found = match self.engine.set(&case.settings) {
            Ok(()) => self.engine.run(&sql),
            Err(failure) => Err(failure),
        };
        let expected = oracle.answer()?;
        Ok(match (found, expected) {
            (Err(failure), _) if is_crash(&failure) => Verdict::OnlyWeRefuse(failure),
            (Err(_), Err(_)) => Verdict::BothRefuse,
            (Ok(_), Err(message)) => Verdict::OnlyTheyRefuse(message),
            (found, Ok(expected)) => compare(found, Ok(expected), is_ordered(&case.query)),
        })
    }
}
