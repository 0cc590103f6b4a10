//! Parts of a query that occur more than once are computed once, such as `WITH x AS (SELECT k, sum(v) … GROUP BY k)`.
//!
//! The optimizer writes out every use of a WITH and of a view. What is equal afterwards, and groups rows, runs window
//! functions or joins many rows to few, becomes a leaf [`Shared`] of the logical plan. The leaves of one part are
//! planned to operators with the same rows, which are kept as long as the query's plan is, and spill.
//! Filters that reach one use and not the other make parts differ, and so do columns that only one of them asks for.

mod exec;
mod leaf;
mod rows;

pub(crate) use exec::shared_part;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as QueryResult};
use datafusion::datasource::source_as_provider;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, TableScan, UserDefinedLogicalNode};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::interrupt::Interrupt;
use crate::plan::{is_repeatable, join_work};
use crate::session::ready;
use crate::settings::{SessionSettings, Use};
use crate::statistics::sizes::{may_be_kept, stored_bytes};
use crate::stored_table::StoredTable;
use exec::SharedExec;
use leaf::Shared;
use rows::SharedRows;

/// What joins cost at least that are made once: together, and for each row that comes out. The unit is that of
/// [`join_work`], a row that goes from one operator to the next.
const JOIN_COST_MIN: f64 = 100_000.0;
const JOIN_COST_PER_ROW: f64 = 3.0;

/// Rows that are expected not to fit in memory are kept on disk where they have at most one part in this many of the
/// bytes they are made of: writing them and reading them takes less than making them again.
const SPILLED_PARTS: u64 = 4;

/// A physical plan in which equal parts have the same rows.
pub(crate) async fn plan_physically(
    logical: &LogicalPlan,
    state: &SessionState,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let extensions = &state.config().options().extensions;
    let settings = extensions.get::<SessionSettings>();
    let shared = match settings {
        Some(settings) if settings.shared_subplans => with_shared(logical)?,
        _ => None,
    };
    let leaves = Arc::new(PlanShared::new(settings));
    let planner = DefaultPhysicalPlanner::with_extension_planners(vec![leaves]);
    let logical = shared.as_ref().unwrap_or(logical);
    planner.create_physical_plan(logical, state).await
}

