//! Decimal arithmetic in words of 64 bits. Most decimals need far fewer bits than the 128 of their type: where the
//! bounds of a batch's values prove that no step of an expression leaves 64 bits, it is computed in them and
//! widened once, at the end. Values, scales and NULLs are those of the expression it replaces, which computes the
//! other batches itself.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, Decimal128Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};

/// The expression with its decimal arithmetic computed in words where values allow it.
pub(super) fn in_words(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> QueryResult<Arc<dyn PhysicalExpr>> {
    let wrapped = expr.clone().transform_down(|expr| {
        let Some(words) = WordArithmetic::of(&expr, schema) else {
            return Ok(Transformed::no(expr));
        };
        let words: Arc<dyn PhysicalExpr> = Arc::new(words);
        Ok(Transformed::new(words, true, TreeNodeRecursion::Jump))
    });
    wrapped.data()
}

/// Sums, differences and products of decimals.
#[derive(Debug, Eq)]
struct WordArithmetic {
    exact: Arc<dyn PhysicalExpr>,
    root: Node,
    precision: u8,
    scale: i8,
}

/// A part of the expression over unscaled values.
#[derive(Debug, PartialEq, Eq)]
enum Node {
    Column(usize),
    Literal(i64),
    /// Times a power of ten, which brings it to a larger scale.
    Scaled(Box<Node>, i64),
    Binary(DecimalStep, Box<[Node; 2]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecimalStep {
    Plus,
    Minus,
    Times,
}

/// The value of a node for the rows of a batch, and bounds of what it may be.
struct Words {
    values: Values,
    min: i64,
    max: i64,
}

enum Values {
    Each(Vec<i64>),
    All(i64),
}

impl WordArithmetic {
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        expr.downcast_ref::<BinaryExpr>()?;
        let (root, scale) = Node::of(expr, schema)?;
        let DataType::Decimal128(precision, _) = expr.data_type(schema).ok()? else {
            return None;
        };
        Some(Self {
            exact: expr.clone(),
            root,
            precision,
            scale,
        })
    }

    /// `None` if 64 bits may be too few for a step.
    fn words(&self, batch: &RecordBatch) -> Option<Decimal128Array> {
        let mut nulls = None;
        let words = self.root.words(batch, &mut nulls)?;
        let values: Vec<i128> = match words.values {
            Values::Each(values) => values.into_iter().map(i128::from).collect(),
            Values::All(value) => vec![i128::from(value); batch.num_rows()],
        };
        let array = Decimal128Array::new(values.into(), nulls);
        array
            .with_precision_and_scale(self.precision, self.scale)
            .ok()
    }
}

impl Node {
    /// The node and its scale. `None` if it is not of decimals alone.
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<(Self, i8)> {
        let DataType::Decimal128(precision, scale) = expr.data_type(schema).ok()? else {
            return None;
        };
        if let Some(column) = expr.downcast_ref::<Column>() {
            return Some((Self::Column(column.index()), scale));
        }
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            let ScalarValue::Decimal128(Some(value), ..) = literal.value() else {
                return None;
            };
            return Some((Self::Literal(i64::try_from(*value).ok()?), scale));
        }
        if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let (node, from) = Self::of(cast.expr(), schema)?;
            let DataType::Decimal128(narrower, _) = cast.expr().data_type(schema).ok()? else {
                return None;
            };
            // A cast to fewer digits before the point checks every value.
            let digits = |precision: u8, scale: i8| i16::from(precision) - i16::from(scale);
            if scale < from || digits(precision, scale) < digits(narrower, from) {
                return None;
            }
            return Some((node.scaled(from, scale)?, scale));
        }
        let binary = expr.downcast_ref::<BinaryExpr>()?;
        let (left, left_scale) = Self::of(binary.left(), schema)?;
        let (right, right_scale) = Self::of(binary.right(), schema)?;
        let common = left_scale.max(right_scale);
        let (step, wanted) = match binary.op() {
            Operator::Plus => (DecimalStep::Plus, common),
            Operator::Minus => (DecimalStep::Minus, common),
            Operator::Multiply => (DecimalStep::Times, left_scale.checked_add(right_scale)?),
            _ => return None,
        };
        let sides = match step {
            DecimalStep::Times => [left, right],
            _ => [
                left.scaled(left_scale, common)?,
                right.scaled(right_scale, common)?,
            ],
        };
        (wanted == scale).then(|| (Self::Binary(step, Box::new(sides)), scale))
    }

    fn scaled(self, from: i8, to: i8) -> Option<Self> {
        let factor = 10i64.checked_pow(u32::try_from(i16::from(to) - i16::from(from)).ok()?)?;
        Some(match factor {
            1 => self,
            _ => Self::Scaled(Box::new(self), factor),
        })
    }

    fn words(&self, batch: &RecordBatch, nulls: &mut Option<NullBuffer>) -> Option<Words> {
        match self {
            Self::Column(idx) => {
                let array = batch.columns().get(*idx)?;
                let array = array.as_any().downcast_ref::<Decimal128Array>()?;
                *nulls = NullBuffer::union(nulls.as_ref(), array.nulls());
                Words::narrowed(array.values())
            }
            Self::Literal(value) => Some(Words::all(*value)),
            Self::Scaled(node, factor) => {
                let words = node.words(batch, nulls)?;
                DecimalStep::Times.of(words, Words::all(*factor))
            }
            Self::Binary(step, sides) => {
                let [left, right] = sides.as_ref();
                let (left, right) = (left.words(batch, nulls)?, right.words(batch, nulls)?);
                step.of(left, right)
            }
        }
    }
}

