//! Order-preserving codes of one column: how they are learned, and how predicates and files use them.
//!
//! NULL, when the column has any, is code 0 and lies outside every range a comparison can produce.

use std::path::Path;

use hotshelf_tier::Corruption;

use crate::codec::{Reader, Writer};
use crate::error::{ElfError, Result};

use super::column::{Kind, Values, ValuesRef, float_key, float_of_key};
use super::mapping::{Mapping, Rank};
use super::predicate::{Coverage, Predicate, Value};
use super::restriction::{CodeSet, Restriction};
use super::table::CodeColumn;

/// How the values of one column become codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnEncoding {
    kind: Kind,
    nullable: bool,
    mapping: Mapping,
}

impl ColumnEncoding {
    /// Learns the encoding of a column: an offset for dense numbers, a dictionary for the others and
    /// for strings, a prefix for more distinct strings than a dictionary should hold.
    ///
    /// # Errors
    /// When there are more distinct numbers than codes.
    pub fn learn(values: &Values<'_>) -> Result<Self> {
        let nullable = (0..values.len()).any(|row| !values.is_present(row));
        let mapping = Mapping::learn(values)?;
        Ok(Self {
            kind: values.kind(),
            nullable,
            mapping,
        })
    }

    /// Number of codes, NULL's included.
    pub fn code_count(&self) -> u64 {
        self.mapping.value_count() + u64::from(self.nullable)
    }

    /// Whether different values may share a code.
    pub fn is_lossy(&self) -> bool {
        self.mapping == Mapping::Prefix
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
                    match self.code(
                        values
                            .is_present(row)
                            .then(|| self.mapping.rank_bytes(string)),
                    ) {
                        Some(code) => codes[row] = code,
                        None => outside = outside.or(Some(row)),
                    }
                }
            }
            _ => values.for_each_number(|row, key| {
                match self.code(key.map(|key| self.mapping.rank_number(key))) {
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
        if self.is_null(code) {
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

    /// Whether a code stands for NULL.
    #[inline]
    pub fn is_null(&self, code: u32) -> bool {
        self.nullable && code == 0
    }

    /// The string of a code without a copy; `None` where [`Self::decode`] gives something else.
    #[inline]
    pub fn decode_bytes(&self, code: u32) -> Option<&[u8]> {
        let rank = code.checked_sub(u32::from(self.nullable))? as usize;
        match &self.mapping {
            Mapping::Strings(strings) => strings.get(rank).map(Vec::as_slice),
            _ => None,
        }
    }

    /// The codes that a predicate accepts, and whether they say it all.
    ///
    /// # Errors
    /// When the predicate compares with a value of another type.
    pub fn restriction(&self, predicate: &Predicate) -> Result<(Restriction, Coverage)> {
        let null_codes = u64::from(self.nullable);
        let (first, end) = (null_codes, null_codes + self.mapping.value_count());
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
        let end = u64::from(self.nullable) + self.mapping.value_count();
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
            (Value::Integer(number), Kind::Integer) => self.mapping.rank_number(*number),
            (Value::Float(float), Kind::Float) => self.mapping.rank_number(float_key(*float)),
            (Value::Bytes(bytes), Kind::Bytes) => self.mapping.rank_bytes(bytes),
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

    /// Bytes of its dictionary in memory; 0 without one.
    pub fn dictionary_bytes(&self) -> u64 {
        self.mapping.entry_bytes()
    }

    /// The same values by codes that need no large dictionary, where they are at most four bits longer.
    pub fn without_dictionary(self) -> Self {
        Self {
            mapping: self.mapping.without_entries(),
            ..self
        }
    }

    /// The smallest encoding that contains both; `None` when the columns differ in type or their common domain cannot
    /// be known without the data.
    pub fn union(&self, other: &Self) -> Option<Self> {
        if self.kind != other.kind {
            return None;
        }
        Some(Self {
            kind: self.kind,
            nullable: self.nullable || other.nullable,
            mapping: self.mapping.union(&other.mapping)?,
        })
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.u8(match self.kind {
            Kind::Integer => 0,
            Kind::Float => 1,
            Kind::Bytes => 2,
        });
        out.u8(self.nullable.into());
        self.mapping.write(out);
    }

    pub(crate) fn read(input: &mut Reader<'_>) -> Result<Self, Corruption> {
        let kind = match input.u8("column kind")? {
            0 => Kind::Integer,
            1 => Kind::Float,
            2 => Kind::Bytes,
            other => return Err(input.corrupt("column kind", "0 to 2", other)),
        };
        let nullable = input.u8("nullable flag")? != 0;
        let mapping = Mapping::read(input, kind)?;
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
