//! Templates of small queries: what they are without the values that their WHERE compares with.
//!
//! Queries of one table that differ in such values only have the same template, and share a plan
//! ([`super::filling`]). Values elsewhere stay in the template: they may name columns or limit rows. Functions here
//! recurse over what is parsed: call them on a large stack.

use std::ops::ControlFlow;

use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, SetExpr, Statement as SqlStatement, TableFactor,
    UnaryOperator, Value, ValueWithSpan, Visit, Visitor,
};

/// A query with more values has no template.
const VALUES_MAX: usize = 64;
/// Longer texts stay in the template.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// A query of one table without the values that its WHERE compares with.
#[derive(Debug)]
pub(super) struct Template {
    /// With `$1`, `$2`, … in their places.
    pub query: Box<SqlStatement>,
    /// In this order, as the planner would read them.
    pub values: Vec<ScalarValue>,
}

impl Template {
    /// None for statements that are not such queries, and where there are no such values, or too many of them.
    pub fn of(statement: &ParsedStatement, floats_are_decimals: bool) -> Option<Self> {
        let ParsedStatement::Statement(statement) = statement else {
            return None;
        };
        condition(statement)?;
        if statement.visit(&mut Plain::default()).is_break() {
            return None;
        }
        let mut query = statement.clone();
        let mut values = Vec::new();
        each_operand(condition_mut(&mut query)?, &mut |operand| {
            if let Some(value) = literal(operand, floats_are_decimals) {
                values.push(value);
                *operand = Expr::value(Value::Placeholder(format!("${}", values.len())));
            }
        });
        (1..=VALUES_MAX)
            .contains(&values.len())
            .then_some(Self { query, values })
    }

    /// What follows WHERE.
    pub fn condition(&self) -> Option<&Expr> {
        condition(&self.query)
    }
}

/// The number of a `$1`, from 0.
pub(super) fn slot(expr: &Expr) -> Option<usize> {
    let Expr::Value(ValueWithSpan {
        value: Value::Placeholder(name),
        ..
    }) = expr
    else {
        return None;
    };
    parameter(name)
}

/// The number that the name of a parameter says, from 0.
pub(super) fn parameter(name: &str) -> Option<usize> {
    let number: usize = name.strip_prefix('$')?.parse().ok()?;
    number.checked_sub(1)
}

/// Whether an operator compares two values.
pub(super) fn compares(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
    )
}

/// The WHERE of a query that selects from one table.
fn condition(statement: &SqlStatement) -> Option<&Expr> {
    match statement {
        SqlStatement::Query(query) if is_small(query) => match query.body.as_ref() {
            SetExpr::Select(select) => select.selection.as_ref(),
            _ => None,
        },
        _ => None,
    }
}

fn condition_mut(statement: &mut SqlStatement) -> Option<&mut Expr> {
    match statement {
        SqlStatement::Query(query) => match query.body.as_mut() {
            SetExpr::Select(select) => select.selection.as_mut(),
            _ => None,
        },
        _ => None,
    }
}

fn is_small(query: &Query) -> bool {
    let is_one_table = |select: &Select| match select.from.as_slice() {
        [table] => {
            table.joins.is_empty()
                && matches!(&table.relation, TableFactor::Table { args: None, .. })
        }
        _ => false,
    };
    let reads_one_table =
        matches!(query.body.as_ref(), SetExpr::Select(select) if is_one_table(select));
    query.with.is_none() && query.pipe_operators.is_empty() && reads_one_table
}

/// Stops at a query inside of the query, and at a parameter.
#[derive(Default)]
struct Plain {
    queries: usize,
}

impl Visitor for Plain {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        self.queries += 1;
        match self.queries {
            1 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
        match value.value {
            Value::Placeholder(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Calls `with` for each side of a condition's comparisons whose other side is more than a value, in order.
fn each_operand(condition: &mut Expr, with: &mut impl FnMut(&mut Expr)) {
    match condition {
        Expr::Nested(inner)
        | Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: inner,
        } => each_operand(inner, with),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And | BinaryOperator::Or,
            right,
        } => {
            each_operand(left, with);
            each_operand(right, with);
        }
        Expr::BinaryOp { left, op, right } if compares(op) => {
            match (is_literal(left), is_literal(right)) {
                (false, true) => with(right),
                (true, false) => with(left),
                _ => {}
            }
        }
        Expr::Between {
            expr, low, high, ..
        } if !is_literal(expr) => {
            with(low);
            with(high);
        }
        Expr::InList { expr, list, .. } if !is_literal(expr) => list.iter_mut().for_each(with),
        _ => {}
    }
}

/// Whether an expression names nothing at first sight.
fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Value(_) => true,
        Expr::UnaryOp { expr, .. } => matches!(expr.as_ref(), Expr::Value(_)),
        _ => false,
    }
}

