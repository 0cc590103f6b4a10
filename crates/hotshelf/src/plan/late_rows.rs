//! A sort with a limit over a table compares keys alone: the other columns are read of the rows that are left.
//!
//! The sort's rows are their keys and their numbers. Filters that the scan does not take over stay below it; what is
//! computed of rows is computed at the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, conjunction};
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::operators::{FetchRowsExec, Fetched};
use crate::scan::{TableScan, Taker};
use crate::settings::{SessionSettings, Use};
use crate::star::{parts_of, replace_columns};
use crate::statistics::sizes::VALUE_BYTES;

/// More rows are sorted whole: reading them one by one again would be much of the work, and they are read at once.
const ROWS_MAX: usize = 8192;
/// It pays where the table has many rows for each that is left, and they are wide.
const PARTS_MIN: usize = 64;
const TABLE_ROWS_MIN: usize = 100_000;
const LATE_BYTES_MIN: usize = 32;
/// Parts of an expression: larger ones are computed as they are planned.
const EXPR_PARTS_MAX: usize = 100;

/// Puts [`FetchRowsExec`] above sorts with a limit.
#[derive(Debug)]
pub(super) struct LateRows;

impl PhysicalOptimizerRule for LateRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let settings = config.extensions.get::<SessionSettings>();
        let Some(settings) = settings.filter(|settings| settings.operators != Use::Off) else {
            return Ok(plan);
        };
        let changed = plan.transform_up(|node| {
            let late = match Top::of(&node) {
                Some(top) => top.with_late_rows(&node, settings)?,
                None => None,
            };
            Ok(late.map_or_else(|| Transformed::no(node), Transformed::yes))
        });
        changed.data()
    }

    fn name(&self) -> &str {
        "late_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

type Expr = Arc<dyn PhysicalExpr>;

/// A sort with a limit whose rows come out in one partition.
struct Top<'a> {
    sort: &'a SortExec,
    /// What merges its partitions.
    merge: Option<&'a SortPreservingMergeExec>,
    /// What is computed of the sorted rows before.
    computed: Option<&'a ProjectionExec>,
    fetch: usize,
}

/// What is below a sort: a scan, the rows of it that come to the sort, and their columns.
struct Below {
    scan: TableScan,
    /// Over the scan's output.
    predicates: Vec<Expr>,
    columns: Vec<Composed>,
}

/// An expression over a scan's output, and of how many parts it is: projections above each other may use a column many
/// times each.
#[derive(Clone)]
struct Composed {
    expr: Expr,
    parts: usize,
}

impl<'a> Top<'a> {
    fn of(node: &'a Arc<dyn ExecutionPlan>) -> Option<Self> {
        let merge = node.downcast_ref::<SortPreservingMergeExec>();
        let sorted = merge.map_or(node, SortPreservingMergeExec::input);
        let computed = sorted.downcast_ref::<ProjectionExec>();
        let sort = computed.map_or(sorted, ProjectionExec::input);
        let sort = sort.downcast_ref::<SortExec>()?;
        let fetch = merge.map_or(sort.fetch(), SortPreservingMergeExec::fetch)?;
        let is_whole = fetch <= ROWS_MAX
            && sort.fetch() == Some(fetch)
            && node.output_partitioning().partition_count() == 1
            && match merge {
                Some(_) => true,
                None => !sort.preserve_partitioning() && computed.is_none(),
            };
        is_whole.then_some(Self {
            sort,
            merge,
            computed,
            fetch,
        })
    }

