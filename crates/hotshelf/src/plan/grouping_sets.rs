//! `GROUP BY ROLLUP (a, b)`: rows are grouped by all keys once, and those groups into the sets.
//!
//! The engine puts every row into a group of every set. Where one of the sets has all keys, the states of its groups
//! are enough for the others (Gray et al., ICDE 1996), and a star pipeline can make them.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Aggregate;
use datafusion::physical_expr::expressions::{Column, lit};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::settings::{SessionSettings, Use};

/// Splits partial aggregations by grouping sets in two.
#[derive(Debug)]
pub(super) struct GroupBeforeSets;

impl PhysicalOptimizerRule for GroupBeforeSets {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<SessionSettings>();
        // A query that begins again was short of memory, and the second step cannot hand on what it holds.
        if settings.is_none_or(|settings| settings.operators != Use::On) {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            Ok(match node.downcast_ref::<AggregateExec>() {
                Some(aggregate) if is_split(aggregate) => {
                    Transformed::yes(Arc::new(GroupedSetsExec::of(aggregate)?) as _)
                }
                _ => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "group_before_sets"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether the groups of one set are enough for all, and there are several.
fn is_split(aggregate: &AggregateExec) -> bool {
    let keys = aggregate.group_expr();
    let has_all = |set: &Vec<bool>| set.iter().all(|is_null| !is_null);
    *aggregate.mode() == AggregateMode::Partial
        && keys.has_grouping_set()
        && keys.groups().len() > 1
        && keys.groups().iter().any(has_all)
        && aggregate.limit_options().is_none()
        && aggregate
            .aggr_expr()
            .iter()
            .all(|function| !function.is_distinct() && function.order_bys().is_empty())
}

/// The states of the groups of several sets, made of those of groups by all keys.
#[derive(Clone)]
struct GroupedSetsExec {
    /// The groups by all keys.
    groups: Arc<dyn ExecutionPlan>,
    sets: Arc<dyn ExecutionPlan>,
    /// What there is without a row: the groups of empty sets.
    empty: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl GroupedSetsExec {
    fn new(
        groups: Arc<dyn ExecutionPlan>,
        sets: Arc<dyn ExecutionPlan>,
        empty: Arc<dyn ExecutionPlan>,
    ) -> Self {
        let partitions = groups.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(sets.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            groups,
            sets,
            empty,
            properties: Arc::new(properties),
        }
    }

    fn of(aggregate: &AggregateExec) -> QueryResult<Self> {
        let sets = aggregate.group_expr();
        let functions = aggregate.aggr_expr().to_vec();
        let schema = aggregate.input_schema();
        let groups = AggregateExec::try_new(
            AggregateMode::Partial,
            PhysicalGroupBy::new_single(sets.expr().to_vec()),
            functions.clone(),
            aggregate.filter_expr().to_vec(),
            Arc::clone(aggregate.input()),
            Arc::clone(&schema),
        )?;
        let empty = AggregateExec::try_new(
            AggregateMode::Partial,
            sets.clone(),
            functions.clone(),
            aggregate.filter_expr().to_vec(),
            Arc::new(EmptyExec::new(Arc::clone(&schema))),
            schema,
        )?;
        let key_count = sets.expr().len();
        let states = groups.schema();
        let column = |at: usize| {
            let name = states.field(at).name().clone();
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&name, at));
            (column, name)
        };
        // States are looked for behind the keys and the number of the set.
        let mut outputs: Vec<_> = (0..key_count).map(column).collect();
        outputs.push((lit(0_u8), Aggregate::INTERNAL_GROUPING_ID.to_owned()));
        outputs.extend((key_count..states.fields().len()).map(column));
        let numbered = ProjectionExec::try_new(outputs, Arc::new(EmptyExec::new(states.clone())))?;
        let sets = PhysicalGroupBy::new(
            (0..key_count).map(column).collect(),
            sets.null_expr().to_vec(),
            sets.groups().to_vec(),
            true,
        );
        let none = vec![None; functions.len()];
        let schema = numbered.schema();
        let sets = AggregateExec::try_new(
            AggregateMode::PartialReduce,
            sets,
            functions,
            none,
            Arc::new(numbered),
            schema,
        )?;
        Ok(Self::new(Arc::new(groups), Arc::new(sets), Arc::new(empty)))
    }

    /// The second step over these states.
    fn sets_of(&self, states: SendableRecordBatchStream) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let schema = self.groups.schema();
        let given: Arc<dyn PartitionStream> = Arc::new(Given {
            schema: Arc::clone(&schema),
            rows: Mutex::new(Some(states)),
        });
        let given = StreamingTableExec::try_new(schema, vec![given], None, [], false, None)?;
        let [numbered] = self.sets.children()[..] else {
            return internal_err!("grouping sets have one input");
        };
        let anew = || ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let numbered = Arc::clone(numbered).replace_children(vec![Arc::new(given)], anew())?;
        Arc::clone(&self.sets).replace_children(vec![numbered], anew())
    }
}

impl ExecutionPlan for GroupedSetsExec {
    fn name(&self) -> &str {
        "GroupedSetsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.groups]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let [groups] = &children[..] else {
            return internal_err!("grouping sets have one input");
        };
        Ok(Arc::new(Self::new(
            Arc::clone(groups),
            Arc::clone(&self.sets),
            Arc::clone(&self.empty),
        )))
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let this = self.clone();
        let rows = futures::stream::once(async move {
            let states = this.groups.execute(partition, Arc::clone(&context))?;
            let schema = states.schema();
            let states = states.try_filter(|batch| std::future::ready(batch.num_rows() > 0));
            let mut states = Box::pin(states.peekable());
            if states.as_mut().peek().await.is_none() {
                return this.empty.execute(0, context);
            }
            let states = Box::pin(RecordBatchStreamAdapter::new(schema, states));
            let context = without_files(&context)?;
            this.sets_of(states)?.execute(0, Arc::new(context))
        });
        let schema = self.schema();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            schema,
            rows.try_flatten(),
        )))
    }
}

/// The same context for an operator that must not spill: of states of grouping sets the engine spills one column less
/// than it reads again. Where memory is short, the query begins again without this operator.
fn without_files(context: &TaskContext) -> QueryResult<TaskContext> {
    let mut runtime = RuntimeEnv::clone(&context.runtime_env());
    let no_files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    runtime.disk_manager = Arc::new(no_files.build()?);
    Ok(TaskContext::new(
        context.task_id(),
        context.session_id(),
        context.session_config().clone(),
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        Arc::new(runtime),
    ))
}

impl fmt::Debug for GroupedSetsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sets.fmt(f)
    }
}

impl DisplayAs for GroupedSetsExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        match format {
            DisplayFormatType::TreeRender => self.sets.fmt_as(format, f),
            _ => {
                write!(f, "GroupedSetsExec: ")?;
                self.sets.fmt_as(format, f)
            }
        }
    }
}

/// A stream that is given out once.
struct Given {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given")
    }
}

impl PartitionStream for Given {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let none =
            || RecordBatchStreamAdapter::new(Arc::clone(&self.schema), futures::stream::empty());
        let rows = self.rows.lock().take();
        rows.unwrap_or_else(|| Box::pin(none()))
    }
}
