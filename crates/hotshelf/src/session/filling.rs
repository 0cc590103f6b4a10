//! Plans of templates: the values of a query are put into the plan that an earlier one had with others.
//!
//! Where the filter of the optimized plan is what its predicate becomes by itself, under the rules that look at
//! predicates, it is made anew with other values, and all else stays. What it is made of has typed placeholders in the
//! place of the values, each found by walking the text and the plan side by side.

use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::Field;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, Operator};
use datafusion::optimizer::Optimizer;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr as SqlExpr, UnaryOperator};

use super::template::{Template, compares, parameter, slot};
use crate::kept_plans::{KeptPlan, Proof};

/// The engine's rules that change the predicate of a filter above a scan.
const PREDICATE_RULES: [&str; 2] = ["simplify_expressions", "push_down_filter"];

/// The plan of a query as that of its template, which is to be proved by the next query; none if its filter is not
/// what the predicate becomes by itself.
pub(super) fn of_template(
    plan: &KeptPlan,
    template: &Template,
    state: &SessionState,
) -> Option<KeptPlan> {
    let mut predicate = scan_filter(&plan.plan)?.predicate.clone();
    let placed = place(template.condition()?, &mut predicate, &template.values)?;
    if placed != template.values.len() {
        return None;
    }
    let kept = KeptPlan {
        plan: with_predicate(&plan.plan, predicate).ok()??,
        optimized: plan.optimized.clone(),
        template: plan.template,
        join_sides: plan.join_sides.clone(),
        may_run_again: plan.may_run_again,
        proof: Proof::open(),
        outline: OnceLock::new(),
    };
    let is_same = filled(&kept, &template.values, state).is_some_and(|own| is_plan(&own, plan));
    is_same.then_some(kept)
}

/// Whether two plans are the same.
pub(super) fn is_plan(one: &KeptPlan, other: &KeptPlan) -> bool {
    one.plan == other.plan && one.optimized == other.optimized
}

/// A template's plan with values; none if they make another plan, or an error.
pub(super) fn filled(
    kept: &KeptPlan,
    values: &[ScalarValue],
    state: &SessionState,
) -> Option<KeptPlan> {
    let filter = scan_filter(&kept.plan)?;
    let predicate = with_values(filter.predicate.clone(), values).ok()?;
    let treated = treated(&predicate, filter, state).ok()??;
    Some(KeptPlan {
        plan: with_predicate(&kept.plan, predicate).ok()??,
        optimized: with_predicate(&kept.optimized, treated).ok()??,
        template: kept.template,
        join_sides: kept.join_sides.clone(),
        may_run_again: kept.may_run_again,
        proof: Proof::given(),
        outline: OnceLock::new(),
    })
}

/// What a predicate above a scan becomes when it is analyzed and optimized. None if no filter remains: all rows or none
/// meet it.
fn treated(predicate: &Expr, filter: &Filter, state: &SessionState) -> QueryResult<Option<Expr>> {
    let filter = Filter::try_new(predicate.clone(), filter.input.clone())?;
    let analyzer = state.analyzer();
    let options = state.config_options();
    let plan = analyzer.execute_and_check(LogicalPlan::Filter(filter), options, |_, _| {})?;
    let rules = state.optimizers().iter();
    let rules = rules.filter(|rule| PREDICATE_RULES.contains(&rule.name()));
    let optimizer = Optimizer::with_rules(rules.cloned().collect());
    let plan = optimizer.optimize(plan, state, |_, _| {})?;
    let treated = scan_filter(&plan).map(|filter| filter.predicate.clone());
    Ok(treated.filter(|predicate| !matches!(predicate, Expr::Literal(..))))
}

/// The filter right above the scan of a plan that reads one table.
fn scan_filter(plan: &LogicalPlan) -> Option<&Filter> {
    let mut node = plan;
    loop {
        if let LogicalPlan::Filter(filter) = node
            && is_scan(&filter.input)
        {
            return Some(filter);
        }
        node = match node.inputs().as_slice() {
            [input] => input,
            _ => return None,
        };
    }
}

