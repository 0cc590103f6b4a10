//! A scan as DataFusion plans it: which columns, which filters, how many workers, which way to the rows.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Statistics, project_schema};
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
use parking_lot::Mutex;
use vortex::expr::Expression;

use super::comparison::Comparison;
use super::env::ScanEnv;
use super::filters::{DynamicFilter, convert};
use super::metrics::{Reported, ScanMetrics};
use super::numbers::RowsByFile;
use super::queue::ScanQueue;
use super::read_first::ReadFirst;
use super::stream::{open, rows_on_the_way};
use crate::index::{
    AccessPath, Condition, Conjunct, JoinKeys, Outcome, Request, Wanted, condition,
};
use crate::look_ups::Rows;
use crate::settings::{SessionSettings, Use};
use crate::statistics::error::EstimateError;
use crate::statistics::{kept_share, narrow};
use crate::table::Table;

/// A scan of a table.
#[derive(Clone)]
pub(crate) struct TableScan {
    pub env: Arc<ScanEnv>,
    pub table: Arc<Table>,
    /// Output columns, by index in the table.
    pub columns: Vec<usize>,
    pub schema: SchemaRef,
    pub(super) filters: Vec<Filter>,
    pub(super) dynamic: Vec<DynamicFilter>,
    /// What a sort above wants first.
    pub(super) first: Option<ReadFirst>,
    limit: Option<usize>,
    pub(super) partitions: usize,
    /// By how much the numbers of rows are wrong.
    estimate_error: EstimateError,
    /// Whether Elfs may be asked.
    elf: Use,
    /// How it finds its rows. A plan rule chooses once the scan is as it will run; until then it looks at every row
    /// group.
    pub(super) access: AccessPath,
    /// What the Elfs did, for EXPLAIN ANALYZE.
    pub(super) outcome: Arc<Outcome>,
    /// The way that the latest execution took, if it chose one.
    pub(super) taken: Arc<Mutex<Option<AccessPath>>>,
    /// Whether the last column has the numbers of rows.
    pub(super) numbers_rows: bool,
    /// The only rows that it reads.
    pub(super) wanted: Option<Arc<RowsByFile>>,
    pub(super) metrics: ExecutionPlanMetricsSet,
    pub(super) reported: Arc<Mutex<Reported>>,
}

/// A predicate the scan took over.
#[derive(Clone)]
pub(super) struct Filter {
    pub expr: Arc<dyn PhysicalExpr>,
    pub converted: Expression,
    pub conjunct: Conjunct,
    /// What it compares, by indices in the table.
    pub comparison: Option<Comparison>,
}

