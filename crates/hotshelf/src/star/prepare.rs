//! What all workers share: the look-ups of the build sides, and the queue of row groups that can meet their keys.

use std::sync::Arc;
use std::time::Instant;

use datafusion::common::ScalarValue;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, Literal,
};
use futures::future::try_join_all;

use super::accumulate::{Aggregates, Keys};
use super::declined::Unfit;
use super::determined::Lineage;
use super::groups::{GroupCodes, JoinCodes};
use super::lookup::Lookup;
use super::narrow::{Computation, Narrow, Source};
use super::ran::Ran;
use super::rows::Attached;
use super::shape::Join;
use super::side::{Found, Side, build_side, keep_sides};
use crate::look_ups::LookUpShelf;
use crate::scan::{
    Comparison, DynamicFilter, IntegerRange, ScanQueue, StarColumns, StarKeys, TableScan,
};
use crate::settings::SessionSettings;

/// A star as planned: what to look up, what rows must pass, what comes out.
pub(super) struct Star {
    pub scan: TableScan,
    pub joins: Vec<Join>,
    /// The columns that filters and outputs need, from the scan and from build sides.
    pub narrow: Narrow,
    /// Predicates over the narrow columns.
    pub filters: Vec<Computation>,
    pub output: Output,
}

/// What a star gives its parent.
pub(super) enum Output {
    /// A row for each survivor: expressions over the narrow columns.
    Rows(Vec<Computation>),
    /// A row for each group.
    Groups(Arc<Aggregates>),
}

impl Star {
    /// Where the columns of its rows come from.
    pub fn lineage(&self) -> Lineage {
        let sources = &self.narrow.sources;
        let source = |output: &Computation| sources.get(output.column()?).copied();
        let sources = match &self.output {
            Output::Rows(outputs) => outputs.iter().map(source).collect(),
            Output::Groups(_) => Vec::new(),
        };
        let keys = self.joins.iter().map(|join| join.probe_key);
        Lineage::new(sources, keys.collect())
    }

    /// What is scanned and by which keys rows are looked up, the same in each plan.
    pub fn signature(&self) -> String {
        let keys = self.joins.iter().map(|join| {
            let key = self.scan.schema.field(join.probe_key).name();
            format!("{key}={}", join.build_key)
        });
        let keys: Vec<String> = keys.collect();
        format!("{}: {}", self.scan.table.name, keys.join(", "))
    }

    /// Whether something of a look-up's build rows is needed for surviving rows.
    pub fn attaches(&self, join: usize) -> bool {
        let narrow = self.narrow.sources.iter();
        let mut narrow =
            narrow.filter(|source| matches!(source, Source::Build { join: of, .. } if *of == join));
        let mut grouped = self.build_keys().into_iter().flatten();
        narrow.next().is_some() || grouped.any(|(of, _)| *of == join)
    }

    /// The grouping expressions over one build side.
    pub fn groups_of(&self, join: usize) -> Vec<Arc<dyn PhysicalExpr>> {
        let keys = self.build_keys().into_iter().flatten();
        let own = keys.filter(|(of, _)| *of == join);
        own.map(|(_, expr)| expr.clone()).collect()
    }

    /// The grouping expressions over build sides, if those alone determine the groups.
    fn build_keys(&self) -> Option<&[(usize, Arc<dyn PhysicalExpr>)]> {
        match &self.output {
            Output::Groups(aggregates) => match &aggregates.keys {
                Keys::Builds(keys) => Some(keys),
                Keys::Nothing | Keys::Values(_) => None,
            },
            Output::Rows(_) => None,
        }
    }

