//! Expressions over words of 64 bits: sums, differences, products and comparisons of integers, decimals, dates and
//! times, remainders of integers, and CASE between two of them. Values, scales and NULLs are those of the expression
//! that a node is made of; where a batch's bounds do not prove that, there are no words, and that one is evaluated.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;

use super::words::{Bounds, Order, Step, Words, are_words};

/// A part of an expression over unscaled values.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Column(usize),
    Literal(i64),
    /// Times a power of ten, which brings a decimal to a larger scale.
    Scaled(Box<Node>, i64),
    /// With the integers of its type.
    Binary(Step, Bounds, Box<[Node; 2]>),
    /// Of a division by a positive constant.
    Remainder(Box<Node>, i64),
    Compare(Order, Box<[Node; 2]>),
    /// Both hold.
    And(Box<[Node; 2]>),
    /// At least one holds.
    Or(Box<[Node; 2]>),
    /// The second where the first holds, elsewhere the third.
    Case(Box<[Node; 3]>),
    /// A condition that is evaluated as it is.
    Test(Exact),
}

/// An expression as it was planned, over the few columns that it reads.
#[derive(Debug, Clone)]
pub(super) struct Exact {
    pub expr: Arc<dyn PhysicalExpr>,
    /// Which columns of the batch these are.
    pub columns: Vec<usize>,
    pub schema: SchemaRef,
}

/// A batch as nodes see it.
pub(super) trait Columns {
    /// The words of a column. `None` if they cannot hold its values.
    fn words(&mut self, column: usize) -> Option<Words>;

    /// The value of a condition for each row. `None` if it fails.
    fn test(&mut self, condition: &Exact) -> Option<ArrayRef>;
}

impl Exact {
    pub fn new(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> QueryResult<Self> {
        let read = collect_columns(expr);
        let mut columns: Vec<usize> = read.iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let expr = expr.clone().transform(|node| {
            let Some(column) = node.downcast_ref::<Column>() else {
                return Ok(Transformed::no(node));
            };
            let idx = columns.binary_search(&column.index()).unwrap_or(0);
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), idx));
            Ok(Transformed::yes(column))
        });
        Ok(Self {
            expr: expr.data()?,
            schema: Arc::new(schema.project(&columns)?),
            columns,
        })
    }

    /// Its value for each row, given its columns.
    pub fn evaluate(&self, columns: Vec<ArrayRef>, row_count: usize) -> QueryResult<ArrayRef> {
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        self.expr.evaluate(&batch)?.into_array(row_count)
    }
}

impl Node {
    /// `None` if the expression, over columns of this schema, is not of words alone.
    pub fn of(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        match expr.data_type(schema).ok()? {
            DataType::Boolean => Self::of_condition(expr, schema),
            _ => Self::of_number(expr, schema).map(|(node, _)| node),
        }
    }

    /// Whether it is more than a column or a constant.
    pub fn is_computed(&self) -> bool {
        !matches!(self, Self::Column(_) | Self::Literal(_) | Self::Test(_))
    }