impl Words {
    fn all(value: i64) -> Self {
        Self {
            values: Values::All(value),
            min: value,
            max: value,
        }
    }

    /// `None` if a value needs more than 64 bits. The bounds are those of the bits in use.
    fn narrowed(values: &[i128]) -> Option<Self> {
        let (mut beyond, mut bits) = (0, 0);
        let mut words = vec![0; values.len()];
        for (word, value) in words.iter_mut().zip(values) {
            *word = *value as i64;
            let sign = *word >> 63;
            beyond |= (*value >> 64) as i64 ^ sign;
            bits |= *word ^ sign;
        }
        let max = ((bits as u64 + 1).next_power_of_two() - 1) as i64;
        (beyond == 0).then_some(Self {
            values: Values::Each(words),
            min: -max - 1,
            max,
        })
    }
}

impl DecimalStep {
    /// `None` if a result may need more than 64 bits.
    fn of(self, left: Words, right: Words) -> Option<Words> {
        let [a, b, c, d] = [left.min, left.max, right.min, right.max].map(i128::from);
        let bounds = match self {
            Self::Plus => [a + c, b + d, a + c, b + d],
            Self::Minus => [a - d, b - c, a - d, b - c],
            Self::Times => [a * c, a * d, b * c, b * d],
        };
        let min = i64::try_from(bounds.into_iter().min()?).ok()?;
        let max = i64::try_from(bounds.into_iter().max()?).ok()?;
        // Bounds exclude overflow: wrapping operations are the ones that need no test per value.
        let values = match self {
            Self::Plus => zip(left.values, right.values, i64::wrapping_add),
            Self::Minus => zip(left.values, right.values, i64::wrapping_sub),
            Self::Times => zip(left.values, right.values, i64::wrapping_mul),
        };
        Some(Words { values, min, max })
    }
}

fn zip(left: Values, right: Values, value: impl Fn(i64, i64) -> i64) -> Values {
    match (left, right) {
        (Values::All(left), Values::All(right)) => Values::All(value(left, right)),
        (Values::Each(mut left), Values::All(right)) => {
            left.iter_mut().for_each(|left| *left = value(*left, right));
            Values::Each(left)
        }
        (Values::All(left), Values::Each(mut right)) => {
            right
                .iter_mut()
                .for_each(|right| *right = value(left, *right));
            Values::Each(right)
        }
        (Values::Each(mut left), Values::Each(right)) => {
            for (left, right) in left.iter_mut().zip(right) {
                *left = value(*left, right);
            }
            Values::Each(left)
        }
    }
}

impl PartialEq for WordArithmetic {
    fn eq(&self, other: &Self) -> bool {
        self.exact.as_ref() == other.exact.as_ref()
    }
}

impl Hash for WordArithmetic {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.exact.hash(state);
    }
}

impl fmt::Display for WordArithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exact.fmt(f)
    }
}

