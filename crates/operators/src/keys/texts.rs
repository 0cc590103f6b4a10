//! Texts as two words: all of a text of up to twelve bytes, and of others the length, the first bytes and a hash.
//!
//! ```text
//! bytes   0        4              8             16
//!         length   first bytes    further bytes      at most twelve bytes
//!         length   first bytes    hash               more
//!         2³² - 1  0              0                  NULL
//! ```

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, GenericByteArray,
    LargeBinaryArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType};

use super::hash::{hash_bytes, word_of};

/// The bytes of a text that are in its words if there are no more.
pub const INSIDE_BYTES_MAX: u32 = 12;
/// The words of NULL.
const NULL: [u64; 2] = [u32::MAX as u64, 0];

/// A column of texts, whatever its layout.
#[derive(Debug, Clone)]
pub enum TextColumn {
    Views(BinaryViewArray),
    Small(BinaryArray),
    Large(LargeBinaryArray),
    Fixed(FixedSizeBinaryArray),
}

/// Whether a text with this first word is longer than its words.
#[inline(always)]
pub fn is_long(first: u64) -> bool {
    (INSIDE_BYTES_MAX + 1..u32::MAX).contains(&(first as u32))
}

/// Whether this is the first word of NULL.
#[inline(always)]
pub fn is_null(first: u64) -> bool {
    first == NULL[0]
}

impl TextColumn {
    /// # Errors
    /// If the column has another type than [`is_string`](super::bytes::is_string) says.
    pub fn of(column: &ArrayRef) -> Result<Self, ArrowError> {
        Ok(match column.data_type() {
            DataType::Utf8View => Self::Views(column.as_string_view().clone().to_binary_view()),
            DataType::BinaryView => Self::Views(column.as_binary_view().clone()),
            DataType::Utf8 => Self::Small(column.as_string::<i32>().clone().into()),
            DataType::Binary => Self::Small(column.as_binary::<i32>().clone()),
            DataType::LargeUtf8 => Self::Large(column.as_string::<i64>().clone().into()),
            DataType::LargeBinary => Self::Large(column.as_binary::<i64>().clone()),
            DataType::FixedSizeBinary(_) => Self::Fixed(column.as_fixed_size_binary().clone()),
            other => return Err(ArrowError::NotYetImplemented(format!("{other} as texts"))),
        })
    }

    /// The text of a row, which is not NULL.
    #[inline(always)]
    pub fn bytes(&self, row: usize) -> &[u8] {
        match self {
            Self::Views(texts) => texts.value(row),
            Self::Small(texts) => texts.value(row),
            Self::Large(texts) => texts.value(row),
            Self::Fixed(texts) => texts.value(row),
        }
    }

    /// Whether two rows are known to have the same text without a look at it.
    #[inline(always)]
    fn is_shared(&self, row: usize, other: usize) -> bool {
        matches!(self, Self::Views(texts) if texts.views()[row] == texts.views()[other])
    }

    /// Whether two rows whose words are equal have the same text.
    #[inline]
    pub fn is_same(&self, row: usize, other: usize) -> bool {
        self.is_shared(row, other) || are_equal(self.bytes(row), self.bytes(other))
    }

    /// Writes the words of all texts to `word` and the one behind it in rows of `stride` words.
    ///
    /// # Errors
    /// A text of 2³² - 1 bytes or more.
    pub fn pack(&self, rows: &mut [u64], stride: usize, word: usize) -> Result<(), ArrowError> {
        let rows = rows.chunks_exact_mut(stride);
        let pairs = rows.map(|row| &mut row[word..word + 2]);
        match self {
            Self::Views(texts) => {
                pack_views(texts, pairs);
                Ok(())
            }
            Self::Small(texts) => pack_texts(texts, pairs),
            Self::Large(texts) => pack_texts(texts, pairs),
            Self::Fixed(texts) => pack_all(|row| texts.value(row), texts.nulls(), pairs),
        }
    }
}

/// Words of views, which are words of short texts already. Rows that share a long text often follow each other.
fn pack_views<'a>(texts: &BinaryViewArray, pairs: impl Iterator<Item = &'a mut [u64]>) {
    let nulls = texts.nulls().filter(|nulls| nulls.null_count() > 0);
    let mut latest = (0, 0);
    for (row, (pair, &view)) in pairs.zip(texts.views().iter()).enumerate() {
        let words = if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            NULL
        } else if view as u32 <= INSIDE_BYTES_MAX {
            [view as u64, (view >> 64) as u64]
        } else {
            if latest.0 != view {
                latest = (view, hash_bytes(texts.value(row)));
            }
            [view as u64, latest.1]
        };
        pair.copy_from_slice(&words);
    }
}

