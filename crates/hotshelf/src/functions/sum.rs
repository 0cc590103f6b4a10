//! `sum` that reports overflow.
//!
//! The engine's sum of BIGINT and of wide decimals wraps around (`docs/upstream/sum-overflow.md`). This one is the
//! engine's in all but its accumulators of integers and decimals, which fail when a sum leaves its type.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{
    ArrowNativeTypeOp, DataType, Decimal32Type, Decimal64Type, Decimal128Type, Int64Type,
    UInt64Type,
};
use datafusion::common::exec_err;
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator,
};
use datafusion::scalar::ScalarValue;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use super::engines::as_the_engines;
use super::sliding::moving_sum_of_floats;
use crate::star::sum_overflow;

/// The function to register.
pub(crate) fn checked_sum() -> AggregateUDF {
    AggregateUDF::from(CheckedSum { sum: Sum::new() })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    sum: Sum,
}

impl CheckedSum {
    fn engines(&self) -> &dyn AggregateUDFImpl {
        &self.sum
    }
}

impl AggregateUDFImpl for CheckedSum {
    as_the_engines!();

    fn accumulator(&self, args: AccumulatorArgs) -> QueryResult<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type().clone();
        if !is_checked(&data_type) {
            return self.sum.accumulator(args);
        }
        if args.is_distinct {
            let values = self.sum.accumulator(args)?;
            return Ok(Box::new(DistinctSum { values, data_type }));
        }
        Ok(Box::new(CheckedAccumulator::new(data_type)))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> QueryResult<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type().clone();
        if data_type == DataType::Float64 && !args.is_distinct {
            return Ok(moving_sum_of_floats());
        }
        if !is_checked(&data_type) {
            return self.sum.create_sliding_accumulator(args);
        }
        if args.is_distinct {
            let values = self.sum.create_sliding_accumulator(args)?;
            return Ok(Box::new(DistinctSum { values, data_type }));
        }
        Ok(Box::new(CheckedAccumulator::new(data_type)))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> QueryResult<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_field.data_type().clone();
        Ok(match data_type {
            DataType::Int64 => CheckedGroups::boxed::<Int64Type>(data_type),
            DataType::UInt64 => CheckedGroups::boxed::<UInt64Type>(data_type),
            DataType::Decimal32(..) => CheckedGroups::boxed::<Decimal32Type>(data_type),
            DataType::Decimal64(..) => CheckedGroups::boxed::<Decimal64Type>(data_type),
            DataType::Decimal128(..) => CheckedGroups::boxed::<Decimal128Type>(data_type),
            _ => return self.sum.create_groups_accumulator(args),
        })
    }
}

fn is_checked(data_type: &DataType) -> bool {
    use DataType::{Decimal32, Decimal64, Decimal128, Int64, UInt64};
    matches!(
        data_type,
        Int64 | UInt64 | Decimal32(..) | Decimal64(..) | Decimal128(..)
    )
}

/// Values of a batch or a chunk of it added up exactly.
trait Addable: Copy {
    /// The sum, if it fits.
    fn total(values: &[Self]) -> Option<i128>;
}

/// Values whose sums over this many need no check.
const CHUNK: usize = 1 << 20;

macro_rules! addable_in_halves {
    ($native:ty) => {
        impl Addable for $native {
            fn total(values: &[Self]) -> Option<i128> {
                // Upper and lower halves are added apart: neither sum leaves 64 bits within a chunk.
                let chunks = values.chunks(CHUNK).map(|chunk| {
                    let upper: i64 = chunk.iter().map(|value| (*value >> 32) as i64).sum();
                    let lower: i64 = chunk.iter().map(|value| (*value as u32) as i64).sum();
                    ((upper as i128) << 32) + lower as i128
                });
                Some(chunks.sum())
            }
        }
    };
}

addable_in_halves!(i64);
addable_in_halves!(u64);

impl Addable for i32 {
    fn total(values: &[Self]) -> Option<i128> {
        let chunks = values.chunks(CHUNK);
        let sums = chunks.map(|chunk| chunk.iter().map(|value| i64::from(*value)).sum::<i64>());
        Some(sums.map(i128::from).sum())
    }
}