    fn with_late_rows(
        &self,
        node: &Arc<dyn ExecutionPlan>,
        settings: &SessionSettings,
    ) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(mut below) = Below::of(self.sort.input())? else {
            return Ok(None);
        };
        let keys = self.sort.expr().iter().map(|key| below.composed(&key.expr));
        let Some(keys) = keys.collect::<QueryResult<Option<Vec<Composed>>>>()? else {
            return Ok(None);
        };
        let keys: Vec<Expr> = keys.into_iter().map(|key| key.expr).collect();
        if let Some(projection) = self.computed
            && !below.compute(projection)?
        {
            return Ok(None);
        }
        let outputs = || below.columns.iter().map(|column| &column.expr);
        let mut exprs = below.predicates.iter().chain(&keys).chain(outputs());
        if exprs.any(is_volatile) {
            return Ok(None);
        }
        let early = columns_of(below.predicates.iter().chain(&keys));
        let read = columns_of(outputs());
        let has_none = early.is_empty() || read.is_empty();
        if has_none || (settings.operators != Use::Always && !self.pays(&below, &early, &read)?) {
            return Ok(None);
        }
        let Some(input) = self.sorted_numbers(&below, &keys, &early)? else {
            return Ok(None);
        };
        if settings.decisions.are_wanted() {
            settings
                .decisions
                .note(self.why_late(&below.scan, &early, &read)?);
        }
        let places = places_of(&read, &below.scan);
        let exprs = outputs().map(|expr| over_inputs(expr, &places));
        let fetched = Fetched {
            scan: below.scan.without_metrics(),
            columns: read,
            exprs: exprs.collect::<QueryResult<_>>()?,
        };
        Ok(Some(Arc::new(FetchRowsExec {
            input,
            fetched,
            properties: node.properties().clone(),
        })))
    }

    /// Whether reading columns later is expected to take less than reading all at once.
    fn pays(&self, below: &Below, early: &[usize], read: &[usize]) -> QueryResult<bool> {
        let scan = &below.scan;
        let late = read.iter().filter(|column| !early.contains(column));
        let late_bytes = late.map(|column| {
            let data_type = scan.schema.field(*column).data_type();
            data_type.primitive_width().unwrap_or(VALUE_BYTES)
        });
        if late_bytes.sum::<usize>() < LATE_BYTES_MIN {
            return Ok(false);
        }
        let rows = scan.partition_statistics(None)?;
        let rows = rows.num_rows.get_value().copied().unwrap_or(0);
        if rows < TABLE_ROWS_MIN.max(self.fetch.saturating_mul(PARTS_MIN)) {
            return Ok(false);
        }
        let chosen = scan.with_access(Taker::Operators);
        Ok(!chosen.is_some_and(|scan| scan.is_covered()))
    }

    /// What is read when, for EXPLAIN VERBOSE.
    fn why_late(&self, scan: &TableScan, early: &[usize], read: &[usize]) -> QueryResult<String> {
        let names = |columns: &[usize]| {
            let fields = columns.iter().map(|column| scan.schema.field(*column));
            let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
            names.join(", ")
        };
        let rows = scan.partition_statistics(None)?.num_rows;
        let rows = match rows.get_value() {
            Some(rows) => format!("about {rows}"),
            None => "all".to_owned(),
        };
        Ok(format!(
            "the sort for the first {} of {rows} rows of {} reads {} alone; {} are read of the rows that remain",
            self.fetch,
            scan.table.name,
            names(early),
            names(read)
        ))
    }

    /// The sort of keys and numbers. `None`: the scan has none.
    fn sorted_numbers(
        &self,
        below: &Below,
        keys: &[Expr],
        early: &[usize],
    ) -> QueryResult<Option<Arc<dyn ExecutionPlan>>> {
        let Some(scan) = below.scan.numbered(early) else {
            return Ok(None);
        };
        let places = places_of(early, &below.scan);
        let mut rows: Arc<dyn ExecutionPlan> = DataSourceExec::from_data_source(scan);
        if !below.predicates.is_empty() {
            let predicates = below.predicates.iter();
            let predicates = predicates.map(|one| over_inputs(one, &places));
            let predicates = predicates.collect::<QueryResult<Vec<_>>>()?;
            rows = Arc::new(FilterExec::try_new(conjunction(predicates), rows)?);
        }
        let keys = keys.iter().map(|key| over_inputs(key, &places));
        let mut keys = keys.collect::<QueryResult<Vec<_>>>()?;
        if !keys.iter().all(|key| key.is::<Column>()) {
            let schema = rows.schema();
            let number = schema.fields().len() - 1;
            let named = keys.iter().enumerate();
            let named = named.map(|(idx, key)| (key.clone(), format!("key {idx}")));
            let column = |name: &str, idx| Arc::new(Column::new(name, idx)) as Expr;
            let name = schema.field(number).name();
            let last = (column(name, number), name.clone());
            let columns: Vec<(Expr, String)> = named.chain([last]).collect();
            let sorted = columns.iter().take(keys.len()).enumerate();
            keys = sorted.map(|(idx, (_, name))| column(name, idx)).collect();
            rows = Arc::new(ProjectionExec::try_new(columns, rows)?);
        }
        let sorted = self.sort.expr().iter().zip(keys);
        let sorted = sorted.map(|(sort, key)| PhysicalSortExpr::new(key, sort.options));
        let Some(order) = LexOrdering::new(sorted) else {
            return Ok(None);
        };
        let sort = SortExec::new(order.clone(), rows)
            .with_preserve_partitioning(self.sort.preserve_partitioning())
            .with_fetch(Some(self.fetch));
        let sort: Arc<dyn ExecutionPlan> = Arc::new(sort);
        Ok(Some(match self.merge {
            Some(_) => {
                let merge = SortPreservingMergeExec::new(order, sort);
                Arc::new(merge.with_fetch(Some(self.fetch)))
            }
            None => sort,
        }))
    }
}

