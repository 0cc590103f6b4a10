//! Parts of a query that occur more than once are computed once, such as `WITH x AS (SELECT k, sum(v) … GROUP BY k)`.
//!
//! The optimizer writes out every use of a WITH and of a view. What is equal afterwards, and groups rows, runs window
//! functions or joins many rows to few, becomes a leaf [`Shared`] of the logical plan. The leaves of one part are
//! planned to [`SharedExec`]s with the same rows, kept as long as the query's plan is, on disk where they do not fit.
//! Filters that reach one use and not the other make parts differ, and so do columns that only one of them asks for.

mod exec;
mod reasons;
mod rows;

pub(crate) use exec::{SharedExec, shared_part};
pub(crate) use rows::SharedRows;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::RangeFrom;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, DataFusionError, Result as QueryResult, internal_err};
use datafusion::datasource::source_as_provider;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, TableScan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use tokio::sync::OnceCell;

use crate::interrupt::Interrupt;
use crate::plan::{PhysicalRule, finished};
use crate::session::ready;
use crate::settings::{Notes, SessionSettings, Use};
use crate::star::fallback;
use crate::statistics::sizes::{may_be_kept, stored_bytes};
use crate::stored_table::StoredTable;

/// What joins cost at least that are made once: together, and for each row that comes out. The unit is that of
/// [`join_work`], a row that goes from one operator to the next.
const JOIN_COST_MIN: f64 = 100_000.0;
const JOIN_COST_PER_ROW: f64 = 3.0;
/// Rows that are not expected to stay in memory are made once where they are at most one part in this many of the bytes
/// they are made of: writing and reading them takes less than making them again.
const SPILLED_PARTS: u64 = 4;

/// A physical plan in which equal parts have the same rows.
pub(crate) async fn plan_physically(
    logical: &LogicalPlan,
    state: &SessionState,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    plan_with(logical, state, None).await
}

/// The same by early rules alone, those of the session; its parts are planned by them, too.
pub(crate) async fn plan_early(
    logical: &LogicalPlan,
    state: &SessionState,
    late: Vec<PhysicalRule>,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    plan_with(logical, state, Some(late)).await
}

async fn plan_with(
    logical: &LogicalPlan,
    state: &SessionState,
    late: Option<Vec<PhysicalRule>>,
) -> QueryResult<Arc<dyn ExecutionPlan>> {
    let extensions = &state.config().options().extensions;
    let settings = extensions
        .get::<SessionSettings>()
        .filter(|settings| settings.shared_subplans);
    if let Some(settings) = settings
        && let Some(shared) = with_shared(logical, &mut (1..), &settings.decisions)?
    {
        let leaves = PlanShared {
            bytes: match settings.operators {
                // The query begins again.
                Use::Always => 0,
                _ => settings.operator_bytes_max(),
            },
            interrupt: settings.interrupt.clone(),
            decisions: settings.decisions.clone(),
            late,
        };
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(leaves)]);
        return planner.create_physical_plan(&shared, state).await;
    }
    let planner = state.query_planner();
    planner.create_physical_plan(logical, state).await
}

/// The plan with leaves in place of parts that occur more than once, the largest such parts first; `None` if there are
/// none. They get the next numbers.
fn with_shared(
    plan: &LogicalPlan,
    numbers: &mut RangeFrom<usize>,
    decisions: &Notes,
) -> QueryResult<Option<LogicalPlan>> {
    let work = Work::of(plan)?;
    if work.count < 2 || (work.is_recursive && !decisions.are_wanted()) {
        return Ok(None);
    }
    let (shareable, apart) = repeated(plan, work.is_recursive)?;
    let uses = largest(plan, shareable)?;
    if decisions.are_wanted() {
        reasons::note_apart(plan, &uses, &apart, decisions)?;
    }
    if uses.is_empty() {
        return Ok(None);
    }
    let mut leaves: HashMap<Part, Shared> = HashMap::new();
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
                let number = numbers.next().unwrap_or(0);
                let part = with_shared(&node, numbers, decisions)?.unwrap_or(node);
                place.insert(Shared {
                    number,
                    uses: *uses,
                    part: Arc::new(part),
                    rows: Arc::default(),
                })
            }
        };
        let leaf = LogicalPlan::Extension(Extension {
            node: Arc::new(leaf.clone()),
        });
        Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump))
    });
    shared.data().map(Some)
}

