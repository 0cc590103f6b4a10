//! Columns as the Elf's codes.
//!
//! A column of a data file is read twice: once to learn its values, once to encode them. Where a dictionary
//! would grow too large, codes become coarse: numbers lose their low bits, strings keep their first bits
//! only, and the scan checks the predicate again.

use std::collections::HashSet;
use std::path::Path;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use hotshelf_elf::keys::{
    CodeColumn, ColumnEncoding, Coverage, Predicate, Restriction, Value, Values, ValuesRef,
};

use crate::error::{Result, StoreError};

/// Entries of the largest dictionary; it stays in memory while the database is open.
const DICTIONARY_MAX: u64 = 1 << 20;
/// Largest span of coarse codes.
const COARSE_SPAN: i128 = 1 << 31;
/// A string encoding without a dictionary, as [`ColumnEncoding::to_bytes`] writes it: kind and mapping.
const PREFIX_KIND: u8 = 2;
const PREFIX_MAPPING: u8 = 3;

/// Whether an Elf can have columns of this type.
pub fn is_indexable(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Boolean
            | Int8
            | Int16
            | Int32
            | Int64
            | UInt8
            | UInt16
            | UInt32
            | UInt64
            | Float32
            | Float64
            | Date32
            | Date64
            | Time32(_)
            | Time64(_)
            | Timestamp(_, _)
            | Decimal128(_, _)
            | Utf8
            | LargeUtf8
            | Utf8View
            | Binary
            | LargeBinary
            | BinaryView
    )
}

/// How the values of one column of a data file become codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyColumn {
    encoding: ColumnEncoding,
    /// Low bits that codes do not have.
    shift: u32,
}

impl KeyColumn {
    /// The codes of a column's values.
    pub fn encode(&self, column: &ArrayRef) -> Result<CodeColumn> {
        if self.shift == 0 {
            return with_values(column, |values| Ok(self.encoding.encode(values)?));
        }
        let (numbers, validity) = coarse_numbers(column, self.shift)?;
        Ok(self.encoding.encode(&Values {
            values: ValuesRef::I128(&numbers),
            validity: validity.as_deref(),
        })?)
    }

    /// The codes that a predicate accepts; `None` when it compares with another type.
    pub fn restriction(&self, predicate: &Predicate) -> Option<(Restriction, Coverage)> {
        if self.shift == 0 {
            return self.encoding.restriction(predicate).ok();
        }
        let coarse = |value: &Value| match value {
            Value::Integer(number) => Some(Value::Integer(number >> self.shift)),
            Value::Float(float) => Some(Value::Integer(float_order(*float) >> self.shift)),
            Value::Null => Some(Value::Null),
            _ => None,
        };
        let (predicate, coverage) = match predicate {
            Predicate::IsNull | Predicate::IsNotNull => (predicate.clone(), Coverage::Exact),
            Predicate::NotEq(Value::Null) => (predicate.clone(), Coverage::Exact),
            Predicate::NotEq(_) => (Predicate::IsNotNull, Coverage::Superset),
            Predicate::Eq(v) => (Predicate::Eq(coarse(v)?), Coverage::Superset),
            Predicate::Lt(v) | Predicate::Le(v) => (Predicate::Le(coarse(v)?), Coverage::Superset),
            Predicate::Gt(v) | Predicate::Ge(v) => (Predicate::Ge(coarse(v)?), Coverage::Superset),
            Predicate::In(values) => {
                let values = values.iter().map(coarse).collect::<Option<Vec<_>>>()?;
                (Predicate::In(values), Coverage::Superset)
            }
            _ => return None,
        };
        let (restriction, _) = self.encoding.restriction(&predicate).ok()?;
        Some((restriction, coverage))
    }

    /// How codes become the column's values again, if every code stands for one value only.
    pub fn exact(&self) -> Option<&ColumnEncoding> {
        (self.shift == 0 && !self.encoding.is_lossy()).then_some(&self.encoding)
    }

    /// The largest code.
    pub fn code_max(&self) -> u32 {
        let last = self.encoding.code_count().saturating_sub(1);
        u32::try_from(last).unwrap_or(u32::MAX)
    }

    /// Bytes that the encoding's dictionary takes in memory, about.
    pub fn dictionary_bytes(&self) -> u64 {
        self.encoding.dictionary_bytes()
    }

