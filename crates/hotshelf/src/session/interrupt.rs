//! Ends a running statement whose answer is no longer wanted.
//!
//! A task is dropped when it gives control back, and many operators do that only when their input makes them wait. So
//! operators that read storage or make many rows of few are wrapped: their streams give control back now and
//! then, and end once the statement's flag is raised. Filters of joins look at the flag too, for a join may
//! test millions of pairs before it has a row to give.

use std::cell::Cell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, resources_err};
use datafusion::error::Result as QueryResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
    SymmetricHashJoinExec,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::{Stream, StreamExt};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::interrupt::Interrupt;
use crate::operators::{FetchRowsExec, SpillingHashJoinExec, statistics_of};
use crate::plan::with_like_inputs;

/// A worker that has tested pairs for this long without a row to give lets another thread serve in its place.
const SILENT_TIME_MAX: Duration = Duration::from_millis(50);
/// Time for the other thread to take over.
const HAND_OVER_TIME: Duration = Duration::from_micros(500);

thread_local! {
    /// When the operator that this thread works on was asked for rows.
    static ASKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Keeps the runtime alive: while all its workers are busy, no timer and no signal (such as Ctrl-C) is served.
fn make_way() {
    let is_long = |asked: Instant| asked.elapsed() > SILENT_TIME_MAX;
    if !ASKED.get().is_some_and(is_long) {
        return;
    }
    ASKED.set(Some(Instant::now()));
    let has_workers = |handle: Handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread;
    if Handle::try_current().is_ok_and(has_workers) {
        tokio::task::block_in_place(|| std::thread::sleep(HAND_OVER_TIME));
    }
}

/// The plan with its operators wrapped where they need it. For plans that are about to run: rules would not see
/// through everything.
pub(crate) fn interruptible(
    plan: Arc<dyn ExecutionPlan>,
    interrupt: &Interrupt,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let plan = with_children(plan, interrupt)?;
    let plan = crate::star::with_fallback(plan, |original| interruptible(original, interrupt))?;
    let plan = with_filter(plan, interrupt)?;
    if !needs_checkpoint(&plan) {
        return Ok(plan);
    }
    Ok(Arc::new(Checkpoint::new(plan, interrupt)))
}

fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    interrupt: &Interrupt,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let children = plan.children().into_iter().cloned();
    let children = children.map(|child| interruptible(child, interrupt));
    let mut children: Vec<_> = children.collect::<QueryResult<_>>()?;
    if plan.is::<NestedLoopJoinExec>() {
        let left = Checkpoint::new(children[0].clone(), interrupt);
        children[0] = Arc::new(left.run_once());
    }
    with_like_inputs(plan, children)
}

fn keep() -> ReplaceChildrenOptions {
    ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep)
}

/// What reads tables, and operators that make many rows of few.
fn needs_checkpoint(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.children().is_empty()
        || plan.is::<FetchRowsExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<SpillingHashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<SymmetricHashJoinExec>()
        || plan.is::<UnnestExec>()
}

/// Has a join's filter look at the flag.
fn with_filter(
    plan: Arc<dyn ExecutionPlan>,
    interrupt: &Interrupt,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let checked = |filter: Option<&JoinFilter>| {
        filter.map(|filter| {
            JoinFilter::new(
                Arc::new(InterruptCheck {
                    inner: filter.expression().clone(),
                    interrupt: interrupt.clone(),
                }),
                filter.column_indices().to_vec(),
                filter.schema().clone(),
            )
        })
    };
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let filter = match join.filter() {
            None if compares_in_silence(join) => Some(always_true()),
            filter => filter.cloned(),
        };
        if filter.is_some() {
            let join = join.builder().with_filter(checked(filter.as_ref()));
            return join.build_exec();
        }
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>()
        && join.filter().is_some()
    {
        let builder = NestedLoopJoinExecBuilder::from(join);
        return Ok(Arc::new(
            builder.with_filter(checked(join.filter())).build()?,
        ));
    } else if let Some(join) = plan.downcast_ref::<SortMergeJoinExec>()
        && join.filter().is_some()
    {
        let join = SortMergeJoinExec::try_new(
            join.left().clone(),
            join.right().clone(),
            join.on().to_vec(),
            checked(join.filter().as_ref()),
            join.join_type(),
            join.sort_options().to_vec(),
            join.null_equality(),
        )?;
        return Ok(Arc::new(join));
    }
    Ok(plan)
}

