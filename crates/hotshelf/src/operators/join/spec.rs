//! What a `HashJoinExec` says, in the words of `crates/operators`.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use hotshelf_operators::OperatorError;
use hotshelf_operators::join::{Condition, JoinKind, JoinSpec, PairTest, Side};
use hotshelf_operators::keys::Nulls;

use super::super::Reason;
use super::super::columns::{Columns, are_comparable, are_words};

/// A join, and the columns of its inputs.
pub(super) struct Spec {
    pub join: JoinSpec,
    pub left: Arc<Columns>,
    pub right: Arc<Columns>,
}

impl Spec {
    /// Or why a join is left to DataFusion.
    pub fn of(join: &HashJoinExec) -> QueryResult<Result<Self, Reason>> {
        let mut left = Columns::of(join.left().schema());
        let mut right = Columns::of(join.right().schema());
        let mut on = Vec::with_capacity(join.on().len());
        for (left_key, right_key) in join.on() {
            let pair = (left.number_of(left_key)?, right.number_of(right_key)?);
            if left.data_type(pair.0) != right.data_type(pair.1) {
                return Ok(Err("keys of two types"));
            }
            on.push(pair);
        }
        let kind = kind(*join.join_type());
        let condition = match join.filter().map(condition) {
            Some(None) => return Ok(Err("a condition on a mark")),
            found => found.flatten(),
        };
        let Some(output) = output(join, kind) else {
            return Ok(Err("a mark that is not the last column"));
        };
        let fields = left.schema().fields().iter().chain(right.schema().fields());
        if !are_comparable(fields.map(|field| field.data_type())) {
            return Ok(Err("a type that cannot be compared as bytes"));
        }
        let join = JoinSpec {
            left: left.schema().clone(),
            right: right.schema().clone(),
            on,
            kind,
            nulls: nulls(join),
            null_aware: join.null_aware,
            condition,
            output,
            schema: join.schema(),
        };
        Ok(Ok(Self {
            join,
            left: Arc::new(left),
            right: Arc::new(right),
        }))
    }
}

/// Whether keys are a few words.
pub(super) fn has_narrow_keys(join: &HashJoinExec) -> QueryResult<bool> {
    let (left, right) = (join.left().schema(), join.right().schema());
    let keys = join.on().iter().map(|(left_key, right_key)| {
        let may_be_null = left_key.nullable(&left)? || right_key.nullable(&right)?;
        Ok((left_key.data_type(&left)?, may_be_null))
    });
    Ok(are_words(
        &keys.collect::<QueryResult<Vec<_>>>()?,
        nulls(join),
    ))
}

fn nulls(join: &HashJoinExec) -> Nulls {
    match join.null_equality() {
        NullEquality::NullEqualsNothing => Nulls::Distinct,
        NullEquality::NullEqualsNull => Nulls::Equal,
    }
}

fn kind(join_type: JoinType) -> JoinKind {
    match join_type {
        JoinType::Inner => JoinKind::Inner,
        JoinType::Left => JoinKind::Left,
        JoinType::Right => JoinKind::Right,
        JoinType::Full => JoinKind::Full,
        JoinType::LeftSemi => JoinKind::LeftSemi,
        JoinType::RightSemi => JoinKind::RightSemi,
        JoinType::LeftAnti => JoinKind::LeftAnti,
        JoinType::RightAnti => JoinKind::RightAnti,
        JoinType::LeftMark => JoinKind::LeftMark,
        JoinType::RightMark => JoinKind::RightMark,
    }
}

/// The columns of the output, before the mark. `None`: the mark is not the last column.
fn output(join: &HashJoinExec, kind: JoinKind) -> Option<Vec<(Side, usize)>> {
    use JoinKind::{LeftAnti, LeftMark, LeftSemi, RightAnti, RightMark, RightSemi};
    let side = |side: Side, input: &Arc<dyn ExecutionPlan>| {
        let columns = 0..input.schema().fields().len();
        columns.map(move |column| (side, column)).collect()
    };
    let left: Vec<_> = side(Side::Left, join.left());
    let right: Vec<_> = side(Side::Right, join.right());
    let all = match kind {
        LeftSemi | LeftAnti | LeftMark => left,
        RightSemi | RightAnti | RightMark => right,
        _ => left.into_iter().chain(right).collect(),
    };
    let has_mark = matches!(kind, LeftMark | RightMark);
    let Some(projection) = join.projection.as_ref() else {
        return Some(all);
    };
    let (mark, columns) = match has_mark {
        true => projection.split_last()?,
        false => (&all.len(), projection.as_ref()),
    };
    if *mark != all.len() {
        return None;
    }
    columns
        .iter()
        .map(|&column| all.get(column).copied())
        .collect()
}

/// `None`: a condition on a mark.
fn condition(filter: &JoinFilter) -> Option<Condition> {
    let columns = filter.column_indices().iter().map(|column| {
        let side = match column.side {
            JoinSide::Left => Side::Left,
            JoinSide::Right => Side::Right,
            JoinSide::None => return None,
        };
        Some((side, column.index))
    });
    Some(Condition {
        columns: columns.collect::<Option<_>>()?,
        schema: filter.schema().clone(),
        test: Arc::new(FilterTest(filter.expression().clone())),
    })
}

/// A predicate over pairs of rows.
struct FilterTest(Arc<dyn PhysicalExpr>);

impl PairTest for FilterTest {
    fn test(&self, pairs: &RecordBatch) -> Result<BooleanArray, OperatorError> {
        let passed = self.0.evaluate(pairs);
        let passed = passed.and_then(|value| value.into_array(pairs.num_rows()));
        match passed {
            Ok(passed) => Ok(passed.as_boolean().clone()),
            Err(error) => Err(ArrowError::ExternalError(Box::new(error)).into()),
        }
    }
}
