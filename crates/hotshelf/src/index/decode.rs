//! Codes of an Elf as the values they stand for: what covering queries return.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryViewBuilder, BooleanBuilder, PrimitiveBuilder,
    make_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use hotshelf_elf::ElfError;
use hotshelf_elf::keys::{ColumnEncoding, Value};

use crate::error::{Error, Result};

/// The values of codes as a column of `data_type`, the type of the column that the encoding was learned from. Only an
/// encoding that is not lossy can say them.
pub(super) fn decode(
    encoding: &ColumnEncoding,
    codes: &[u32],
    data_type: &DataType,
) -> Result<ArrayRef> {
    match data_type {
        DataType::Boolean => booleans(encoding, codes),
        DataType::Int8 => integers::<Int8Type>(encoding, codes),
        DataType::Int16 => integers::<Int16Type>(encoding, codes),
        DataType::Int32 => integers::<Int32Type>(encoding, codes),
        DataType::Int64 => integers::<Int64Type>(encoding, codes),
        DataType::UInt8 => integers::<UInt8Type>(encoding, codes),
        DataType::UInt16 => integers::<UInt16Type>(encoding, codes),
        DataType::UInt32 => integers::<UInt32Type>(encoding, codes),
        DataType::UInt64 => integers::<UInt64Type>(encoding, codes),
        DataType::Float32 => numbers::<Float32Type>(encoding, codes, |value| match value {
            Value::Float(float) => Some(float as f32),
            _ => None,
        }),
        DataType::Float64 => numbers::<Float64Type>(encoding, codes, |value| match value {
            Value::Float(float) => Some(float),
            _ => None,
        }),
        DataType::Date32 | DataType::Time32(_) => {
            retyped(&integers::<Int32Type>(encoding, codes)?, data_type)
        }
        DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(_, _) => {
            retyped(&integers::<Int64Type>(encoding, codes)?, data_type)
        }
        DataType::Decimal128(_, _) => {
            retyped(&integers::<Decimal128Type>(encoding, codes)?, data_type)
        }
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView => strings(encoding, codes, data_type),
        other => Err(Error::NotIndexable {
            column: String::new(),
            data_type: other.to_string(),
        }),
    }
}

fn query(error: ArrowError) -> Error {
    Error::Query(DataFusionError::from(error))
}

/// The same numbers as another type of the same width.
fn retyped(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    let data = column.to_data().into_builder().data_type(data_type.clone());
    Ok(make_array(data.build().map_err(query)?))
}

fn integers<T>(encoding: &ColumnEncoding, codes: &[u32]) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    numbers::<T>(encoding, codes, |value| match value {
        Value::Integer(number) => T::Native::try_from(number).ok(),
        _ => None,
    })
}

fn numbers<T: ArrowPrimitiveType>(
    encoding: &ColumnEncoding,
    codes: &[u32],
    number: impl Fn(Value) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let mut values = PrimitiveBuilder::<T>::with_capacity(codes.len());
    for (row, code) in codes.iter().enumerate() {
        if encoding.is_null(*code) {
            values.append_null();
            continue;
        }
        let value = encoding.decode(*code).and_then(&number);
        values.append_value(value.ok_or(ElfError::OutsideDomain { row })?);
    }
    Ok(Arc::new(values.finish()))
}

fn booleans(encoding: &ColumnEncoding, codes: &[u32]) -> Result<ArrayRef> {
    let mut values = BooleanBuilder::with_capacity(codes.len());
    for (row, code) in codes.iter().enumerate() {
        values.append_option(match encoding.decode(*code) {
            Some(Value::Null) => None,
            Some(Value::Integer(number @ 0..=1)) => Some(number == 1),
            _ => return Err(ElfError::OutsideDomain { row }.into()),
        });
    }
    Ok(Arc::new(values.finish()))
}