impl PhysicalExpr for WordArithmetic {
    fn return_field(&self, schema: &Schema) -> QueryResult<FieldRef> {
        self.exact.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> QueryResult<ColumnarValue> {
        match self.words(batch) {
            Some(array) => Ok(ColumnarValue::Array(Arc::new(array))),
            None => self.exact.evaluate(batch),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.exact]
    }

    /// The exact expression: what has changed may have other types.
    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> QueryResult<Arc<dyn PhysicalExpr>> {
        match children.pop() {
            Some(exact) if children.is_empty() => Ok(exact),
            _ => internal_err!("decimal arithmetic has one child"),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exact.fmt_sql(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::binary;

    const TYPES: [(u8, i8); 3] = [(15, 2), (9, 0), (38, 6)];

    fn schema() -> Schema {
        let field = |(idx, (precision, scale)): (usize, &(u8, i8))| {
            Field::new(
                format!("c{idx}"),
                DataType::Decimal128(*precision, *scale),
                true,
            )
        };
        Schema::new(TYPES.iter().enumerate().map(field).collect::<Vec<_>>())
    }

    fn column(values: Vec<Option<i128>>, (precision, scale): (u8, i8)) -> Arc<Decimal128Array> {
        let array = Decimal128Array::from(values);
        Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
    }

    /// Small values mostly, and where `large` such as leave 64 bits.
    fn value(random: &mut fastrand::Rng, large: bool) -> Option<i128> {
        match random.u8(0..8) {
            0 => None,
            1 if large => Some(random.i128(-(1 << 70)..1 << 70)),
            _ => Some(random.i128(-1_000_000..1_000_000)),
        }
    }

    fn expr(random: &mut fastrand::Rng, depth: u8) -> Arc<dyn PhysicalExpr> {
        if depth > 0 && random.u8(0..4) > 0 {
            let ops = [Operator::Plus, Operator::Minus, Operator::Multiply];
            let op = ops[random.usize(0..ops.len())];
            let (left, right) = (expr(random, depth - 1), expr(random, depth - 1));
            return binary(left.clone(), op, right, &schema()).unwrap_or(left);
        }
        let idx = random.usize(0..=TYPES.len());
        if idx < TYPES.len() {
            return Arc::new(Column::new(&format!("c{idx}"), idx));
        }
        let value = Some(random.i128(-200..200));
        let scale = random.i8(0..3);
        Arc::new(Literal::new(ScalarValue::Decimal128(value, 5, scale)))
    }

    #[test]
    fn words_give_what_the_expression_gives() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut in_words_count, mut failed_count) = (0, 0);
        for _ in 0..2000 {
            let (rows, large) = (random.usize(0..40), random.bool());
            let columns = TYPES.map(|of| {
                let values = (0..rows).map(|_| value(&mut random, large)).collect();
                column(values, of) as _
            });
            let batch = RecordBatch::try_new(Arc::new(schema()), columns.to_vec()).unwrap();
            let exact = expr(&mut random, 3);
            let words = in_words(&exact, &schema()).unwrap();
            let done = words.downcast_ref::<WordArithmetic>();
            in_words_count += usize::from(done.is_some_and(|done| done.words(&batch).is_some()));
            let value = |expr: &Arc<dyn PhysicalExpr>| {
                let value = expr.evaluate(&batch)?;
                value.into_array(batch.num_rows())
            };
            match (value(&exact), value(&words)) {
                (Ok(exact), Ok(words)) => assert_eq!(&exact, &words),
                (exact, words) => {
                    failed_count += 1;
                    assert_eq!(exact.is_err(), words.is_err(), "{exact:?} {words:?}");
                }
            }
        }
        assert!(in_words_count > 400, "{in_words_count} in words");
        assert!(failed_count > 10, "{failed_count} failed");
    }

    fn discounted() -> Arc<dyn PhysicalExpr> {
        let one = Arc::new(Literal::new(ScalarValue::Decimal128(Some(1), 20, 0)));
        let schema = schema();
        let left = binary(
            one,
            Operator::Minus,
            Arc::new(Column::new("c0", 0)),
            &schema,
        )
        .unwrap();
        binary(
            left,
            Operator::Multiply,
            Arc::new(Column::new("c0", 0)),
            &schema,
        )
        .unwrap()
    }

    #[test]
    fn small_values_are_computed_in_words_and_large_ones_are_not() {
        let words = WordArithmetic::of(&discounted(), &schema()).unwrap();
        let batch = |value| {
            let columns = TYPES.map(|of| column(vec![Some(value), None], of) as _);
            RecordBatch::try_new(Arc::new(schema()), columns.to_vec()).unwrap()
        };
        let array = words.words(&batch(5)).unwrap();
        assert_eq!((array.value(0), array.is_null(1)), ((100 - 5) * 5, true));
        assert!(words.words(&batch(1 << 40)).is_none());
    }

    #[test]
    fn a_cast_that_may_fail_is_left_to_the_expression() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("c0", 0));
        let cast = |precision, scale| -> Arc<dyn PhysicalExpr> {
            let to = DataType::Decimal128(precision, scale);
            Arc::new(CastExpr::new(column.clone(), to, None))
        };
        assert_eq!(
            Node::of(&cast(20, 4), &schema()),
            Some((Node::Scaled(Box::new(Node::Column(0)), 100), 4))
        );
        assert_eq!(Node::of(&cast(14, 2), &schema()), None);
        assert_eq!(Node::of(&cast(20, 1), &schema()), None);
    }
}
