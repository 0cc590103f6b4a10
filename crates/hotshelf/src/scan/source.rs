//! A scan as DataFusion plans it: which columns, which filters, how many workers.

use std::any::Any;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, project_schema};
use datafusion::datasource::source::{DataSource, OpenArgs};
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr};
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::filter_pushdown::{FilterPushdownPropagation, PushedDown};
use datafusion::physical_plan::limit::LimitStream;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet};
use hotshelf_cache::ScanContext;
use hotshelf_cache::tuner::Tuner;
use parking_lot::Mutex;
use vortex::dtype::Nullability;
use vortex::expr::{Expression, get_item, pack, root};

use super::env::ScanEnv;
use super::filters::{DynamicFilter, IntegerRange, convert};
use super::queue::{ScanPlan, ScanQueue};
use super::stream::{Reported, ScanMetrics, open};
use crate::index::{Access, Condition, Conjunct, Wanted, choose, condition};
use crate::pipelines::Operator;
use crate::settings::{ElfUse, SessionSettings};
use crate::table::Table;

/// A scan of a table.
#[derive(Clone)]
pub(crate) struct TableScan {
    pub env: Arc<ScanEnv>,
    pub table: Arc<Table>,
    /// Output columns, by index in the table.
    pub columns: Vec<usize>,
    pub schema: SchemaRef,
    filters: Vec<Filter>,
    dynamic: Vec<DynamicFilter>,
    limit: Option<usize>,
    partitions: usize,
    /// Whether Elfs may be asked.
    elf: ElfUse,
    metrics: ExecutionPlanMetricsSet,
    reported: Arc<Mutex<Reported>>,
    /// How the last run found its rows.
    ran: Arc<Mutex<Option<Access>>>,
}

/// A predicate the scan took over.
#[derive(Clone)]
struct Filter {
    expr: Arc<dyn PhysicalExpr>,
    converted: Expression,
    conjunct: Conjunct,
}

impl TableScan {
    pub fn new(
        env: Arc<ScanEnv>,
        table: Arc<Table>,
        projection: Option<Vec<usize>>,
        limit: Option<usize>,
        config: &ConfigOptions,
    ) -> QueryResult<Self> {
        let partitions = config.execution.target_partitions;
        let settings = config.extensions.get::<SessionSettings>();
        let schema = project_schema(&table.schema, projection.as_ref())?;
        let columns = projection.unwrap_or_else(|| (0..table.schema.fields().len()).collect());
        let partitions = partitions.min(row_group_count(&table)).max(1);
        Ok(Self {
            env,
            columns,
            schema,
            filters: Vec::new(),
            dynamic: Vec::new(),
            // Each worker stops at the limit on its own, so only a single worker keeps it exactly.
            limit: limit.filter(|_| partitions == 1),
            partitions,
            elf: settings.map_or(ElfUse::Off, |settings| settings.elf),
            metrics: ExecutionPlanMetricsSet::new(),
            reported: Arc::default(),
            ran: Arc::default(),
            table,
        })
    }

    /// Elf or scan, for rows that also meet `hints` (conditions on the table's columns). With `runs` the choice will be
    /// carried out; with `covers` rows may come from an index alone.
    fn access(&self, hints: &[Condition], runs: bool, covers: bool) -> Access {
        if self.elf == ElfUse::Off || self.table.indexes.is_empty() || self.limit.is_some() {
            return Access::default();
        }
        let filters = self.filters.iter();
        let conjuncts: Vec<Conjunct> = filters.map(|filter| filter.conjunct.clone()).collect();
        // What becomes known while the query runs may leave little to read.
        let covers = covers && self.dynamic.is_empty();
        let wanted = Wanted {
            conjuncts: &conjuncts,
            hints,
            output: covers.then_some(self.columns.as_slice()),
        };
        choose(
            &self.env.elfs,
            &self.table,
            wanted,
            self.partitions,
            (self.elf, runs),
        )
    }

    /// Whether an index holds all that is asked for, and it is best to read no more than that.
    pub fn is_covered(&self) -> bool {
        self.access(&[], false, true).is_covering()
    }

