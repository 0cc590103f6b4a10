//! What a part of a physical plan means as a star: one scan, look-ups by its columns, filters and outputs.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::declined::Declined;
use super::determined::Lineage;
use super::forecast::{Forecast, check_build, pass_through};
use super::join_sides::{KeyPair, joined, looked_up_key, probe_side};
use super::matching::Matching;
use super::narrow::{Computed, Narrow, Source, WideColumns, parts_of, replace_columns, substitute};
use crate::scan::TableScan;
use crate::scan::is_key_type;

/// Build sides above this estimate stay with DataFusion, which can partition them.
const BUILD_ROWS_MAX: usize = 8_000_000;
/// Where DataFusion meant to build on the side of the larger table, because it expects few rows of it, only
/// build sides up to this estimate are looked up instead.
const SWAPPED_BUILD_ROWS_MAX: usize = 100_000;
/// Only build sides of at most one row for this many scanned rows are joined with further tables themselves.
const WIDENED_BUILD_SHARE: usize = 8;
/// Parts of a computed column, written out over what is stored.
const PARTS_MAX: usize = 2_000;

/// One look-up of the star.
#[derive(Debug, Clone)]
pub(super) struct Join {
    pub build: Arc<dyn ExecutionPlan>,
    /// If the build side is a star itself.
    pub lineage: Option<Arc<Lineage>>,
    /// Key over the build's schema.
    pub build_key: Arc<dyn PhysicalExpr>,
    /// Key column, by index in the scan's output.
    pub probe_key: usize,
    pub matching: Matching,
    pub forecast: Forecast,
}

/// A star. Its expressions are over the wide schema: the scan's columns, those of each build side, and what
/// projections compute from them.
#[derive(Clone)]
pub(super) struct Shape {
    pub scan: TableScan,
    pub joins: Vec<Join>,
    /// Predicates that rows must pass besides the scan's own. They read no computed column: those may only be
    /// computed for rows that passed.
    pub filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns of the replaced plan.
    pub outputs: Vec<Arc<dyn PhysicalExpr>>,
    /// Every column, and where it comes from unless it is computed.
    wide: WideColumns,
    computed: Computed,
}

