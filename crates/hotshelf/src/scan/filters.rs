//! Which predicates a scan may take over from DataFusion.
//!
//! Vortex evaluates comparisons, membership and NULL tests exactly as DataFusion does, on encoded data; of floats only
//! those with literals, as it orders -0.0 below 0.0. Its
//! arithmetic is checked where DataFusion's wraps, so anything that computes stays above the scan.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, DynamicFilterPhysicalExpr, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr,
};
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr_common::physical_expr::snapshot_generation;
use datafusion::scalar::ScalarValue;
use vortex::expr::Expression;
use vortex::session::VortexSession;
use vortex_datafusion::convert::{DefaultExpressionConverter, ExpressionConverter};

use super::implied::implied;
use super::text_keys::text_keys;
use crate::star::InKeys;

/// Each row is compared with every member of a list, so that a longer one costs more than it saves.
const TESTED_KEYS_MAX: usize = 150;

/// Of a predicate in EXPLAIN.
const SHOWN_CHARS_MAX: usize = 400;

/// The predicate as Vortex evaluates it, if it means exactly the same there. `schema` is what its columns
/// refer to; the result names columns of the file.
pub(crate) fn convert(
    session: &VortexSession,
    predicate: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> QueryResult<Option<Expression>> {
    if !only_compares(predicate)? || compares_floats(predicate, schema)? {
        return Ok(None);
    }
    let Some(predicate) = without_null_members(predicate)? else {
        return Ok(None);
    };
    DefaultExpressionConverter::new(session.clone()).try_convert(&predicate, schema)
}

/// The predicate with `x IS NOT NULL AND` before `x NOT IN (…)`; `None` if such a test is a part of another.
///
/// Where a whole piece of a column is NULL, Vortex says that it is in no list (`docs/upstream/null-in-no-list.md`).
fn without_null_members(
    predicate: &Arc<dyn PhysicalExpr>,
) -> QueryResult<Option<Arc<dyn PhysicalExpr>>> {
    if let Some(list) = predicate.downcast_ref::<InListExpr>() {
        if !list.negated() {
            return Ok(Some(Arc::clone(predicate)));
        }
        let is_not_null: Arc<dyn PhysicalExpr> = Arc::new(IsNotNullExpr::new(list.expr().clone()));
        let both = BinaryExpr::new(is_not_null, Operator::And, Arc::clone(predicate));
        return Ok(Some(Arc::new(both)));
    }
    let has_list = |arg: &Arc<dyn PhysicalExpr>| {
        arg.exists(|part| Ok(part.downcast_ref::<InListExpr>().is_some()))
    };
    let turns = predicate.exists(|expr| {
        if let Some(list) = expr.downcast_ref::<InListExpr>() {
            return Ok(list.negated());
        }
        let args = [
            expr.downcast_ref::<NotExpr>().map(NotExpr::arg),
            expr.downcast_ref::<IsNullExpr>().map(IsNullExpr::arg),
            expr.downcast_ref::<IsNotNullExpr>().map(IsNotNullExpr::arg),
        ];
        match args.into_iter().flatten().next() {
            Some(arg) => has_list(arg),
            None => Ok(false),
        }
    })?;
    Ok((!turns).then(|| Arc::clone(predicate)))
}

/// Whether the predicate is built of comparisons of columns and literals alone.
fn only_compares(predicate: &Arc<dyn PhysicalExpr>) -> QueryResult<bool> {
    let mut plain = true;
    predicate.apply(|expr| {
        let known = expr.downcast_ref::<BinaryExpr>().map_or_else(
            || {
                expr.downcast_ref::<Column>().is_some()
                    || expr.downcast_ref::<Literal>().is_some()
                    || expr.downcast_ref::<InListExpr>().is_some()
                    || expr.downcast_ref::<IsNullExpr>().is_some()
                    || expr.downcast_ref::<IsNotNullExpr>().is_some()
                    || expr.downcast_ref::<LikeExpr>().is_some()
                    || expr.downcast_ref::<NotExpr>().is_some()
            },
            |binary| compares(*binary.op()),
        );
        plain &= known;
        Ok(if known {
            TreeNodeRecursion::Continue
        } else {
            TreeNodeRecursion::Stop
        })
    })?;
    Ok(plain)
}

/// Whether the predicate compares a float with something that is not a literal. Vortex does that in the total order,
/// where -0.0 is below 0.0; comparisons with literals are planned so that they mean the same in either order.
fn compares_floats(predicate: &Arc<dyn PhysicalExpr>, schema: &Schema) -> QueryResult<bool> {
    predicate.exists(|expr| {
        let Some(binary) = expr.downcast_ref::<BinaryExpr>() else {
            return Ok(false);
        };
        let sides = [binary.left(), binary.right()];
        let literal = sides
            .iter()
            .any(|side| side.downcast_ref::<Literal>().is_some());
        Ok(!literal && sides[0].data_type(schema)?.is_floating())
    })
}

fn compares(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::And
            | Operator::Or
    )
}

