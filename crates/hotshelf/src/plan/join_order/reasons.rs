//! Why a tree of joins keeps the order of the text.

use std::collections::HashMap;

use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::estimate::estimate;
use super::rel_set::RELATIONS_MAX;
use super::safe::cannot_fail;
use super::tree::{Flat, LeftJoins, name};

/// Characters of an expression that are shown.
const SHOWN: usize = 60;

/// Why there is no graph of a tree of joins, in words; `None` where it joins two tables or fewer.
pub(super) fn why_as_written(plan: &LogicalPlan, left_joins: LeftJoins) -> Option<String> {
    let flat = Flat::of(plan, left_joins)?;
    if flat.relations.len() < 3 {
        return None;
    }
    let names: Vec<String> = flat.relations.iter().map(|plan| name(plan)).collect();
    let reason = reason(&flat);
    Some(format!(
        "{}: joined in the order of the text, as {reason}",
        names.join(", ")
    ))
}

fn reason(flat: &Flat) -> String {
    if flat.relations.len() > RELATIONS_MAX {
        return format!("there are more than {RELATIONS_MAX}");
    }
    let unknown = flat.relations.iter().find(|plan| estimate(plan).is_none());
    if let Some(unknown) = unknown {
        return format!("nothing is known about the rows of {}", name(unknown));
    }
    let fields = flat.relations.iter().flat_map(|plan| plan.schema().iter());
    let fields = fields.map(|(qualifier, field)| (qualifier.cloned(), field.clone()));
    let Ok(columns) = DFSchema::new_with_metadata(fields.collect(), HashMap::new()) else {
        return "two columns have the same name".into();
    };
    let keys = flat.pairs.iter().flat_map(|(left, right)| [left, right]);
    let mut exprs = keys.chain(&flat.predicates);
    let is_in_the_way = |expr: &&Expr| expr.is_volatile() || !cannot_fail(expr, &columns);
    match exprs.find(is_in_the_way) {
        Some(expr) if expr.is_volatile() => format!("{} differs each time", shown(expr)),
        Some(expr) => format!("{} may fail for rows that another join drops", shown(expr)),
        None => "a condition reads what a left join adds".into(),
    }
}

fn shown(expr: &Expr) -> String {
    let text = expr.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
