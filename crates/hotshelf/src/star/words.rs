//! Integers of a batch of rows as words of 64 bits, with bounds of what they may be. Decimals, dates and times are
//! integers, too, and most need far fewer bits than their type has. Where the bounds exclude that a step leaves its
//! type, it is one instruction for each value and needs no test.

use std::rc::Rc;

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};

/// The values of a batch's rows. What lies behind a NULL is within the bounds, too.
#[derive(Debug, Clone)]
pub(super) struct Words {
    pub values: Values,
    pub nulls: Option<NullBuffer>,
    pub bounds: Bounds,
}

#[derive(Debug, Clone)]
pub(super) enum Values {
    Each(Rc<Vec<i64>>),
    All(i64),
}

/// What values lie between, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub min: i64,
    pub max: i64,
}

/// Words that have no more than 32 bits.
const HALF: Bounds = Bounds {
    min: 0,
    max: u32::MAX as i64,
};

impl Bounds {
    pub const ALL: Self = Self {
        min: i64::MIN,
        max: i64::MAX,
    };

    const BIT: Self = Self { min: 0, max: 1 };

    /// `None` if they are beyond 64 bits.
    pub fn new(min: i128, max: i128) -> Option<Self> {
        Some(Self {
            min: i64::try_from(min).ok()?,
            max: i64::try_from(max).ok()?,
        })
    }

    /// The integers of a type, as far as words can hold them.
    pub fn of_type(data_type: &DataType) -> Self {
        let (min, max) = match data_type {
            DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
            DataType::UInt8 => (0, u8::MAX.into()),
            DataType::UInt16 => (0, u16::MAX.into()),
            DataType::UInt32 => (0, u32::MAX.into()),
            DataType::UInt64 => (0, i64::MAX),
            _ => (i64::MIN, i64::MAX),
        };
        Self { min, max }
    }

    /// The bounds of the bits that values use.
    fn of_bits(values: &[i64]) -> Self {
        let bits = values
            .iter()
            .fold(0, |bits, word| bits | word ^ (word >> 63));
        let max = ((bits as u64 + 1).next_power_of_two() - 1) as i64;
        Self { min: -max - 1, max }
    }

    pub fn contain(&self, other: Self) -> bool {
        self.min <= other.min && other.max <= self.max
    }

    /// The greatest distance from zero.
    pub fn magnitude(&self) -> u64 {
        self.min.unsigned_abs().max(self.max.unsigned_abs())
    }
}

/// A step of arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Plus,
    Minus,
    Times,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
}

/// Whether values of a type are integers that words can hold.
pub(super) fn are_words(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(..) => true,
        DataType::Interval(_) => false,
        other => other.is_integer() || other.is_temporal(),
    }
}

impl Words {
    pub fn all(value: i64) -> Self {
        Self {
            values: Values::All(value),
            nulls: None,
            bounds: Bounds {
                min: value,
                max: value,
            },
        }
    }

    pub fn each(values: Vec<i64>, nulls: Option<NullBuffer>, bounds: Option<Bounds>) -> Self {
        Self {
            bounds: bounds.unwrap_or_else(|| Bounds::of_bits(&values)),
            values: Values::Each(Rc::new(values)),
            nulls: nulls.filter(|nulls| nulls.null_count() > 0),
        }
    }

    /// One for the rows of a set, zero for the others.
    pub fn of_set(set: &BooleanBuffer) -> Self {
        Self::each(set.iter().map(i64::from).collect(), None, Some(Bounds::BIT))
    }

    /// `None` if a value is not an integer or needs more than 64 bits.
    pub fn of_array(array: &dyn Array) -> Option<Self> {
        let data = array.to_data();
        if !are_words(data.data_type()) {
            return None;
        }
        let nulls = data.nulls().cloned();
        macro_rules! words {
            ($word:ty) => {{
                let values = values_of::<$word>(&data)?.iter();
                Some(Self::each(
                    values.map(|value| i64::from(*value)).collect(),
                    nulls,
                    None,
                ))
            }};
        }
        match data.data_type() {
            DataType::Decimal128(..) => Self::narrowed(values_of(&data)?, nulls),
            DataType::Int8 => words!(i8),
            DataType::Int16 => words!(i16),
            DataType::UInt8 => words!(u8),
            DataType::UInt16 => words!(u16),
            DataType::UInt32 => words!(u32),
            DataType::UInt64 => {
                let words = Self::each(values_of(&data)?.to_vec(), nulls, None);
                let values = words.values.each().iter();
                (values.fold(0, |bits, word| bits | word) >= 0).then_some(words)
            }
            other if other.primitive_width() == Some(4) => words!(i32),
            _ => Some(Self::each(values_of(&data)?.to_vec(), nulls, None)),
        }
    }