impl Addable for i128 {
    fn total(values: &[Self]) -> Option<i128> {
        let (mut total, mut overflowed) = (0i128, false);
        for value in values {
            let (sum, over) = total.overflowing_add(*value);
            total = sum;
            overflowed |= over;
        }
        (!overflowed).then_some(total)
    }
}

/// The sum and the number of the values that are not NULL.
fn total_of<T>(array: &PrimitiveArray<T>) -> Option<(i128, usize)>
where
    T: ArrowPrimitiveType,
    T::Native: Addable,
{
    let values = array.values();
    let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Some((Addable::total(values)?, values.len()));
    };
    let mut total = 0i128;
    for (start, end) in nulls.valid_slices() {
        total = total.checked_add(Addable::total(&values[start..end])?)?;
    }
    Some((total, values.len() - nulls.null_count()))
}

fn total_of_any(array: &ArrayRef) -> QueryResult<(i128, usize)> {
    let total = match array.data_type() {
        DataType::Int64 => total_of(array.as_primitive::<Int64Type>()),
        DataType::UInt64 => total_of(array.as_primitive::<UInt64Type>()),
        DataType::Decimal32(..) => total_of(array.as_primitive::<Decimal32Type>()),
        DataType::Decimal64(..) => total_of(array.as_primitive::<Decimal64Type>()),
        DataType::Decimal128(..) => total_of(array.as_primitive::<Decimal128Type>()),
        other => return exec_err!("sum of {other}: an integer or decimal was expected"),
    };
    match total {
        Some(total) => Ok(total),
        None => sum_overflow(array.data_type()),
    }
}

/// The sum as a value of its type, if it fits.
fn as_scalar(total: i128, data_type: &DataType) -> QueryResult<ScalarValue> {
    let fits = |precision: u8| total.unsigned_abs() < 10u128.pow(u32::from(precision));
    let value = match *data_type {
        DataType::Int64 => i64::try_from(total).ok().map(ScalarValue::from),
        DataType::UInt64 => u64::try_from(total).ok().map(ScalarValue::from),
        DataType::Decimal32(precision, scale) if fits(precision) => i32::try_from(total)
            .ok()
            .map(|total| ScalarValue::Decimal32(Some(total), precision, scale)),
        DataType::Decimal64(precision, scale) if fits(precision) => i64::try_from(total)
            .ok()
            .map(|total| ScalarValue::Decimal64(Some(total), precision, scale)),
        DataType::Decimal128(precision, scale) if fits(precision) => {
            Some(ScalarValue::Decimal128(Some(total), precision, scale))
        }
        _ => None,
    };
    value.map_or_else(|| sum_overflow(data_type), Ok)
}

/// A sum in 128 bits; rows may leave it again, for window frames that move.
#[derive(Debug)]
struct CheckedAccumulator {
    data_type: DataType,
    total: i128,
    value_count: usize,
}

impl CheckedAccumulator {
    fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            total: 0,
            value_count: 0,
        }
    }
}