    /// The look-ups as EXPLAIN shows them before they are built: in the order that statistics suggest, with the
    /// kind they suggest. Both are decided again by what the build sides really hold.
    pub fn forecast(&self) -> String {
        let mut order: Vec<usize> = (0..self.joins.len()).collect();
        let kept = |join: &usize| self.joins[*join].forecast.kept().unwrap_or(1.0);
        order.sort_by(|a, b| kept(a).total_cmp(&kept(b)));
        let describe = |idx: usize| {
            let join = &self.joins[idx];
            let key = self.scan.schema.field(join.probe_key).name();
            let forecast = &join.forecast;
            let mut text = format!("{} {key} = {}", join.matching, join.build_key);
            if let (Some(rows), Some(range)) = (forecast.rows, forecast.range) {
                let kind = Lookup::kind_for(range, rows, self.attaches(idx));
                text.push_str(&format!(": {kind}"));
            }
            if let (Some(rows), Some(kept)) = (forecast.rows, forecast.kept()) {
                let percent = kept * 100.0;
                text.push_str(&format!(", about {rows} keys, keeps {percent:.3} %"));
            }
            text
        };
        let parts: Vec<String> = order.into_iter().map(describe).collect();
        parts.join("; ")
    }

    /// The scan's columns that the narrow batch needs, by index in the scan's output.
    pub fn payload(&self) -> Vec<usize> {
        let sources = self.narrow.sources.iter();
        sources
            .filter_map(|source| match source {
                Source::Probe(column) => Some(*column),
                Source::Build { .. } => None,
            })
            .collect()
    }
}

/// What the workers share once the build sides are there.
pub(super) struct Ready {
    pub star: Arc<Star>,
    pub queue: Arc<ScanQueue>,
    /// Ranges that scanned rows have to be in, tested here.
    pub ranges: Vec<IntegerRange>,
    /// Columns of scanned rows that are compared here.
    pub comparisons: Vec<Comparison>,
    sides: Vec<Side>,
    pub codes: Option<Arc<GroupCodes>>,
    pub ran: Arc<Ran>,
    /// Where look-ups and groups lie.
    pub shelf: LookUpShelf,
    /// Whether a build side without keys lets no row survive.
    pub nothing: bool,
}

/// The build sides turned out to be fit for look-ups, or not.
pub(super) enum Prepared {
    Ready(Arc<Ready>),
    /// Why the original plan has to run.
    Fallback(String),
}

/// Runs all build sides at the same time and builds the look-ups.
pub(super) async fn prepare(star: Arc<Star>, context: Arc<TaskContext>) -> QueryResult<Prepared> {
    match look_ups(star.clone(), context.clone()).await {
        Ok(ready) => Ok(Prepared::Ready(Arc::new(ready))),
        Err(Unfit::NoStar(reason)) => {
            let settings = SessionSettings::of(context.session_config());
            let past_runs = &settings.past_runs;
            past_runs.note_no_star(settings.template, star.signature());
            Ok(Prepared::Fallback(reason))
        }
        Err(Unfit::Fallback(reason)) => Ok(Prepared::Fallback(reason)),
        Err(Unfit::Failed(error)) => Err(error),
    }
}

async fn look_ups(star: Arc<Star>, context: Arc<TaskContext>) -> Result<Ready, Unfit> {
    let begun = Instant::now();
    let tasks = (0..star.joins.len())
        .map(|idx| SpawnedTask::spawn(build_side(star.clone(), idx, context.clone())));
    let joined = try_join_all(tasks.map(|task| task.join_unwind()));
    let found = joined
        .await
        .map_err(|stopped| DataFusionError::ExecutionJoin(Box::new(stopped)))?;
    let found: Vec<Found> = found.into_iter().collect::<Result<_, _>>()?;
    let seconds = begun.elapsed().as_secs_f64();
    let nothing = found
        .iter()
        .zip(&star.joins)
        .any(|(found, join)| found.made().lookup.row_count() == 0 && join.matching.drops_others());
    let codes = group_codes(&star, &found)?;
    let shelf = LookUpShelf::open(
        SessionSettings::look_up_shelf_of(context.session_config()),
        &star.scan.env.shelves,
    );
    let shelf = shelf.map_err(DataFusionError::from)?;
    for found in &found {
        found.made().place(&shelf);
    }
    let sides = keep_sides(&star, &context, found, seconds);
    let joined = star.joins.iter().zip(&sides);
    let ranges: Vec<DynamicFilter> = joined
        .filter_map(|(join, side)| key_range(&star.scan, join, side.extremes.as_ref()?))
        .collect();
    let joined = star.joins.iter().zip(&sides);
    let lists = joined.filter_map(|(join, side)| {
        let keys = side.few_keys.as_deref()?;
        join.matching
            .drops_others()
            .then_some((join.probe_key, keys))
    });
    let lists: Vec<(usize, &[ScalarValue])> = lists.collect();
    let known = StarKeys {
        ranges: &ranges,
        lists: &lists,
    };
    let keys: Vec<usize> = star.joins.iter().map(|join| join.probe_key).collect();
    let config = context.session_config().options();
    let payload = star.payload();
    let columns = StarColumns {
        keys: &keys,
        payload: &payload,
    };
    let queue = star.scan.star_queue(config, columns, known);
    let joined = star.joins.iter().zip(&sides);
    let ran = Ran::new(
        joined.map(|(join, side)| {
            let column = star.scan.schema.field(join.probe_key).name();
            (column.as_str(), &side.lookup, side.is_reused())
        }),
        shelf.name(),
    );
    Ok(Ready {
        ranges: queue.plan.tested_ranges(),
        comparisons: queue.plan.comparisons(),
        queue,
        ran: Arc::new(ran),
        shelf,
        sides,
        codes,
        nothing,
        star,
    })
}

