//! Predicates on one column, in terms of values.

use super::column::Kind;

/// A literal.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// SQL NULL: compares with nothing.
    Null,
    /// Integers, booleans (0 and 1), dates, timestamps, and decimals in the column's scale.
    Integer(i128),
    /// Floats of both widths.
    Float(f64),
    /// Strings and binary values.
    Bytes(Vec<u8>),
}

impl Value {
    pub(crate) fn kind(&self) -> Option<Kind> {
        match self {
            Self::Null => None,
            Self::Integer(_) => Some(Kind::Integer),
            Self::Float(_) => Some(Kind::Float),
            Self::Bytes(_) => Some(Kind::Bytes),
        }
    }
}

/// A condition on one column. As in SQL, no comparison is true for NULL on either side.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Predicate {
    /// Equal to the value.
    Eq(Value),
    /// Present and different from the value.
    NotEq(Value),
    /// Less than the value.
    Lt(Value),
    /// At most the value.
    Le(Value),
    /// Greater than the value.
    Gt(Value),
    /// At least the value.
    Ge(Value),
    /// From the first to the second value, both included.
    Between(Value, Value),
    /// Equal to one of the values.
    In(Vec<Value>),
    /// Missing.
    IsNull,
    /// Present.
    IsNotNull,
}

/// Whether a restriction on codes says all that the predicate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// Exactly the rows of the predicate are accepted.
    Exact,
    /// Some more rows may be accepted: the predicate must be checked again on the values.
    Superset,
}
