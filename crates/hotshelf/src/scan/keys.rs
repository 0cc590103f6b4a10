//! What became known about join keys while a query runs, as conditions on the scan's columns: rows need to meet them,
//! and the joins check that.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::physical_expr::expressions::{CaseExpr, InListExpr, Literal};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::filters::DynamicFilter;
use super::source::TableScan;
use crate::index::{Condition, JOIN_KEYS_MAX, among, column_of};

/// The values that a column of the scan's output may have.
struct KeyList {
    column: usize,
    values: HashSet<ScalarValue>,
}

impl TableScan {
    /// What filters say by now, as conditions on the table's columns.
    pub(super) fn conditions(&self, filters: &[DynamicFilter]) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for filter in filters {
            let Some(expr) = filter.expr_now() else {
                continue;
            };
            for part in split_conjunction(&expr) {
                if filter.is_exact(part) {
                    conditions.extend(self.part_conditions(part));
                }
            }
        }
        conditions
    }

    /// The condition that a column of the output has one of some values.
    pub(super) fn listed<'v>(
        &self,
        column: usize,
        values: impl IntoIterator<Item = &'v ScalarValue>,
    ) -> Option<Condition> {
        let found = among(column, values, &self.schema)?;
        Some(Condition {
            column: *self.columns.get(found.column)?,
            ..found
        })
    }

    fn part_conditions(&self, part: &Arc<dyn PhysicalExpr>) -> Vec<Condition> {
        match self.lists(part) {
            Some(lists) => {
                let few = lists
                    .iter()
                    .filter(|list| list.values.len() <= JOIN_KEYS_MAX);
                few.filter_map(|list| self.listed(list.column, &list.values))
                    .collect()
            }
            None => self.condition(part).into_iter().collect(),
        }
    }

    /// The lists of a predicate that is made of them; `None` if it is of another kind.
    fn lists(&self, part: &Arc<dyn PhysicalExpr>) -> Option<Vec<KeyList>> {
        if let Some(list) = part.downcast_ref::<InListExpr>() {
            return (!list.negated()).then(|| self.columns_of_list(list));
        }
        // One alternative for each partition of a join.
        let case = part.downcast_ref::<CaseExpr>()?;
        let thens = case.when_then_expr().iter().map(|(_, then)| then);
        let mut all: Option<Vec<KeyList>> = None;
        for then in thens.chain(case.else_expr()) {
            let Some(lists) = self.alternative(then) else {
                continue;
            };
            all = Some(match all {
                None => lists,
                Some(all) => either(all, lists),
            });
        }
        Some(all.unwrap_or_default())
    }

    /// The lists that an alternative has beside other conditions; `None` if no row meets it.
    fn alternative(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Vec<KeyList>> {
        let mut lists = Vec::new();
        for part in split_conjunction(expr) {
            if let Some(literal) = part.downcast_ref::<Literal>()
                && *literal.value() == ScalarValue::Boolean(Some(false))
            {
                return None;
            }
            lists.extend(self.lists(part).unwrap_or_default());
        }
        Some(lists)
    }

    /// The values of each column in a list of values, or of structs of several.
    fn columns_of_list(&self, list: &InListExpr) -> Vec<KeyList> {
        let subjects = match list.expr().downcast_ref::<ScalarFunctionExpr>() {
            Some(call) if call.name() == "struct" => call.args(),
            _ => std::slice::from_ref(list.expr()),
        };
        let is_struct = !subjects
            .first()
            .is_some_and(|first| Arc::ptr_eq(first, list.expr()));
        let literals = list.list().iter();
        let literals = literals.map(|value| value.downcast_ref::<Literal>().map(Literal::value));
        let Some(literals) = literals.collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        let key_list = |(number, subject): (usize, &Arc<dyn PhysicalExpr>)| {
            let column = column_of(subject, &self.schema)?;
            let mut values = HashSet::new();
            for literal in &literals {
                let value = match is_struct {
                    true => field(literal, number)?,
                    false => (*literal).clone(),
                };
                if !value.is_null() {
                    values.insert(value);
                }
            }
            Some(KeyList { column, values })
        };
        subjects.iter().enumerate().filter_map(key_list).collect()
    }
}

/// A field of a struct.
fn field(value: &ScalarValue, number: usize) -> Option<ScalarValue> {
    let ScalarValue::Struct(fields) = value else {
        return None;
    };
    let column = fields.columns().get(number)?;
    ScalarValue::try_from_array(column, 0).ok()
}

/// What holds if one of two alternatives does: each list that both have.
fn either(all: Vec<KeyList>, mut lists: Vec<KeyList>) -> Vec<KeyList> {
    let merge = |mut list: KeyList| {
        let other = lists.iter().position(|other| other.column == list.column)?;
        list.values.extend(lists.swap_remove(other).values);
        Some(list)
    };
    all.into_iter().filter_map(merge).collect()
}
