//! Keys as bytes: one string column as it is, everything else in Arrow's row format.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, FixedSizeBinaryArray,
    LargeBinaryArray, LargeStringArray, StringArray, StringViewArray,
};
use arrow_cast::cast;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType};

use super::Nulls;
use crate::Result;

const PRESENT: u8 = 1;

type Float16 = <Float16Type as ArrowPrimitiveType>::Native;

#[derive(Debug)]
pub struct ByteKeys {
    types: Vec<DataType>,
    /// Missing if the key is one string column.
    converter: Option<RowConverter>,
    /// Whether the key of a string starts with a byte that says that it is not NULL.
    marked: bool,
}

impl ByteKeys {
    pub fn try_new(types: Vec<DataType>, nulls: Nulls) -> Result<Self> {
        let is_single = matches!(types.as_slice(), [data_type] if is_string(data_type));
        let fields = types.iter().cloned().map(SortField::new);
        let converter = match is_single {
            true => None,
            false => Some(RowConverter::new(fields.collect())?),
        };
        Ok(Self {
            types,
            converter,
            marked: nulls == Nulls::Equal,
        })
    }

    /// Whether the key is one string column.
    pub fn is_text(&self) -> bool {
        self.converter.is_none()
    }

    pub fn encode(
        &self,
        columns: &[ArrayRef],
        bytes: &mut Vec<u8>,
        ends: &mut Vec<usize>,
    ) -> Result<()> {
        let Some(converter) = &self.converter else {
            for value in values(&columns[0])? {
                if let Some(value) = value {
                    bytes.extend(self.marked.then_some(PRESENT));
                    bytes.extend_from_slice(value);
                }
                ends.push(bytes.len());
            }
            return Ok(());
        };
        let columns: Vec<ArrayRef> = columns.iter().map(one_zero).collect();
        let rows = converter.convert_columns(&columns)?;
        for row in rows.iter() {
            bytes.extend_from_slice(row.data());
            ends.push(bytes.len());
        }
        Ok(())
    }

    pub fn decode<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        let Some(converter) = &self.converter else {
            let marked = self.marked;
            let values = rows.map(|row| match marked {
                true => row.split_first().map(|(_, value)| value),
                false => Some(row),
            });
            return Ok(vec![array_of(&self.types[0], values)?]);
        };
        let parser = converter.parser();
        let columns = converter.convert_rows(rows.map(|row| parser.parse(row)))?;
        let typed = columns.into_iter().zip(&self.types);
        Ok(typed
            .map(|(column, data_type)| as_type(column, data_type))
            .collect::<Result<_, ArrowError>>()?)
    }
}

/// Arrow's row format returns the values of dictionaries and runs.
pub(crate) fn as_type(column: ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    match column.data_type() == data_type {
        true => Ok(column),
        false => cast(&column, data_type),
    }
}

/// Whether [`values`] can read columns of this type.
pub(crate) fn is_string(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView | FixedSizeBinary(_)
    )
}

type Values<'a> = Box<dyn Iterator<Item = Option<&'a [u8]>> + 'a>;

/// The values of a string column as bytes.
pub(crate) fn values(column: &ArrayRef) -> Result<Values<'_>, ArrowError> {
    Ok(match column.data_type() {
        DataType::Utf8 => text(column.as_string::<i32>().iter()),
        DataType::LargeUtf8 => text(column.as_string::<i64>().iter()),
        DataType::Utf8View => text(column.as_string_view().iter()),
        DataType::Binary => Box::new(column.as_binary::<i32>().iter()),
        DataType::LargeBinary => Box::new(column.as_binary::<i64>().iter()),
        DataType::BinaryView => Box::new(column.as_binary_view().iter()),
        DataType::FixedSizeBinary(_) => Box::new(column.as_fixed_size_binary().iter()),
        other => return Err(ArrowError::NotYetImplemented(format!("{other} as bytes"))),
    })
}

fn text<'a>(values: impl Iterator<Item = Option<&'a str>> + 'a) -> Values<'a> {
    Box::new(values.map(|value| value.map(str::as_bytes)))
}

/// A string column of the given values.
pub(crate) fn array_of<'a>(
    data_type: &DataType,
    values: impl Iterator<Item = Option<&'a [u8]>>,
) -> Result<ArrayRef, ArrowError> {
    let text = |value: Option<&'a [u8]>| value.map(str::from_utf8).transpose();
    let values = values.into_iter();
    Ok(match data_type {
        DataType::Utf8 => Arc::new(values.map(text).collect::<Result<StringArray, _>>()?),
        DataType::LargeUtf8 => Arc::new(values.map(text).collect::<Result<LargeStringArray, _>>()?),
        DataType::Utf8View => Arc::new(values.map(text).collect::<Result<StringViewArray, _>>()?),
        DataType::Binary => Arc::new(values.collect::<BinaryArray>()),
        DataType::LargeBinary => Arc::new(values.collect::<LargeBinaryArray>()),
        DataType::BinaryView => Arc::new(values.collect::<BinaryViewArray>()),
        DataType::FixedSizeBinary(size) => Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, *size)?,
        ),
        other => return Err(ArrowError::NotYetImplemented(format!("bytes as {other}"))),
    })
}

/// Floats with one zero and one NaN; other columns as they are.
fn one_zero(column: &ArrayRef) -> ArrayRef {
    fn mapped<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        map: impl Fn(T::Native) -> T::Native,
    ) -> ArrayRef {
        Arc::new(column.as_primitive::<T>().unary::<_, T>(map))
    }
    match column.data_type() {
        DataType::Float64 => mapped::<Float64Type>(column, |value| {
            if value.is_nan() {
                f64::NAN
            } else {
                value + 0.0
            }
        }),
        DataType::Float32 => mapped::<Float32Type>(column, |value| {
            if value.is_nan() {
                f32::NAN
            } else {
                value + 0.0
            }
        }),
        DataType::Float16 => mapped::<Float16Type>(column, |value| match value.to_f32() {
            wide if wide.is_nan() => Float16::from_f32(f32::NAN),
            0.0 => Float16::from_f32(0.0),
            _ => value,
        }),
        _ => Arc::clone(column),
    }
}
