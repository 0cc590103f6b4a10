//! A query as restrictions on codes: one per dimension, all of which must hold.

use crate::error::{ElfError, Result};

/// A set of codes as sorted, disjoint, non-adjacent inclusive ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CodeSet {
    ranges: Vec<(u32, u32)>,
}

impl CodeSet {
    /// The union of inclusive ranges; those with `lo > hi` are empty.
    pub fn from_ranges(ranges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|(lo, hi)| lo <= hi).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(sorted.len());
        for (lo, hi) in sorted {
            match merged.last_mut() {
                Some(last) if u64::from(lo) <= u64::from(last.1) + 1 => last.1 = last.1.max(hi),
                _ => merged.push((lo, hi)),
            }
        }
        Self { ranges: merged }
    }

    /// The set of the given codes.
    pub fn from_codes(codes: impl IntoIterator<Item = u32>) -> Self {
        Self::from_ranges(codes.into_iter().map(|code| (code, code)))
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// Whether `code` is in the set.
    #[inline]
    pub fn contains(&self, code: u32) -> bool {
        let at = self.ranges.partition_point(|&(_, hi)| hi < code);
        self.ranges.get(at).is_some_and(|&(lo, _)| lo <= code)
    }

    /// Codes in both sets.
    fn intersect(&self, other: &Self) -> Self {
        let (mut i, mut j) = (0, 0);
        let mut common = Vec::new();
        while let (Some(a), Some(b)) = (self.ranges.get(i), other.ranges.get(j)) {
            common.push((a.0.max(b.0), a.1.min(b.1)));
            if a.1 < b.1 { i += 1 } else { j += 1 }
        }
        Self::from_ranges(common)
    }
}

/// Which codes of one dimension a query accepts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Restriction {
    /// Every code: a wildcard.
    #[default]
    Any,
    /// Codes from `lo` to `hi` inclusive; nothing when `lo > hi`.
    Range {
        /// Smallest accepted code.
        lo: u32,
        /// Largest accepted code.
        hi: u32,
    },
    /// The codes of a set.
    Set(CodeSet),
}

impl Restriction {
    /// Accepts nothing.
    pub const NONE: Self = Self::Range { lo: 1, hi: 0 };

    /// Accepts one code.
    pub fn exactly(code: u32) -> Self {
        Self::Range { lo: code, hi: code }
    }

    /// The simplest restriction that accepts the codes of `set`.
    pub fn from_set(set: CodeSet) -> Self {
        match set.ranges() {
            [] => Self::NONE,
            [(0, u32::MAX)] => Self::Any,
            [(lo, hi)] => Self::Range { lo: *lo, hi: *hi },
            _ => Self::Set(set),
        }
    }

    /// Whether `code` is accepted.
    #[inline]
    pub fn contains(&self, code: u32) -> bool {
        match self {
            Self::Any => true,
            Self::Range { lo, hi } => (*lo..=*hi).contains(&code),
            Self::Set(set) => set.contains(code),
        }
    }

    /// Smallest and largest accepted code; `lo > hi` when nothing is accepted.
    pub fn hull(&self) -> (u32, u32) {
        match self {
            Self::Any => (0, u32::MAX),
            Self::Range { lo, hi } => (*lo, *hi),
            Self::Set(set) => match (set.ranges.first(), set.ranges.last()) {
                (Some(first), Some(last)) => (first.0, last.1),
                _ => (1, 0),
            },
        }
    }

    /// Whether every code is accepted.
    pub fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }

    /// Whether nothing is accepted.
    pub fn is_none(&self) -> bool {
        let (lo, hi) = self.hull();
        lo > hi
    }

    /// Accepts what both accept.
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Any, one) | (one, Self::Any) => one.clone(),
            _ => Self::from_set(self.to_set().intersect(&other.to_set())),
        }
    }

    fn to_set(&self) -> CodeSet {
        match self {
            Self::Set(set) => set.clone(),
            _ => CodeSet::from_ranges([self.hull()]),
        }
    }
}

/// A conjunction of restrictions, one per dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryBox {
    dimensions: Vec<Restriction>,
}

impl QueryBox {
    /// Accepts every row of a table with that many dimensions.
    pub fn unrestricted(dimension_count: usize) -> Self {
        Self {
            dimensions: vec![Restriction::Any; dimension_count],
        }
    }

    /// One restriction per dimension, in dimension order.
    pub fn new(dimensions: Vec<Restriction>) -> Self {
        Self { dimensions }
    }

    /// Accepts rows equal to `key` in every dimension.
    pub fn exactly(key: &[u32]) -> Self {
        Self::new(key.iter().map(|&code| Restriction::exactly(code)).collect())
    }

    /// Adds one more condition on a dimension.
    ///
    /// # Errors
    /// When there is no such dimension.
    pub fn restrict(&mut self, dimension: usize, restriction: &Restriction) -> Result<()> {
        let dimension_count = self.dimensions.len();
        let Some(slot) = self.dimensions.get_mut(dimension) else {
            return Err(ElfError::DimensionMismatch {
                expected: dimension_count,
                found: dimension + 1,
            });
        };
        *slot = slot.and(restriction);
        Ok(())
    }

