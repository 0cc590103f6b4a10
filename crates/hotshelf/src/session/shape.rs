//! The shape of a parsed statement: long chains become balanced trees, and what is too deep or too wide to plan
//! is refused.
//!
//! A chain of 10 000 ORs is parsed into a tree of depth 10 000, and planning descends into it many times. Grouped
//! by halves it has depth 14 and means the same. Functions here recurse over what is parsed: call them on a
//! large stack.

use std::ops::ControlFlow;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, Statement as ParsedStatement};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, ObjectName, OrderByKind, Query, Select, SetExpr,
    SetOperator, SetQuantifier, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::written_out::WrittenOut;
use crate::error::{Error, Result};

/// Nested expressions and queries that a statement may have.
///
/// Planning takes some 50 KiB of stack for each in a debug build; see [`super::aside`].
pub(super) const DEPTH_MAX: usize = 1_000;
/// Joins of one FROM, or set operations in a row: planning time grows with the third power of them.
const JOINS_MAX: usize = 200;
/// SELECTs of a statement, common table expressions of one WITH, and expressions of one SELECT list, GROUP BY or
/// ORDER BY: planning time grows with the square of them.
const SELECTS_MAX: usize = 4_000;
const SELECTS: &str = "SELECTs in one statement";
const CTES_MAX: usize = 500;
const ITEMS_MAX: usize = 2_000;
/// Tables of a statement with every use of a WITH and of a view written out, unless most are in its text.
const TABLES_MAX: usize = 2_000;
const TABLES: &str = "tables in one statement with every WITH and every view written out";
/// Terms of one chain of AND or OR.
const TERMS_MAX: usize = 20_000;
/// Chains up to this length stay as they are written.
const CHAIN_MAX: usize = 16;

/// Balances the statement's chains and checks its size. Gives the number of tables that its text names.
pub(super) fn reshape(statement: &mut ParsedStatement) -> Result<usize> {
    match statement {
        ParsedStatement::Statement(statement) => visit(statement.as_mut()),
        ParsedStatement::Explain(explain) => reshape(&mut explain.statement),
        ParsedStatement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => visit(query.as_mut()),
            CopyToSource::Relation(_) => Ok(1),
        },
        ParsedStatement::CreateExternalTable(_) | ParsedStatement::Reset(_) => Ok(0),
    }
}