/// The plan with leaves in place of parts that occur more than once, the largest such parts first; `None` if there are
/// none.
fn with_shared(plan: &LogicalPlan) -> QueryResult<Option<LogicalPlan>> {
    if !may_repeat_work(plan)? {
        return Ok(None);
    }
    let mut occurrences: HashMap<Part, usize> = HashMap::new();
    plan.apply_with_subqueries(|node| {
        if ends_in_work(node) {
            *occurrences.entry(Part::of(node)?).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    occurrences.retain(|part, uses| {
        *uses > 1 && is_worth_keeping(&part.plan) && is_repeatable(&part.plan).is_ok_and(|is| is)
    });
    let uses = largest(plan, occurrences)?;
    if uses.is_empty() {
        return Ok(None);
    }
    let mut leaves: HashMap<Part, LogicalPlan> = HashMap::new();
    let shared = plan.clone().transform_down_with_subqueries(|node| {
        // Nothing else is looked for: the hash of a node is that of all below it.
        if !ends_in_work(&node) {
            return Ok(Transformed::no(node));
        }
        let part = Part::of(&node)?;
        let Some(uses) = uses.get(&part) else {
            return Ok(Transformed::no(node));
        };
        let leaf = match leaves.entry(part) {
            Entry::Occupied(leaf) => leaf.into_mut(),
            Entry::Vacant(place) => {
                let part = with_shared(&node)?.unwrap_or(node);
                place.insert(Shared::new(*uses, part).leaf())
            }
        };
        Ok(Transformed::new(
            leaf.clone(),
            true,
            TreeNodeRecursion::Jump,
        ))
    });
    shared.data().map(Some)
}

/// Parts that are used more than once outside of larger such parts, and how often.
fn largest(
    plan: &LogicalPlan,
    mut occurrences: HashMap<Part, usize>,
) -> QueryResult<HashMap<Part, usize>> {
    loop {
        let mut uses: HashMap<Part, usize> = HashMap::new();
        plan.apply_with_subqueries(|node| {
            if ends_in_work(node) {
                let part = Part::of(node)?;
                if occurrences.contains_key(&part) {
                    *uses.entry(part).or_default() += 1;
                    return Ok(TreeNodeRecursion::Jump);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        // Where a part is used once, the parts in it count.
        if uses.values().all(|uses| *uses > 1) {
            return Ok(uses);
        }
        occurrences.retain(|part, _| uses.get(part).is_none_or(|uses| *uses > 1));
    }
}

/// A part of a plan, and which tables it reads: names do not tell the rows of table functions apart.
#[derive(PartialEq, Eq, Hash)]
struct Part {
    plan: LogicalPlan,
    tables: Vec<usize>,
}

impl Part {
    fn of(plan: &LogicalPlan) -> QueryResult<Self> {
        let mut tables = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                tables.push(table_of(scan));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let plan = plan.clone();
        Ok(Self { plan, tables })
    }
}

/// The address of the table that is read.
fn table_of(scan: &TableScan) -> usize {
    let Ok(provider) = source_as_provider(&scan.source) else {
        return Arc::as_ptr(&scan.source).addr();
    };
    match provider.downcast_ref::<StoredTable>() {
        Some(stored) => Arc::as_ptr(&stored.table).addr(),
        None => Arc::as_ptr(&provider).addr(),
    }
}

/// Whether a plan has work twice, and no part that runs again and again.
fn may_repeat_work(plan: &LogicalPlan) -> QueryResult<bool> {
    let (mut work, mut is_recursive) = (0, false);
    plan.apply_with_subqueries(|node| {
        work += usize::from(is_work(node));
        is_recursive |= matches!(node, LogicalPlan::RecursiveQuery(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(work > 1 && !is_recursive)
}

/// Whether a node may make few rows of many, or take long for each.
fn is_work(node: &LogicalPlan) -> bool {
    matches!(
        node,
        LogicalPlan::Aggregate(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Join(_)
    )
}

/// Whether a node is work or only picks from its columns and rows.
fn ends_in_work(node: &LogicalPlan) -> bool {
    is_work(work_below(node))
}

/// A node, or the one below that it picks from.
fn work_below(node: &LogicalPlan) -> &LogicalPlan {
    match node {
        LogicalPlan::Projection(projection) => work_below(&projection.input),
        LogicalPlan::Filter(filter) => work_below(&filter.input),
        node => node,
    }
}

/// Whether a part that ends in work costs more than its rows. Joins that do not take long are better made again:
/// filters of one use reach them while the query runs, and aggregations above are made with them.
fn is_worth_keeping(part: &LogicalPlan) -> bool {
    match work_below(part) {
        LogicalPlan::Join(_) => join_work(part).is_some_and(|work| {
            work.cost >= JOIN_COST_MIN && work.cost >= JOIN_COST_PER_ROW * work.rows
        }),
        _ => true,
    }
}

/// Plans the leaves of one query: those of one part to the same rows.
struct PlanShared {
    /// What operators may hold together.
    bytes: u64,
    /// Whether memory has been short already.
    is_short: bool,
    interrupt: Interrupt,
    parts: Mutex<HashMap<usize, Arc<PlannedPart>>>,
}

/// A part, and its rows once it is planned: none where each use makes them.
struct PlannedPart {
    number: usize,
    rows: OnceCell<Option<Arc<SharedRows>>>,
}

impl PlanShared {
    fn new(settings: Option<&SessionSettings>) -> Self {
        Self {
            bytes: settings.map_or(0, SessionSettings::operator_bytes_max),
            is_short: settings.is_some_and(|settings| settings.operators == Use::Always),
            interrupt: settings
                .map_or_else(Interrupt::default, |settings| settings.interrupt.clone()),
            parts: Mutex::default(),
        }
    }

    fn part(&self, key: usize) -> Arc<PlannedPart> {
        let mut parts = self.parts.lock();
        let number = parts.len() + 1;
        let part = parts.entry(key).or_insert_with(|| {
            let rows = OnceCell::new();
            Arc::new(PlannedPart { number, rows })
        });
        Arc::clone(part)
    }

    /// Whether the rows of a part are made once.
    fn is_kept(&self, plan: &Arc<dyn ExecutionPlan>) -> QueryResult<bool> {
        let fits = !self.is_short && may_be_kept(plan, self.bytes)?;
        Ok(fits || is_much_smaller_than_its_inputs(plan)?)
    }
}

#[async_trait]
impl ExtensionPlanner for PlanShared {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        _physical_inputs: &[Arc<dyn ExecutionPlan>],
        state: &dyn Session,
        _context: &PhysicalPlanningContext,
    ) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(shared) = node.as_any().downcast_ref::<Shared>() else {
            return Ok(None);
        };
        let part = self.part(shared.key());
        let plan = || planner.create_physical_plan(&shared.part, state);
        let rows = part.rows.get_or_try_init(|| async {
            let plan = plan().await?;
            if !self.is_kept(&plan)? {
                return Ok::<_, DataFusionError>(None);
            }
            let plan = ready(plan, &self.interrupt)?;
            let rows = SharedRows::new(part.number, shared.uses, plan)?;
            Ok(Some(Arc::new(rows)))
        });
        Ok(Some(match rows.await? {
            Some(rows) => Arc::new(SharedExec::new(Arc::clone(rows))),
            None => plan().await?,
        }))
    }
}

/// Whether statistics tell that a plan gives at most one part in SPILLED_PARTS of the bytes that its leaves read.
fn is_much_smaller_than_its_inputs(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<bool> {
    let Some(bytes) = stored_bytes(plan)? else {
        return Ok(false);
    };
    Ok(bytes.saturating_mul(SPILLED_PARTS) <= read_bytes(plan)?)
}

fn read_bytes(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<u64> {
    let children = plan.children();
    if children.is_empty() {
        return Ok(stored_bytes(plan)?.unwrap_or(0));
    }
    let bytes = children.into_iter().map(read_bytes);
    bytes.sum()
}