impl Below {
    /// What is below a sort, if nothing but filters and projections is between it and a scan.
    fn of(node: &Arc<dyn ExecutionPlan>) -> QueryResult<Option<Self>> {
        if let Some(scan) = TableScan::of(node) {
            return Ok(Some(Self::all(scan)));
        }
        // A limit stops at some rows.
        if node.fetch().is_some() {
            return Ok(None);
        }
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let Some(mut below) = Self::of(projection.input())? else {
                return Ok(None);
            };
            return Ok(below.compute(projection)?.then_some(below));
        }
        let Some(filter) = node.downcast_ref::<FilterExec>() else {
            return Ok(None);
        };
        let Some(mut below) = Self::of(filter.input())? else {
            return Ok(None);
        };
        let Some(predicate) = below.composed(filter.predicate())? else {
            return Ok(None);
        };
        below.predicates.push(predicate.expr);
        if let Some(chosen) = filter.projection() {
            let columns = chosen.iter().map(|idx| below.columns[*idx].clone());
            below.columns = columns.collect();
        }
        Ok(Some(below))
    }

    fn all(scan: &TableScan) -> Self {
        let columns = all_columns(scan).into_iter();
        Self {
            scan: scan.clone(),
            predicates: Vec::new(),
            columns: columns.map(|expr| Composed { expr, parts: 1 }).collect(),
        }
    }

    /// An expression over its columns, over the scan's output. `None`: that has too many parts.
    fn composed(&self, expr: &Expr) -> QueryResult<Option<Composed>> {
        let parts = parts_of(expr, |column| {
            let input = self.columns.get(column.index())?;
            Some(input.parts)
        })?;
        if parts > EXPR_PARTS_MAX {
            return Ok(None);
        }
        let inputs: Vec<Expr> = self
            .columns
            .iter()
            .map(|column| column.expr.clone())
            .collect();
        let expr = over_inputs(expr, &inputs)?;
        Ok(Some(Composed { expr, parts }))
    }

    /// Takes what a projection computes for the columns. False: that has too many parts.
    fn compute(&mut self, projection: &ProjectionExec) -> QueryResult<bool> {
        let columns = projection.expr().iter().map(|one| self.composed(&one.expr));
        let Some(columns) = columns.collect::<QueryResult<Option<Vec<Composed>>>>()? else {
            return Ok(false);
        };
        self.columns = columns;
        Ok(true)
    }
}

fn all_columns(scan: &TableScan) -> Vec<Expr> {
    let fields = scan.schema.fields().iter().enumerate();
    let columns = fields.map(|(idx, field)| Arc::new(Column::new(field.name(), idx)) as Expr);
    columns.collect()
}

/// For each column of a scan where it is among those that are read; of the others nothing is asked.
fn places_of(read: &[usize], scan: &TableScan) -> Vec<Expr> {
    let mut columns = all_columns(scan);
    for (place, idx) in read.iter().enumerate() {
        columns[*idx] = Arc::new(Column::new(scan.schema.field(*idx).name(), place));
    }
    columns
}

/// An expression with others in the place of columns.
fn over_inputs(expr: &Expr, inputs: &[Expr]) -> QueryResult<Expr> {
    replace_columns(expr, |column| inputs.get(column.index()).cloned())
}

/// The columns that expressions read, in ascending order.
fn columns_of<'a>(exprs: impl Iterator<Item = &'a Expr>) -> Vec<usize> {
    let columns = exprs.flat_map(collect_columns);
    let columns: BTreeSet<usize> = columns.map(|column| column.index()).collect();
    columns.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::before_after::before_after;

    #[test]
    fn other_columns_are_fetched_after_the_sort() {
        let statements = [
            "CREATE TABLE l AS SELECT value AS n, value % 1009 AS k, 'text ' || value AS w, 'more ' || value AS m \
                FROM range(100000)",
            "SELECT * FROM l ORDER BY k LIMIT 3",
        ];
        before_after("late_rows", &statements).is(
            "
            SortExec: TopK(fetch=3), expr=[k@1 ASC NULLS LAST], preserve_partitioning=[false]
              DataSourceExec: HotshelfScan: table=l, columns=[n, k, w, m]
            ",
            "
            FetchRowsExec: table=l, columns=[n, k, w, m]
              SortExec: TopK(fetch=3), expr=[k@0 ASC NULLS LAST], preserve_partitioning=[false]
                DataSourceExec: HotshelfScan: table=l, columns=[k, row number]
            ",
        );
    }
}