/// An integer or date column lies between two values, both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IntegerRange {
    /// Column, by its index.
    pub column: usize,
    pub min: i128,
    pub max: i128,
}

impl IntegerRange {
    /// The predicate as a range, if it is one.
    pub fn of(predicate: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        let binary = predicate.downcast_ref::<BinaryExpr>()?;
        let (left, right) = (binary.left(), binary.right());
        let (column, value, op) = match left.downcast_ref::<Column>() {
            Some(column) => (column, right.downcast_ref::<Literal>()?, *binary.op()),
            None => (
                right.downcast_ref::<Column>()?,
                left.downcast_ref::<Literal>()?,
                binary.op().swap()?,
            ),
        };
        let value = integer(value.value())?;
        let (min, max) = match op {
            Operator::Eq => (value, value),
            Operator::Lt => (i128::MIN, value - 1),
            Operator::LtEq => (i128::MIN, value),
            Operator::Gt => (value + 1, i128::MAX),
            Operator::GtEq => (value, i128::MAX),
            _ => return None,
        };
        let column = column.index();
        Some(Self { column, min, max })
    }

    /// Adds a range to others: as one with that of the same column.
    pub fn add_to(self, ranges: &mut Vec<Self>) {
        match ranges.iter_mut().find(|range| range.column == self.column) {
            Some(range) => {
                range.min = range.min.max(self.min);
                range.max = range.max.min(self.max);
            }
            None => ranges.push(self),
        }
    }
}

fn integer(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Int8(value) => value.map(i128::from),
        ScalarValue::Int16(value) => value.map(i128::from),
        ScalarValue::Int32(value) | ScalarValue::Date32(value) => value.map(i128::from),
        ScalarValue::Int64(value) => value.map(i128::from),
        ScalarValue::UInt8(value) => value.map(i128::from),
        ScalarValue::UInt16(value) => value.map(i128::from),
        ScalarValue::UInt32(value) => value.map(i128::from),
        ScalarValue::UInt64(value) => value.map(i128::from),
        _ => None,
    }
}

/// A predicate whose bounds become known while the query runs (from a join's build side or a top-k). The
/// scan uses it to skip row groups, and rows while that drops enough; rows are still filtered above.
#[derive(Debug, Clone)]
pub(crate) struct DynamicFilter {
    pub expr: Arc<dyn PhysicalExpr>,
    pub schema: Arc<Schema>,
}

/// A part of a dynamic filter that is known by now.
pub(crate) struct KnownPart {
    pub expr: Expression,
    /// The columns it reads, by index in the scan's output.
    pub columns: Vec<usize>,
    /// Whether it is a range or a list of integers, which star pipelines test themselves.
    pub is_of_words: bool,
}

impl DynamicFilter {
    pub fn is_dynamic(expr: &Arc<dyn PhysicalExpr>) -> bool {
        expr.downcast_ref::<DynamicFilterPhysicalExpr>().is_some()
    }