    fn narrowed(values: &[i128], nulls: Option<NullBuffer>) -> Option<Self> {
        let mut beyond = 0;
        let mut words = vec![0; values.len()];
        for (word, value) in words.iter_mut().zip(values) {
            *word = *value as i64;
            beyond |= (*value >> 64) as i64 ^ (*word >> 63);
        }
        (beyond == 0).then(|| Self::each(words, nulls, None))
    }

    /// The values as an array of a type that holds them.
    pub fn to_array(&self, data_type: &DataType, row_count: usize) -> Option<ArrayRef> {
        fn bytes<T: ArrowNativeType>(
            words: &Words,
            row_count: usize,
            value: impl Fn(i64) -> T,
        ) -> Buffer {
            Buffer::from_vec(match &words.values {
                Values::Each(each) => each.iter().map(|word| value(*word)).collect::<Vec<T>>(),
                Values::All(word) => vec![value(*word); row_count],
            })
        }
        if !are_words(data_type) {
            return None;
        }
        let bytes = match data_type.primitive_width()? {
            1 => bytes(self, row_count, |word| word as u8),
            2 => bytes(self, row_count, |word| word as u16),
            4 => bytes(self, row_count, |word| word as u32),
            8 => bytes(self, row_count, |word| word),
            16 => bytes(self, row_count, i128::from),
            _ => return None,
        };
        array_of(data_type, row_count, bytes, self.nulls.clone())
    }

    /// Sums, differences and products. `None` if one may leave the limits.
    pub fn step(self, step: Step, right: Self, limits: Bounds) -> Option<Self> {
        let [a, b] = [self.bounds.min, self.bounds.max].map(i128::from);
        let [c, d] = [right.bounds.min, right.bounds.max].map(i128::from);
        let (min, max) = match step {
            Step::Plus => (a + c, b + d),
            Step::Minus => (a - d, b - c),
            Step::Times => {
                let products = [a * c, a * d, b * c, b * d];
                (products.into_iter().min()?, products.into_iter().max()?)
            }
        };
        let bounds = Bounds::new(min, max).filter(|bounds| limits.contain(*bounds))?;
        // Bounds exclude overflow: wrapping operations are the ones that need no test per value.
        let values = match step {
            Step::Plus => zip(self.values, right.values, i64::wrapping_add),
            Step::Minus => zip(self.values, right.values, i64::wrapping_sub),
            // One instruction multiplies several pairs of 32 bits.
            Step::Times if HALF.contain(self.bounds) && HALF.contain(right.bounds) => {
                zip(self.values, right.values, |a, b| {
                    (u64::from(a as u32) * u64::from(b as u32)) as i64
                })
            }
            Step::Times => zip(self.values, right.values, i64::wrapping_mul),
        };
        Some(Self {
            values,
            nulls: NullBuffer::union(self.nulls.as_ref(), right.nulls.as_ref()),
            bounds,
        })
    }

    /// What remains of a division by a positive number, with the sign of the value.
    pub fn remainder(self, divisor: i64) -> Self {
        let most = Bounds {
            min: 1 - divisor,
            max: divisor - 1,
        };
        if most.contain(self.bounds) {
            return self;
        }
        let values = match u32::try_from(divisor) {
            // The fraction of the quotient, in 64 bits, times the divisor: exact for values and divisors of 32 bits.
            Ok(divisor) if HALF.contain(self.bounds) => {
                let inverse = (u64::MAX / u64::from(divisor)).wrapping_add(1);
                zip(self.values, Values::All(0), |value, _| {
                    let fraction = inverse.wrapping_mul(value as u64);
                    ((u128::from(fraction) * u128::from(divisor)) >> 64) as i64
                })
            }
            _ => zip(self.values, Values::All(0), |value, _| value % divisor),
        };
        Self {
            values,
            nulls: self.nulls,
            bounds: Bounds {
                min: most.min.max(self.bounds.min.min(0)),
                max: most.max.min(self.bounds.max.max(0)),
            },
        }
    }

    /// One where the comparison holds, zero where it does not.
    pub fn compare(self, order: Order, right: Self) -> Self {
        let (left, other) = (self.values, right.values);
        let values = match order {
            Order::Equal => zip(left, other, |a, b| i64::from(a == b)),
            Order::NotEqual => zip(left, other, |a, b| i64::from(a != b)),
            Order::Less => zip(left, other, |a, b| i64::from(a < b)),
            Order::LessOrEqual => zip(left, other, |a, b| i64::from(a <= b)),
        };
        Self {
            values,
            nulls: NullBuffer::union(self.nulls.as_ref(), right.nulls.as_ref()),
            bounds: Bounds::BIT,
        }
    }

