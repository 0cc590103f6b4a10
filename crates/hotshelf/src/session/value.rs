//! Values of parameters.

use datafusion::common::ScalarValue;

/// A value for a parameter of [`Session::execute_with`](crate::Session::execute_with). It takes the type that the
/// statement wants, where it fits; dates, times and decimals are written as text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// NULL.
    Null,
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
}

impl Value {
    pub(super) fn to_scalar(&self) -> ScalarValue {
        match self {
            Self::Null => ScalarValue::Null,
            Self::Boolean(value) => ScalarValue::from(*value),
            Self::Integer(value) => ScalarValue::from(*value),
            Self::Float(value) => ScalarValue::from(*value),
            Self::Text(value) => ScalarValue::from(value.as_str()),
            Self::Binary(value) => ScalarValue::Binary(Some(value.clone())),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Binary(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
