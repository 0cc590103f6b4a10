//! LIMIT and OFFSET for each of a domain's values: rows are numbered within them.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::error::Result as QueryResult;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, FetchType, Filter, Limit, LogicalPlan, SkipType, SortExpr, Window, lit,
};

use super::domain::Domain;
use super::parts::{Names, columns_of, refused};

/// The rows of a limit for each of the domain's values.
pub(super) fn push(
    domain: &Domain,
    node: &LogicalPlan,
    limit: &Limit,
    names: &Names,
) -> QueryResult<LogicalPlan> {
    let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return Err(refused("LIMIT by an expression"));
    };
    let Ordered { rows, keys, values } = Ordered::of(&limit.input);
    let input = domain.push(rows, names)?;
    let keys = keys.iter().map(|key| {
        let expr = domain.read(&key.expr)?;
        Ok(SortKey::new(expr, key.asc, key.nulls_first))
    });
    let keys: Vec<SortExpr> = keys.collect::<QueryResult<_>>()?;
    let values = values.iter().map(|expr| domain.read(expr));
    let values: Vec<Expr> = values.collect::<QueryResult<_>>()?;
    let name = names.next("number");
    let number = row_number().partition_by(domain.keys());
    let number = match keys.is_empty() {
        true => number.build()?,
        false => number.order_by(keys).build()?,
    };
    let number = number.alias(&name);
    let numbered = Window::try_new(vec![number], Arc::new(input))?;
    let number = Expr::Column(Column::from_name(name));
    let mut kept = number.clone().gt(lit(skip as u64));
    if let Some(fetch) = fetch {
        let last = skip.saturating_add(fetch);
        kept = kept.and(number.lt_eq(lit(last as u64)));
    }
    let kept = Filter::try_new(kept, Arc::new(LogicalPlan::Window(numbered)))?;
    domain.project(node, LogicalPlan::Filter(kept), values)
}

/// Rows, their order, and what is computed of them.
struct Ordered<'a> {
    rows: &'a LogicalPlan,
    keys: &'a [SortExpr],
    values: Vec<Expr>,
}

impl<'a> Ordered<'a> {
    fn of(input: &'a LogicalPlan) -> Self {
        match input {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => Self {
                rows: &sort.input,
                keys: &sort.expr,
                values: columns_of(&sort.input),
            },
            LogicalPlan::Projection(projection) => match projection.input.as_ref() {
                LogicalPlan::Sort(sort) if sort.fetch.is_none() => Self {
                    rows: &sort.input,
                    keys: &sort.expr,
                    values: projection.expr.clone(),
                },
                _ => Self::unordered(input),
            },
            _ => Self::unordered(input),
        }
    }

    fn unordered(rows: &'a LogicalPlan) -> Self {
        let (keys, values) = (&[], columns_of(rows));
        Self { rows, keys, values }
    }
}