fn pack_texts<'a, T: ByteArrayType>(
    texts: &GenericByteArray<T>,
    pairs: impl Iterator<Item = &'a mut [u64]>,
) -> Result<(), ArrowError>
where
    T::Native: AsRef<[u8]>,
{
    pack_all(|row| texts.value(row).as_ref(), texts.nulls(), pairs)
}

#[inline(always)]
fn pack_all<'a, 'b>(
    text: impl Fn(usize) -> &'b [u8],
    nulls: Option<&NullBuffer>,
    pairs: impl Iterator<Item = &'a mut [u64]>,
) -> Result<(), ArrowError> {
    let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
    for (row, pair) in pairs.enumerate() {
        let words = match nulls.is_some_and(|nulls| nulls.is_null(row)) {
            true => NULL,
            false => words_of(text(row))?,
        };
        pair.copy_from_slice(&words);
    }
    Ok(())
}

#[inline(always)]
fn words_of(text: &[u8]) -> Result<[u64; 2], ArrowError> {
    let too_long = || ArrowError::OffsetOverflowError(text.len());
    let len = u32::try_from(text.len()).map_err(|_| too_long())?;
    if len == u32::MAX {
        return Err(too_long());
    }
    let (lower, upper) = text.split_at(text.len().min(8));
    let start = word_of(lower);
    let first = u64::from(len) | start << 32;
    Ok(match len <= INSIDE_BYTES_MAX {
        true => [first, start >> 32 | word_of(upper) << 32],
        false => [first, hash_bytes(text)],
    })
}

/// Whether texts of more than twelve bytes are equal: in line, as most are not much longer.
#[inline]
pub fn are_equal(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let (Some(left_end), Some(right_end)) = (left.last_chunk::<16>(), right.last_chunk::<16>())
    else {
        return left == right;
    };
    let [left, right] = [left, right].map(|text| text.as_chunks::<16>().0);
    let mut chunks = left.iter().zip(right);
    chunks.all(|(left, right)| is_equal(left, right)) && is_equal(left_end, right_end)
}

#[inline(always)]
fn is_equal(left: &[u8; 16], right: &[u8; 16]) -> bool {
    u128::from_ne_bytes(*left) == u128::from_ne_bytes(*right)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, LargeStringArray, StringArray, StringViewArray};

    use super::*;

    /// Texts of all lengths up to 40 that share all but one byte, and NULL.
    fn texts() -> Vec<Option<String>> {
        let text = |len: usize, place: usize| {
            let byte = |idx: usize| if idx == place { 'x' } else { 'a' };
            Some((0..len).map(byte).collect())
        };
        let places = (0..40).flat_map(|len| (0..=len).map(move |place| text(len, place)));
        places.chain([None]).collect()
    }

    fn words(column: ArrayRef) -> (TextColumn, Vec<[u64; 2]>) {
        let texts = TextColumn::of(&column).unwrap();
        let mut words = vec![0; 2 * column.len()];
        texts.pack(&mut words, 2, 0).unwrap();
        (texts, words.as_chunks().0.to_vec())
    }

    #[test]
    fn words_and_bytes_are_equal_exactly_if_texts_are() {
        let texts = texts();
        let (column, words) = words(Arc::new(StringViewArray::from_iter(&texts)));
        for (row, text) in texts.iter().enumerate() {
            let first = words[row][0];
            assert_eq!(is_null(first), text.is_none());
            assert_eq!(
                is_long(first),
                text.as_ref().is_some_and(|text| text.len() > 12)
            );
            for (other, other_text) in texts.iter().enumerate() {
                let is_end_equal = || column.is_same(row, other);
                let is_equal = words[row] == words[other] && (!is_long(first) || is_end_equal());
                assert_eq!(is_equal, text == other_text);
                if is_long(first) && is_long(words[other][0]) {
                    assert_eq!(is_end_equal(), text == other_text);
                }
            }
        }
    }

    #[test]
    fn words_are_the_same_in_every_layout() {
        let texts = texts();
        let expected = words(Arc::new(StringViewArray::from_iter(&texts))).1;
        let columns: [ArrayRef; 2] = [
            Arc::new(StringArray::from_iter(&texts)),
            Arc::new(LargeStringArray::from_iter(&texts)),
        ];
        for column in columns {
            assert_eq!(words(Arc::clone(&column)).1, expected);
            assert_eq!(words(column.slice(100, 300)).1, expected[100..400]);
        }
    }
}
