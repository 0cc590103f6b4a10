//! Order-preserving codes of one column: how they are learned, and how predicates and files use them.
//!
//! NULL, when the column has any, is code 0 and lies outside every range a comparison can produce.

use std::path::Path;

use hotshelf_tier::Corruption;

use crate::codec::{Reader, Writer};
use crate::error::{ElfError, Result};

use super::column::{Kind, Values, ValuesRef, float_key, float_of_key};
use super::predicate::{Coverage, Predicate, Value};
use super::restriction::{CodeSet, Restriction};
use super::table::CodeColumn;

/// Largest integer span for which counting distinct values pays: one bit per possible value.
const DENSE_SPAN_MAX: i128 = 1 << 20;

/// Distinct strings up to which every string gets its own code.
const STRINGS_MAX: usize = 1 << 22;

/// Bits of a string's prefix in its code; one bit less than a word so that NULL has room.
const PREFIX_BITS: u32 = 31;

/// How the values of one column become codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnEncoding {
    kind: Kind,
    nullable: bool,
    mapping: Mapping,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Mapping {
    /// Code = value - min.
    Offset { min: i128, max: i128 },
    /// Code = rank among the sorted distinct values.
    Numbers(Vec<i128>),
    /// Code = rank among the sorted distinct strings.
    Strings(Vec<Vec<u8>>),
    /// Code = the first bits of the string: equal codes may hide different strings.
    Prefix,
}

/// Where a value stands in the domain of an encoding.
struct Rank {
    /// Domain values below it; for prefixes, the value's own code.
    below: u64,
    /// Whether it is in the domain; for prefixes, always.
    present: bool,
}

/// Codes of one encoding translated to those of an encoding that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeMap {
    keeps_null: bool,
    shift: u32,
    table: Option<Vec<u32>>,
}

impl CodeMap {
    /// Every code stays what it is.
    pub fn identity() -> Self {
        Self {
            keeps_null: false,
            shift: 0,
            table: None,
        }
    }

    /// The new code of `code`.
    #[inline]
    pub fn map(&self, code: u32) -> u32 {
        if self.keeps_null && code == 0 {
            return 0;
        }
        match &self.table {
            None => code.wrapping_add(self.shift),
            Some(table) => table.get(code as usize).copied().unwrap_or(code),
        }
    }
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

impl ColumnEncoding {
    /// Learns the encoding of a column: an offset for dense numbers, a dictionary for the others and
    /// for strings, a prefix for more distinct strings than a dictionary should hold.
    ///
    /// # Errors
    /// When there are more distinct numbers than codes.
    pub fn learn(values: &Values<'_>) -> Result<Self> {
        let nullable = (0..values.len()).any(|row| !values.is_present(row));
        let mapping = match values.values {
            ValuesRef::Bytes(strings) => learn_strings(values, strings),
            _ => learn_numbers(values)?,
        };
        Ok(Self {
            kind: values.kind(),
            nullable,
            mapping,
        })
    }

    /// Number of codes, NULL's included.
    pub fn code_count(&self) -> u64 {
        self.value_count() + u64::from(self.nullable)
    }

    /// Whether different values may share a code.
    pub fn is_lossy(&self) -> bool {
        self.mapping == Mapping::Prefix
    }

    fn value_count(&self) -> u64 {
        match &self.mapping {
            Mapping::Offset { min, max } => (max - min + 1) as u64,
            Mapping::Numbers(numbers) => numbers.len() as u64,
            Mapping::Strings(strings) => strings.len() as u64,
            Mapping::Prefix => 1 << PREFIX_BITS,
        }
    }

    /// The codes of a column that the encoding was learned from, or whose values lie in its domain.
    ///
    /// # Errors
    /// When a value is not in the domain, or the column has another type.
    pub fn encode(&self, values: &Values<'_>) -> Result<CodeColumn> {
        if values.kind() != self.kind {
            return Err(self.mismatch(values.kind()));
        }
        let mut codes = vec![0u32; values.len()];
        let mut outside = None;
        match values.values {
            ValuesRef::Bytes(strings) => {
                for (row, string) in strings.iter().enumerate() {
                    match self.code(values.is_present(row).then(|| self.rank_bytes(string))) {
                        Some(code) => codes[row] = code,
                        None => outside = outside.or(Some(row)),
                    }
                }
            }
            _ => values.for_each_number(|row, key| {
                match self.code(key.map(|key| self.rank_number(key))) {
                    Some(code) => codes[row] = code,
                    None => outside = outside.or(Some(row)),
                }
            }),
        }
        match outside {
            Some(row) => Err(ElfError::OutsideDomain { row }),
            None => {
                let max = self.code_count().saturating_sub(1) as u32;
                Ok(CodeColumn::from_codes(codes.into_iter(), max))
            }
        }
    }