    /// One where both are.
    pub fn both(self, right: Self) -> Self {
        Self {
            values: zip(self.values, right.values, |a, b| a & b),
            ..self
        }
    }

    /// One where one of them is.
    pub fn either(self, right: Self) -> Self {
        Self {
            values: zip(self.values, right.values, |a, b| a | b),
            ..self
        }
    }

    /// Where this is one, the first, elsewhere (and where this is NULL) the second. `None` if either has NULLs.
    pub fn choose(self, first: Self, second: Self) -> Option<Self> {
        if first.nulls.is_some() || second.nulls.is_some() {
            return None;
        }
        let bounds = Bounds {
            min: first.bounds.min.min(second.bounds.min),
            max: first.bounds.max.max(second.bounds.max),
        };
        // All bits of a word where the row is chosen.
        let chosen = match self.nulls {
            None => zip(self.values, Values::All(0), |word, _| -word),
            Some(nulls) => {
                let valid = Self::of_set(nulls.inner()).values;
                zip(self.values, valid, |word, valid| -(word & valid))
            }
        };
        let kept = zip(first.values, chosen.clone(), |value, mask| value & mask);
        let other = zip(second.values, chosen, |value, mask| value & !mask);
        Some(Self {
            values: zip(kept, other, |a, b| a | b),
            nulls: None,
            bounds,
        })
    }

    /// The rows where this is one and not NULL.
    pub fn to_set(&self, row_count: usize) -> BooleanBuffer {
        let set = match &self.values {
            Values::Each(each) => BooleanBuffer::collect_bool(each.len(), |row| each[row] != 0),
            Values::All(word) => BooleanBuffer::collect_bool(row_count, |_| *word != 0),
        };
        match &self.nulls {
            Some(nulls) => &set & nulls.inner(),
            None => set,
        }
    }

    /// The words of the rows in a set.
    pub fn filtered(&self, kept: &BooleanBuffer) -> Self {
        let values = match &self.values {
            Values::All(word) => Values::All(*word),
            Values::Each(each) => {
                Values::Each(Rc::new(kept.set_indices().map(|row| each[row]).collect()))
            }
        };
        let nulls = self.nulls.as_ref().map(|nulls| {
            let bits = kept.set_indices().map(|row| nulls.is_valid(row));
            NullBuffer::new(bits.collect())
        });
        Self {
            values,
            nulls: nulls.filter(|nulls| nulls.null_count() > 0),
            bounds: self.bounds,
        }
    }
}

impl Values {
    /// A word for each row; none if all rows have the same.
    pub fn each(&self) -> &[i64] {
        match self {
            Self::Each(each) => each,
            Self::All(_) => &[],
        }
    }
}

/// The values of an array of words of this width.
pub(super) fn values_of<T: ArrowNativeType>(data: &ArrayData) -> Option<&[T]> {
    let values = data.buffers().first()?.typed_data::<T>();
    values.get(data.offset()..data.offset() + data.len())
}

/// An array of fixed-width values.
pub(super) fn array_of(
    data_type: &DataType,
    row_count: usize,
    bytes: Buffer,
    nulls: Option<NullBuffer>,
) -> Option<ArrayRef> {
    let data = ArrayData::builder(data_type.clone())
        .len(row_count)
        .add_buffer(bytes)
        .nulls(nulls);
    data.build().ok().map(make_array)
}

fn zip(left: Values, right: Values, value: impl Fn(i64, i64) -> i64) -> Values {
    match (left, right) {
        (Values::All(left), Values::All(right)) => Values::All(value(left, right)),
        (Values::Each(left), Values::All(right)) => map(left, |left| value(left, right)),
        (Values::All(left), Values::Each(right)) => map(right, |right| value(left, right)),
        (Values::Each(left), Values::Each(right)) => match Rc::try_unwrap(left) {
            Ok(mut left) => {
                for (left, right) in left.iter_mut().zip(right.iter()) {
                    *left = value(*left, *right);
                }
                Values::Each(Rc::new(left))
            }
            Err(left) => {
                let both = left.iter().zip(right.iter());
                let values = both.map(|(left, right)| value(*left, *right));
                Values::Each(Rc::new(values.collect()))
            }
        },
    }
}

/// Changes values in place where nothing else has them.
fn map(values: Rc<Vec<i64>>, value: impl Fn(i64) -> i64) -> Values {
    let values = match Rc::try_unwrap(values) {
        Ok(mut values) => {
            values.iter_mut().for_each(|word| *word = value(*word));
            values
        }
        Err(values) => values.iter().map(|word| value(*word)).collect(),
    };
    Values::Each(Rc::new(values))
}
