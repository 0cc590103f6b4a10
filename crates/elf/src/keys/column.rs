//! Typed input columns, as the engine hands them over.

/// The values of one column, borrowed. Dates, timestamps and decimals are their integers.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum ValuesRef<'a> {
    /// Booleans, `false` before `true`.
    Bool(&'a [bool]),
    /// 8-bit signed integers.
    I8(&'a [i8]),
    /// 16-bit signed integers.
    I16(&'a [i16]),
    /// 32-bit signed integers: also dates in days.
    I32(&'a [i32]),
    /// 64-bit signed integers: also timestamps.
    I64(&'a [i64]),
    /// 128-bit signed integers: also decimals of one scale.
    I128(&'a [i128]),
    /// 8-bit unsigned integers.
    U8(&'a [u8]),
    /// 16-bit unsigned integers.
    U16(&'a [u16]),
    /// 32-bit unsigned integers.
    U32(&'a [u32]),
    /// 64-bit unsigned integers.
    U64(&'a [u64]),
    /// Single-precision floats in IEEE total order.
    F32(&'a [f32]),
    /// Double-precision floats in IEEE total order (-0.0 before 0.0, NaN after infinity).
    F64(&'a [f64]),
    /// Strings or binary values in byte order.
    Bytes(&'a [&'a [u8]]),
}

/// A column: values and, when some are missing, which are present.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// The values; the value in a missing place is ignored.
    pub values: ValuesRef<'a>,
    /// One flag per row, `true` where a value is present; `None` when all are.
    pub validity: Option<&'a [bool]>,
}

/// What kind of values a column or a literal holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Float,
    Bytes,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Float => "float",
            Self::Bytes => "string",
        }
    }
}

/// The bits of a float as an integer that sorts in IEEE total order.
pub(crate) fn float_key(value: f64) -> i128 {
    let bits = value.to_bits();
    let flipped = if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    };
    flipped.into()
}

/// The float whose [`float_key`] is `key`.
pub(crate) fn float_of_key(key: i128) -> f64 {
    let flipped = key as u64;
    let bits = if flipped >> 63 == 1 {
        flipped & !(1 << 63)
    } else {
        !flipped
    };
    f64::from_bits(bits)
}

impl Values<'_> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self.values {
            ValuesRef::Bool(v) => v.len(),
            ValuesRef::I8(v) => v.len(),
            ValuesRef::I16(v) => v.len(),
            ValuesRef::I32(v) => v.len(),
            ValuesRef::I64(v) => v.len(),
            ValuesRef::I128(v) => v.len(),
            ValuesRef::U8(v) => v.len(),
            ValuesRef::U16(v) => v.len(),
            ValuesRef::U32(v) => v.len(),
            ValuesRef::U64(v) => v.len(),
            ValuesRef::F32(v) => v.len(),
            ValuesRef::F64(v) => v.len(),
            ValuesRef::Bytes(v) => v.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.values {
            ValuesRef::F32(_) | ValuesRef::F64(_) => Kind::Float,
            ValuesRef::Bytes(_) => Kind::Bytes,
            _ => Kind::Integer,
        }
    }

    pub(crate) fn is_present(&self, row: usize) -> bool {
        self.validity.is_none_or(|validity| validity[row])
    }

    /// Calls `visit(row, key)` for every row of a numeric column, with `None` for NULL. String columns
    /// have no numbers and visit nothing.
    pub(crate) fn for_each_number(&self, mut visit: impl FnMut(usize, Option<i128>)) {
        let validity = self.validity;
        let mut each = |row: usize, key: i128| {
            let present = validity.is_none_or(|validity| validity[row]);
            visit(row, present.then_some(key));
        };
        match self.values {
            ValuesRef::Bool(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::I8(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::I16(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::I32(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::I64(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::I128(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x)),
            ValuesRef::U8(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::U16(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::U32(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::U64(v) => v.iter().enumerate().for_each(|(i, &x)| each(i, x.into())),
            ValuesRef::F32(v) => {
                v.iter()
                    .enumerate()
                    .for_each(|(i, &x)| each(i, float_key(x.into())));
            }
            ValuesRef::F64(v) => v
                .iter()
                .enumerate()
                .for_each(|(i, &x)| each(i, float_key(x))),
            ValuesRef::Bytes(_) => {}
        }
    }
}