    fn code(&self, rank: Option<Rank>) -> Option<u32> {
        match rank {
            None => self.nullable.then_some(0),
            Some(Rank { present: false, .. }) => None,
            Some(Rank { below, .. }) => Some(below as u32 + u32::from(self.nullable)),
        }
    }

    /// The value of a code, `None` when there is no such code or the code stands for several values.
    pub fn decode(&self, code: u32) -> Option<Value> {
        if self.nullable && code == 0 {
            return Some(Value::Null);
        }
        let rank = code.checked_sub(u32::from(self.nullable))? as usize;
        let number = match &self.mapping {
            Mapping::Offset { min, max } => {
                Some(min + rank as i128).filter(|number| number <= max)?
            }
            Mapping::Numbers(numbers) => *numbers.get(rank)?,
            Mapping::Strings(strings) => return strings.get(rank).cloned().map(Value::Bytes),
            Mapping::Prefix => return None,
        };
        Some(match self.kind {
            Kind::Float => Value::Float(float_of_key(number)),
            _ => Value::Integer(number),
        })
    }

    /// The codes that a predicate accepts, and whether they say it all.
    ///
    /// # Errors
    /// When the predicate compares with a value of another type.
    pub fn restriction(&self, predicate: &Predicate) -> Result<(Restriction, Coverage)> {
        let null_codes = u64::from(self.nullable);
        let (first, end) = (null_codes, null_codes + self.value_count());
        let ranges = match predicate {
            Predicate::IsNull => vec![(0, null_codes)],
            Predicate::IsNotNull => vec![(first, end)],
            Predicate::Eq(value) => self.bounds(value)?.into_iter().collect(),
            Predicate::NotEq(value) => match self.bounds(value)? {
                None => vec![],
                Some(_) if self.is_lossy() => vec![(first, end)],
                Some((from, to)) => vec![(first, from), (to, end)],
            },
            Predicate::Lt(value) => self.up_to(value, self.is_lossy())?,
            Predicate::Le(value) => self.up_to(value, true)?,
            Predicate::Gt(value) => self.starting_at(value, self.is_lossy())?,
            Predicate::Ge(value) => self.starting_at(value, true)?,
            Predicate::Between(lo, hi) => match (self.bounds(lo)?, self.bounds(hi)?) {
                (Some((from, _)), Some((_, to))) => vec![(from, to)],
                _ => vec![],
            },
            Predicate::In(values) => {
                let mut ranges = Vec::with_capacity(values.len());
                for value in values {
                    ranges.extend(self.bounds(value)?);
                }
                ranges
            }
        };
        let inclusive = ranges.iter().filter(|(from, to)| from < to);
        let set = CodeSet::from_ranges(inclusive.map(|&(from, to)| (from as u32, (to - 1) as u32)));
        let says_all = !self.is_lossy()
            || matches!(predicate, Predicate::IsNull | Predicate::IsNotNull)
            || set.ranges().is_empty();
        let coverage = if says_all {
            Coverage::Exact
        } else {
            Coverage::Superset
        };
        Ok((Restriction::from_set(set), coverage))
    }

    fn up_to(&self, value: &Value, inclusive: bool) -> Result<Vec<(u64, u64)>> {
        let first = u64::from(self.nullable);
        let bounds = self.bounds(value)?;
        Ok(bounds
            .map(|(from, to)| (first, if inclusive { to } else { from }))
            .into_iter()
            .collect())
    }

    fn starting_at(&self, value: &Value, inclusive: bool) -> Result<Vec<(u64, u64)>> {
        let end = u64::from(self.nullable) + self.value_count();
        let bounds = self.bounds(value)?;
        Ok(bounds
            .map(|(from, to)| (if inclusive { from } else { to }, end))
            .into_iter()
            .collect())
    }