    /// A predicate over the output as a condition on a column of the table.
    fn condition(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Condition> {
        let found = condition(expr, &self.schema)?;
        Some(Condition {
            column: *self.columns.get(found.column)?,
            ..found
        })
    }

    /// The parts of predicates that are known by now as conditions.
    fn hints(&self, ranges: &[DynamicFilter]) -> Vec<Condition> {
        let mut hints = Vec::new();
        for expr in ranges.iter().filter_map(DynamicFilter::expr_now) {
            let parts = split_conjunction(&expr).into_iter();
            hints.extend(parts.filter_map(|part| self.condition(part)));
        }
        hints
    }

    /// Whether the scan may stop before its last row.
    pub fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// The predicates that become known while the query runs.
    pub fn dynamic_exprs(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.dynamic.iter().map(|dynamic| &dynamic.expr)
    }

    /// The queue of a star pipeline: `keys` are read with the filters' columns, `payload` where rows survive
    /// (both by index in the output); `ranges` skip row groups. The worker has to test the plan's own ranges.
    pub fn star_queue(
        &self,
        config: &ConfigOptions,
        payload: &[usize],
        keys: &[usize],
        ranges: Vec<DynamicFilter>,
    ) -> Arc<ScanQueue> {
        let hints = self.hints(&ranges);
        // Without look-ups an index could cover the query: what is lost without its Elfs counts here, too.
        let mut access = self.access(&hints, true, keys.is_empty());
        if access.is_covering() {
            access = self.access(&hints, false, false);
        }
        let mut plan = self.plan(access);
        plan.operator = Operator::Star;
        plan.columns = payload.iter().map(|idx| self.columns[*idx]).collect();
        plan.projection = projection(payload.iter().map(|idx| self.schema.field(*idx)));
        plan.tested_columns
            .extend(keys.iter().map(|idx| self.columns[*idx]));
        plan.filter_columns.extend(&plan.tested_columns);
        plan.filter_columns.sort_unstable();
        plan.filter_columns.dedup();
        let ranges = ranges
            .iter()
            .flat_map(|range| range.current(&self.env.vortex));
        plan.prune_only.extend(ranges);
        // What an Elf answers exactly needs no test; the worker would read the columns for it.
        if plan.elf.is_none() {
            self.test_ranges(&mut plan);
        }
        self.queue(plan, config)
    }

    /// Leaves predicates that are ranges of integers to the worker.
    fn test_ranges(&self, plan: &mut ScanPlan) {
        plan.conjuncts.clear();
        for (number, filter) in self.filters.iter().enumerate() {
            let columns = filter.conjunct.columns.as_slice();
            match (IntegerRange::of(&filter.expr), columns) {
                (Some(range), [column]) => {
                    let column = *column;
                    plan.tested_columns.push(column);
                    IntegerRange { column, ..range }.add_to(&mut plan.ranges);
                    plan.prune_only.push(filter.converted.clone());
                }
                _ => plan.conjuncts.push((filter.converted.clone(), number)),
            }
        }
    }

    fn queue(&self, plan: ScanPlan, config: &ConfigOptions) -> Arc<ScanQueue> {
        let settings = config
            .extensions
            .get::<SessionSettings>()
            .cloned()
            .unwrap_or_default();
        let mut context = ScanContext::new(settings.query_id, self.pipeline(), settings.template);
        context.populate = settings.populate;
        let plan = ScanPlan {
            priority: settings.priority,
            predicted_s: self.predicted_s(settings.template),
            batch_rows: config.execution.batch_size.into(),
            ..plan
        };
        let session = self.env.vortex.clone();
        Arc::new(ScanQueue::new(plan, Arc::new(context), session))
    }

    /// Table, columns, predicates and, unless it ran, the way it would take, for EXPLAIN.
    pub fn describe(&self, covers: bool) -> String {
        let names: Vec<&str> = self
            .schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let mut text = format!("table={}, columns=[{}]", self.table.name, names.join(", "));
        if !self.filters.is_empty() {
            let filters: Vec<String> = self
                .filters
                .iter()
                .map(|filter| filter.expr.to_string())
                .collect();
            text.push_str(&format!(", filter={}", filters.join(" AND ")));
        }
        let ran = self.ran.lock().clone();
        let access = ran.unwrap_or_else(|| self.access(&[], false, covers));
        text.push_str(&access.to_string());
        text
    }

    fn plan(&self, access: Access) -> ScanPlan {
        let elf = access.elf.clone();
        *self.ran.lock() = Some(access);
        let projection = projection(self.schema.fields().iter().map(AsRef::as_ref));
        let mut filter_columns: Vec<usize> = self
            .filters
            .iter()
            .flat_map(|filter| filter.conjunct.columns.clone())
            .collect();
        filter_columns.sort_unstable();
        filter_columns.dedup();
        ScanPlan {
            table: self.table.name.clone(),
            operator: Operator::Scan,
            files: self.table.files.clone(),
            columns: self.columns.clone(),
            filter_columns,
            conjuncts: self
                .filters
                .iter()
                .enumerate()
                .map(|(number, filter)| (filter.converted.clone(), number))
                .collect(),
            tested_columns: Vec::new(),
            filters: self
                .filters
                .iter()
                .map(|filter| filter.conjunct.columns.clone())
                .collect(),
            elf,
            batch_rows: 0,
            ranges: Vec::new(),
            prune_only: Vec::new(),
            dynamic: self.dynamic.clone(),
            projection,
            column_ids: self.table.column_ids.clone(),
            priority: 1.0,
            predicted_s: None,
            look_ahead_bytes: self.env.look_ahead_bytes(),
            look_ahead_row_groups: self.env.look_ahead_row_groups(),
        }
    }

    /// What the tuner expects of the pipeline with what is in memory now, in seconds.
    fn predicted_s(&self, template: u64) -> Option<f64> {
        let tuner = self.env.observers.tuner.as_ref()?;
        let cache = &self.env.cache;
        if !cache.policy().is_tuned() {
            return None; // what is in memory will not stay
        }
        let (sizes, resident) = (cache.column_sizes(), cache.resident_bytes());
        let share = |column| {
            let bytes = |of: &std::collections::BTreeMap<_, u64>| {
                of.get(&column).copied().unwrap_or(0) as f64
            };
            bytes(&resident) / bytes(&sizes).max(1.0)
        };
        let predict = |tuner: &Tuner| tuner.predicted_with(template, self.pipeline(), share);
        tuner.try_inspect(predict).flatten()
    }

    /// A number for this scan within its query, the same in every run of the template.
    fn pipeline(&self) -> u32 {
        let mut hasher = DefaultHasher::new();
        (self.table.id, &self.columns, self.filters.len()).hash(&mut hasher);
        hasher.finish() as u32
    }

    /// Indices in the table of the columns an expression over the output reads.
    fn table_columns(&self, expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
        collect_columns(expr)
            .iter()
            .filter_map(|column| self.columns.get(column.index()).copied())
            .collect()
    }
}

/// A struct of columns.
fn projection<'a>(fields: impl Iterator<Item = &'a Field>) -> Expression {
    let columns = fields.map(|field| {
        let name = field.name().clone();
        (name.clone(), get_item(name, root()))
    });
    pack(columns, Nullability::NonNullable)
}

