//! Rows of words: the key, then the columns. Strings and nested values are in a heap beside the rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::ArrayRef;
use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType;

use crate::Result;
use crate::keys::bytes::{array_of, as_type, is_string, values};
use crate::keys::fixed::{FixedField, Packing, fixed_bits};
use crate::keys::{KeyEncoder, KeyShape, Keys, Nulls, hash_word, hash_words};

/// The word of a value that is NULL and so not in the heap.
const NO_VALUE: u64 = u64::MAX;
/// A word of a value in the heap: the number of the heap above, the offset in it below.
const OFFSET_BITS: u32 = 40;

/// Rows, one after the other, and their heap.
#[derive(Debug, Default)]
pub struct Block {
    pub words: Vec<u64>,
    pub heap: Vec<u8>,
}

impl Block {
    /// An empty block of about `bytes` that has room for the given words and bytes of a heap, and for more in the same
    /// proportion.
    pub fn with_capacity(bytes: usize, words: usize, heap: usize) -> Self {
        let needed = words * 8 + heap;
        let part =
            |amount: usize| amount.max((bytes as u128 * amount as u128 / needed as u128) as usize);
        Self {
            words: Vec::with_capacity(part(words * 8).div_ceil(8)),
            heap: Vec::with_capacity(part(heap)),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        (self.words.capacity() * 8 + self.heap.capacity()) as u64
    }
}

/// Where keys and columns lie in the rows of one side.
#[derive(Debug)]
pub struct RowLayout {
    stride: usize,
    shape: KeyShape,
    columns: Vec<ColumnPlace>,
    /// Words that refer to the heap.
    references: Vec<usize>,
    /// Bytes of the longest value in the heap so far.
    longest: AtomicUsize,
}

#[derive(Debug)]
enum ColumnPlace {
    Fixed(FixedField),
    /// A fixed column that is part of the key: only its NULLs are stored again.
    InKey(FixedField),
    Text {
        word: usize,
        data_type: DataType,
        in_key: bool,
    },
    Nested {
        word: usize,
        data_type: DataType,
        converter: RowConverter,
    },
}

/// Where the values of rows are that are not in the rows.
pub trait Heaps {
    /// The heap that a row refers to by number.
    fn heap(&self, row: usize, number: usize) -> &[u8];
}

impl Heaps for &[u8] {
    fn heap(&self, _: usize, _: usize) -> &[u8] {
        self
    }
}

/// A column of the input that rows keep.
#[derive(Debug, Clone)]
pub struct Stored {
    pub data_type: DataType,
    pub nullable: bool,
    /// Its place among the key's columns, if it is one.
    pub key: Option<usize>,
}

impl RowLayout {
    pub fn try_new(encoder: &KeyEncoder, nulls: Nulls, stored: &[Stored]) -> Result<Self> {
        let shape = encoder.shape();
        let key_words = match shape {
            KeyShape::Words(words) => words,
            KeyShape::Bytes => 2,
        };
        let mut packing = Packing::after(key_words);
        let shared = |column: &Stored| {
            let idx = column.key.filter(|_| !column.data_type.is_floating())?;
            encoder.field(idx).cloned()
        };
        let is_fixed =
            |column: &&Stored| fixed_bits(&column.data_type).is_some() && shared(column).is_none();
        let types = stored.iter().filter(is_fixed);
        let types = types.map(|column| (column.data_type.clone(), column.nullable));
        let mut fields = packing.fields(&types.collect::<Vec<_>>()).into_iter();
        let mut references = Vec::new();
        if shape == KeyShape::Bytes {
            references.push(1);
        }
        let mut columns = Vec::with_capacity(stored.len());
        for column in stored {
            let place = if let Some(mut field) = shared(column) {
                if nulls == Nulls::Distinct && column.nullable {
                    field.set_null(packing.place(1));
                }
                ColumnPlace::InKey(field)
            } else if fixed_bits(&column.data_type).is_some() {
                ColumnPlace::Fixed(fields.next().expect("a field for each fixed column"))
            } else {
                let in_key = column.key.is_some() && nulls == Nulls::Distinct && encoder.is_text();
                let word = if in_key { 1 } else { packing.place(64).0 };
                references.extend((!in_key).then_some(word));
                heap_place(word, &column.data_type, in_key)?
            };
            columns.push(place);
        }
        Ok(Self {
            stride: packing.words(),
            shape,
            columns,
            references,
            longest: AtomicUsize::new(0),
        })
    }