impl Shape {
    /// Reads a plan as a star, or says why not.
    pub fn recognise(plan: &Arc<dyn ExecutionPlan>) -> Result<Self, Declined> {
        if let Some(leaf) = plan.downcast_ref::<DataSourceExec>() {
            return Self::of_scan(leaf);
        }
        if let Some(input) = pass_through(plan) {
            return Self::recognise(input);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            return Self::of_filter(filter);
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let mut shape = Self::recognise(projection.input())?;
            let schema = projection.schema();
            shape.outputs = projection
                .expr()
                .iter()
                .zip(schema.fields())
                .map(|(projected, field)| {
                    let expr = shape.rewrite(&projected.expr)?;
                    Ok(shape.column_of(expr, field))
                })
                .collect::<Result<_, Declined>>()?;
            shape.ensure_short()?;
            return Ok(shape);
        }
        if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            return Self::of_join(join);
        }
        Err(Declined(format!("{} is not part of a star", plan.name())))
    }

    fn of_scan(leaf: &DataSourceExec) -> Result<Self, Declined> {
        let scan = leaf
            .data_source()
            .downcast_ref::<TableScan>()
            .ok_or_else(|| Declined::because("the scan is not of a table of the database"))?
            .clone();
        if scan.has_limit() {
            return Err(Declined::because("the scan has a limit"));
        }
        let fields = scan.schema.fields();
        let wide: Vec<_> = fields
            .iter()
            .enumerate()
            .map(|(idx, field)| (Some(Source::Probe(idx)), field.clone()))
            .collect();
        Ok(Self {
            outputs: columns_from(&wide, 0..wide.len()),
            scan,
            joins: Vec::new(),
            filters: Vec::new(),
            wide,
            computed: Computed::new(),
        })
    }

    fn of_filter(filter: &FilterExec) -> Result<Self, Declined> {
        if filter.fetch().is_some() {
            return Err(Declined::because("a filter has a limit"));
        }
        let mut shape = Self::recognise(filter.input())?;
        let predicate = shape.rewrite(filter.predicate())?;
        shape.filters.push(shape.inline(&predicate)?);
        if let Some(projection) = filter.projection() {
            shape.project(projection)?;
        }
        Ok(shape)
    }

    fn of_join(join: &HashJoinExec) -> Result<Self, Declined> {
        if join.fetch().is_some() || join.null_aware {
            return Err(Declined::because("a join has a limit or a NULL rule"));
        }
        if join.null_equality() != NullEquality::NullEqualsNothing {
            return Err(Declined::because("a join takes NULL keys for equal"));
        }
        let (probe_side, matching) = probe_side(join)?;
        let ((left_key, right_key), others) = looked_up_key(join, matching, probe_side)?;
        if join.filter().is_some() && matching != Matching::Inner {
            return Err(Declined(format!("a {matching} join has a condition")));
        }
        let (build, build_key, probe, probe_key) = match probe_side {
            JoinSide::Left => (join.right(), right_key, join.left(), left_key),
            _ => (join.left(), left_key, join.right(), right_key),
        };
        let mut shape = Self::recognise(probe)?;
        let swapped = probe_side == JoinSide::Left && matching == Matching::Inner;
        let rows_max = match swapped {
            true => SWAPPED_BUILD_ROWS_MAX,
            false => BUILD_ROWS_MAX,
        };
        let forecast = check_build(build, build_key, matching, rows_max)?;
        let first_column = shape.wide.len();
        match shape.key_source(probe_key)? {
            Source::Probe(column) => {
                shape.look_up(build, build_key, column, matching, forecast)?;
            }
            Source::Build { join, column } if matching == Matching::Inner => {
                shape.widen_build(build, build_key, join, column)?;
            }
            Source::Build { .. } => {
                return Err(Declined(format!(
                    "{probe_key} is not a column of the scanned table"
                )));
            }
        }
        let build_outputs = columns_from(&shape.wide, first_column..shape.wide.len());
        shape.add_condition(join, probe_side, &build_outputs)?;
        for pair in others {
            shape.add_equality(pair, probe_side, &build_outputs)?;
        }
        let probe_outputs = std::mem::take(&mut shape.outputs);
        shape.outputs = joined(join, probe_side, probe_outputs, build_outputs);
        if let Some(projection) = &join.projection {
            shape.project(projection)?;
        }
        Ok(shape)
    }

    /// Rows of the scan look their key up in one more build side.
    fn look_up(
        &mut self,
        build: &Arc<dyn ExecutionPlan>,
        build_key: &Arc<dyn PhysicalExpr>,
        probe_key: usize,
        matching: Matching,
        forecast: Forecast,
    ) -> Result<(), Declined> {
        let key_type = build_key.data_type(&build.schema())?;
        let probe_type = self.scan.schema.field(probe_key).data_type();
        if !is_key_type(&key_type) || !(key_type == *probe_type || widens(probe_type, &key_type)) {
            return Err(Declined(format!(
                "keys of type {key_type} are not looked up by {probe_type}"
            )));
        }
        let join = self.joins.len();
        let nullable = matching == Matching::Outer;
        self.add_build_columns(build, nullable, |column| Source::Build { join, column });
        self.joins.push(Join {
            build: unshuffled(build).clone(),
            lineage: None,
            build_key: build_key.clone(),
            probe_key,
            matching,
            forecast,
        });
        Ok(())
    }

    /// A join by a column of a build side (a snowflake) is made on that build side: inner joins may be made in any
    /// order, and its rows are fewer than the scan's.
    fn widen_build(
        &mut self,
        build: &Arc<dyn ExecutionPlan>,
        build_key: &Arc<dyn PhysicalExpr>,
        join: usize,
        column: usize,
    ) -> Result<(), Declined> {
        let widened = &self.joins[join];
        let scanned = self.scan.table.statistics.num_rows.get_value();
        let small = match (widened.forecast.rows, scanned) {
            (Some(rows), Some(scanned)) => rows.saturating_mul(WIDENED_BUILD_SHARE) <= *scanned,
            _ => false,
        };
        if widened.matching != Matching::Inner || !small {
            return Err(Declined(format!(
                "{build_key} is joined with a column of a build side that is not small"
            )));
        }
        let (width, fields) = (widened.build.schema().fields().len(), build.schema());
        let own = fields.fields().len();
        let key = widened.build.schema().field(column).name().clone();
        let joined: Arc<dyn ExecutionPlan> = Arc::new(HashJoinExec::try_new(
            one_partition(build),
            widened.build.clone(),
            vec![(build_key.clone(), Arc::new(Column::new(&key, column)))],
            None,
            &JoinType::Inner,
            Some((own..own + width).chain(0..own).collect()),
            PartitionMode::CollectLeft,
            NullEquality::NullEqualsNothing,
            false,
        )?);
        let key = &self.joins[join].build_key;
        let forecast = check_build(&joined, key, Matching::Inner, BUILD_ROWS_MAX)?;
        self.add_build_columns(build, false, |column| Source::Build {
            join,
            column: width + column,
        });
        self.joins[join].build = joined;
        self.joins[join].forecast = forecast;
        Ok(())
    }

    fn add_build_columns(
        &mut self,
        build: &Arc<dyn ExecutionPlan>,
        nullable: bool,
        source: impl Fn(usize) -> Source,
    ) {
        let fields = build.schema();
        let columns = fields.fields().iter().enumerate().map(|(column, field)| {
            let nullable = field.is_nullable() || nullable;
            let field = Arc::new(field.as_ref().clone().with_nullable(nullable));
            (Some(source(column)), field)
        });
        self.wide.extend(columns);
    }

    /// An inner join's own condition is a filter on its rows.
    fn add_condition(
        &mut self,
        join: &HashJoinExec,
        probe_side: JoinSide,
        build: &[Arc<dyn PhysicalExpr>],
    ) -> Result<(), Declined> {
        let Some(condition) = join.filter() else {
            return Ok(());
        };
        let predicate = replace_columns(condition.expression(), |column| {
            let from = condition.column_indices().get(column.index())?;
            let side = if from.side == probe_side {
                self.outputs.as_slice()
            } else {
                build
            };
            side.get(from.index).cloned()
        })?;
        refuse_volatile(&predicate)?;
        self.filters.push(self.inline(&predicate)?);
        Ok(())
    }

    /// A further key of an inner join is a filter on its rows.
    fn add_equality(
        &mut self,
        (left, right): &KeyPair,
        probe_side: JoinSide,
        build: &[Arc<dyn PhysicalExpr>],
    ) -> Result<(), Declined> {
        let side = |key: &Arc<dyn PhysicalExpr>, of: JoinSide| {
            let columns = if of == probe_side {
                self.outputs.as_slice()
            } else {
                build
            };
            replace_columns(key, |column| columns.get(column.index()).cloned())
        };
        let left = side(left, JoinSide::Left)?;
        let right = side(right, JoinSide::Right)?;
        let equality: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(left, Operator::Eq, right));
        refuse_volatile(&equality)?;
        self.filters.push(self.inline(&equality)?);
        Ok(())
    }

    fn project(&mut self, projection: &[usize]) -> Result<(), Declined> {
        self.outputs = projection
            .iter()
            .map(|idx| self.outputs.get(*idx).cloned())
            .collect::<Option<_>>()
            .ok_or_else(|| Declined::because("a projection names no column"))?;
        Ok(())
    }

    /// An expression over the replaced plan's columns as one over the wide schema.
    pub fn rewrite(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, Declined> {
        refuse_volatile(expr)?;
        Ok(replace_columns(expr, |column| {
            self.outputs.get(column.index()).cloned()
        })?)
    }

    /// The expression if it is a plain column or a constant, else a computed column in its place.
    fn column_of(
        &mut self,
        expr: Arc<dyn PhysicalExpr>,
        field: &FieldRef,
    ) -> Arc<dyn PhysicalExpr> {
        if expr.downcast_ref::<Column>().is_some() || expr.downcast_ref::<Literal>().is_some() {
            return expr;
        }
        let idx = self.wide.len();
        self.wide.push((None, field.clone()));
        self.computed.push((idx, expr));
        Arc::new(Column::new(field.name(), idx))
    }

    /// Computed columns that each use an earlier one twice are twice as long, written out, after each of them.
    fn ensure_short(&self) -> Result<(), Declined> {
        let mut parts: HashMap<usize, usize> = HashMap::new();
        for (idx, expr) in &self.computed {
            let own = parts_of(expr, |column| parts.get(&column.index()).copied())?;
            if own > PARTS_MAX {
                let why = format!("an expression has more than {PARTS_MAX} parts");
                return Err(Declined(why));
            }
            parts.insert(*idx, own);
        }
        Ok(())
    }

    /// The expression with computed columns replaced by what they are.
    pub fn inline(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, Declined> {
        let mut expr = expr.clone();
        for (idx, definition) in self.computed.iter().rev() {
            expr = substitute(&expr, *idx, definition)?;
        }
        Ok(expr)
    }

    /// Where an expression over the wide schema comes from, if it is a plain column.
    pub fn source(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Source> {
        let column = expr.downcast_ref::<Column>()?;
        self.wide
            .get(column.index())
            .and_then(|(source, _)| *source)
    }

    /// An expression over the wide schema as one over a single build side, if that has all its columns. A scanned
    /// key column counts as the build key it equals.
    pub fn over_build(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Option<(usize, Arc<dyn PhysicalExpr>)> {
        let expr = self.inline(expr).ok()?;
        let columns = collect_columns(&expr);
        (0..self.joins.len()).find_map(|join| {
            let in_build = |idx: usize| match self.wide.get(idx)?.0? {
                Source::Build { join: of, column } => (of == join).then_some(column),
                Source::Probe(probe) => self.build_key_for(join, probe),
            };
            let all = !columns.is_empty()
                && columns
                    .iter()
                    .all(|column| in_build(column.index()).is_some());
            let plain = self.joins[join].matching == Matching::Inner
                || expr.downcast_ref::<Column>().is_some();
            if !all || !plain {
                return None;
            }
            let over = replace_columns(&expr, |column| {
                let idx = in_build(column.index())?;
                let build = self.joins[join].build.schema();
                Some(Arc::new(Column::new(build.field(idx).name(), idx)) as _)
            });
            over.ok().map(|expr| (join, expr))
        })
    }

    /// The build column that equals a scanned key column for every row that a look-up keeps.
    fn build_key_for(&self, join: usize, probe: usize) -> Option<usize> {
        let join = &self.joins[join];
        let key = join.build_key.downcast_ref::<Column>()?.index();
        let build_type = join.build.schema().field(key).data_type().clone();
        let equal = join.probe_key == probe
            && join.matching == Matching::Inner
            && build_type == *self.scan.schema.field(probe).data_type();
        equal.then_some(key)
    }

    fn key_source(&self, key: &Arc<dyn PhysicalExpr>) -> Result<Source, Declined> {
        let wide = self.inline(&self.rewrite(key)?)?;
        // A cast to a wider integer keeps a scanned key; the types are compared by the caller.
        let cast = wide.downcast_ref::<CastExpr>();
        match (self.source(cast.map_or(&wide, CastExpr::expr)), cast) {
            (Some(source @ Source::Probe(_)), _) | (Some(source), None) => Ok(source),
            _ => Err(Declined(format!(
                "{key} is not a column of the scanned table"
            ))),
        }
    }

    /// The columns that `exprs` read, and the expressions over these alone.
    pub fn narrow(&self, exprs: &[Arc<dyn PhysicalExpr>]) -> QueryResult<Narrow> {
        Narrow::new(&self.wide, &self.computed, exprs)
    }
}

/// What a random function gives must be computed where the plan says, and once.
fn refuse_volatile(expr: &Arc<dyn PhysicalExpr>) -> Result<(), Declined> {
    if is_volatile(expr) {
        return Err(Declined(format!("{expr} differs from call to call")));
    }
    Ok(())
}

fn columns_from(wide: &WideColumns, range: std::ops::Range<usize>) -> Vec<Arc<dyn PhysicalExpr>> {
    range
        .map(|idx| Arc::new(Column::new(wide[idx].1.name(), idx)) as _)
        .collect()
}

/// The plan as a stream of one partition.
fn one_partition(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.output_partitioning().partition_count() {
        0 | 1 => plan.clone(),
        _ => Arc::new(CoalescePartitionsExec::new(plan.clone())),
    }
}

/// The same rows without the repartitioning that a join of partitions needed: a look-up gathers all of them.
fn unshuffled(mut build: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    while let Some(repartition) = build.downcast_ref::<RepartitionExec>()
        && !repartition.preserve_order()
    {
        build = repartition.input();
    }
    build
}

/// Whether every integer of one type is the same integer in the other.
fn widens(from: &DataType, to: &DataType) -> bool {
    let bits = |data_type: &DataType| data_type.primitive_width().unwrap_or(0);
    let lossless = from.is_signed_integer() == to.is_signed_integer() || to.is_signed_integer();
    from.is_integer() && to.is_integer() && lossless && bits(from) < bits(to)
}

/// Whether values of this type group the same way by their bytes as DataFusion groups them.
pub(super) fn groups_by_bytes(data_type: &DataType) -> bool {
    !data_type.is_floating() && !data_type.is_nested()
}