    /// The keys that are accepted, one code per dimension for each, one key after the other; `None` where a dimension
    /// accepts every code, or there are more keys than this.
    pub fn keys(&self, key_count_max: usize) -> Option<Vec<u32>> {
        let codes = |restriction: &Restriction| match restriction {
            Restriction::Any => None,
            Restriction::Range { lo, hi } => Some(vec![(*lo, *hi)]),
            Restriction::Set(set) => Some(set.ranges().to_vec()),
        };
        let count = |ranges: &Vec<(u32, u32)>| -> u64 {
            let widths = ranges.iter().filter(|(lo, hi)| lo <= hi);
            widths.map(|(lo, hi)| u64::from(hi - lo) + 1).sum()
        };
        let all = self.dimensions.iter().map(codes);
        let ranges: Vec<Vec<(u32, u32)>> = all.collect::<Option<_>>()?;
        let counts = ranges.iter().map(count);
        let key_count = counts.fold(1, |all: u64, more| all.saturating_mul(more));
        if key_count > key_count_max as u64 {
            return None;
        }
        if key_count == 0 {
            return Some(Vec::new());
        }
        let mut keys = vec![Vec::with_capacity(ranges.len())];
        for ranges in &ranges {
            let codes = ranges.iter().flat_map(|(lo, hi)| *lo..=*hi);
            let codes: Vec<u32> = codes.collect();
            let longer = keys.iter().flat_map(|key: &Vec<u32>| {
                let with = |code: &u32| [key.as_slice(), &[*code]].concat();
                codes.iter().map(with)
            });
            keys = longer.collect();
        }
        Some(keys.concat())
    }

    /// The restrictions in dimension order.
    pub fn dimensions(&self) -> &[Restriction] {
        &self.dimensions
    }

    /// Whether some dimension accepts nothing.
    pub fn is_none(&self) -> bool {
        self.dimensions.iter().any(Restriction::is_none)
    }

    /// Whether a row with these codes is accepted.
    pub fn contains(&self, codes: &[u32]) -> bool {
        self.dimensions
            .iter()
            .zip(codes)
            .all(|(restriction, &code)| restriction.contains(code))
    }

    /// # Errors
    /// When the box was made for another number of dimensions.
    pub fn check(&self, expected: usize) -> Result<()> {
        let found = self.dimensions.len();
        if found == expected {
            Ok(())
        } else {
            Err(ElfError::DimensionMismatch { expected, found })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn restriction() -> impl Strategy<Value = Restriction> {
        prop_oneof![
            Just(Restriction::Any),
            (0u32..20, 0u32..20).prop_map(|(lo, hi)| Restriction::Range { lo, hi }),
            proptest::collection::vec((0u32..20, 0u32..20), 0..5)
                .prop_map(|ranges| Restriction::Set(CodeSet::from_ranges(ranges))),
        ]
    }

    proptest! {
        #[test]
        fn a_conjunction_accepts_what_both_sides_accept(a in restriction(), b in restriction()) {
            let both = a.and(&b);
            for code in 0..22 {
                prop_assert_eq!(both.contains(code), a.contains(code) && b.contains(code));
            }
            prop_assert_eq!(both.is_none(), !(0..22).any(|code| both.contains(code)));
        }

        #[test]
        fn keys_are_those_that_a_query_accepts(a in restriction(), b in restriction(), most in 0usize..300) {
            let query = QueryBox::new(vec![a.clone(), b.clone()]);
            let pairs = (0..22).flat_map(|x| (0..22).map(move |y| [x, y]));
            let accepted: Vec<[u32; 2]> = pairs.filter(|key| query.contains(key)).collect();
            let keys = query.keys(most);
            prop_assert_eq!(keys.is_some(), !a.is_any() && !b.is_any() && accepted.len() <= most);
            prop_assert!(keys.is_none_or(|keys| keys == accepted.concat()));
        }

        #[test]
        fn a_hull_is_tight(a in restriction()) {
            let (lo, hi) = a.hull();
            if lo <= hi {
                prop_assert!(a.contains(lo) && a.contains(hi));
            }
            for code in 0..22 {
                prop_assert!(!a.contains(code) || (lo..=hi).contains(&code));
            }
        }
    }

    #[test]
    fn restricting_an_unknown_dimension_is_an_error() {
        let mut query = QueryBox::unrestricted(2);
        assert!(query.restrict(2, &Restriction::Any).is_err());
        query.restrict(1, &Restriction::exactly(3)).unwrap();
        query.restrict(1, &Restriction::exactly(4)).unwrap();
        assert!(query.is_none());
    }

    #[test]
    fn ranges_up_to_the_largest_code_merge() {
        let set = CodeSet::from_ranges([(5, u32::MAX), (3, 4), (9, 8)]);
        assert_eq!(set.ranges(), &[(3, u32::MAX)]);
    }
}