    /// As it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.shift.to_le_bytes().to_vec();
        bytes.extend(self.encoding.to_bytes());
        bytes
    }

    /// Reads what [`Self::to_bytes`] made; `file` is where it comes from.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self> {
        let (shift, encoding) = bytes.split_at_checked(4).unwrap_or((&[0; 4], &[]));
        let shift = u32::from_le_bytes([shift[0], shift[1], shift[2], shift[3]]);
        if shift > 127 {
            return Err(StoreError::Corruption(hotshelf_tier::Corruption {
                file: file.to_owned(),
                offset: 0,
                what: "bits of a coarse code".into(),
                expected: "at most 127".into(),
                found: shift.to_string(),
            }));
        }
        Ok(Self {
            encoding: ColumnEncoding::from_bytes(file, encoding)?,
            shift,
        })
    }
}

/// Learns the values of a column batch by batch.
#[derive(Debug, Default)]
pub struct KeyLearner {
    encoding: Option<ColumnEncoding>,
    /// Least and greatest number.
    extremes: Option<(i128, i128)>,
    is_bytes: bool,
    nullable: bool,
    /// Whether there are more values than a dictionary should hold.
    is_coarse: bool,
}

impl KeyLearner {
    /// Learns the values of a batch's column.
    pub fn add(&mut self, column: &ArrayRef) -> Result<()> {
        self.nullable |= column.null_count() > 0;
        self.is_bytes = is_bytes(column.data_type());
        if !self.is_bytes {
            let extremes = with_values(column, |values| Ok(extremes(values)))?;
            self.extremes = match (self.extremes, extremes) {
                (Some(mine), Some(theirs)) => Some((mine.0.min(theirs.0), mine.1.max(theirs.1))),
                (one, other) => one.or(other),
            };
        }
        if self.is_coarse {
            return Ok(());
        }
        let learned = if self.is_bytes {
            learn_strings(column)
        } else {
            with_values(column, |values| Ok(ColumnEncoding::learn(values)?))
        }?;
        let learned = match &self.encoding {
            None => Some(learned),
            Some(known) => known.union(&learned),
        };
        self.is_coarse = learned
            .as_ref()
            .is_none_or(|encoding| self.is_large(encoding));
        self.encoding = learned.filter(|_| !self.is_coarse);
        Ok(())
    }

    /// Whether an encoding is a dictionary with too many entries. One whose codes fill the span of the numbers is not a
    /// dictionary.
    fn is_large(&self, encoding: &ColumnEncoding) -> bool {
        let span = self
            .extremes
            .map(|(min, max)| (max.wrapping_sub(min) as u128).saturating_add(1));
        let values = encoding.code_count() - u64::from(self.nullable && encoding.code_count() > 0);
        values > DICTIONARY_MAX && span != Some(u128::from(values))
    }

    /// The encoding of all values learned.
    pub fn finish(self) -> Result<KeyColumn> {
        let whole = |encoding| KeyColumn { encoding, shift: 0 };
        match (self.encoding, self.extremes) {
            (Some(encoding), _) => Ok(whole(encoding.without_dictionary())),
            _ if self.is_bytes => {
                let bytes = [PREFIX_KIND, self.nullable.into(), PREFIX_MAPPING];
                Ok(whole(ColumnEncoding::from_bytes(Path::new(""), &bytes)?))
            }
            (None, extremes) => {
                let (min, max) = extremes.unwrap_or((0, 0));
                let mut shift = 0;
                let span = |shift: u32| (max >> shift).checked_sub(min >> shift);
                while span(shift).is_none_or(|span| span >= COARSE_SPAN) {
                    shift += 1;
                }
                // A span this wide is encoded by offset, whatever lies between.
                let numbers = [min >> shift, max >> shift, 0];
                let validity = [true, true, !self.nullable];
                let count = 2 + usize::from(self.nullable);
                let encoding = ColumnEncoding::learn(&Values {
                    values: ValuesRef::I128(&numbers[..count]),
                    validity: Some(&validity[..count]),
                })?;
                Ok(KeyColumn { encoding, shift })
            }
        }
    }
}

fn learn_strings(column: &ArrayRef) -> Result<ColumnEncoding> {
    with_values(column, |values| {
        let ValuesRef::Bytes(strings) = values.values else {
            return Ok(ColumnEncoding::learn(values)?);
        };
        let present = |row: &usize| values.validity.is_none_or(|validity| validity[*row]);
        let rows = (0..strings.len()).filter(present);
        let distinct: HashSet<&[u8]> = rows.map(|row| strings[row]).collect();
        let has_null = (0..strings.len()).any(|row| !present(&row));
        let mut distinct: Vec<&[u8]> = distinct.into_iter().collect();
        let mut validity = vec![true; distinct.len()];
        if has_null {
            distinct.push(&[]);
            validity.push(false);
        }
        Ok(ColumnEncoding::learn(&Values {
            values: ValuesRef::Bytes(&distinct),
            validity: Some(&validity),
        })?)
    })
}