/// Refuses the plan of a statement, whose text names `tables_named` tables, if views make too many of them: in a chain
/// of views that each use the one before twice, there are as many copies of the first as 2 to their number. Rows that
/// come from no table count once the text cannot have as many SELECTs.
pub(super) fn check_views(plan: &LogicalPlan, tables_named: usize) -> Result<()> {
    let limit = tables_limit(tables_named);
    let (mut tables, mut others, mut found) = (0, 0_usize, 0);
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(_) => tables += 1,
            other => others += usize::from(other.inputs().is_empty()),
        }
        found = tables + others.saturating_sub(SELECTS_MAX);
        Ok(match found > limit {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    let refused = at_most(TABLES, found, limit).break_value();
    refused.map_or(Ok(()), Err)
}

/// How many tables a statement may have whose text names `tables_named`.
fn tables_limit(tables_named: usize) -> usize {
    TABLES_MAX.max(2 * tables_named)
}

fn visit(node: &mut impl VisitMut) -> Result<usize> {
    let mut reshaper = Reshaper::default();
    match node.visit(&mut reshaper) {
        ControlFlow::Continue(()) => Ok(reshaper.written_out.named()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Refuses text with more SELECTs than a statement may have: parsing alone would take more memory than planning may.
pub(super) fn check_text(sql: &str, dialect: &dyn Dialect) -> Result<()> {
    let words = sql.as_bytes().windows(6);
    let selects = words.filter(|word| word.eq_ignore_ascii_case(b"select"));
    if selects.take(SELECTS_MAX + 1).count() <= SELECTS_MAX {
        return Ok(());
    }
    // What cannot be cut into tokens is the parser's to refuse.
    let tokens = Tokenizer::new(dialect, sql).tokenize().unwrap_or_default();
    for statement in tokens.split(|token| *token == Token::SemiColon) {
        let is_select =
            |token: &&Token| matches!(token, Token::Word(word) if word.keyword == Keyword::SELECT);
        let found = statement.iter().filter(is_select).count();
        if found > SELECTS_MAX {
            return Err(Error::TooWide {
                what: SELECTS,
                found,
                limit: SELECTS_MAX,
            });
        }
    }
    Ok(())
}

/// Says which limit it was when the parser gives up.
pub(super) fn name_the_limit(error: DataFusionError) -> Error {
    let is_limit = matches!(&error, DataFusionError::SQL(cause, _)
        if matches!(cause.as_ref(), ParserError::RecursionLimitExceeded));
    match is_limit {
        true => too_deep(),
        false => Error::from_query(error),
    }
}

fn too_deep() -> Error {
    Error::TooDeep {
        what: "expression",
        limit: DEPTH_MAX,
    }
}

/// An error if there are more of something than can be planned.
fn at_most(what: &'static str, found: usize, limit: usize) -> ControlFlow<Error> {
    match found > limit {
        true => ControlFlow::Break(Error::TooWide { what, found, limit }),
        false => ControlFlow::Continue(()),
    }
}

#[derive(Default)]
struct Reshaper {
    depth: usize,
    selects: usize,
    written_out: WrittenOut,
}

impl Reshaper {
    fn descend(&mut self) -> ControlFlow<Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return ControlFlow::Break(too_deep());
        }
        ControlFlow::Continue(())
    }

    fn ascend(&mut self) -> ControlFlow<Error> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }
}

impl VisitorMut for Reshaper {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        balance(expr)?;
        self.descend()
    }

    fn post_visit_expr(&mut self, _expr: &mut Expr) -> ControlFlow<Error> {
        self.ascend()
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        balance_union(&mut query.body);
        at_most(
            "set operations in a row",
            operations(&query.body),
            JOINS_MAX,
        )?;
        let ctes = query.with.as_ref().map_or(0, |with| with.cte_tables.len());
        at_most("common table expressions in one WITH", ctes, CTES_MAX)?;
        self.written_out.enter(query);
        let keys = match query.order_by.as_ref().map(|order_by| &order_by.kind) {
            Some(OrderByKind::Expressions(keys)) => keys.len(),
            _ => 0,
        };
        at_most("expressions in one ORDER BY", keys, ITEMS_MAX)?;
        self.descend()
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Error> {
        let tables = self.written_out.leave();
        at_most(TABLES, tables, tables_limit(self.written_out.named()))?;
        self.ascend()
    }

    fn pre_visit_relation(&mut self, table: &mut ObjectName) -> ControlFlow<Error> {
        self.written_out.name(table);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        self.selects += 1;
        at_most(SELECTS, self.selects, SELECTS_MAX)?;
        let tables = select.from.iter().map(|table| table.joins.len() + 1);
        let joins = tables.sum::<usize>().saturating_sub(1);
        at_most("joins in one FROM", joins, JOINS_MAX)?;
        at_most(
            "expressions in one SELECT list",
            select.projection.len(),
            ITEMS_MAX,
        )?;
        let keys = match &select.group_by {
            GroupByExpr::Expressions(keys, _) => keys.len(),
            GroupByExpr::All(_) => 0,
        };
        at_most("expressions in one GROUP BY", keys, ITEMS_MAX)
    }
}

/// Operators that may be grouped in any way.
fn is_associative(op: &BinaryOperator) -> bool {
    matches!(op, BinaryOperator::And | BinaryOperator::Or)
}

/// The operator of a chain `a op b op c …` that is long enough to be grouped anew.
fn long_chain(expr: &Expr) -> Option<BinaryOperator> {
    let Expr::BinaryOp { op: first, .. } = expr else {
        return None;
    };
    let (mut next, mut length) = (expr, 0);
    while let Expr::BinaryOp { left, op, .. } = next
        && op == first
        && length <= CHAIN_MAX
    {
        (next, length) = (left.as_ref(), length + 1);
    }
    (length > CHAIN_MAX && is_associative(first)).then(|| first.clone())
}

/// Groups a long chain by halves.
fn balance(expr: &mut Expr) -> ControlFlow<Error> {
    let Some(chain) = long_chain(expr) else {
        return ControlFlow::Continue(());
    };
    let mut next = std::mem::replace(expr, nothing());
    let mut operands = Vec::new();
    loop {
        match next {
            Expr::BinaryOp { left, op, right } if op == chain => {
                operands.push(*right);
                next = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    at_most("terms in one chain of AND or OR", operands.len(), TERMS_MAX)?;
    operands.reverse();
    let join = |left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: chain.clone(),
        right: Box::new(right),
    };
    if let Some(balanced) = by_halves(operands, &join) {
        *expr = balanced;
    }
    ControlFlow::Continue(())
}

fn nothing() -> Expr {
    Expr::Value(Value::Null.into())
}

/// Joins neighbours until one is left.
fn by_halves<T>(mut parts: Vec<T>, join: &impl Fn(T, T) -> T) -> Option<T> {
    while parts.len() > 1 {
        let mut joined = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            joined.push(match rest.next() {
                Some(right) => join(left, right),
                None => left,
            });
        }
        parts = joined;
    }
    parts.pop()
}

/// Set operations on the way to the first SELECT.
fn operations(body: &SetExpr) -> usize {
    let (mut next, mut count) = (body, 0);
    while let SetExpr::SetOperation { left, .. } = next {
        (next, count) = (left.as_ref(), count + 1);
    }
    count
}

/// The quantifier of a chain of UNIONs that is long enough to be grouped anew.
fn long_union(body: &SetExpr) -> Option<SetQuantifier> {
    let SetExpr::SetOperation {
        set_quantifier: first,
        ..
    } = body
    else {
        return None;
    };
    let (mut next, mut length) = (body, 0);
    while let SetExpr::SetOperation {
        left,
        op: SetOperator::Union,
        set_quantifier,
        ..
    } = next
        && set_quantifier == first
        && length <= CHAIN_MAX
    {
        (next, length) = (left.as_ref(), length + 1);
    }
    let by_position = matches!(
        first,
        SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None
    );
    (length > CHAIN_MAX && by_position).then_some(*first)
}

/// Groups a long chain of UNIONs of one kind by halves; the first arm still names the columns.
fn balance_union(body: &mut Box<SetExpr>) {
    let Some(chain) = long_union(body) else {
        return;
    };
    let empty = SetExpr::Table(Box::new(datafusion::sql::sqlparser::ast::Table {
        table_name: None,
        schema_name: None,
    }));
    let mut next = std::mem::replace(body.as_mut(), empty);
    let mut arms = Vec::new();
    loop {
        match next {
            SetExpr::SetOperation {
                left,
                op: SetOperator::Union,
                set_quantifier,
                right,
            } if set_quantifier == chain => {
                arms.push(*right);
                next = *left;
            }
            first => {
                arms.push(first);
                break;
            }
        }
    }
    arms.reverse();
    let join = |left, right| SetExpr::SetOperation {
        left: Box::new(left),
        op: SetOperator::Union,
        set_quantifier: chain,
        right: Box::new(right),
    };
    if let Some(balanced) = by_halves(arms, &join) {
        **body = balanced;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParser;

    fn reshaped(sql: &str) -> ParsedStatement {
        let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
        reshape(&mut statement).unwrap();
        statement
    }

    #[test]
    fn a_long_chain_keeps_its_operands_in_order() {
        let terms: Vec<String> = (0..100).map(|n| format!("a = {n}")).collect();
        let sql = format!("SELECT a FROM t WHERE {}", terms.join(" OR "));
        // Grouping does not show in the text.
        assert_eq!(reshaped(&sql).to_string(), sql);
    }

    #[test]
    fn a_long_chain_becomes_a_flat_tree() {
        let numbers = || (0..1000).map(|n| n.to_string()).collect::<Vec<_>>();
        let join = |left: String, right: String| format!("({left} {right})");
        let text = by_halves(numbers(), &join).unwrap();
        let depth = text.chars().scan(0i32, |depth, c| {
            *depth += i32::from(c == '(') - i32::from(c == ')');
            Some(*depth)
        });
        assert_eq!(depth.max(), Some(10));
        let flat = text.replace(['(', ')'], "");
        assert_eq!(flat, numbers().join(" "));
    }

    #[test]
    fn chains_of_unions_keep_their_arms_in_order() {
        let arms: Vec<String> = (0..50).map(|n| format!("SELECT {n}")).collect();
        for between in [" UNION ALL ", " UNION "] {
            let sql = arms.join(between);
            assert_eq!(reshaped(&sql).to_string(), sql);
        }
        let mixed = format!("{} EXCEPT SELECT 7", arms.join(" UNION ALL "));
        assert_eq!(reshaped(&mixed).to_string(), mixed);
    }

    #[test]
    fn too_many_joins_are_refused() {
        let joins = " CROSS JOIN t".repeat(JOINS_MAX + 1);
        let sql = format!("SELECT 1 FROM t{joins}");
        let mut statement = DFParser::parse_sql(&sql).unwrap().pop_front().unwrap();
        let refused = reshape(&mut statement).unwrap_err();
        assert!(matches!(refused, Error::TooWide { found, .. } if found == JOINS_MAX + 1));
    }

    #[test]
    fn selects_are_counted_before_they_are_parsed() {
        use datafusion::sql::sqlparser::dialect::GenericDialect;
        let check = |sql: &str| check_text(sql, &GenericDialect);
        let many = |between: &str| vec!["Select 1"; SELECTS_MAX + 1].join(between);
        assert!(check(&many(" UNION ALL ")).is_err());
        assert!(check(&many("; ")).is_ok());
        assert!(check(&format!("SELECT '{}'", many(" "))).is_ok());
        assert!(check("SELECT 1").is_ok());
    }

    #[test]
    fn what_takes_too_long_to_plan_is_refused_by_name() {
        let many = |count: usize, between: &str, part: &str| vec![part; count].join(between);
        let ctes: Vec<String> = (0..=CTES_MAX)
            .map(|n| format!("c{n} AS (SELECT 1)"))
            .collect();
        for (sql, named) in [
            (many(SELECTS_MAX + 1, " UNION ALL ", "SELECT 1"), "SELECTs"),
            (format!("WITH {} SELECT 1", ctes.join(",")), "common table"),
            (
                format!("SELECT {}", many(ITEMS_MAX + 1, ",", "a")),
                "SELECT list",
            ),
            (
                format!("SELECT a FROM t GROUP BY {}", many(ITEMS_MAX + 1, ",", "a")),
                "GROUP BY",
            ),
            (
                format!("SELECT a FROM t ORDER BY {}", many(ITEMS_MAX + 1, ",", "a")),
                "ORDER BY",
            ),
            (
                format!(
                    "SELECT a FROM t WHERE {}",
                    many(TERMS_MAX + 1, " OR ", "a = 1")
                ),
                "AND or OR",
            ),
        ] {
            let parser = datafusion::sql::parser::DFParserBuilder::new(sql.as_str());
            let parsed = parser
                .with_recursion_limit(50_000)
                .build()
                .unwrap()
                .parse_statements();
            let mut statement = parsed.unwrap().pop_front().unwrap();
            let refused = aside_stack(move || reshape(&mut statement)).unwrap_err();
            assert!(
                matches!(refused, Error::TooWide { what, .. } if what.contains(named)),
                "{refused}"
            );
        }
    }

    /// Runs on a stack as planning has it.
    fn aside_stack<T: Send + 'static>(
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        super::super::aside::run("testing", work)
    }
}