    fn of_number(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<(Self, DataType)> {
        let data_type = expr.data_type(schema).ok().filter(are_words)?;
        if let Some(column) = expr.downcast_ref::<Column>() {
            return Some((Self::Column(column.index()), data_type));
        }
        let node = if let Some(literal) = expr.downcast_ref::<Literal>() {
            Self::of_literal(literal.value())?
        } else if let Some(cast) = expr.downcast_ref::<CastExpr>() {
            Self::of_cast(cast, &data_type, schema)?
        } else if let Some(case) = expr.downcast_ref::<CaseExpr>() {
            Self::of_case(case, &data_type, schema)?
        } else {
            Self::of_step(expr.downcast_ref::<BinaryExpr>()?, &data_type, schema)?
        };
        Some((node, data_type))
    }

    fn of_literal(value: &ScalarValue) -> Option<Self> {
        let array = (!value.is_null()).then(|| value.to_array().ok())??;
        let words = Words::of_array(&array)?;
        Some(Self::Literal(*words.values.each().first()?))
    }

    fn of_cast(cast: &CastExpr, to: &DataType, schema: &Schema) -> Option<Self> {
        let (node, from) = Self::of_number(cast.expr(), schema)?;
        match (&from, to) {
            (DataType::Decimal128(narrower, from), DataType::Decimal128(precision, scale)) => {
                // A cast to fewer digits before the point checks every value.
                let digits = |precision: &u8, scale: &i8| i16::from(*precision) - i16::from(*scale);
                let is_safe = scale >= from && digits(precision, scale) >= digits(narrower, from);
                is_safe.then(|| node.scaled(*from, *scale))?
            }
            (integer, DataType::Decimal128(precision, scale)) if integer.is_integer() => {
                let greatest = i128::from(u64::MAX).min(match integer {
                    DataType::UInt64 => i128::from(u64::MAX),
                    other => i128::from(Bounds::of_type(other).magnitude()),
                });
                let digits = u32::from(*precision).checked_sub(u32::try_from(*scale).ok()?)?;
                let fits = 10i128
                    .checked_pow(digits)
                    .is_none_or(|limit| greatest < limit);
                fits.then(|| node.scaled(0, *scale))?
            }
            (from, to) if from.is_integer() && to.is_integer() => {
                let (from, to) = (Bounds::of_type(from), Bounds::of_type(to));
                to.contain(from).then_some(node)
            }
            _ => None,
        }
    }

    fn of_case(case: &CaseExpr, data_type: &DataType, schema: &Schema) -> Option<Self> {
        let [(condition, chosen)] = case.when_then_expr() else {
            return None;
        };
        if case.expr().is_some() {
            return None;
        }
        let of_type = |expr| {
            let (node, found) = Self::of_number(expr, schema)?;
            (found == *data_type).then_some(node)
        };
        let condition = Self::of_condition(condition, schema)?;
        let (chosen, other) = (of_type(chosen)?, of_type(case.else_expr()?)?);
        Some(Self::Case(Box::new([condition, chosen, other])))
    }

    fn of_step(binary: &BinaryExpr, data_type: &DataType, schema: &Schema) -> Option<Self> {
        let step = match binary.op() {
            Operator::Modulo => return Self::of_remainder(binary, data_type, schema),
            Operator::Plus => Step::Plus,
            Operator::Minus => Step::Minus,
            Operator::Multiply => Step::Times,
            _ => return None,
        };
        let (left, left_type) = Self::of_number(binary.left(), schema)?;
        let (right, right_type) = Self::of_number(binary.right(), schema)?;
        let sides = match (&left_type, &right_type, data_type) {
            (
                DataType::Decimal128(_, left_scale),
                DataType::Decimal128(_, right_scale),
                DataType::Decimal128(_, scale),
            ) => {
                let common = *left_scale.max(right_scale);
                let (wanted, sides) = match step {
                    Step::Times => (left_scale.checked_add(*right_scale)?, [left, right]),
                    _ => {
                        let left = left.scaled(*left_scale, common)?;
                        (common, [left, right.scaled(*right_scale, common)?])
                    }
                };
                (wanted == *scale).then_some(sides)?
            }
            (left_type, right_type, data_type) => {
                let alike = left_type == data_type && right_type == data_type;
                (alike && data_type.is_integer()).then_some([left, right])?
            }
        };
        let limits = Bounds::of_type(data_type);
        Some(Self::Binary(step, limits, Box::new(sides)))
    }

    fn of_remainder(binary: &BinaryExpr, data_type: &DataType, schema: &Schema) -> Option<Self> {
        let (value, value_type) = Self::of_number(binary.left(), schema)?;
        let (divisor, divisor_type) = Self::of_number(binary.right(), schema)?;
        let alike = value_type == *data_type && divisor_type == *data_type;
        match divisor {
            Self::Literal(divisor) if alike && data_type.is_integer() && divisor > 0 => {
                Some(Self::Remainder(Box::new(value), divisor))
            }
            _ => None,
        }
    }

    fn of_condition(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Option<Self> {
        let test = || Exact::new(expr, schema).ok().map(Self::Test);
        let Some(binary) = expr.downcast_ref::<BinaryExpr>() else {
            return test();
        };
        let both = |binary: &BinaryExpr| -> Option<Box<[Self; 2]>> {
            let left = Self::of_condition(binary.left(), schema)?;
            Some(Box::new([
                left,
                Self::of_condition(binary.right(), schema)?,
            ]))
        };
        let order = match binary.op() {
            Operator::And => return both(binary).map(Self::And),
            Operator::Or => return both(binary).map(Self::Or),
            Operator::Eq => Order::Equal,
            Operator::NotEq => Order::NotEqual,
            Operator::Lt | Operator::Gt => Order::Less,
            Operator::LtEq | Operator::GtEq => Order::LessOrEqual,
            _ => return test(),
        };
        let left = Self::of_number(binary.left(), schema);
        let right = Self::of_number(binary.right(), schema);
        let (Some((left, left_type)), Some((right, right_type))) = (left, right) else {
            return test();
        };
        if left_type != right_type {
            return test();
        }
        let sides = match binary.op() {
            Operator::Gt | Operator::GtEq => [right, left],
            _ => [left, right],
        };
        Some(Self::Compare(order, Box::new(sides)))
    }

    fn scaled(self, from: i8, to: i8) -> Option<Self> {
        let factor = 10i64.checked_pow(u32::try_from(i16::from(to) - i16::from(from)).ok()?)?;
        Some(match factor {
            1 => self,
            _ => Self::Scaled(Box::new(self), factor),
        })
    }

    /// Its value for each row; one and zero for a condition. `None` if 64 bits may be too few for a step.
    pub fn words(&self, columns: &mut dyn Columns) -> Option<Words> {
        match self {
            Self::Column(column) => columns.words(*column),
            Self::Literal(value) => Some(Words::all(*value)),
            Self::Scaled(node, factor) => {
                let words = node.words(columns)?;
                words.step(Step::Times, Words::all(*factor), Bounds::ALL)
            }
            Self::Binary(step, limits, sides) => {
                let [left, right] = sides.as_ref();
                let left = left.words(columns)?;
                left.step(*step, right.words(columns)?, *limits)
            }
            Self::Remainder(value, divisor) => Some(value.words(columns)?.remainder(*divisor)),
            Self::Compare(order, sides) => {
                let [left, right] = sides.as_ref();
                let left = left.words(columns)?;
                Some(left.compare(*order, right.words(columns)?))
            }
            Self::And(sides) | Self::Or(sides) => {
                let [left, right] = sides.as_ref();
                let (left, right) = (left.words(columns)?, right.words(columns)?);
                if left.nulls.is_some() || right.nulls.is_some() {
                    return None;
                }
                Some(match self {
                    Self::And(_) => left.both(right),
                    _ => left.either(right),
                })
            }
            Self::Case(parts) => {
                let [condition, chosen, other] = parts.as_ref();
                let condition = condition.words(columns)?;
                let chosen = chosen.words(columns)?;
                condition.choose(chosen, other.words(columns)?)
            }
            Self::Test(condition) => {
                let array = columns.test(condition)?;
                let array = as_boolean_array(&array).ok()?;
                let words = Words::of_set(array.values());
                Some(Words {
                    nulls: array
                        .nulls()
                        .filter(|nulls| nulls.null_count() > 0)
                        .cloned(),
                    ..words
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Date32Array, Decimal128Array, Int32Array, Int64Array, UInt8Array};
    use arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::{binary, case, lit};

    struct OfBatch<'a>(&'a RecordBatch);

    impl Columns for OfBatch<'_> {
        fn words(&mut self, column: usize) -> Option<Words> {
            Words::of_array(self.0.column(column))
        }

        fn test(&mut self, condition: &Exact) -> Option<ArrayRef> {
            let columns = condition.columns.iter();
            let columns = columns.map(|idx| self.0.column(*idx).clone()).collect();
            condition.evaluate(columns, self.0.num_rows()).ok()
        }
    }

    /// Columns of every kind of word, with NULLs and values at the ends of their types.
    fn batch(random: &mut fastrand::Rng) -> RecordBatch {
        let rows = random.usize(0..30);
        let (nulls, far) = (random.bool(), random.bool());
        let mut value = |min: i64, max: i64| match random.u8(0..12) {
            0 if nulls => None,
            1 if far => Some(min),
            2 if far => Some(max),
            _ => Some(random.i64(min.max(-1000)..=max.min(1000))),
        };
        let mut column =
            |min, max| -> Vec<Option<i64>> { (0..rows).map(|_| value(min, max)).collect() };
        let of = |value: &Option<i64>| value.map(|value| value as i32);
        let int = |values: Vec<Option<i64>>| values.iter().map(of).collect::<Int32Array>();
        let days = |values: Vec<Option<i64>>| values.iter().map(of).collect::<Date32Array>();
        let bytes = column(0, 255)
            .into_iter()
            .map(|value| value.map(|value| value as u8));
        let bytes: UInt8Array = bytes.collect();
        let cents = column(i64::MIN, i64::MAX)
            .into_iter()
            .map(|cents| cents.map(i128::from));
        let cents = cents
            .collect::<Decimal128Array>()
            .with_precision_and_scale(15, 2);
        let columns: Vec<(&str, ArrayRef)> = vec![
            (
                "int",
                Arc::new(int(column(i32::MIN.into(), i32::MAX.into()))),
            ),
            (
                "wide",
                Arc::new(Int64Array::from(column(i64::MIN, i64::MAX))),
            ),
            ("day", Arc::new(days(column(0, 20_000)))),
            ("byte", Arc::new(bytes)),
            ("cents", Arc::new(cents.unwrap())),
        ];
        let fields = columns
            .iter()
            .map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = columns.into_iter().map(|(_, column)| column);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(schema, columns.collect(), &options).unwrap()
    }

    fn number(random: &mut fastrand::Rng, schema: &Schema, depth: u8) -> Arc<dyn PhysicalExpr> {
        let column = |idx: usize| -> Arc<dyn PhysicalExpr> {
            Arc::new(Column::new(schema.field(idx).name(), idx))
        };
        if depth == 0 || random.u8(0..5) == 0 {
            let cast = |idx, to| Arc::new(CastExpr::new(column(idx), to, None)) as _;
            return match random.u8(0..9) {
                0 => lit(random.i32(-100..100)),
                1 => lit(random.i64(-100..100)),
                2 => lit(ScalarValue::Decimal128(Some(random.i128(-500..500)), 6, 2)),
                3 => cast(0, DataType::Int64),
                4 => cast(0, DataType::Decimal128(12, 2)),
                _ => column(random.usize(0..5)),
            };
        }
        let (left, right) = (
            number(random, schema, depth - 1),
            number(random, schema, depth - 1),
        );
        if random.u8(0..4) == 0 {
            let when = vec![(condition(random, schema, depth - 1), left.clone())];
            return case(None, when, Some(right)).unwrap_or(left);
        }
        if random.u8(0..6) == 0 {
            let divisor = match left.data_type(schema) {
                Ok(DataType::Int32) => lit(random.i32(-3..2000)),
                _ => lit(random.i64(-3..2000)),
            };
            return binary(left.clone(), Operator::Modulo, divisor, schema).unwrap_or(left);
        }
        let ops = [Operator::Plus, Operator::Minus, Operator::Multiply];
        binary(left.clone(), ops[random.usize(0..3)], right, schema).unwrap_or(left)
    }

    fn condition(random: &mut fastrand::Rng, schema: &Schema, depth: u8) -> Arc<dyn PhysicalExpr> {
        use Operator::*;
        if depth > 0 && random.bool() {
            let op = if random.bool() { And } else { Or };
            let left = condition(random, schema, depth - 1);
            return binary(left, op, condition(random, schema, depth - 1), schema).unwrap();
        }
        let left = number(random, schema, depth);
        let right = match random.bool() {
            true => left.clone(),
            false => number(random, schema, depth),
        };
        let ops = [Eq, NotEq, Lt, LtEq, Gt, GtEq];
        binary(left, ops[random.usize(0..6)], right, schema).unwrap_or_else(|_| lit(true))
    }

    #[test]
    fn words_give_what_the_expression_gives() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut compared = [0, 0];
        for _ in 0..30_000 {
            let batch = batch(&mut random);
            let schema = batch.schema();
            let is_condition = random.u8(0..4) == 0;
            let expr = match is_condition {
                true => condition(&mut random, &schema, 2),
                false => number(&mut random, &schema, 3),
            };
            let Some(node) = Node::of(&expr, &schema).filter(Node::is_computed) else {
                continue;
            };
            let exact = expr.evaluate(&batch);
            let exact = exact.and_then(|value| value.into_array(batch.num_rows()));
            let Some(words) = node.words(&mut OfBatch(&batch)) else {
                continue;
            };
            let exact = exact.unwrap_or_else(|error| panic!("{expr}: {error}"));
            compared[usize::from(is_condition)] += 1;
            if is_condition {
                let exact = as_boolean_array(&exact).unwrap();
                let holds = |row| exact.is_valid(row) && exact.value(row);
                let holds: Vec<bool> = (0..batch.num_rows()).map(holds).collect();
                let set = words.to_set(batch.num_rows());
                assert_eq!(set.iter().collect::<Vec<_>>(), holds, "{expr}");
            } else {
                let data_type = expr.data_type(&schema).unwrap();
                let array = words.to_array(&data_type, batch.num_rows()).unwrap();
                assert_eq!(&array, &exact, "{expr}");
            }
        }
        assert!(
            compared.iter().all(|count| *count > 300),
            "{compared:?} in words"
        );
    }

    #[test]
    fn remainders_are_those_of_a_division_whatever_the_bounds() {
        let most = i64::from(u32::MAX);
        let values = [
            vec![0, 1, 6, 7, 8, 13, 14],
            vec![0, most - 1, most],
            vec![-15, -7, -1, 0, 1, 7, 15],
            vec![i64::MIN, i64::MAX, 0],
            vec![],
        ];
        for values in values {
            let bounds = values.iter().min().zip(values.iter().max());
            let exact = bounds.map(|(min, max)| Bounds {
                min: *min,
                max: *max,
            });
            for divisor in [1, 2, 7, 10, most - 1, most, most + 1, i64::MAX] {
                for bounds in [exact, None] {
                    let words = Words::each(values.clone(), None, bounds).remainder(divisor);
                    let expected: Vec<i64> = values.iter().map(|value| value % divisor).collect();
                    assert_eq!(words.values.each(), expected, "by {divisor}");
                    let are_within =
                        |value: &i64| (words.bounds.min..=words.bounds.max).contains(value);
                    assert!(expected.iter().all(are_within), "by {divisor}");
                }
            }
        }
    }
}
