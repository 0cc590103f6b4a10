//! The domain of a column: which values there are, and the rank of each.

use hotshelf_tier::Corruption;

use crate::codec::{Reader, Writer};
use crate::error::{ElfError, Result};

use super::column::{Kind, Values, ValuesRef};

/// Largest integer span for which counting distinct values pays: one bit per possible value.
const DENSE_SPAN_MAX: i128 = 1 << 20;

/// Distinct strings up to which every string gets its own code.
const STRINGS_MAX: usize = 1 << 22;

/// A dictionary of more numbers is worth its memory only if codes have more than this many bits less for it.
const NUMBERS_MAX: usize = 1 << 12;
const SPARED_BITS: u32 = 4;

/// Bits of a string's prefix in its code; one bit less than a word so that NULL has room.
const PREFIX_BITS: u32 = 31;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Code = value - min.
    Offset { min: i128, max: i128 },
    /// Code = rank among the sorted distinct values.
    Numbers(Vec<i128>),
    /// Code = rank among the sorted distinct strings.
    Strings(Vec<Vec<u8>>),
    /// Code = the first bits of the string: equal codes may hide different strings.
    Prefix,
}

/// The place of a value in the domain of an encoding.
pub(crate) struct Rank {
    /// Domain values below it; for prefixes, the value's own code.
    pub(crate) below: u64,
    /// Whether it is in the domain; for prefixes, always.
    pub(crate) present: bool,
}

fn prefix_code(bytes: &[u8]) -> u32 {
    let mut head = [0; 4];
    let len = bytes.len().min(4);
    head[..len].copy_from_slice(&bytes[..len]);
    u32::from_be_bytes(head) >> (32 - PREFIX_BITS)
}

fn bits_for(count: u64) -> u32 {
    64 - count.saturating_sub(1).leading_zeros()
}

impl Mapping {
    /// Learns the domain of a column.
    ///
    /// # Errors
    /// When there are more distinct numbers than codes.
    pub(crate) fn learn(values: &Values<'_>) -> Result<Self> {
        match values.values {
            ValuesRef::Bytes(strings) => Ok(learn_strings(values, strings)),
            _ => learn_numbers(values),
        }
    }

    pub(crate) fn value_count(&self) -> u64 {
        match self {
            Mapping::Offset { min, max } => (max - min + 1) as u64,
            Mapping::Numbers(numbers) => numbers.len() as u64,
            Mapping::Strings(strings) => strings.len() as u64,
            Mapping::Prefix => 1 << PREFIX_BITS,
        }
    }

    pub(crate) fn rank_number(&self, number: i128) -> Rank {
        match self {
            Mapping::Offset { min, max } if number < *min || max < min => Rank {
                below: 0,
                present: false,
            },
            Mapping::Offset { min, max } if number > *max => Rank {
                below: (max - min + 1) as u64,
                present: false,
            },
            Mapping::Offset { min, .. } => Rank {
                below: (number - min) as u64,
                present: true,
            },
            Mapping::Numbers(numbers) => {
                let at = numbers.partition_point(|&one| one < number);
                Rank {
                    below: at as u64,
                    present: numbers.get(at) == Some(&number),
                }
            }
            Mapping::Strings(_) | Mapping::Prefix => Rank {
                below: 0,
                present: false,
            },
        }
    }

    pub(crate) fn rank_bytes(&self, bytes: &[u8]) -> Rank {
        match self {
            Mapping::Strings(strings) => {
                let at = strings.partition_point(|one| one.as_slice() < bytes);
                let present = strings.get(at).is_some_and(|one| one == bytes);
                Rank {
                    below: at as u64,
                    present,
                }
            }
            Mapping::Prefix => Rank {
                below: prefix_code(bytes).into(),
                present: true,
            },
            _ => Rank {
                below: 0,
                present: false,
            },
        }
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        match self {
            Mapping::Offset { min, max } => {
                out.u8(0);
                out.i128(*min);
                out.i128(*max);
            }
            Mapping::Numbers(numbers) => {
                out.u8(1);
                out.u32(numbers.len() as u32);
                numbers.iter().for_each(|&number| out.i128(number));
            }
            Mapping::Strings(strings) => {
                out.u8(2);
                out.u32(strings.len() as u32);
                strings.iter().for_each(|string| out.blob(string));
            }
            Mapping::Prefix => out.u8(3),
        }
    }

    pub(crate) fn read(input: &mut Reader<'_>, kind: Kind) -> Result<Self, Corruption> {
        let mapping = match (input.u8("mapping")?, kind) {
            (0, Kind::Integer | Kind::Float) => {
                let (min, max) = (input.i128("minimum")?, input.i128("maximum")?);
                // An empty column is written as minimum 0, maximum -1.
                let span = max
                    .checked_sub(min)
                    .filter(|span| (-1..u32::MAX.into()).contains(span));
                if span.is_none() {
                    return Err(input.corrupt("domain", "a span of 32 bits", "another"));
                }
                Mapping::Offset { min, max }
            }
            (1, Kind::Integer | Kind::Float) => {
                let count = input.u32("dictionary size")?;
                let mut numbers = Vec::with_capacity((count as usize).min(input.remaining() / 16));
                for _ in 0..count {
                    numbers.push(input.i128("dictionary entry")?);
                }
                check_ascending(input, &numbers)?;
                Mapping::Numbers(numbers)
            }
            (2, Kind::Bytes) => {
                let count = input.u32("dictionary size")?;
                let mut strings = Vec::with_capacity((count as usize).min(input.remaining() / 4));
                for _ in 0..count {
                    strings.push(input.blob("dictionary entry")?.to_vec());
                }
                check_ascending(input, &strings)?;
                Mapping::Strings(strings)
            }
            (3, Kind::Bytes) => Mapping::Prefix,
            (other, _) => return Err(input.corrupt("mapping", "one that fits the kind", other)),
        };
        Ok(mapping)
    }

