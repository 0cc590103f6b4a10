//! Keeps the engine's simplification from merging lists where that is wrong for NULL.
//!
//! `a NOT IN (1) OR a NOT IN (2)` is simplified to TRUE, which is wrong for rows where `a` is NULL, and so are other
//! intersections and differences of lists (`docs/upstream/in-lists.md`). Where an expression is looked for in several
//! lists of one predicate, its columns are marked, each occurrence differently, while the rule runs: the rule then does
//! not see that the lists are about the same thing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::optimizer::OptimizerConfig;

use super::decisions::{all_shown, wanted};
use super::expressions::with_names_kept;
use super::node_rule::EngineRule;

/// The engine's simplification, with lists kept apart.
pub(super) fn keep_lists_apart(
    simplify: &EngineRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> QueryResult<Transformed<LogicalPlan>> {
    if !super::node_has_expression(&plan, may_compare_with_list)? {
        return simplify.rewrite(plan, config);
    }
    let options = config.options();
    let notes = wanted(&options);
    let marked = with_names_kept(plan, |expr| {
        let shared = shared_subjects(&expr)?;
        if shared.is_empty() {
            return Ok(Transformed::no(expr));
        }
        if let Some(notes) = notes {
            let subjects = all_shown(sorted(&shared));
            notes.note(format!(
                "the lists that {subjects} is compared with are not merged, which could be wrong where it is NULL"
            ));
        }
        mark(expr, &shared)
    })?;
    if !marked.transformed {
        return simplify.rewrite(marked.data, config);
    }
    let simplified = simplify.rewrite(marked.data, config)?;
    let plain = with_names_kept(simplified.data, |expr| expr.transform_up(unmark))?;
    Ok(Transformed::new_transformed(
        plain.data,
        simplified.transformed,
    ))
}

fn may_compare_with_list(expr: &Expr) -> bool {
    match expr {
        Expr::InList(_) => true,
        Expr::BinaryExpr(binary) => binary.op == Operator::Or,
        _ => false,
    }
}

/// What is compared with different lists of literals: in lists, or in chains of `a = 1 OR a = 2`, which the
/// simplification makes lists of.
fn shared_subjects(expr: &Expr) -> QueryResult<Vec<Expr>> {
    let mut lists: HashMap<&Expr, HashSet<&Expr>> = HashMap::new();
    expr.apply(|node| {
        Ok(match node {
            Expr::InList(list) => {
                lists.entry(&list.expr).or_default().insert(node);
                TreeNodeRecursion::Continue
            }
            Expr::BinaryExpr(BinaryExpr {
                op: Operator::Or, ..
            }) => match chain_subject(node) {
                Some(subject) => {
                    lists.entry(subject).or_default().insert(node);
                    TreeNodeRecursion::Jump
                }
                None => TreeNodeRecursion::Continue,
            },
            _ => TreeNodeRecursion::Continue,
        })
    })?;
    let shared = lists.into_iter().filter(|(_, lists)| lists.len() > 1);
    Ok(shared.map(|(subject, _)| subject.clone()).collect())
}

/// Expressions in an order that is the same each time.
fn sorted(exprs: &[Expr]) -> Vec<String> {
    let mut texts: Vec<String> = exprs.iter().map(Expr::to_string).collect();
    texts.sort();
    texts
}

/// The subject of a chain of alternatives that are all about it: `a = 1 OR a IN (2, 3)`.
fn chain_subject(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Or,
            right,
        }) => {
            let subject = chain_subject(left)?;
            (chain_subject(right)? == subject).then_some(subject)
        }
        Expr::InList(InList {
            expr,
            negated: false,
            ..
        }) => Some(expr),
        equality => equality_subject(equality),
    }
}