/// How rows are numbered by group, where build rows alone determine the groups.
fn group_codes(star: &Star, found: &[Found]) -> Result<Option<Arc<GroupCodes>>, Unfit> {
    let Some(keys) = star.build_keys() else {
        return Ok(None);
    };
    let numbered = found.iter().enumerate();
    let codes = numbered.filter_map(|(join, found)| Some((join, found.made().codes.clone()?)));
    let codes = codes.map(|(join, codes)| JoinCodes::new(join, codes));
    let codes = GroupCodes::combine(keys, codes.collect());
    let too_many = || Unfit::Fallback("there are too many groups to number".into());
    Ok(Some(Arc::new(codes.ok_or_else(too_many)?)))
}

/// The range of a look-up's keys as a predicate that row groups must be able to meet.
fn key_range(
    scan: &TableScan,
    join: &Join,
    (min, max): &(ScalarValue, ScalarValue),
) -> Option<DynamicFilter> {
    let field = scan.schema.field(join.probe_key);
    if !join.matching.drops_others() || *field.data_type() != min.data_type() {
        return None;
    }
    let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(field.name(), join.probe_key));
    let compare = |op, bound: &ScalarValue| -> Arc<dyn PhysicalExpr> {
        let bound = Arc::new(Literal::new(bound.clone()));
        Arc::new(BinaryExpr::new(column.clone(), op, bound))
    };
    let range = BinaryExpr::new(
        compare(Operator::GtEq, min),
        Operator::And,
        compare(Operator::LtEq, max),
    );
    Some(DynamicFilter {
        expr: Arc::new(DynamicFilterPhysicalExpr::new(
            vec![column],
            Arc::new(range),
        )),
        schema: scan.schema.clone(),
    })
}

impl Ready {
    /// The look-ups, in the order of the joins.
    pub fn lookups(&self) -> impl Iterator<Item = &Lookup> {
        self.sides.iter().map(|side| &side.lookup)
    }

    /// The look-up of a join.
    pub fn lookup(&self, join: usize) -> &Lookup {
        &self.sides[join].lookup
    }

    /// How many workers may read the table together.
    pub fn readers(&self) -> usize {
        let scan = &self.star.scan;
        let readers = scan.env.shelves.readers_of(&scan.table.folder);
        readers.unwrap_or(usize::MAX)
    }

    /// Waits for what rows looked up: a place for each test, and for each survivor in each look-up that it has
    /// something from.
    pub fn wait_for_look_ups(&self, tested: u64, survivors: usize) {
        if self.shelf.is_memory() {
            return;
        }
        let attached = (0..self.sides.len()).filter(|join| self.star.attaches(*join));
        let found = (survivors * attached.count()) as u64;
        let bytes = self.sides.iter().map(|side| side.look_up_bytes()).sum();
        self.shelf.read(bytes, tested + found);
    }

    /// What rows find in each look-up.
    pub fn attached(&self) -> Vec<Attached<'_>> {
        let attached = self.sides.iter().map(|side| Attached {
            lookup: &side.lookup,
            build: &side.build,
        });
        attached.collect()
    }
}