fn is_bytes(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    )
}

/// The bits of a float as a number in IEEE total order.
fn float_order(value: f64) -> i128 {
    let bits = value.to_bits() as i64;
    (bits ^ (((bits >> 63) as u64) >> 1) as i64).into()
}

fn extremes(values: &Values<'_>) -> Option<(i128, i128)> {
    fn of<T: Copy>(
        slice: &[T],
        validity: Option<&[bool]>,
        key: impl Fn(T) -> i128,
    ) -> Option<(i128, i128)> {
        let present = |row: usize| validity.is_none_or(|validity| validity[row]);
        let keys = slice.iter().enumerate();
        let keys = keys.filter(|(row, _)| present(*row)).map(|(_, v)| key(*v));
        keys.fold(None, |found, key| match found {
            None => Some((key, key)),
            Some((min, max)) => Some((key.min(min), key.max(max))),
        })
    }
    let validity = values.validity;
    match values.values {
        ValuesRef::Bool(v) => of(v, validity, i128::from),
        ValuesRef::I8(v) => of(v, validity, i128::from),
        ValuesRef::I16(v) => of(v, validity, i128::from),
        ValuesRef::I32(v) => of(v, validity, i128::from),
        ValuesRef::I64(v) => of(v, validity, i128::from),
        ValuesRef::I128(v) => of(v, validity, |v| v),
        ValuesRef::U8(v) => of(v, validity, i128::from),
        ValuesRef::U16(v) => of(v, validity, i128::from),
        ValuesRef::U32(v) => of(v, validity, i128::from),
        ValuesRef::U64(v) => of(v, validity, i128::from),
        ValuesRef::F32(v) => of(v, validity, |v| float_order(v.into())),
        ValuesRef::F64(v) => of(v, validity, float_order),
        _ => None,
    }
}

