//! NoREC (Rigger and Su, 2020): a filter, which the engine may optimise, against its value for every row.

use super::{Bench, Case, Verdict, compare};
use crate::answers::query::{Body, Expr, Generator, Query};
use crate::answers::render;
use crate::answers::schema::Dialect;

impl Bench {
    pub(super) fn counted_twice(&mut self, case: &Case) -> Verdict {
        let [filtered, evaluated] =
            statements(case).map(|query| render::query(&query, Dialect::Hotshelf));
        let found = self.run(&filtered, &case.settings);
        let expected = self.run(&evaluated, &case.settings);
        compare(found, expected, false)
    }
}

/// The count of rows that the predicate lets through, and the sum over all rows of whether it holds.
pub fn statements(case: &Case) -> [Query; 2] {
    let (mut filtered, mut evaluated) = (case.query.clone(), case.query.clone());
    if let (Some(predicate), Body::Select(filtered), Body::Select(evaluated)) =
        (&case.predicate, &mut filtered.body, &mut evaluated.body)
    {
        filtered.filter.push(in_parentheses(predicate));
        evaluated.items = vec![Generator::counted(predicate)];
    }
    [filtered, evaluated]
}

fn in_parentheses(predicate: &Expr) -> Expr {
    Expr::test("({})", vec![predicate.clone()])
}