fn row_group_count(table: &Table) -> usize {
    table.files.iter().map(|file| file.row_group_count()).sum()
}

impl fmt::Debug for TableScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableScan")
            .field("table", &self.table.name)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

impl DataSource for TableScan {
    fn open(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> QueryResult<SendableRecordBatchStream> {
        let state = self.create_sibling_state(context.session_config().options());
        self.open_with_args(OpenArgs::new(partition, context).with_shared_state(state))
    }

    fn open_with_args(&self, args: OpenArgs) -> QueryResult<SendableRecordBatchStream> {
        let queue = args
            .sibling_state
            .and_then(|state| state.downcast::<ScanQueue>().ok());
        let Some(queue) = queue else {
            return self.open(args.partition, args.context);
        };
        let metrics = ScanMetrics::new(&self.metrics, args.partition, self.reported.clone());
        let stream = Box::pin(open(
            queue,
            self.schema.clone(),
            metrics,
            self.env.observers.clone(),
        ));
        Ok(match self.limit {
            Some(limit) => {
                let metrics = BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), args.partition);
                Box::pin(LimitStream::new(stream, 0, Some(limit), metrics))
            }
            None => stream,
        })
    }

    /// The queue that the workers of one execution share.
    fn create_sibling_state(&self, config: &ConfigOptions) -> Option<Arc<dyn Any + Send + Sync>> {
        *self.reported.lock() = Reported::default();
        let plan = self.plan(self.access(&[], true, true));
        Some(self.queue(plan, config))
    }

    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "HotshelfScan: {}", self.describe(true))?;
        for dynamic in &self.dynamic {
            write!(f, ", prune={}", dynamic.expr)?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        write!(f, ", io={}", self.env.io.describe())
    }

    fn repartitioned(
        &self,
        target_partitions: usize,
        _repartition_file_min_size: usize,
        _output_ordering: Option<LexOrdering>,
    ) -> QueryResult<Option<Arc<dyn DataSource>>> {
        let partitions = target_partitions.min(row_group_count(&self.table)).max(1);
        Ok(
            (partitions != self.partitions && self.limit.is_none()).then(|| {
                Arc::new(Self {
                    partitions,
                    ..self.clone()
                }) as _
            }),
        )
    }

    fn output_partitioning(&self) -> Partitioning {
        Partitioning::UnknownPartitioning(self.partitions)
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        EquivalenceProperties::new(self.schema.clone())
    }

    fn partition_statistics(&self, partition: Option<usize>) -> QueryResult<Arc<Statistics>> {
        if partition.is_some() && self.partitions > 1 {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema)));
        }
        let table = &self.table.statistics;
        let mut statistics = Statistics {
            num_rows: table.num_rows,
            total_byte_size: Precision::Absent,
            column_statistics: self
                .columns
                .iter()
                .map(|idx| table.column_statistics[*idx].clone())
                .collect(),
        };
        if let Some(limit) = self.limit {
            statistics.num_rows = statistics.num_rows.min(&Precision::Exact(limit));
        }
        let unfiltered = self.filters.is_empty() && self.limit.is_none();
        Ok(Arc::new(if unfiltered {
            statistics
        } else {
            statistics.to_inexact()
        }))
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        (self.partitions == 1).then(|| {
            Arc::new(Self {
                limit,
                ..self.clone()
            }) as _
        })
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn metrics(&self) -> ExecutionPlanMetricsSet {
        self.metrics.clone()
    }

    /// Takes over projections that only choose columns; computing stays with DataFusion.
    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> QueryResult<Option<Arc<dyn DataSource>>> {
        let chosen = projection.iter().map(|projected| {
            let column = projected
                .expr
                .downcast_ref::<datafusion::physical_expr::expressions::Column>()?;
            (column.name() == projected.alias).then(|| column.index())
        });
        let Some(chosen) = chosen.collect::<Option<Vec<usize>>>() else {
            return Ok(None);
        };
        let mut distinct = chosen.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() != chosen.len() {
            return Ok(None);
        }
        let columns: Vec<usize> = chosen.iter().map(|idx| self.columns[*idx]).collect();
        let schema = Arc::new(self.schema.project(&chosen)?);
        Ok(Some(Arc::new(Self {
            columns,
            schema,
            ..self.clone()
        })))
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> QueryResult<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        let mut scan = self.clone();
        let mut answers = Vec::with_capacity(filters.len());
        for filter in filters {
            answers.push(scan.take_filter(&filter)?);
        }
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        Ok(propagation.with_updated_node(Arc::new(scan) as _))
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> QueryResult<TreeNodeRecursion>,
    ) -> QueryResult<TreeNodeRecursion> {
        for dynamic in &self.dynamic {
            if f(&dynamic.expr)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }
}