fn is_scan(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(scan) => scan.filters.is_empty(),
        LogicalPlan::SubqueryAlias(alias) => matches!(&*alias.input, LogicalPlan::TableScan(scan)
            if scan.filters.is_empty()),
        _ => false,
    }
}

/// The plan with another predicate in the filter above its scan.
fn with_predicate(plan: &LogicalPlan, predicate: Expr) -> QueryResult<Option<LogicalPlan>> {
    let mut predicate = Some(predicate);
    let plan = plan.clone().transform_down(|node| match node {
        LogicalPlan::Filter(filter) if is_scan(&filter.input) => {
            let Some(predicate) = predicate.take() else {
                return Ok(Transformed::no(LogicalPlan::Filter(filter)));
            };
            let filter = LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?);
            Ok(Transformed::new(filter, true, TreeNodeRecursion::Stop))
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(predicate.is_none().then_some(plan.data))
}

fn with_values(predicate: Expr, values: &[ScalarValue]) -> QueryResult<Expr> {
    let filled = predicate.transform_up(|expr| {
        let value = match &expr {
            Expr::Placeholder(own) => parameter(&own.id).and_then(|idx| values.get(idx)),
            _ => None,
        };
        Ok(match value {
            Some(value) => Transformed::yes(Expr::Literal(value.clone(), None)),
            None => Transformed::no(expr),
        })
    });
    filled.data()
}

/// Puts placeholders where a condition has them in its text, and gives their number. None if the planner has made
/// something else of the text.
fn place(condition: &SqlExpr, expr: &mut Expr, values: &[ScalarValue]) -> Option<usize> {
    match (condition, expr) {
        (SqlExpr::Nested(inner), expr) => place(inner, expr, values),
        (
            SqlExpr::UnaryOp {
                op: UnaryOperator::Not,
                expr: inner,
            },
            Expr::Not(expr),
        ) => place(inner, expr, values),
        (SqlExpr::BinaryOp { left, op, right }, Expr::BinaryExpr(binary)) => {
            let sides: [(&SqlExpr, &mut Expr); 2] =
                [(left, &mut binary.left), (right, &mut binary.right)];
            let of_side = |(text, expr): (&SqlExpr, &mut Expr)| match op {
                BinaryOperator::And if binary.op == Operator::And => place(text, expr, values),
                BinaryOperator::Or if binary.op == Operator::Or => place(text, expr, values),
                op if compares(op) => place_value(text, expr, values),
                _ => Some(0),
            };
            sides.into_iter().map(of_side).sum()
        }
        (SqlExpr::Between { low, high, .. }, Expr::Between(between)) => {
            let ends = [(low, &mut between.low), (high, &mut between.high)];
            let ends = ends.into_iter();
            ends.map(|(text, expr)| place_value(text, expr, values))
                .sum()
        }
        (SqlExpr::InList { list, .. }, Expr::InList(in_list))
            if list.len() == in_list.list.len() =>
        {
            let pairs = list.iter().zip(&mut in_list.list);
            pairs
                .map(|(text, expr)| place_value(text, expr, values))
                .sum()
        }
        _ => Some(0),
    }
}

/// Puts a placeholder in the place of a value, if the text has one there.
fn place_value(text: &SqlExpr, expr: &mut Expr, values: &[ScalarValue]) -> Option<usize> {
    let Some(idx) = slot(text) else {
        return Some(0);
    };
    let known = values.get(idx)?;
    match expr {
        Expr::Literal(value, None) if value == known => {}
        _ => return None,
    }
    let field = Arc::new(Field::new("", known.data_type(), true));
    let id = format!("${}", idx + 1);
    *expr = Expr::Placeholder(Placeholder::new_with_field(id, Some(field)));
    Some(1)
}