/// The side of `a = literal` that is not the literal.
fn equality_subject(expr: &Expr) -> Option<&Expr> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = expr
    else {
        return None;
    };
    match (left.as_ref(), right.as_ref()) {
        (Expr::Literal(..), Expr::Literal(..)) => None,
        (subject, Expr::Literal(..)) | (Expr::Literal(..), subject) => Some(subject),
        _ => None,
    }
}

/// Marks the columns of shared subjects: in each list, and in each chain, with another number. Equal ones get the
/// same, so that what is common to alternatives is still found.
fn mark(expr: Expr, shared: &[Expr]) -> QueryResult<Transformed<Expr>> {
    let mut numbers: HashMap<Expr, i64> = HashMap::new();
    let mut number_of = |node: &Expr| {
        let next = numbers.len() as i64;
        *numbers.entry(node.clone()).or_insert(next)
    };
    expr.transform_down(|node| {
        if chain_subject(&node).is_some_and(|subject| shared.contains(subject)) {
            let number = number_of(&node);
            let marked = mark_columns(node, number)?;
            return Ok(Transformed::new(marked.data, true, TreeNodeRecursion::Jump));
        }
        let number = matches!(&node, Expr::InList(list) if shared.contains(&list.expr))
            .then(|| number_of(&node));
        match (node, number) {
            (Expr::InList(mut list), Some(number)) => {
                *list.expr = mark_columns(*list.expr, number)?.data;
                let node = Expr::InList(list);
                Ok(Transformed::new(node, true, TreeNodeRecursion::Jump))
            }
            (other, _) => Ok(Transformed::no(other)),
        }
    })
}

fn mark_columns(expr: Expr, number: i64) -> QueryResult<Transformed<Expr>> {
    expr.transform_up(|node| {
        Ok(match node {
            Expr::Column(_) => {
                let call = ScalarFunction::new_udf(MARK.clone(), vec![node, lit(number)]);
                Transformed::yes(Expr::ScalarFunction(call))
            }
            other => Transformed::no(other),
        })
    })
}

fn unmark(expr: Expr) -> QueryResult<Transformed<Expr>> {
    Ok(match expr {
        Expr::ScalarFunction(mut call) if call.func.name() == MARK_NAME => {
            Transformed::yes(call.args.swap_remove(0))
        }
        other => Transformed::no(other),
    })
}

const MARK_NAME: &str = "keep_lists_apart";
static MARK: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Arc::new(ScalarUDF::from(Mark::new())));

/// A function that gives its first argument; it is in no plan that runs.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    signature: Signature,
}

impl Mark {
    fn new() -> Self {
        Self {
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &str {
        MARK_NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> QueryResult<DataType> {
        match types.first() {
            Some(first) => Ok(first.clone()),
            None => internal_err!("{MARK_NAME} wants an argument"),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> QueryResult<FieldRef> {
        match args.arg_fields.first() {
            Some(first) => Ok(first.clone()),
            None => internal_err!("{MARK_NAME} wants an argument"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> QueryResult<ColumnarValue> {
        match args.args.into_iter().next() {
            Some(first) => Ok(first),
            None => internal_err!("{MARK_NAME} wants an argument"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn lists_of_one_predicate_are_not_merged() {
        let query =
            "SELECT n FROM t WHERE n > 1 + 2 AND (v NOT IN (1, 2, 5, 6) OR v NOT IN (3, 4, 7, 8))";
        before_after("simplify_expressions", &[query]).is(
            "
            Projection: t.n
              Filter: t.n > Int64(1) + Int64(2) AND (t.v NOT IN ([Int64(1), Int64(2), Int64(5), Int64(6)]) OR t.v \
                  NOT IN ([Int64(3), Int64(4), Int64(7), Int64(8)]))
                TableScan: t
            ",
            "
            Projection: t.n
              Filter: t.n > Int64(3) AND (t.v NOT IN ([Int64(1), Int64(2), Int64(5), Int64(6)]) OR t.v NOT IN \
                  ([Int64(3), Int64(4), Int64(7), Int64(8)]))
                TableScan: t
            ",
        );
    }
}
