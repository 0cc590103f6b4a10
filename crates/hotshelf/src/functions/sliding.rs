//! Aggregates over window frames that move, without taking values back out of a total.
//!
//! The engine subtracts what leaves a frame: of floats something remains, and one NaN or infinity makes all that
//! follows NaN (`docs/upstream/totals-of-moving-frames.md`). Some aggregates it refuses for such frames. These are the
//! engine's in all but that: a frame is a queue whose total is known at all times, by two stacks, so that each value is
//! added to another twice.

use std::fmt::Debug;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};
use datafusion::common::not_impl_err;
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_or_udaf};
use datafusion::functions_aggregate::bool_and_or::{bool_and_udaf, bool_or_udaf};
use datafusion::functions_aggregate::stddev::{stddev_pop_udaf, stddev_udaf};
use datafusion::functions_aggregate::variance::{var_pop_udaf, var_samp_udaf};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator};
use datafusion::scalar::ScalarValue;

use super::engines::as_the_engines;

/// The functions to register. Sums are in `sum.rs`.
pub(super) fn sliding() -> impl Iterator<Item = AggregateUDF> {
    let functions = [
        avg_udaf(),
        var_samp_udaf(),
        var_pop_udaf(),
        stddev_udaf(),
        stddev_pop_udaf(),
        bool_and_udaf(),
        bool_or_udaf(),
        bit_and_udaf(),
        bit_or_udaf(),
    ];
    let functions = functions.into_iter();
    functions.map(|function| {
        AggregateUDF::from(Sliding {
            function: (*function).clone(),
        })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding {
    function: AggregateUDF,
}

impl Sliding {
    fn engines(&self) -> &dyn AggregateUDFImpl {
        self.function.inner().as_ref()
    }
}

impl AggregateUDFImpl for Sliding {
    as_the_engines!();

    fn accumulator(&self, args: AccumulatorArgs) -> QueryResult<Box<dyn Accumulator>> {
        self.engines().accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> QueryResult<Box<dyn Accumulator>> {
        let types = args.expr_fields.iter().map(|field| field.data_type());
        let [value] = types.collect::<Vec<_>>()[..] else {
            return self.engines().create_sliding_accumulator(args);
        };
        match moving(self.name(), value, args.return_field.data_type()) {
            Some(moving) if !args.is_distinct => Ok(moving),
            _ => self.engines().create_sliding_accumulator(args),
        }
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> QueryResult<Box<dyn GroupsAccumulator>> {
        self.engines().create_groups_accumulator(args)
    }
}

/// The accumulator of a function over frames of values that move; `None` where the engine's is exact.
fn moving(name: &str, value: &DataType, result: &DataType) -> Option<Box<dyn Accumulator>> {
    let spread = |least: f64, divisor: fn(f64) -> f64, finish: fn(f64) -> f64| {
        boxed(floats(Spread::of), Spread::and, move |total| {
            let total = total.filter(|total| total.count >= least);
            let variance = total.map(|total| total.squares / divisor(total.count));
            Ok(ScalarValue::Float64(variance.map(finish)))
        })
    };
    let truth = |and| boxed(truths(), and, |total| Ok(ScalarValue::Boolean(total)));
    let bits = |and| boxed(integers(), and, of_bits(result.clone()));
    let (is_float, is_truth) = (*value == DataType::Float64, *value == DataType::Boolean);
    Some(match name {
        "avg" if is_float && *result == DataType::Float64 => boxed(
            floats(|value| (value, 1.0)),
            |(sum, count), (more, further)| (sum + more, count + further),
            |total| Ok(ScalarValue::Float64(total.map(|(sum, count)| sum / count))),
        ),
        "var" if is_float => spread(2.0, |count| count - 1.0, |variance| variance),
        "var_pop" if is_float => spread(1.0, |count| count, |variance| variance),
        "stddev" if is_float => spread(2.0, |count| count - 1.0, f64::sqrt),
        "stddev_pop" if is_float => spread(1.0, |count| count, f64::sqrt),
        "bool_and" if is_truth => truth(|all, also| all && also),
        "bool_or" if is_truth => truth(|any, or| any || or),
        "bit_and" if value.is_integer() => bits(|all, also| all & also),
        "bit_or" if value.is_integer() => bits(|any, or| any | or),
        _ => return None,
    })
}

/// A sum of floats over a frame that moves.
pub(super) fn moving_sum_of_floats() -> Box<dyn Accumulator> {
    boxed(
        floats(|value| value),
        |sum, more| sum + more,
        |total| Ok(ScalarValue::Float64(total)),
    )
}

/// Count, mean and sum of squared distances from it (Chan et al., 1979).
#[derive(Debug, Clone, Copy)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn of(value: f64) -> Self {
        Self {
            count: 1.0,
            mean: value,
            squares: 0.0,
        }
    }

    fn and(self, later: Self) -> Self {
        let count = self.count + later.count;
        let distance = later.mean - self.mean;
        let share = later.count / count;
        // From an infinity or NaN there is no distance.
        let more = match distance.is_finite() {
            true => distance * distance * self.count * share,
            false => f64::NAN,
        };
        Self {
            count,
            mean: self.mean + distance * share,
            squares: self.squares + later.squares + more,
        }
    }
}

/// Puts the values of a batch that are not NULL into a queue.
type Read<T> = Box<dyn Fn(&ArrayRef, &mut Queue<T>) -> QueryResult<()> + Send + Sync>;

fn floats<T: Copy + 'static>(of: fn(f64) -> T) -> Read<T> {
    Box::new(move |values, queue| {
        let values = cast(values, &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        values
            .iter()
            .flatten()
            .for_each(|value| queue.push(of(value)));
        Ok(())
    })
}

fn truths() -> Read<bool> {
    Box::new(|values, queue| {
        let values = cast(values, &DataType::Boolean)?;
        let values = values.as_boolean().iter().flatten();
        values.for_each(|value| queue.push(value));
        Ok(())
    })
}

/// The bits of integers of any width, with and without a sign.
fn integers() -> Read<i64> {
    Box::new(|values, queue| {
        if let Some(values) = values.as_primitive_opt::<UInt64Type>() {
            let values = values.iter().flatten();
            values.for_each(|value| queue.push(value as i64));
            return Ok(());
        }
        let values = cast(values, &DataType::Int64)?;
        let values = values.as_primitive::<Int64Type>().iter().flatten();
        values.for_each(|value| queue.push(value));
        Ok(())
    })
}

fn of_bits(
    data_type: DataType,
) -> impl Fn(Option<i64>) -> QueryResult<ScalarValue> + Send + Sync + 'static {
    move |bits| match (bits, &data_type) {
        (Some(bits), DataType::UInt64) => Ok(ScalarValue::UInt64(Some(bits as u64))),
        (bits, data_type) => ScalarValue::Int64(bits).cast_to(data_type),
    }
}

/// Values in the order in which they come and leave, and what they come to.
struct Queue<T> {
    /// What values come to together with later ones.
    and: fn(T, T) -> T,
    /// Of the values that leave first, the total of each and those after it; the next one to leave is the last.
    leaving: Vec<T>,
    /// Values that came after these, and their total.
    arrived: Vec<T>,
    arrived_total: Option<T>,
}

impl<T: Copy> Queue<T> {
    fn push(&mut self, value: T) {
        self.arrived.push(value);
        let total = self.arrived_total;
        let total = total.map_or(value, |total| (self.and)(total, value));
        self.arrived_total = Some(total);
    }

    /// Takes the first value out.
    fn pop(&mut self) {
        if self.leaving.is_empty() {
            let mut total: Option<T> = None;
            while let Some(value) = self.arrived.pop() {
                let with = total.map_or(value, |total| (self.and)(value, total));
                self.leaving.push(with);
                total = Some(with);
            }
            self.arrived_total = None;
        }
        self.leaving.pop();
    }

    fn total(&self) -> Option<T> {
        match (self.leaving.last(), self.arrived_total) {
            (Some(first), Some(later)) => Some((self.and)(*first, later)),
            (Some(total), None) => Some(*total),
            (None, total) => total,
        }
    }
}

/// An aggregate of the values of a frame.
struct Moving<T> {
    values: Queue<T>,
    read: Read<T>,
    finish: Box<dyn Fn(Option<T>) -> QueryResult<ScalarValue> + Send + Sync>,
}

fn boxed<T: Copy + Debug + Send + Sync + 'static>(
    read: Read<T>,
    and: fn(T, T) -> T,
    finish: impl Fn(Option<T>) -> QueryResult<ScalarValue> + Send + Sync + 'static,
) -> Box<dyn Accumulator> {
    Box::new(Moving {
        values: Queue {
            and,
            leaving: Vec::new(),
            arrived: Vec::new(),
            arrived_total: None,
        },
        read,
        finish: Box::new(finish),
    })
}

impl<T: Debug> Debug for Moving<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moving")
            .field("total", &self.values.arrived_total)
            .finish_non_exhaustive()
    }
}

