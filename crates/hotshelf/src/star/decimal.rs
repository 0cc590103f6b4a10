//! Decimal arithmetic in words of 64 bits within other expressions. It is computed in words and widened once, at the
//! end; the expression it replaces computes the batches whose bounds do not prove that 64 bits are enough.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;

use super::arithmetic::{Columns, Exact, Node};
use super::words::Words;

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
#[derive(Debug)]
struct WordArithmetic {
    exact: Arc<dyn PhysicalExpr>,
    root: Node,
    data_type: DataType,
}

/// The words of a batch's columns.
struct OfBatch<'a>(&'a RecordBatch);

impl Columns for OfBatch<'_> {
    fn words(&mut self, column: usize) -> Option<Words> {
        Words::of_array(self.0.columns().get(column)?)
    }

    fn test(&mut self, condition: &Exact) -> Option<ArrayRef> {
        let columns = condition.columns.iter();
        let columns = columns.map(|idx| self.0.columns().get(*idx).cloned());
        let columns = columns.collect::<Option<Vec<_>>>()?;
        condition.evaluate(columns, self.0.num_rows()).ok()
    }
}

impl WordArithmetic {
    fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        expr.downcast_ref::<BinaryExpr>()?;
        let data_type = expr.data_type(schema).ok()?;
        matches!(data_type, DataType::Decimal128(..)).then_some(())?;
        Some(Self {
            exact: expr.clone(),
            root: Node::of(expr, schema)?,
            data_type,
        })
    }

    /// `None` if 64 bits may be too few for a step.
    fn array(&self, batch: &RecordBatch) -> Option<ArrayRef> {
        let words = self.root.words(&mut OfBatch(batch))?;
        words.to_array(&self.data_type, batch.num_rows())
    }
}

impl PartialEq for WordArithmetic {
    fn eq(&self, other: &Self) -> bool {
        self.exact.as_ref() == other.exact.as_ref()
    }
}

impl Eq for WordArithmetic {}

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
        match self.array(batch) {
            Some(array) => Ok(ColumnarValue::Array(array)),
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
    use arrow::array::{Array, AsArray, Decimal128Array};
    use arrow::datatypes::{Decimal128Type, Field};
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{CastExpr, Column, Literal, binary};

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
            in_words_count += usize::from(done.is_some_and(|done| done.array(&batch).is_some()));
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
        let array = words.array(&batch(5)).unwrap();
        let array = array.as_primitive::<Decimal128Type>();
        assert_eq!((array.value(0), array.is_null(1)), ((100 - 5) * 5, true));
        assert!(words.array(&batch(1 << 40)).is_none());
    }

    #[test]
    fn a_cast_that_may_fail_is_left_to_the_expression() {
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("c0", 0));
        let cast = |precision, scale| -> Arc<dyn PhysicalExpr> {
            let to = DataType::Decimal128(precision, scale);
            Arc::new(CastExpr::new(column.clone(), to, None))
        };
        let node = Node::of(&cast(20, 4), &schema());
        assert!(matches!(node, Some(Node::Scaled(_, 100))), "{node:?}");
        assert!(Node::of(&cast(14, 2), &schema()).is_none());
        assert!(Node::of(&cast(20, 1), &schema()).is_none());
    }
}
