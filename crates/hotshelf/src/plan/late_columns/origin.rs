//! Which tables the columns of joined rows come from, and which of those are equal.

use datafusion::common::Column;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, Join, JoinType, LogicalPlan, Operator, TableScan,
};

use crate::plan::semi_join::plain_column;
use crate::stored_table::StoredTable;

/// A column of a table that inner joins have among others.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// The sides of the joins that lead to the table: names do not tell the uses of a table apart.
    pub path: Vec<u8>,
    pub scan: TableScan,
    /// By index in the table.
    pub column: usize,
}

impl Origin {
    /// Where a column of a plan comes from, if every row of the plan has it from a row of a stored table.
    pub fn of(plan: &LogicalPlan, column: &Column, mut path: Vec<u8>) -> Option<Self> {
        let idx = plan.schema().maybe_index_of_column(column)?;
        match plan {
            LogicalPlan::TableScan(scan) => Some(Self {
                path,
                scan: scan.clone(),
                column: match &scan.projection {
                    Some(projection) => *projection.get(idx)?,
                    None => idx,
                },
            }),
            LogicalPlan::Projection(projection) => {
                let column = plain_column(projection.expr.get(idx)?)?;
                Self::of(&projection.input, &column, path)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let columns = alias.input.schema().columns();
                Self::of(&alias.input, columns.get(idx)?, path)
            }
            LogicalPlan::Filter(filter) => Self::of(&filter.input, column, path),
            LogicalPlan::Join(join) => {
                let is_left = idx < join.left.schema().fields().len();
                let is_kept = match join.join_type {
                    JoinType::Inner => true,
                    JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti => is_left,
                    _ => false,
                };
                let side = [&join.right, &join.left][usize::from(is_left)];
                path.push(u8::from(is_left));
                is_kept.then(|| Self::of(side, column, path))?
            }
            _ => None,
        }
    }

    /// Whether the column is known to have no value twice. What is not known is asked for.
    pub fn is_unique(&self, asked: &mut Vec<Self>) -> bool {
        let known = StoredTable::of(&self.scan).map(|stored| stored.table.unique.get(self.column));
        match known {
            Some(Some(is_unique)) => is_unique,
            Some(None) => {
                asked.push(self.clone());
                false
            }
            None => false,
        }
    }

    pub fn row_count(&self) -> usize {
        StoredTable::of(&self.scan).map_or(0, |stored| row_count(&stored))
    }
}

/// What inner joins say is equal.
pub(super) fn equalities(plan: &LogicalPlan, path: &[u8], found: &mut Vec<[Origin; 2]>) {
    match plan {
        LogicalPlan::Projection(projection) => equalities(&projection.input, path, found),
        LogicalPlan::SubqueryAlias(alias) => equalities(&alias.input, path, found),
        LogicalPlan::Filter(filter) => {
            equalities(&filter.input, path, found);
            let parts = split_conjunction(&filter.predicate).into_iter();
            found.extend(parts.filter_map(|part| equality(part, &filter.input, path)));
        }
        LogicalPlan::Join(join) => equalities_of_join(join, path, found),
        _ => {}
    }
}

fn equalities_of_join(join: &Join, path: &[u8], found: &mut Vec<[Origin; 2]>) {
    let side = |side: u8| [path, &[side]].concat();
    let is_inner = join.join_type == JoinType::Inner;
    let keeps_left = matches!(
        join.join_type,
        JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
    );
    if is_inner || keeps_left {
        equalities(&join.left, &side(1), found);
    }
    if is_inner {
        equalities(&join.right, &side(0), found);
        let pairs = join
            .on
            .iter()
            .filter_map(|(left, right)| match (left, right) {
                (Expr::Column(left), Expr::Column(right)) => Some([
                    Origin::of(&join.left, left, side(1))?,
                    Origin::of(&join.right, right, side(0))?,
                ]),
                _ => None,
            });
        found.extend(pairs);
    }
}

/// The columns that a predicate says are equal.
fn equality(predicate: &Expr, input: &LogicalPlan, path: &[u8]) -> Option<[Origin; 2]> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = predicate
    else {
        return None;
    };
    let (Expr::Column(left), Expr::Column(right)) = (left.as_ref(), right.as_ref()) else {
        return None;
    };
    let of = |column: &Column| Origin::of(input, column, path.to_vec());
    Some([of(left)?, of(right)?])
}

fn row_count(table: &StoredTable) -> usize {
    let rows = table.table.statistics.num_rows;
    rows.get_value().copied().unwrap_or(0)
}
