//! Who hears what a build side says about its keys.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

/// What tests rows by a filter that is learned while a query runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listeners {
    /// Whether anything does. A join's filter goes no further than a part that is computed once for several.
    pub are_some: bool,
    /// Whether a star pipeline does.
    pub have_star: bool,
}

impl Listeners {
    /// Those of a filter in a plan.
    pub fn of(
        plan: &Arc<dyn ExecutionPlan>,
        filter: &DynamicFilterPhysicalExpr,
    ) -> QueryResult<Self> {
        let id = filter.expression_id();
        let mut found = Self::default();
        plan.apply(|node| {
            let mut listens = false;
            node.apply_expressions(&mut |root| {
                root.apply(|expr| {
                    listens |= expr.expression_id() == id;
                    Ok(match listens {
                        true => TreeNodeRecursion::Stop,
                        false => TreeNodeRecursion::Continue,
                    })
                })
            })?;
            found.are_some |= listens;
            found.have_star |= listens && node.name() == "StarPipelineExec";
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::{Column, lit};
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::filter::FilterExec;
    use datafusion::physical_plan::limit::GlobalLimitExec;

    use super::*;

    #[test]
    fn a_filter_is_heard_where_an_operator_has_it() {
        let field = Field::new("a", DataType::Boolean, false);
        let empty = Arc::new(EmptyExec::new(Arc::new(Schema::new(vec![field]))));
        let filter = || {
            let column = Arc::new(Column::new("a", 0)) as Arc<dyn PhysicalExpr>;
            Arc::new(DynamicFilterPhysicalExpr::new(vec![column], lit(true)))
        };
        let (heard, other) = (filter(), filter());
        let below = Arc::new(FilterExec::try_new(heard.clone(), empty).unwrap());
        let plan: Arc<dyn ExecutionPlan> = Arc::new(GlobalLimitExec::new(below, 0, Some(1)));
        let found = Listeners::of(&plan, &heard).unwrap();
        assert!(found.are_some && !found.have_star);
        assert_eq!(Listeners::of(&plan, &other).unwrap(), Listeners::default());
    }
}