    /// The half-open code range of values equal to `value`: empty, at the right place, for a value
    /// outside the domain; `None` for NULL.
    fn bounds(&self, value: &Value) -> Result<Option<(u64, u64)>> {
        let rank = match (value, self.kind) {
            (Value::Null, _) => return Ok(None),
            (Value::Integer(number), Kind::Integer) => self.rank_number(*number),
            (Value::Float(float), Kind::Float) => self.rank_number(float_key(*float)),
            (Value::Bytes(bytes), Kind::Bytes) => self.rank_bytes(bytes),
            (other, _) => return Err(self.mismatch(other.kind().unwrap_or(self.kind))),
        };
        let from = rank.below + u64::from(self.nullable);
        Ok(Some((from, from + u64::from(rank.present))))
    }

    fn mismatch(&self, value: Kind) -> ElfError {
        ElfError::TypeMismatch {
            column: self.kind.name(),
            value: value.name(),
        }
    }

    fn rank_number(&self, number: i128) -> Rank {
        match &self.mapping {
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

    fn rank_bytes(&self, bytes: &[u8]) -> Rank {
        match &self.mapping {
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

    /// The smallest encoding that contains both, and the maps of their codes into it.
    ///
    /// # Errors
    /// When the columns differ in type or the common domain cannot be known without the data.
    pub fn union(&self, other: &Self) -> Result<(Self, CodeMap, CodeMap)> {
        let mapping = (self.kind == other.kind).then(|| self.mapping.union(&other.mapping));
        let Some(mapping) = mapping.flatten() else {
            return Err(ElfError::Unmergeable {
                left: self.kind.name(),
                right: other.kind.name(),
            });
        };
        let nullable = self.nullable || other.nullable;
        let union = Self {
            kind: self.kind,
            nullable,
            mapping,
        };
        let maps = (self.map_into(&union), other.map_into(&union));
        Ok((union, maps.0, maps.1))
    }

    fn map_into(&self, union: &Self) -> CodeMap {
        let null_shift = u32::from(union.nullable).wrapping_sub(self.nullable.into());
        let ranks: Option<Vec<u64>> = match (&self.mapping, &union.mapping) {
            (Mapping::Numbers(mine), _) => Some(
                mine.iter()
                    .map(|&number| union.rank_number(number).below)
                    .collect(),
            ),
            (Mapping::Strings(mine), _) => Some(
                mine.iter()
                    .map(|string| union.rank_bytes(string).below)
                    .collect(),
            ),
            _ => None,
        };
        let shift = match (&self.mapping, &union.mapping) {
            (Mapping::Offset { min: mine, .. }, Mapping::Offset { min, .. }) => (mine - min) as u32,
            _ => 0,
        };
        let table = ranks.map(|ranks| {
            let null = self.nullable.then_some(0);
            let values = ranks
                .into_iter()
                .map(|rank| rank as u32 + u32::from(union.nullable));
            null.into_iter().chain(values).collect()
        });
        CodeMap {
            keeps_null: self.nullable,
            shift: shift.wrapping_add(null_shift),
            table,
        }
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.u8(match self.kind {
            Kind::Integer => 0,
            Kind::Float => 1,
            Kind::Bytes => 2,
        });
        out.u8(self.nullable.into());
        match &self.mapping {
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

    pub(crate) fn read(input: &mut Reader<'_>) -> Result<Self, Corruption> {
        let kind = match input.u8("column kind")? {
            0 => Kind::Integer,
            1 => Kind::Float,
            2 => Kind::Bytes,
            other => return Err(input.corrupt("column kind", "0 to 2", other)),
        };
        let nullable = input.u8("nullable flag")? != 0;
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
        Ok(Self {
            kind,
            nullable,
            mapping,
        })
    }

    /// The encoding as bytes, for a catalog or a file of the caller's.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.write(&mut out);
        out.bytes
    }

    /// Reads what [`Self::to_bytes`] wrote. `file` is named in errors.
    ///
    /// # Errors
    /// When the bytes are not an encoding.
    pub fn from_bytes(file: &Path, bytes: &[u8]) -> Result<Self> {
        Ok(Self::read(&mut Reader::new(file, bytes, 0))?)
    }
}

impl Mapping {
    fn union(&self, other: &Self) -> Option<Self> {
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

#[cfg(test)]
impl ColumnEncoding {
    /// A prefix encoding regardless of the number of strings.
    pub(crate) fn prefix_for_tests(nullable: bool) -> Self {
        Self {
            kind: Kind::Bytes,
            nullable,
            mapping: Mapping::Prefix,
        }
    }
}