    /// For EXPLAIN: the beginning, if it lists many keys.
    pub fn describe(&self) -> String {
        let text = self.expr.to_string();
        match text.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => format!("{} …", &text[..end]),
            None => text,
        }
    }

    /// The predicate as it is now.
    pub fn expr_now(&self) -> Option<Arc<dyn PhysicalExpr>> {
        let filter = self.expr.downcast_ref::<DynamicFilterPhysicalExpr>()?;
        filter.current().ok()
    }

    /// Whether it may drop rows by now.
    pub fn is_known(&self) -> bool {
        let now = self.expr_now();
        let value = now.as_ref().and_then(|expr| expr.downcast_ref::<Literal>());
        value.map(Literal::value) != Some(&ScalarValue::Boolean(Some(true)))
    }

    /// The parts of the predicate as it is now. `None`: it passes no row at all, because the build side of a join is
    /// empty.
    fn parts_now(&self) -> Option<Vec<Arc<dyn PhysicalExpr>>> {
        let current = self.expr_now();
        let mut parts = Vec::new();
        for part in current.iter().flat_map(split_conjunction) {
            match part.downcast_ref::<Literal>().map(Literal::value) {
                Some(ScalarValue::Boolean(Some(false))) => return None,
                Some(_) => {}
                None => parts.push(part.clone()),
            }
        }
        Some(parts)
    }

    /// Those of them that Vortex can evaluate, without sets of keys: samples judge predicates that are short.
    pub fn tested_parts(&self, session: &VortexSession) -> Option<Vec<Arc<dyn PhysicalExpr>>> {
        let mut parts = self.parts_now()?;
        parts.retain(|part| !part.is::<InKeys>() && self.known(part, session).is_some());
        Some(parts)
    }

    /// The parts of the predicate as it is now that Vortex can evaluate, and what they imply for single columns before
    /// them. `None`: it passes no row at all.
    pub fn current(&self, session: &VortexSession) -> Option<Vec<KnownPart>> {
        let mut parts = self.parts_now()?;
        drop_listed(&mut parts);
        let parts = parts.into_iter().flat_map(|part| {
            let implied = implied(&part);
            implied.into_iter().chain([part])
        });
        Some(
            parts
                .filter_map(|part| self.known(&part, session))
                .collect(),
        )
    }

    fn known(&self, part: &Arc<dyn PhysicalExpr>, session: &VortexSession) -> Option<KnownPart> {
        if is_long_list(part) || !self.is_exact(part) {
            return None;
        }
        let expr = match part.downcast_ref::<InKeys>() {
            Some(keys) => text_keys(keys, &self.schema)?,
            None => convert(session, part, &self.schema).ok().flatten()?,
        };
        let columns = collect_columns(part);
        Some(KnownPart {
            expr,
            columns: columns.iter().map(Column::index).collect(),
            is_of_words: IntegerRange::of(part).is_some()
                || word_list(part, &self.schema).is_some(),
        })
    }

    /// A number that changes with what is known.
    pub fn version(&self) -> u64 {
        snapshot_generation(&self.expr)
    }

    /// Whether rows that fail a part would fail the join, too. Of floats that is not certain: -0.0 and 0.0 are equal,
    /// but one of them alone may be a bound or in a list, and in the order of those comparisons they differ.
    pub fn is_exact(&self, part: &Arc<dyn PhysicalExpr>) -> bool {
        let columns = collect_columns(part);
        let mut fields = columns
            .iter()
            .map(|column| self.schema.fields().get(column.index()));
        fields.all(|field| field.is_some_and(|field| !holds_floats(field.data_type())))
    }
}