/// The numbers of a column without their low bits, and which are present.
fn coarse_numbers(column: &ArrayRef, shift: u32) -> Result<(Vec<i128>, Option<Vec<bool>>)> {
    with_values(column, |values| {
        let numbers = match values.values {
            ValuesRef::Bool(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::I8(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::I16(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::I32(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::I64(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::I128(v) => v.iter().map(|v| *v >> shift).collect(),
            ValuesRef::U8(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::U16(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::U32(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::U64(v) => v.iter().map(|v| i128::from(*v) >> shift).collect(),
            ValuesRef::F32(v) => {
                let keys = v.iter().map(|v| float_order((*v).into()) >> shift);
                keys.collect()
            }
            ValuesRef::F64(v) => v.iter().map(|v| float_order(*v) >> shift).collect(),
            _ => Vec::new(),
        };
        Ok((numbers, values.validity.map(<[bool]>::to_vec)))
    })
}

/// Hands the values of an array to `run`.
fn with_values<R>(column: &ArrayRef, run: impl FnOnce(&Values<'_>) -> Result<R>) -> Result<R> {
    let validity: Option<Vec<bool>> = column
        .logical_nulls()
        .filter(|nulls| nulls.null_count() > 0)
        .map(|nulls| nulls.iter().collect());
    let validity = validity.as_deref();
    let as_plain = |data_type: &DataType| cast(column, data_type);
    let finish = |values: ValuesRef<'_>| run(&Values { values, validity });
    match column.data_type() {
        DataType::Boolean => {
            let values: Vec<bool> = column.as_boolean().values().iter().collect();
            finish(ValuesRef::Bool(&values))
        }
        DataType::Int8 => finish(ValuesRef::I8(column.as_primitive::<Int8Type>().values())),
        DataType::Int16 => finish(ValuesRef::I16(column.as_primitive::<Int16Type>().values())),
        DataType::Int32 => finish(ValuesRef::I32(column.as_primitive::<Int32Type>().values())),
        DataType::Int64 => finish(ValuesRef::I64(column.as_primitive::<Int64Type>().values())),
        DataType::UInt8 => finish(ValuesRef::U8(column.as_primitive::<UInt8Type>().values())),
        DataType::UInt16 => finish(ValuesRef::U16(column.as_primitive::<UInt16Type>().values())),
        DataType::UInt32 => finish(ValuesRef::U32(column.as_primitive::<UInt32Type>().values())),
        DataType::UInt64 => finish(ValuesRef::U64(column.as_primitive::<UInt64Type>().values())),
        DataType::Float32 => finish(ValuesRef::F32(
            column.as_primitive::<Float32Type>().values(),
        )),
        DataType::Float64 => finish(ValuesRef::F64(
            column.as_primitive::<Float64Type>().values(),
        )),
        DataType::Decimal128(_, _) => {
            let values = column.as_primitive::<Decimal128Type>().values();
            finish(ValuesRef::I128(values))
        }
        DataType::Date32 | DataType::Time32(_) => {
            let plain = as_plain(&DataType::Int32)?;
            finish(ValuesRef::I32(plain.as_primitive::<Int32Type>().values()))
        }
        DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(_, _) => {
            let plain = as_plain(&DataType::Int64)?;
            finish(ValuesRef::I64(plain.as_primitive::<Int64Type>().values()))
        }
        data_type if is_bytes(data_type) => {
            let plain = as_plain(&DataType::LargeBinary)?;
            let strings = plain.as_binary::<i64>();
            let strings: Vec<&[u8]> = (0..strings.len()).map(|row| strings.value(row)).collect();
            finish(ValuesRef::Bytes(&strings))
        }
        other => Err(StoreError::NotIndexable {
            column: String::new(),
            data_type: other.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, StringArray};
    use std::sync::Arc;

    fn learn(batches: &[ArrayRef]) -> KeyColumn {
        let mut learner = KeyLearner::default();
        for batch in batches {
            learner.add(batch).unwrap();
        }
        learner.finish().unwrap()
    }

    fn accepted(key: &KeyColumn, column: &ArrayRef, predicate: &Predicate) -> Vec<usize> {
        let codes = key.encode(column).unwrap();
        let (restriction, _) = key.restriction(predicate).unwrap();
        (0..codes.len())
            .filter(|row| restriction.contains(codes.get(*row)))
            .collect()
    }

    #[test]
    fn batches_with_different_domains_share_one_encoding() {
        let a: ArrayRef = Arc::new(Int64Array::from(vec![Some(5), None, Some(70_000)]));
        let b: ArrayRef = Arc::new(Int64Array::from(vec![Some(-3), Some(5)]));
        let key = learn(&[a.clone(), b.clone()]);
        let at_most = Predicate::Le(Value::Integer(5));
        assert_eq!(accepted(&key, &a, &at_most), [0]);
        assert_eq!(accepted(&key, &b, &at_most), [0, 1]);
        assert_eq!(accepted(&key, &a, &Predicate::IsNull), [1]);
        let read = KeyColumn::from_bytes(Path::new("f"), &key.to_bytes()).unwrap();
        assert_eq!(read, key);
    }

    #[test]
    fn numbers_too_many_for_a_dictionary_are_found_by_a_superset() {
        let rows = DICTIONARY_MAX as i64 + 10;
        let spread = |row: i64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64);
        let ints: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(spread)));
        let floats: ArrayRef = Arc::new(Float64Array::from_iter_values(
            (0..rows).map(|row| spread(row) as f64 * 1e-3),
        ));
        for (column, bound, less) in [
            (
                &ints,
                Value::Integer(spread(77).into()),
                Box::new(|row: i64| spread(row) < spread(77)) as Box<dyn Fn(i64) -> bool>,
            ),
            (
                &floats,
                Value::Float(spread(77) as f64 * 1e-3),
                Box::new(|row: i64| (spread(row) as f64 * 1e-3) < spread(77) as f64 * 1e-3),
            ),
        ] {
            let key = learn(std::slice::from_ref(column));
            assert!(key.shift > 0);
            let predicate = Predicate::Lt(bound);
            let found = accepted(&key, column, &predicate);
            assert_eq!(key.restriction(&predicate).unwrap().1, Coverage::Superset);
            let expected = (0..rows).filter(|row| less(*row));
            let mut found = found.into_iter().peekable();
            for row in expected {
                while found.next_if(|have| (*have as i64) < row).is_some() {}
                assert_eq!(found.next(), Some(row as usize));
            }
        }
    }

    #[test]
    fn strings_keep_their_order_across_batches() {
        let a: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a")]));
        let b: ArrayRef = Arc::new(StringArray::from(vec!["c", "aa"]));
        let key = learn(&[a.clone(), b.clone()]);
        let above = Predicate::Gt(Value::Bytes(b"a".to_vec()));
        assert_eq!(accepted(&key, &a, &above), [0]);
        assert_eq!(accepted(&key, &b, &above), [0, 1]);
    }
}