impl Accumulator for CheckedAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> QueryResult<()> {
        let (total, count) = total_of_any(&values[0])?;
        let Some(total) = self.total.checked_add(total) else {
            return sum_overflow(&self.data_type);
        };
        self.total = total;
        self.value_count += count;
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> QueryResult<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> QueryResult<()> {
        let (total, count) = total_of_any(&values[0])?;
        let Some(total) = self.total.checked_sub(total) else {
            return sum_overflow(&self.data_type);
        };
        self.total = total;
        self.value_count = self.value_count.saturating_sub(count);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> QueryResult<ScalarValue> {
        match self.value_count {
            0 => ScalarValue::try_from(&self.data_type),
            _ => as_scalar(self.total, &self.data_type),
        }
    }

    fn state(&mut self) -> QueryResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

/// The sum of the distinct values that the engine's accumulator has collected.
#[derive(Debug)]
struct DistinctSum {
    values: Box<dyn Accumulator>,
    data_type: DataType,
}

impl Accumulator for DistinctSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> QueryResult<()> {
        self.values.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> QueryResult<()> {
        self.values.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> QueryResult<()> {
        self.values.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.values.supports_retract_batch()
    }

    fn evaluate(&mut self) -> QueryResult<ScalarValue> {
        let mut sum = CheckedAccumulator::new(self.data_type.clone());
        for state in self.values.state()? {
            if let ScalarValue::List(lists) = state {
                sum.update_batch(&[lists.values().clone()])?;
            }
        }
        sum.evaluate()
    }

    fn state(&mut self) -> QueryResult<Vec<ScalarValue>> {
        self.values.state()
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.values.size()
    }
}

/// The engine's sums of groups, with a note of overflow.
struct CheckedGroups {
    sums: Box<dyn GroupsAccumulator>,
    overflowed: Arc<AtomicBool>,
    data_type: DataType,
}

impl CheckedGroups {
    fn boxed<T>(data_type: DataType) -> Box<dyn GroupsAccumulator>
    where
        T: ArrowPrimitiveType + Send,
        T::Native: ArrowNativeTypeOp,
    {
        let overflowed = Arc::new(AtomicBool::new(false));
        let note = overflowed.clone();
        let add = move |sum: &mut T::Native, value: T::Native| match sum.add_checked(value) {
            Ok(total) => *sum = total,
            Err(_) => note.store(true, Ordering::Relaxed),
        };
        let sums = PrimitiveGroupsAccumulator::<T, _>::new(&data_type, add);
        Box::new(Self {
            sums: Box::new(sums),
            overflowed,
            data_type,
        })
    }

    fn check(&self) -> QueryResult<()> {
        match self.overflowed.load(Ordering::Relaxed) {
            true => sum_overflow(&self.data_type),
            false => Ok(()),
        }
    }

    /// Sums of the widest decimals have room beyond their precision.
    fn check_precision(&self, sums: &ArrayRef) -> QueryResult<()> {
        let DataType::Decimal128(precision, _) = self.data_type else {
            return Ok(());
        };
        let limit = 10u128.pow(u32::from(precision));
        let sums = sums.as_primitive::<Decimal128Type>();
        let beyond = sums.iter().flatten().any(|sum| sum.unsigned_abs() >= limit);
        if beyond {
            sum_overflow(&self.data_type)
        } else {
            Ok(())
        }
    }
}

impl GroupsAccumulator for CheckedGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        condition: Option<&BooleanArray>,
        group_count: usize,
    ) -> QueryResult<()> {
        self.sums
            .update_batch(values, group_indices, condition, group_count)?;
        self.check()
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        group_count: usize,
    ) -> QueryResult<()> {
        self.sums.merge_batch(values, group_indices, group_count)?;
        self.check()
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> QueryResult<ArrayRef> {
        let sums = self.sums.evaluate(emit_to)?;
        self.check_precision(&sums)?;
        Ok(sums)
    }

    fn state(&mut self, emit_to: EmitTo) -> QueryResult<Vec<ArrayRef>> {
        self.sums.state(emit_to)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        condition: Option<&BooleanArray>,
    ) -> QueryResult<Vec<ArrayRef>> {
        self.sums.convert_to_state(values, condition)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.sums.size()
    }
}

impl fmt::Debug for CheckedGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedGroups")
            .field("data_type", &self.data_type)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_exact_whatever_the_values_and_nulls(
            values in proptest::collection::vec(any::<Option<i64>>(), 0..300),
        ) {
            let array: ArrayRef = Arc::new(Int64Array::from(values.clone()));
            let expected: i128 = values.iter().flatten().map(|value| i128::from(*value)).sum();
            let count = values.iter().flatten().count();
            prop_assert_eq!(total_of_any(&array).unwrap(), (expected, count));
            let mut sum = CheckedAccumulator::new(DataType::Int64);
            sum.update_batch(&[array]).unwrap();
            match (count, i64::try_from(expected)) {
                (0, _) => prop_assert!(sum.evaluate().unwrap().is_null()),
                (_, Ok(expected)) => prop_assert_eq!(sum.evaluate().unwrap(), ScalarValue::from(expected)),
                (_, Err(_)) => prop_assert!(sum.evaluate().is_err()),
            }
        }
    }

    #[test]
    fn unsigned_sums_use_all_64_bits() {
        assert_eq!(
            Addable::total(&[u64::MAX, u64::MAX]),
            Some(2 * i128::from(u64::MAX))
        );
        assert_eq!(
            Addable::total(&[i64::MIN, -1]),
            Some(i128::from(i64::MIN) - 1)
        );
        assert_eq!(Addable::total(&[i128::MAX, 1]), None);
    }
}
