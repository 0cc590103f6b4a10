//! Joins without keys, as joins by a constant: cross joins, and those that compare every pair of rows.
//!
//! DataFusion's hold one side, or write it past the I/O engine. As hash joins they are Hotshelf's, which spill as any
//! other: all rows have one key, so that a side which does not fit is joined by block nested loop.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::padded_rows::ForgetExec;

/// The hash join that gives the rows of a join without keys. `None`: another operator.
pub(super) fn by_a_constant(
    node: &Arc<dyn ExecutionPlan>,
) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
    let builder = if let Some(join) = node.downcast_ref::<CrossJoinExec>() {
        hash_join(join.left(), join.right(), JoinType::Inner)
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        hash_join(join.left(), join.right(), *join.join_type())
            .with_filter(join.filter().cloned())
            .with_projection_ref(join.projection().clone())
    } else {
        return Ok(None);
    };
    builder.build_exec().map(Some)
}

fn hash_join(
    left: &Arc<dyn ExecutionPlan>,
    right: &Arc<dyn ExecutionPlan>,
    join_type: JoinType,
) -> HashJoinExecBuilder {
    let key = || lit(true) as Arc<dyn PhysicalExpr>;
    // Joins without keys promise no order. A hash join would, and one that does is not replaced.
    let right: Arc<dyn ExecutionPlan> = match right.output_ordering() {
        Some(_) => Arc::new(ForgetExec::new(right.clone())),
        None => right.clone(),
    };
    HashJoinExecBuilder::new(left.clone(), right, vec![(key(), key())], join_type)
        .with_partition_mode(PartitionMode::CollectLeft)
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn a_join_without_keys_has_a_constant_one() {
        let statements = [
            "SET hotshelf.operators = always",
            "SELECT t.n FROM t JOIN s ON t.n < s.k",
        ];
        before_after("own_hash_operators", &statements).is(
            "
            NestedLoopJoinExec: join_type=Inner, filter=n@1 < k@0, projection=[n@1]
              CooperativeExec
                DataSourceExec: HotshelfScan: table=s, columns=[k]
              RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
                DataSourceExec: HotshelfScan: table=t, columns=[n]
            ",
            "
            SpillingHashJoinExec: mode=CollectLeft, join_type=Inner, on=[(true, true)], filter=n@1 < k@0, \
                projection=[n@1]
              CooperativeExec
                DataSourceExec: HotshelfScan: table=s, columns=[k]
              RepartitionExec: partitioning=RoundRobinBatch(2), input_partitions=1
                DataSourceExec: HotshelfScan: table=t, columns=[n]
            ",
        );
    }
}