fn strings(encoding: &ColumnEncoding, codes: &[u32], data_type: &DataType) -> Result<ArrayRef> {
    let mut values = BinaryViewBuilder::with_capacity(codes.len());
    for (row, code) in codes.iter().enumerate() {
        if encoding.is_null(*code) {
            values.append_null();
            continue;
        }
        let bytes = encoding.decode_bytes(*code);
        values.append_value(bytes.ok_or(ElfError::OutsideDomain { row })?);
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let values: ArrayRef = Arc::new(values.finish());
    cast_with_options(&values, data_type, &strict).map_err(query)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        AsArray, Float32Array, Float64Array, Int64Array, StringArray, new_null_array,
    };
    use arrow::compute::{cast, concat};
    use arrow::datatypes::TimeUnit;

    use super::super::keys::{KeyColumn, KeyLearner, is_indexable};
    use super::*;

    fn encoded(column: &ArrayRef) -> (KeyColumn, Vec<u32>) {
        let mut learner = KeyLearner::default();
        learner.add(column).unwrap();
        let key = learner.finish().unwrap();
        let codes = key.encode(column).unwrap();
        let codes = (0..codes.len()).map(|row| codes.get(row)).collect();
        (key, codes)
    }

    fn decoded(column: &ArrayRef) -> ArrayRef {
        let (key, codes) = encoded(column);
        decode(key.exact().unwrap(), &codes, column.data_type()).unwrap()
    }

    fn columns() -> Vec<ArrayRef> {
        use DataType::*;
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![3, 0, 1, 100, 1, 3, 77]));
        let types = [
            Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Boolean,
        ];
        let zone = Some(Arc::from("+02:00"));
        let times = [
            Date32,
            Time32(TimeUnit::Second),
            Time64(TimeUnit::Nanosecond),
            Timestamp(TimeUnit::Second, None),
            Timestamp(TimeUnit::Microsecond, zone),
            Decimal128(12, 2),
            Decimal128(38, 0),
        ];
        let mut columns: Vec<ArrayRef> = types
            .iter()
            .chain(&times)
            .map(|data_type| match data_type {
                Date32 | Time32(_) => cast(&cast(&numbers, &Int32).unwrap(), data_type).unwrap(),
                _ => cast(&numbers, data_type).unwrap(),
            })
            .collect();
        let date = cast(&numbers, &Timestamp(TimeUnit::Millisecond, None)).unwrap();
        columns.push(retyped(&date, &Date64).unwrap());
        let spread = [i64::MIN, 0, i64::MAX, 0, -1].to_vec();
        columns.push(Arc::new(Int64Array::from(spread)));
        let wide = arrow::array::Decimal128Array::from(vec![-(10i128.pow(37)), 10i128.pow(37), 0]);
        columns.push(Arc::new(wide));
        let floats = [0.0, -0.0, f64::NAN, f64::INFINITY, -1.5, f64::MIN_POSITIVE];
        columns.push(Arc::new(Float64Array::from(floats.to_vec())));
        let floats: Vec<f32> = floats.iter().map(|float| *float as f32).collect();
        columns.push(Arc::new(Float32Array::from(floats)));
        let text: ArrayRef = Arc::new(StringArray::from(vec![
            "a",
            "",
            "a string longer than a view holds inline",
            "ä",
            "a",
        ]));
        for data_type in [Utf8, LargeUtf8, Utf8View, Binary, LargeBinary, BinaryView] {
            columns.push(cast(&text, &data_type).unwrap());
        }
        columns
    }

    /// Floats compare by their bits here.
    fn assert_same(one: &ArrayRef, other: &ArrayRef) {
        assert_eq!(one.data_type(), other.data_type());
        match one.data_type() {
            DataType::Float64 => {
                let bits = |column: &ArrayRef| -> Vec<Option<u64>> {
                    let column = column.as_primitive::<Float64Type>().iter();
                    column.map(|float| float.map(f64::to_bits)).collect()
                };
                assert_eq!(bits(one), bits(other));
            }
            DataType::Float32 => {
                let bits = |column: &ArrayRef| -> Vec<Option<u32>> {
                    let column = column.as_primitive::<Float32Type>().iter();
                    column.map(|float| float.map(f32::to_bits)).collect()
                };
                assert_eq!(bits(one), bits(other));
            }
            _ => assert_eq!(one, other),
        }
    }

    #[test]
    fn every_indexable_type_comes_back_as_it_was() {
        for column in columns() {
            let data_type = column.data_type();
            assert!(is_indexable(data_type));
            assert_same(&decoded(&column), &column);
            let null = new_null_array(data_type, 2);
            let with_nulls = concat(&[&null, &column, &null]).unwrap();
            assert_same(&decoded(&with_nulls), &with_nulls);
            assert_same(&decoded(&null), &null);
            let empty = column.slice(0, 0);
            assert_same(&decoded(&empty), &empty);
        }
    }

    #[test]
    fn codes_without_a_value_are_errors() {
        for column in columns() {
            let (key, codes) = encoded(&column);
            let beyond = codes.iter().max().unwrap() + 200;
            let error = decode(key.exact().unwrap(), &[beyond], column.data_type()).unwrap_err();
            assert!(matches!(
                error,
                Error::Elf(ElfError::OutsideDomain { row: 0 })
            ));
        }
        let (key, codes) = encoded(&columns()[3]);
        assert!(decode(key.exact().unwrap(), &codes, &DataType::Utf8).is_err());
        assert!(decode(key.exact().unwrap(), &codes, &DataType::Float64).is_err());
        assert!(decode(key.exact().unwrap(), &codes, &DataType::Boolean).is_err());
    }
}