/// What takes a scan's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taker {
    /// DataFusion's operators. The rows may come from an index alone.
    Operators,
    /// A star pipeline that looks up this many columns of the table.
    Star { key_count: usize },
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
        let partitions = env.workers(&table, partitions);
        Ok(Self {
            env,
            columns,
            schema,
            filters: Vec::new(),
            dynamic: Vec::new(),
            first: None,
            // Each worker stops at the limit on its own, so only a single worker keeps it exactly.
            limit: limit.filter(|_| partitions == 1),
            partitions,
            estimate_error: settings.map(|own| own.estimate_error).unwrap_or_default(),
            elf: settings.map_or(Use::Off, |settings| settings.elf),
            access: AccessPath::default(),
            outcome: Arc::default(),
            taken: Arc::default(),
            numbers_rows: false,
            wanted: None,
            metrics: ExecutionPlanMetricsSet::new(),
            reported: Arc::default(),
            table,
        })
    }

    /// The scan with the way to its rows that is expected to be fastest; `None` if there is nothing to choose from.
    /// Choosing has no side effects.
    pub fn with_access(&self, taker: Taker) -> Option<Self> {
        self.can_use_elfs().then(|| Self {
            access: self.choose(taker, &JoinKeys::default()),
            outcome: Arc::default(),
            taken: Arc::default(),
            ..self.clone()
        })
    }

    /// The way to the rows once something is known about join keys. This is the only choice that the execution makes:
    /// what a build side holds is not known before. If no index has such a column, the planned way is used.
    pub(super) fn access_within(&self, taker: Taker, keys: &JoinKeys) -> AccessPath {
        let indexes = self.table.indexes.iter();
        let mut indexed = indexes.flat_map(|index| &index.definition.columns);
        let is_indexed =
            indexed.any(|column| keys.conditions.iter().any(|one| one.column == *column));
        match is_indexed && self.can_use_elfs() {
            true => self.choose(taker, keys),
            false => self.access.clone(),
        }
    }

    pub(super) fn can_use_elfs(&self) -> bool {
        let is_free = self.limit.is_none() && self.wanted.is_none();
        self.elf != Use::Off && !self.table.indexes.is_empty() && is_free
    }

    fn choose(&self, taker: Taker, keys: &JoinKeys) -> AccessPath {
        let filters = self.filters.iter();
        let conjuncts: Vec<Conjunct> = filters.map(|filter| filter.conjunct.clone()).collect();
        let key_columns = keys.conditions.iter().map(|one| one.column);
        let key_columns: BTreeSet<usize> = key_columns.collect();
        let key_columns: Vec<usize> = key_columns.into_iter().collect();
        let (key_count, may_cover, read) = match taker {
            // What becomes known while the query runs may leave little to read.
            Taker::Operators => {
                let may_cover = self.dynamic.is_empty() || !keys.is_empty();
                // An index does not know the numbers of its rows.
                let may_cover = may_cover && !self.numbers_rows;
                (key_columns.len(), may_cover, &self.columns)
            }
            // It reads the others where its look-ups leave rows.
            Taker::Star { key_count } => (key_count, false, &key_columns),
        };
        let request = Request {
            table: &self.table,
            elfs: &self.env.elfs,
            wanted: Wanted {
                conjuncts: &conjuncts,
                keys,
                key_count,
                spared: if keys.is_empty() { &[] } else { read },
                output: may_cover.then_some(self.columns.as_slice()),
            },
            setting: self.elf,
            workers: self.partitions,
            book: &self.env.prices,
            prices: self.env.prices.now(),
        };
        request.choose()
    }

    /// Whether rows come from an index alone.
    pub fn is_covered(&self) -> bool {
        self.access.is_covering()
    }

    /// A predicate over the output as a condition on a column of the table.
    pub(super) fn condition(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Condition> {
        let found = condition(expr, &self.schema)?;
        Some(Condition {
            column: *self.columns.get(found.column)?,
            ..found
        })
    }

    /// Whether the scan may stop before its last row.
    pub fn has_limit(&self) -> bool {
        self.limit.is_some()
    }

    /// What it reads unless it is narrowed, if that is the same in each run.
    pub fn rows(&self) -> Option<Rows> {
        let filters = self.filters.iter();
        let is_all = self.limit.is_none() && !self.numbers_rows;
        is_all.then(|| Rows {
            table: self.table.id,
            table_name: self.table.name.clone(),
            files: self.table.file_ids(),
            columns: self.columns.clone(),
            schema: self.schema.clone(),
            filters: filters.map(|filter| filter.expr.clone()).collect(),
        })
    }

    /// Whether the rest of the query has by now found rows that it does not need: they may not have been read. What was
    /// not narrowed when a scan has ended was not while it ran.
    pub fn is_narrowed(&self) -> bool {
        self.dynamic.iter().any(DynamicFilter::is_known)
    }

    /// What becomes known about its rows while the query runs.
    pub fn dynamic_filters(&self) -> &[DynamicFilter] {
        &self.dynamic
    }

    /// The scan for a change: how it finds its rows is chosen again.
    pub(super) fn unchosen(&self) -> Self {
        Self {
            access: AccessPath::default(),
            outcome: Arc::default(),
            taken: Arc::default(),
            ..self.clone()
        }
    }

    /// Indices in the table of the columns an expression over the output reads.
    fn table_columns(&self, expr: &Arc<dyn PhysicalExpr>) -> Vec<usize> {
        collect_columns(expr)
            .iter()
            .filter_map(|column| self.columns.get(column.index()).copied())
            .collect()
    }
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
            rows_on_the_way(&args.context),
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
        Some(self.scan_queue(config))
    }

    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        let mut parts = self.planned();
        let prune = self.dynamic.iter();
        parts.extend(prune.map(|dynamic| format!("prune={}", dynamic.describe())));
        parts.extend(self.first.as_ref().map(ToString::to_string));
        parts.extend(self.limit.map(|limit| format!("limit={limit}")));
        let readers = self.env.shelves.readers_of(&self.table.folder);
        parts.extend(readers.map(|readers| format!("readers<={readers}")));
        if format == DisplayFormatType::TreeRender {
            return f.write_str(&parts.join("\n"));
        }
        let io = self.env.io.describe();
        write!(f, "HotshelfScan: {}, io={io}", parts.join(", "))
    }

    fn repartitioned(
        &self,
        target_partitions: usize,
        _repartition_file_min_size: usize,
        _output_ordering: Option<LexOrdering>,
    ) -> QueryResult<Option<Arc<dyn DataSource>>> {
        let partitions = self.env.workers(&self.table, target_partitions);
        Ok(
            (partitions != self.partitions && self.limit.is_none()).then(|| {
                Arc::new(Self {
                    partitions,
                    ..self.unchosen()
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
                .chain(self.numbers_rows.then(ColumnStatistics::new_unknown))
                .collect(),
        };
        if !self.filters.is_empty() {
            let predicates = self.filters.iter().map(|filter| &filter.expr);
            let own = &mut statistics.column_statistics;
            narrow(own, &self.columns, predicates.clone(), &self.table);
            let sample = self.table.sample.get();
            let share = kept_share(predicates, &self.table.schema, table, sample.as_deref());
            let rows = statistics.num_rows.get_value();
            let rows = rows.map(|rows| (*rows as f64 * share).max(1.0));
            let rows = rows.map(|rows| self.estimate_error.of(rows, &self.table.name) as usize);
            statistics.num_rows = rows.map_or(Precision::Absent, Precision::Inexact);
        }
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
                ..self.unchosen()
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
        if self.numbers_rows {
            return Ok(None);
        }
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
            ..self.unchosen()
        })))
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> QueryResult<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        let mut scan = self.unchosen();
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
                comparison: Comparison::of(part, &self.schema, &self.columns),
            });
        }
        self.filters.extend(taken);
        Ok(PushedDown::Yes)
    }
}