    /// Words of a row: at least one.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Whether a row is its key, of one word.
    pub fn is_key(&self) -> bool {
        self.stride == 1 && self.shape == KeyShape::Words(1)
    }

    pub fn shape(&self) -> KeyShape {
        self.shape
    }

    pub fn has_heap(&self) -> bool {
        !self.references.is_empty()
    }

    /// The bytes of the heap that a row needs at most.
    pub fn heap_bytes_max(&self) -> usize {
        self.references.len() * (4 + self.longest.load(Ordering::Relaxed))
    }

    /// The hash of a row's key.
    #[inline(always)]
    pub fn hash(&self, row: &[u64]) -> u64 {
        match self.shape {
            KeyShape::Words(1) => hash_word(row[0]),
            KeyShape::Words(words) => hash_words(&row[..words]),
            KeyShape::Bytes => row[0],
        }
    }

    /// Replaces `block` by the rows of `columns`, whose keys are `keys`.
    pub fn pack(&self, keys: &Keys, columns: &[ArrayRef], block: &mut Block) -> Result<()> {
        block.words.clear();
        block.heap.clear();
        block.words.resize(keys.len() * self.stride, 0);
        let mut longest = self.pack_keys(keys, block);
        for (place, column) in self.columns.iter().zip(columns) {
            let words = &mut block.words;
            match place {
                ColumnPlace::Fixed(field) => field.pack(column, words, self.stride),
                ColumnPlace::InKey(field) => field.pack_nulls(column, words, self.stride),
                ColumnPlace::Text { in_key: true, .. } => {}
                ColumnPlace::Text { word, .. } => {
                    let rows = words.chunks_exact_mut(self.stride);
                    for (row, value) in rows.zip(values(column)?) {
                        longest = longest.max(value.map_or(0, <[u8]>::len));
                        row[*word] = value.map_or(NO_VALUE, |value| push(&mut block.heap, value));
                    }
                }
                ColumnPlace::Nested {
                    word, converter, ..
                } => {
                    let values = converter.convert_columns(std::slice::from_ref(column))?;
                    let rows = words.chunks_exact_mut(self.stride);
                    for (row, value) in rows.zip(values.iter()) {
                        longest = longest.max(value.data().len());
                        row[*word] = push(&mut block.heap, value.data());
                    }
                }
            }
        }
        self.longest.fetch_max(longest, Ordering::Relaxed);
        Ok(())
    }

    /// Packs the keys. Bytes of the longest of those that are in the heap.
    fn pack_keys(&self, keys: &Keys, block: &mut Block) -> usize {
        let mut longest = 0;
        let rows = block.words.chunks_exact_mut(self.stride).enumerate();
        match self.shape {
            KeyShape::Words(1) => rows.for_each(|(idx, row)| row[0] = keys.all_words()[idx]),
            KeyShape::Words(words) => {
                rows.for_each(|(idx, row)| row[..words].copy_from_slice(keys.words(idx)));
            }
            KeyShape::Bytes => {
                let has_key = |idx| keys.valid().is_none_or(|valid| valid.is_valid(idx));
                rows.for_each(|(idx, row)| {
                    row[0] = keys.hashes()[idx];
                    row[1] = match has_key(idx) {
                        true => {
                            longest = longest.max(keys.bytes(idx).len());
                            push(&mut block.heap, keys.bytes(idx))
                        }
                        false => NO_VALUE,
                    };
                });
            }
        }
        longest
    }

    /// One column of rows.
    pub fn unpack(&self, column: usize, rows: &[u64], heaps: &dyn Heaps) -> Result<ArrayRef> {
        let value = |word: usize| {
            let rows = rows.chunks_exact(self.stride).enumerate();
            rows.map(move |(idx, row)| value(heaps, idx, row[word]))
        };
        match &self.columns[column] {
            ColumnPlace::Fixed(field) | ColumnPlace::InKey(field) => {
                field.unpack(rows, self.stride)
            }
            ColumnPlace::Text {
                word, data_type, ..
            } => Ok(array_of(data_type, value(*word))?),
            ColumnPlace::Nested {
                word,
                data_type,
                converter,
            } => {
                let parser = converter.parser();
                let values = value(*word).flatten().map(|value| parser.parse(value));
                let mut columns = converter.convert_rows(values)?;
                let column = columns.pop().expect("one column was converted");
                Ok(as_type(column, data_type)?)
            }
        }
    }