/// The value of a number or a text as the planner reads it; none for other literals, which stay as they are.
fn literal(expr: &Expr, floats_are_decimals: bool) -> Option<ScalarValue> {
    match expr {
        Expr::Value(literal) => match &literal.value {
            Value::Number(text, _) => number(text, floats_are_decimals),
            Value::SingleQuotedString(text) if text.len() <= TEXT_BYTES_MAX => {
                Some(ScalarValue::Utf8(Some(text.clone())))
            }
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(ValueWithSpan {
                value: Value::Number(text, _),
                ..
            }) => number(&format!("-{text}"), floats_are_decimals),
            _ => None,
        },
        _ => None,
    }
}

/// [`super::exact_number`] has made something else of a number that the double would change.
fn number(text: &str, floats_are_decimals: bool) -> Option<ScalarValue> {
    let text = text.replace('_', "");
    if let Ok(number) = text.parse::<i64>() {
        return Some(ScalarValue::Int64(Some(number)));
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(ScalarValue::UInt64(Some(number)));
    }
    let number = text.parse::<f64>().ok().filter(|_| !floats_are_decimals)?;
    Some(ScalarValue::Float64(Some(number)))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    fn template(sql: &str) -> Option<Template> {
        Template::of(&DFParser::parse_sql(sql).unwrap()[0], false)
    }

    /// Its text, and its values.
    fn shown(sql: &str) -> (String, Vec<ScalarValue>) {
        let template = template(sql).unwrap();
        (template.query.to_string(), template.values)
    }

    #[test]
    fn each_value_has_a_place_of_its_own_also_beside_an_equal_one() {
        let (text, values) = shown(
            "SELECT a + 1, 'x' FROM t WHERE (a = 1 OR 1 < b) AND NOT c BETWEEN 1 AND -1 AND d IN ('x', 'x', 2)",
        );
        assert_eq!(
            text,
            "SELECT a + 1, 'x' FROM t WHERE (a = $1 OR $2 < b) AND NOT c BETWEEN $3 AND $4 AND d IN ($5, $6, $7)"
        );
        let one = || ScalarValue::from(1_i64);
        let x = || ScalarValue::from("x");
        let expected = [one(), one(), one(), (-1_i64).into(), x(), x(), 2_i64.into()];
        assert_eq!(values, expected);
    }

    #[test]
    fn numbers_are_what_the_planner_reads() {
        let value = |text: &str| {
            shown(&format!("SELECT a FROM t WHERE a = {text}"))
                .1
                .remove(0)
        };
        assert_eq!(value("-9223372036854775808"), i64::MIN.into());
        assert_eq!(value("9223372036854775808"), (1_u64 << 63).into());
        assert_eq!(value("1.5"), 1.5.into());
        assert_eq!(value("-1e3"), (-1e3).into());
        let decimal = DFParser::parse_sql("SELECT a FROM t WHERE a = 1.5").unwrap();
        assert!(Template::of(&decimal[0], true).is_none());
    }

    #[test]
    fn other_values_and_other_queries_stay_as_they_are() {
        for condition in [
            "1 = 1",
            "a = NULL",
            "a = true",
            "a = DATE '2020-01-01'",
            "a LIKE 'x'",
            "1 IN (a, 2)",
            "a + 1 = b",
            "a = 1 AND b = $1",
            "a = (SELECT 1)",
            "a IS NULL",
            &format!("a = '{}'", "x".repeat(TEXT_BYTES_MAX + 1)),
            &format!("a IN (0{})", ", 1".repeat(VALUES_MAX)),
        ] {
            let sql = format!("SELECT a FROM t WHERE {condition}");
            assert!(template(&sql).is_none(), "{condition}");
        }
        for sql in [
            "SELECT a FROM t",
            "SELECT a FROM t, u WHERE a = 1",
            "SELECT a FROM t JOIN u USING (a) WHERE a = 1",
            "SELECT a FROM (SELECT 1 AS a) AS t WHERE a = 1",
            "SELECT a FROM f(1) WHERE a = 1",
            "SELECT (SELECT 1) FROM t WHERE a = 1",
            "WITH t AS (SELECT 1 AS a) SELECT a FROM t WHERE a = 1",
            "SELECT a FROM t WHERE a = 1 UNION SELECT 2",
            "EXPLAIN SELECT a FROM t WHERE a = 1",
            "DELETE FROM t WHERE a = 1",
        ] {
            assert!(template(sql).is_none(), "{sql}");
        }
        let (text, values) = shown("SELECT a FROM t WHERE a + 1 = 2 AND 1 = 1 LIMIT 1");
        assert_eq!(text, "SELECT a FROM t WHERE a + 1 = $1 AND 1 = 1 LIMIT 1");
        assert_eq!(values, [2_i64.into()]);
    }
}