    /// Bytes of its entries in memory.
    pub(crate) fn entry_bytes(&self) -> u64 {
        match self {
            Self::Numbers(numbers) => size_of_val(numbers.as_slice()) as u64,
            Self::Strings(strings) => {
                let bytes = strings.iter().map(|string| string.len() as u64);
                bytes.sum::<u64>() + size_of_val(strings.as_slice()) as u64
            }
            Self::Offset { .. } | Self::Prefix => 0,
        }
    }

    /// Offsets in place of many numbers, where codes have few bits more.
    pub(crate) fn without_entries(self) -> Self {
        let Self::Numbers(numbers) = &self else {
            return self;
        };
        let (Some(&min), Some(&max)) = (numbers.first(), numbers.last()) else {
            return self;
        };
        let bits = bits_for(numbers.len() as u64) + SPARED_BITS;
        match offset(min, max) {
            Some(offset)
                if numbers.len() > NUMBERS_MAX && bits_for(offset.value_count()) <= bits =>
            {
                offset
            }
            _ => self,
        }
    }

    /// The smallest domain that contains both, if it can be known without the data.
    pub(crate) fn union(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Offset { min: a, max: b }, Self::Offset { min: c, max: d }) => {
                if b < a || d < c {
                    return Some(if b < a { other.clone() } else { self.clone() });
                }
                offset((*a).min(*c), (*b).max(*d))
            }
            (Self::Offset { min, max }, Self::Numbers(numbers))
            | (Self::Numbers(numbers), Self::Offset { min, max }) => {
                match (numbers.first(), numbers.last()) {
                    (Some(&first), Some(&last)) if min <= max => {
                        offset((*min).min(first), (*max).max(last))
                    }
                    (None, _) => Some(Self::Offset {
                        min: *min,
                        max: *max,
                    }),
                    _ => Some(Self::Numbers(numbers.clone())),
                }
            }
            (Self::Numbers(a), Self::Numbers(b)) => Some(Self::Numbers(sorted_union(a, b))),
            (Self::Strings(a), Self::Strings(b)) => Some(Self::Strings(sorted_union(a, b))),
            (Self::Prefix, Self::Prefix) => Some(Self::Prefix),
            _ => None,
        }
    }
}

fn sorted_union<T: Ord + Clone>(a: &[T], b: &[T]) -> Vec<T> {
    let mut both = [a, b].concat();
    both.sort_unstable();
    both.dedup();
    both
}

fn check_ascending<T: Ord>(input: &Reader<'_>, entries: &[T]) -> Result<(), Corruption> {
    if entries.is_sorted_by(|a, b| a < b) {
        Ok(())
    } else {
        Err(input.corrupt("dictionary", "ascending entries", "another order"))
    }
}

/// An offset mapping, when its codes and NULL's fit into 32 bits.
fn offset(min: i128, max: i128) -> Option<Mapping> {
    let span = max.checked_sub(min)?;
    (span < u32::MAX.into()).then_some(Mapping::Offset { min, max })
}

fn learn_numbers(values: &Values<'_>) -> Result<Mapping> {
    let mut extremes: Option<(i128, i128)> = None;
    values.for_each_number(|_, key| {
        if let Some(key) = key {
            let (min, max) = extremes.unwrap_or((key, key));
            extremes = Some((min.min(key), max.max(key)));
        }
    });
    let Some((min, max)) = extremes else {
        return Ok(Mapping::Offset { min: 0, max: -1 });
    };
    let dense = offset(min, max);
    match dense {
        Some(dense) if max - min >= DENSE_SPAN_MAX => Ok(dense),
        Some(dense) => {
            let distinct = distinct_in_span(values, min, max);
            let saves = bits_for(distinct.len() as u64) < bits_for((max - min + 1) as u64);
            Ok(if saves {
                Mapping::Numbers(distinct)
            } else {
                dense
            })
        }
        None => {
            let mut numbers = Vec::with_capacity(values.len());
            values.for_each_number(|_, key| numbers.extend(key));
            numbers.sort_unstable();
            numbers.dedup();
            if numbers.len() as u64 >= u32::MAX.into() {
                return Err(ElfError::TooManyValues {
                    found: numbers.len(),
                });
            }
            Ok(Mapping::Numbers(numbers))
        }
    }
}

fn distinct_in_span(values: &Values<'_>, min: i128, max: i128) -> Vec<i128> {
    let mut seen = vec![false; (max - min + 1) as usize];
    values.for_each_number(|_, key| {
        if let Some(key) = key {
            seen[(key - min) as usize] = true;
        }
    });
    let present = seen.iter().enumerate().filter(|(_, seen)| **seen);
    present.map(|(offset, _)| min + offset as i128).collect()
}

fn learn_strings(values: &Values<'_>, strings: &[&[u8]]) -> Mapping {
    let present = (0..strings.len()).filter(|&row| values.is_present(row));
    let mut distinct: Vec<&[u8]> = present.map(|row| strings[row]).collect();
    distinct.sort_unstable();
    distinct.dedup();
    if distinct.len() > STRINGS_MAX {
        return Mapping::Prefix;
    }
    Mapping::Strings(distinct.into_iter().map(<[u8]>::to_vec).collect())
}
