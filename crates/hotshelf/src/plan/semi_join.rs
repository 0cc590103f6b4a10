//! A semi join that is moved towards the rows that it drops.

use std::sync::Arc;

use datafusion::common::{Column, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinConstraint, JoinType, LogicalPlan, Projection,
};

/// Rows stay whose columns have equals among the values that a plan gives.
#[derive(Debug, Clone)]
pub(super) struct SemiJoin {
    /// Columns of the rows, and the values to compare them with.
    pub on: Vec<(Column, Expr)>,
    pub keys: Arc<LogicalPlan>,
}

impl SemiJoin {
    /// The semi join of a plan with plain columns as keys and nothing else to test.
    pub fn of(join: &Join) -> Option<Self> {
        let is_plain = join.join_type == JoinType::LeftSemi
            && join.filter.is_none()
            && join.null_equality == NullEquality::NullEqualsNothing;
        let on = join.on.iter().map(|(left, right)| match left {
            Expr::Column(column) => Some((column.clone(), right.clone())),
            _ => None,
        });
        let on = on
            .collect::<Option<Vec<_>>>()
            .filter(|on| is_plain && !on.is_empty())?;
        Some(Self {
            on,
            keys: join.right.clone(),
        })
    }

    /// The plan without the rows that have no equal, dropped as early as their columns are there.
    pub fn place(&self, rows: &Arc<LogicalPlan>) -> QueryResult<LogicalPlan> {
        Ok(match self.below(rows)? {
            Some(placed) => placed,
            None => self.above(rows.clone())?,
        })
    }

    /// The same if it can be done below the topmost node.
    pub fn below(&self, rows: &Arc<LogicalPlan>) -> QueryResult<Option<LogicalPlan>> {
        Ok(match rows.as_ref() {
            LogicalPlan::Filter(filter) if !is_scan(&filter.input) => {
                let input = Arc::new(self.place(&filter.input)?);
                Some(LogicalPlan::Filter(Filter::try_new(
                    filter.predicate.clone(),
                    input,
                )?))
            }
            LogicalPlan::Projection(projection) => match self.under(projection) {
                Some(under) => {
                    let input = Arc::new(under.place(&projection.input)?);
                    let (exprs, schema) = (projection.expr.clone(), projection.schema.clone());
                    let placed = Projection::try_new_with_schema(exprs, input, schema)?;
                    Some(LogicalPlan::Projection(placed))
                }
                None => None,
            },
            LogicalPlan::Join(join) => self.inside(join)?.map(LogicalPlan::Join),
            _ => None,
        })
    }

    /// The semi join on the input of a projection, if its columns are columns there.
    fn under(&self, projection: &Projection) -> Option<Self> {
        let on = self.on.iter().map(|(column, value)| {
            let idx = projection.schema.maybe_index_of_column(column)?;
            Some((plain_column(projection.expr.get(idx)?)?, value.clone()))
        });
        Some(Self {
            on: on.collect::<Option<_>>()?,
            keys: self.keys.clone(),
        })
    }

    /// The join with the semi join on the side that has its columns.
    fn inside(&self, join: &Join) -> QueryResult<Option<Join>> {
        let [left, right] = match join.join_type {
            JoinType::Inner => [true, true],
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::Left => [true, false],
            _ => [false, false],
        };
        let mut join = join.clone();
        if left && self.has_columns(&join.left) {
            join.left = Arc::new(self.place(&join.left)?);
        } else if right && self.has_columns(&join.right) {
            join.right = Arc::new(self.place(&join.right)?);
        } else {
            return Ok(None);
        }
        Ok(Some(join))
    }

    fn has_columns(&self, rows: &LogicalPlan) -> bool {
        let mut columns = self.on.iter().map(|(column, _)| column);
        columns.all(|column| rows.schema().has_column(column))
    }

    fn above(&self, rows: Arc<LogicalPlan>) -> QueryResult<LogicalPlan> {
        let on = self.on.iter().cloned();
        let on = on.map(|(column, value)| (Expr::Column(column), value));
        let join = Join::try_new(
            rows,
            self.keys.clone(),
            on.collect(),
            None,
            JoinType::LeftSemi,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(LogicalPlan::Join(join))
    }
}

fn is_scan(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::TableScan(_))
}

/// The column that an expression is, under whatever name.
pub(super) fn plain_column(expr: &Expr) -> Option<Column> {
    match expr {
        Expr::Column(column) => Some(column.clone()),
        Expr::Alias(alias) => plain_column(&alias.expr),
        _ => None,
    }
}
