//! Settings and the layout of files change how a query runs, not its rows.

use super::{Bench, Case, Verdict, compare, is_ordered};
use crate::answers::render;
use crate::answers::schema::Dialect;

impl Bench {
    pub(super) fn with_other_settings(&mut self, case: &Case) -> Verdict {
        let sql = render::query(&case.query, Dialect::Hotshelf);
        let found = self.run(&sql, &case.settings);
        for statement in &case.then {
            // What they did to the files is not in the description of the database.
            self.in_engine = None;
            if let Err(failure) = self.engine.run(statement) {
                return Verdict::OnlyWeRefuse(failure);
            }
        }
        let expected = self.run(&sql, &case.other);
        compare(found, expected, is_ordered(&case.query))
    }
}
