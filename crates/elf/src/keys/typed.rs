//! Typed columns and what predicates mean on their values: the oracle of tests here and in `tests/`.

use std::cmp::Ordering;

use super::{Predicate, Value, Values, ValuesRef};

/// A column of one of the thirteen types.
#[derive(Debug, Clone)]
pub(crate) enum Column {
    Bool(Vec<bool>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I128(Vec<i128>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bytes(Vec<Vec<u8>>),
}

impl Column {
    /// A value as a literal.
    pub(crate) fn value(&self, row: usize) -> Value {
        match self {
            Self::Bool(v) => Value::Integer(v[row].into()),
            Self::I8(v) => Value::Integer(v[row].into()),
            Self::I16(v) => Value::Integer(v[row].into()),
            Self::I32(v) => Value::Integer(v[row].into()),
            Self::I64(v) => Value::Integer(v[row].into()),
            Self::I128(v) => Value::Integer(v[row]),
            Self::U8(v) => Value::Integer(v[row].into()),
            Self::U16(v) => Value::Integer(v[row].into()),
            Self::U32(v) => Value::Integer(v[row].into()),
            Self::U64(v) => Value::Integer(v[row].into()),
            Self::F32(v) => Value::Float(v[row].into()),
            Self::F64(v) => Value::Float(v[row]),
            Self::Bytes(v) => Value::Bytes(v[row].clone()),
        }
    }

    /// Hands the values out as the crate takes them.
    pub(crate) fn with<R>(
        &self,
        validity: Option<&[bool]>,
        use_it: impl FnOnce(&Values<'_>) -> R,
    ) -> R {
        let slices: Vec<&[u8]>;
        let values = match self {
            Self::Bool(v) => ValuesRef::Bool(v),
            Self::I8(v) => ValuesRef::I8(v),
            Self::I16(v) => ValuesRef::I16(v),
            Self::I32(v) => ValuesRef::I32(v),
            Self::I64(v) => ValuesRef::I64(v),
            Self::I128(v) => ValuesRef::I128(v),
            Self::U8(v) => ValuesRef::U8(v),
            Self::U16(v) => ValuesRef::U16(v),
            Self::U32(v) => ValuesRef::U32(v),
            Self::U64(v) => ValuesRef::U64(v),
            Self::F32(v) => ValuesRef::F32(v),
            Self::F64(v) => ValuesRef::F64(v),
            Self::Bytes(v) => {
                slices = v.iter().map(Vec::as_slice).collect();
                ValuesRef::Bytes(&slices)
            }
        };
        use_it(&Values { values, validity })
    }
}

/// The order of two values of one type; `None` with NULL.
pub(crate) fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(b)),
        (Value::Float(a), Value::Float(b)) => Some(a.total_cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
        _ => None,
    }
}

/// Whether a value meets a predicate, by looking at it.
pub(crate) fn holds(predicate: &Predicate, value: &Value) -> bool {
    let is =
        |bound: &Value, wanted: fn(Ordering) -> bool| compare(value, bound).is_some_and(wanted);
    match predicate {
        Predicate::Eq(bound) => is(bound, Ordering::is_eq),
        Predicate::NotEq(bound) => is(bound, Ordering::is_ne),
        Predicate::Lt(bound) => is(bound, Ordering::is_lt),
        Predicate::Le(bound) => is(bound, Ordering::is_le),
        Predicate::Gt(bound) => is(bound, Ordering::is_gt),
        Predicate::Ge(bound) => is(bound, Ordering::is_ge),
        Predicate::Between(lo, hi) => is(lo, Ordering::is_ge) && is(hi, Ordering::is_le),
        Predicate::In(values) => values.iter().any(|bound| is(bound, Ordering::is_eq)),
        Predicate::IsNull => *value == Value::Null,
        Predicate::IsNotNull => *value != Value::Null,
        // Outside the crate there may be others.
        #[allow(unreachable_patterns)]
        other => panic!("{other:?} is not tested"),
    }
}