/// Whether a join may compare equal keys for long without a row to give: its output does not grow with its pairs.
fn compares_in_silence(join: &HashJoinExec) -> bool {
    let few_rows = matches!(
        join.join_type(),
        JoinType::LeftSemi
            | JoinType::LeftAnti
            | JoinType::LeftMark
            | JoinType::RightSemi
            | JoinType::RightAnti
            | JoinType::RightMark
    );
    few_rows && !join.null_aware
}

fn always_true() -> JoinFilter {
    JoinFilter::new(lit(true), Vec::new(), Arc::new(Schema::empty()))
}

/// An operator whose streams end with the statement. Otherwise it looks like the operator inside.
#[derive(Debug)]
struct Checkpoint {
    inner: Arc<dyn ExecutionPlan>,
    interrupt: Interrupt,
    /// Whether it has run, if it can do so once only.
    has_run: Option<AtomicBool>,
}

impl Checkpoint {
    fn new(inner: Arc<dyn ExecutionPlan>, interrupt: &Interrupt) -> Self {
        Self {
            inner,
            interrupt: interrupt.clone(),
            has_run: None,
        }
    }

    /// Lets an input run once: its workers share what is still to be read, so that a second run would give the rest
    /// only. The engine's nested loops run their left side again where it did not fit
    /// (`docs/upstream/nested-loop-that-runs-its-input-twice.md`).
    fn run_once(self) -> Self {
        Self {
            has_run: Some(AtomicBool::new(false)),
            ..self
        }
    }

    fn around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let around = Self::new(inner, &self.interrupt);
        Arc::new(match self.has_run {
            Some(_) => around.run_once(),
            None => around,
        })
    }
}

impl ExecutionPlan for Checkpoint {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        self.inner.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let inner = self.inner.clone().replace_children(children, options)?;
        Ok(self.around(inner))
    }

    fn with_new_children_and_same_properties(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.clone().replace_children(children, keep())?;
        Ok(self.around(inner))
    }

    fn reset_state(self: Arc<Self>) -> QueryResult<Arc<dyn ExecutionPlan>> {
        Ok(self.around(self.inner.clone().reset_state()?))
    }

    fn with_new_state(
        &self,
        state: Arc<dyn std::any::Any + Send + Sync>,
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.with_new_state(state)?;
        Some(self.around(inner))
    }

    fn repartitioned(
        &self,
        target_partitions: usize,
        config: &ConfigOptions,
    ) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
        let inner = self.inner.repartitioned(target_partitions, config)?;
        Ok(inner.map(|inner| self.around(inner)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        self.interrupt.check()?;
        let has_run = self.has_run.as_ref();
        if has_run.is_some_and(|has_run| has_run.swap(true, Ordering::Relaxed)) {
            return resources_err!("one side of a join without keys does not fit in memory");
        }
        Ok(Box::pin(CheckedStream {
            inner: self.inner.execute(partition, context)?,
            interrupt: self.interrupt.clone(),
        }))
    }

    statistics_of!(inner);

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }
}

impl DisplayAs for Checkpoint {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.inner.fmt_as(format, f)
    }
}

/// Looks at the flag before every batch, and takes its part of what a task may do before it gives control back.
struct CheckedStream {
    inner: SendableRecordBatchStream,
    interrupt: Interrupt,
}

impl Stream for CheckedStream {
    type Item = QueryResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(error) = self.interrupt.check() {
            return Poll::Ready(Some(Err(error)));
        }
        let part = ready!(tokio::task::coop::poll_proceed(cx));
        let outer = ASKED.replace(Some(Instant::now()));
        let batch = self.inner.poll_next_unpin(cx);
        ASKED.set(outer);
        if batch.is_ready() {
            part.made_progress();
        }
        batch
    }
}

impl RecordBatchStream for CheckedStream {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}

/// An expression that fails once the statement is to end.
#[derive(Debug)]
struct InterruptCheck {
    inner: Arc<dyn PhysicalExpr>,
    interrupt: Interrupt,
}

impl PartialEq for InterruptCheck {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for InterruptCheck {}

impl Hash for InterruptCheck {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for InterruptCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PhysicalExpr for InterruptCheck {
    fn data_type(&self, schema: &Schema) -> QueryResult<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> QueryResult<bool> {
        self.inner.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> QueryResult<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> QueryResult<ColumnarValue> {
        self.interrupt.check()?;
        make_way();
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> QueryResult<Arc<dyn PhysicalExpr>> {
        Ok(match children.pop() {
            Some(inner) => Arc::new(Self {
                inner,
                interrupt: self.interrupt.clone(),
            }),
            None => self,
        })
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}