impl TableScan {
    /// Whether all columns of a predicate are this scan's, by index and by name.
    fn has_columns_of(&self, filter: &Arc<dyn PhysicalExpr>) -> bool {
        collect_columns(filter).iter().all(|column| {
            let field = self.schema.fields().get(column.index());
            field.is_some_and(|field| field.name() == column.name())
        })
    }

    /// Takes over a predicate, wholly or for skipping row groups only.
    fn take_filter(&mut self, filter: &Arc<dyn PhysicalExpr>) -> QueryResult<PushedDown> {
        if self.limit.is_some() || !self.has_columns_of(filter) {
            return Ok(PushedDown::No);
        }
        if DynamicFilter::is_dynamic(filter) {
            self.dynamic.push(DynamicFilter {
                expr: filter.clone(),
                schema: self.schema.clone(),
            });
            return Ok(PushedDown::No);
        }
        let parts = split_conjunction(filter);
        let mut taken = Vec::with_capacity(parts.len());
        for part in parts {
            let Some(converted) = convert(&self.env.vortex, part, &self.schema)? else {
                return Ok(PushedDown::No);
            };
            taken.push(Filter {
                expr: part.clone(),
                converted,
                conjunct: Conjunct {
                    condition: self.condition(part),
                    columns: self.table_columns(part),
                },
            });
        }
        self.filters.extend(taken);
        Ok(PushedDown::Yes)
    }
}