impl<T: Copy + Debug + Send + Sync + 'static> Accumulator for Moving<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> QueryResult<()> {
        (self.read)(&values[0], &mut self.values)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> QueryResult<()> {
        let values = &values[0];
        for _ in values.null_count()..values.len() {
            self.values.pop();
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> QueryResult<ScalarValue> {
        (self.finish)(self.values.total())
    }

    fn state(&mut self) -> QueryResult<Vec<ScalarValue>> {
        not_impl_err!("a frame that moves is not merged with others")
    }

    fn merge_batch(&mut self, _states: &[ArrayRef]) -> QueryResult<()> {
        not_impl_err!("a frame that moves is not merged with others")
    }

    fn size(&self) -> usize {
        let values = self.values.leaving.capacity() + self.values.arrived.capacity();
        size_of::<Self>() + values * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BooleanArray, Float64Array};
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Moves a frame of `width` rows over values; the results.
    fn moved(mut moving: Box<dyn Accumulator>, values: ArrayRef, width: usize) -> Vec<ScalarValue> {
        let mut results = Vec::new();
        for row in 0..values.len() {
            moving.update_batch(&[values.slice(row, 1)]).unwrap();
            if row >= width {
                moving
                    .retract_batch(&[values.slice(row - width, 1)])
                    .unwrap();
            }
            results.push(moving.evaluate().unwrap());
        }
        results
    }

    fn frame<T>(values: &[Option<T>], row: usize, width: usize) -> impl Iterator<Item = &T> {
        let first = (row + 1).saturating_sub(width);
        values[first..=row].iter().flatten()
    }

    proptest! {
        #[test]
        fn sums_of_whole_floats_are_exact_in_every_frame(
            values in proptest::collection::vec(proptest::option::of(-1000i32..1000), 1..80),
            width in 1usize..12,
        ) {
            let values: Vec<Option<f64>> =
                values.into_iter().map(|value| value.map(f64::from)).collect();
            let array = Arc::new(Float64Array::from(values.clone())) as ArrayRef;
            let sums = moved(moving_sum_of_floats(), array.clone(), width);
            let spreads = moved(
                moving("var_pop", &DataType::Float64, &DataType::Float64).unwrap(),
                array,
                width,
            );
            for row in 0..values.len() {
                let held: Vec<f64> = frame(&values, row, width).copied().collect();
                let sum = (!held.is_empty()).then(|| held.iter().sum::<f64>());
                prop_assert_eq!(&sums[row], &ScalarValue::Float64(sum));
                let ScalarValue::Float64(spread) = spreads[row] else { panic!("no float") };
                let mean = sum.unwrap_or(0.0) / held.len() as f64;
                let expected = held.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
                let expected = expected / held.len() as f64;
                match spread {
                    None => prop_assert!(held.is_empty()),
                    Some(spread) => prop_assert!((spread - expected).abs() <= 1e-9 * expected.max(1.0)),
                }
            }
        }

        #[test]
        fn truths_and_bits_are_those_of_the_frame(
            values in proptest::collection::vec(proptest::option::of(any::<u64>()), 1..60),
            width in 1usize..9,
        ) {
            let unsigned = DataType::UInt64;
            let array = Arc::new(arrow::array::UInt64Array::from(values.clone())) as ArrayRef;
            let all = moved(moving("bit_and", &unsigned, &unsigned).unwrap(), array.clone(), width);
            let any = moved(moving("bit_or", &unsigned, &unsigned).unwrap(), array, width);
            let odd: Vec<_> = values.iter().map(|value| value.map(|value| value % 2 == 1)).collect();
            let odd = Arc::new(BooleanArray::from(odd)) as ArrayRef;
            let truth = DataType::Boolean;
            let every = moved(moving("bool_and", &truth, &truth).unwrap(), odd, width);
            for row in 0..values.len() {
                let held = || frame(&values, row, width).copied();
                prop_assert_eq!(&all[row], &ScalarValue::UInt64(held().reduce(|a, b| a & b)));
                prop_assert_eq!(&any[row], &ScalarValue::UInt64(held().reduce(|a, b| a | b)));
                let odd = held().map(|value| value % 2 == 1).reduce(|a, b| a && b);
                prop_assert_eq!(&every[row], &ScalarValue::Boolean(odd));
            }
        }
    }

    #[test]
    fn what_is_not_a_number_leaves_with_its_row() {
        let values = [f64::NAN, 1.0, f64::INFINITY, 1e20, 1.0, 2.0];
        let values = Arc::new(Float64Array::from_iter_values(values)) as ArrayRef;
        let float = DataType::Float64;
        let sums = moved(moving_sum_of_floats(), values.clone(), 2);
        assert_eq!(sums[5], ScalarValue::from(3.0));
        assert_eq!(sums[4], ScalarValue::from(1e20));
        let means = moved(moving("avg", &float, &float).unwrap(), values.clone(), 1);
        assert_eq!(means[1], ScalarValue::from(1.0));
        let spreads = moved(moving("stddev_pop", &float, &float).unwrap(), values, 2);
        assert_eq!(spreads[5], ScalarValue::from(0.5));
        let ScalarValue::Float64(Some(spread)) = spreads[1] else {
            panic!("{:?}", spreads[1]);
        };
        assert!(spread.is_nan());
    }
}