/// Parts that occur more than once: how often, of those that may be shared, and why the others are not.
fn repeated(
    plan: &LogicalPlan,
    is_recursive: bool,
) -> QueryResult<(HashMap<Part, usize>, HashMap<Part, String>)> {
    let mut occurrences: HashMap<Part, usize> = HashMap::new();
    plan.apply_with_subqueries(|node| {
        if ends_in_work(node) {
            *occurrences.entry(Part::of(node)?).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    occurrences.retain(|_, uses| *uses > 1);
    let (mut shareable, mut apart) = (HashMap::new(), HashMap::new());
    for (part, uses) in occurrences {
        match reasons::against(&part.plan, is_recursive) {
            Some(reason) => drop(apart.insert(part, reason)),
            None => drop(shareable.insert(part, uses)),
        }
    }
    Ok((shareable, apart))
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

/// What a plan has that may be shared, and what stands against it.
struct Work {
    count: usize,
    /// Whether a part runs again and again.
    is_recursive: bool,
}

impl Work {
    fn of(plan: &LogicalPlan) -> QueryResult<Self> {
        let (mut count, mut is_recursive) = (0, false);
        plan.apply_with_subqueries(|node| {
            count += usize::from(is_work(node));
            is_recursive |= matches!(node, LogicalPlan::RecursiveQuery(_));
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self {
            count,
            is_recursive,
        })
    }
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

/// One use of a part.
#[derive(Clone)]
struct Shared {
    /// Which part it is, from 1.
    number: usize,
    /// How often the query has it.
    uses: usize,
    /// With leaves of its own in place of what it has more than once.
    part: Arc<LogicalPlan>,
    /// The part's rows once it is planned; nothing if each use makes them.
    rows: Arc<OnceCell<Option<Arc<SharedRows>>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared: part {}, used {} times", self.number, self.uses)
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.part == other.part
    }
}

impl Eq for Shared {}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.part.partial_cmp(&other.part)
    }
}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.part.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for Shared {
    fn name(&self) -> &str {
        "Shared"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        self.part.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> QueryResult<Self> {
        if !exprs.is_empty() || !inputs.is_empty() {
            return internal_err!("a shared part has neither expressions nor inputs");
        }
        Ok(self.clone())
    }
}

/// Plans the leaves.
struct PlanShared {
    /// What operators may hold together; nothing where memory has been short.
    bytes: u64,
    interrupt: Interrupt,
    /// Where it is noted why.
    decisions: Notes,
    /// The rules that make of a part what runs, if those of the session do not.
    late: Option<Vec<PhysicalRule>>,
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
        let plan = || planner.create_physical_plan(&shared.part, state);
        let rows = shared.rows.get_or_try_init(|| async {
            let outline = plan().await?;
            let plan = match &self.late {
                Some(late) => finished(Arc::clone(&outline), late, state.config_options())?,
                None => Arc::clone(&outline),
            };
            let is_noted = self.decisions.are_wanted();
            if !may_be_kept(&plan, self.bytes)? && !is_small_beside_its_inputs(&plan)? {
                if is_noted {
                    reasons::note_too_large(shared, &plan, self.bytes, &self.decisions)?;
                }
                return Ok::<_, DataFusionError>(None);
            }
            if is_noted {
                reasons::note_shared(shared, &plan, &self.decisions)?;
            }
            let rows = SharedRows::new(shared.number, shared.uses, ready(plan, &self.interrupt)?)?;
            Ok(Some(Arc::new(match self.late {
                Some(_) => rows.in_outline(outline),
                None => rows,
            })))
        });
        Ok(Some(match rows.await? {
            Some(rows) => Arc::new(SharedExec::new(Arc::clone(rows))),
            None => plan().await?,
        }))
    }
}

/// Whether statistics tell that a plan gives at most one part in SPILLED_PARTS of the bytes that it reads.
fn is_small_beside_its_inputs(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<bool> {
    let Some(bytes) = stored_bytes(plan)? else {
        return Ok(false);
    };
    Ok(bytes.saturating_mul(SPILLED_PARTS) <= read_bytes(plan)?)
}

/// What comes from the leaves of a plan.
fn read_bytes(plan: &Arc<dyn ExecutionPlan>) -> QueryResult<u64> {
    let plan = fallback(plan).unwrap_or(plan);
    let children = plan.children();
    if children.is_empty() {
        return Ok(stored_bytes(plan)?.unwrap_or(0));
    }
    let bytes = children.into_iter().map(read_bytes);
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Database, Options};

    fn lines(plan: &LogicalPlan) -> Vec<String> {
        let text = plan.display_indent().to_string();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn equal_parts_are_leaves_of_one_part() {
        let database = Database::temporary(Options::default()).unwrap();
        let session = database.session();
        let table = "CREATE TABLE t AS SELECT value % 100 AS k, value AS n FROM range(20000)";
        session.query(table).unwrap();
        let query = "WITH s AS (SELECT k, sum(n) AS v FROM t GROUP BY k) \
            SELECT * FROM s UNION ALL SELECT * FROM s";
        let state = session.context().state();
        let plan = database.block_on(state.create_logical_plan(query));
        let before = state.optimize(&plan.unwrap()).unwrap();
        let after = with_shared(&before, &mut (1..), &Notes::default()).unwrap();
        assert_eq!(
            lines(&before),
            [
                "Union",
                "  SubqueryAlias: s",
                "    Projection: t.k, sum(t.n) AS v",
                "      Aggregate: groupBy=[[t.k]], aggr=[[sum(t.n)]]",
                "        TableScan: t projection=[k, n]",
                "  SubqueryAlias: s",
                "    Projection: t.k, sum(t.n) AS v",
                "      Aggregate: groupBy=[[t.k]], aggr=[[sum(t.n)]]",
                "        TableScan: t projection=[k, n]",
            ]
        );
        assert_eq!(
            lines(&after.unwrap()),
            [
                "Union",
                "  SubqueryAlias: s",
                "    Shared: part 1, used 2 times",
                "  SubqueryAlias: s",
                "    Shared: part 1, used 2 times",
            ]
        );
    }
}