/// The column of a list of integers or dates that one of them has to be in, by index.
pub(crate) fn word_list(part: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<usize> {
    let list = part.downcast_ref::<InListExpr>()?;
    let column = list.expr().downcast_ref::<Column>()?.index();
    let data_type = schema.fields().get(column)?.data_type();
    let is_of_words = data_type.is_integer() || *data_type == DataType::Date32;
    (is_of_words && !list.negated()).then_some(column)
}

/// Drops sets of keys of which there is a list that is tested.
fn drop_listed(parts: &mut Vec<Arc<dyn PhysicalExpr>>) {
    let lists = parts.iter().filter(|part| !is_long_list(part));
    let lists = lists.filter_map(|part| part.downcast_ref::<InListExpr>());
    let lists = lists.filter(|list| !list.negated());
    let listed: Vec<_> = lists.map(|list| list.expr().clone()).collect();
    parts.retain(
        |part| match part.downcast_ref::<InKeys>().map(InKeys::columns) {
            Some([column]) => !listed.contains(column),
            _ => true,
        },
    );
}

fn is_long_list(part: &Arc<dyn PhysicalExpr>) -> bool {
    let list = part.downcast_ref::<InListExpr>();
    list.is_some_and(|list| list.len() > TESTED_KEYS_MAX)
}

fn holds_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            holds_floats(field.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| holds_floats(field.data_type())),
        other => other.is_floating(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Int32, true),
        ])
    }

    #[test]
    fn comparisons_are_taken_over_and_arithmetic_is_not() {
        let (schema, session) = (schema(), VortexSession::default_for_tests());
        let a = || col("a", &schema).unwrap();
        let compare = binary(a(), Operator::Lt, lit(3i32), &schema).unwrap();
        assert!(convert(&session, &compare, &schema).unwrap().is_some());
        let sum = binary(a(), Operator::Plus, col("b", &schema).unwrap(), &schema).unwrap();
        let arithmetic = binary(sum, Operator::Lt, lit(3i32), &schema).unwrap();
        assert!(convert(&session, &arithmetic, &schema).unwrap().is_none());
    }

    #[test]
    fn floats_are_compared_with_literals_only() {
        let schema = Schema::new(vec![
            Field::new("a", DataType::Float64, true),
            Field::new("b", DataType::Float64, true),
        ]);
        let session = VortexSession::default_for_tests();
        let a = || col("a", &schema).unwrap();
        let literal = binary(a(), Operator::Lt, lit(3f64), &schema).unwrap();
        assert!(convert(&session, &literal, &schema).unwrap().is_some());
        let columns = binary(a(), Operator::Eq, col("b", &schema).unwrap(), &schema).unwrap();
        assert!(convert(&session, &columns, &schema).unwrap().is_none());
    }

    #[test]
    fn comparisons_with_a_literal_are_ranges_whichever_side_it_is_on() {
        let schema = schema();
        let a = || col("a", &schema).unwrap();
        let range = |left, op, right| {
            let predicate = binary(left, op, right, &schema).unwrap();
            IntegerRange::of(&predicate).map(|range| (range.column, range.min, range.max))
        };
        assert_eq!(range(a(), Operator::Lt, lit(3i32)), Some((0, i128::MIN, 2)));
        assert_eq!(range(lit(3i32), Operator::Lt, a()), Some((0, 4, i128::MAX)));
        assert_eq!(range(a(), Operator::Eq, lit(3i32)), Some((0, 3, 3)));
        assert_eq!(range(a(), Operator::NotEq, lit(3i32)), None);
        let null = lit(ScalarValue::Int32(None));
        assert_eq!(range(a(), Operator::Lt, null), None);
    }

    #[test]
    fn ranges_of_one_column_become_one() {
        let mut ranges = Vec::new();
        for (column, min, max) in [(0, 1, 9), (1, 0, 4), (0, 5, 20)] {
            IntegerRange { column, min, max }.add_to(&mut ranges);
        }
        let bounds: Vec<_> = ranges.iter().map(|r| (r.column, r.min, r.max)).collect();
        assert_eq!(bounds, [(0, 5, 9), (1, 0, 4)]);
    }

    trait ForTests {
        fn default_for_tests() -> Self;
    }

    impl ForTests for VortexSession {
        fn default_for_tests() -> Self {
            use vortex::VortexSessionDefault;
            <VortexSession as VortexSessionDefault>::default()
        }
    }
}