    /// How many columns rows have.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// The keys of rows that all have one.
    pub fn keys(&self, rows: &Block, keys: &mut Keys) {
        let each = rows.words.chunks_exact(self.stride);
        match self.shape {
            KeyShape::Words(words) => keys.set_words(words, each.map(|row| &row[..words])),
            KeyShape::Bytes => {
                keys.set_bytes(each.map(|row| heap_value(&rows.heap, row[1])));
            }
        }
    }

    /// The bytes of the heap that the given row needs.
    #[inline]
    pub fn heap_bytes<'a>(&self, row: &[u64], heap: impl Fn(usize) -> &'a [u8]) -> usize {
        let words = self.references.iter().map(|&word| row[word]);
        words
            .filter(|&word| word != NO_VALUE)
            .map(|word| 4 + heap_value(heap(heap_number(word)), word).len())
            .sum()
    }

    /// Appends rows of `from` to `to`.
    pub fn copy_rows(&self, from: &Block, rows: &[u32], to: &mut Block) {
        match (self.stride, self.has_heap()) {
            (1, false) => copy_words::<1>(from, rows, to),
            (2, false) => copy_words::<2>(from, rows, to),
            (3, false) => copy_words::<3>(from, rows, to),
            (4, false) => copy_words::<4>(from, rows, to),
            _ => rows
                .iter()
                .for_each(|&row| self.copy_row(from, row as usize, to)),
        }
    }

    fn copy_row(&self, from: &Block, row: usize, to: &mut Block) {
        let start = to.words.len();
        let words = &from.words[row * self.stride..(row + 1) * self.stride];
        to.words.extend_from_slice(words);
        for &word in &self.references {
            let reference = &mut to.words[start + word];
            if *reference != NO_VALUE {
                *reference = push(&mut to.heap, heap_value(&from.heap, *reference));
            }
        }
    }

    /// Makes a copied row refer to the heap of this number.
    #[inline]
    pub fn set_heap(&self, row: &mut [u64], number: usize) {
        for &word in &self.references {
            if row[word] != NO_VALUE {
                row[word] |= (number as u64) << OFFSET_BITS;
            }
        }
    }
}

/// Appends rows of this many words, of which none refers to a heap.
fn copy_words<const STRIDE: usize>(from: &Block, rows: &[u32], to: &mut Block) {
    let (from, _) = from.words.as_chunks::<STRIDE>();
    to.words
        .extend(rows.iter().flat_map(|&row| from[row as usize]));
}

fn heap_place(word: usize, data_type: &DataType, in_key: bool) -> Result<ColumnPlace> {
    let data_type = data_type.clone();
    Ok(match is_string(&data_type) {
        true => ColumnPlace::Text {
            word,
            data_type,
            in_key,
        },
        false => ColumnPlace::Nested {
            word,
            converter: RowConverter::new(vec![SortField::new(data_type.clone())])?,
            data_type,
        },
    })
}

/// Appends a value with its length in front; the word that refers to it.
#[inline]
fn push(heap: &mut Vec<u8>, value: &[u8]) -> u64 {
    let offset = heap.len() as u64;
    heap.extend_from_slice(&(value.len() as u32).to_le_bytes());
    heap.extend_from_slice(value);
    offset
}

#[inline]
fn value(heaps: &dyn Heaps, row: usize, word: u64) -> Option<&[u8]> {
    let number = (word >> OFFSET_BITS) as usize;
    (word != NO_VALUE).then(|| heap_value(heaps.heap(row, number), word))
}

/// The value that a word refers to.
#[inline]
pub fn heap_value(heap: &[u8], word: u64) -> &[u8] {
    let offset = (word & ((1 << OFFSET_BITS) - 1)) as usize;
    let (len, rest) = heap[offset..].split_first_chunk::<4>().expect("a length");
    &rest[..u32::from_le_bytes(*len) as usize]
}

/// The number of the heap that a word refers to.
#[inline]
pub fn heap_number(word: u64) -> usize {
    (word >> OFFSET_BITS) as usize
}
