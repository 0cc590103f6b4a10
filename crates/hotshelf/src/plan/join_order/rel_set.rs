//! Sets of a graph's relations.

/// A graph has at most this many relations.
pub(super) const RELATIONS_MAX: usize = 64;

/// Some relations, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct RelSet(pub u64);

impl RelSet {
    pub const EMPTY: Self = Self(0);

    pub fn of(relation: usize) -> Self {
        Self(1 << relation)
    }

    pub fn has(self, relation: usize) -> bool {
        self.0 & (1 << relation) != 0
    }

    pub fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The relations, from the first.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let first = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            Some(first)
        })
    }

    /// All subsets that are not empty, the set itself last.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        let all = self.0;
        let mut current = 0_u64;
        std::iter::from_fn(move || {
            current = current.wrapping_sub(all) & all;
            (current != 0).then_some(Self(current))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_of_a_set_are_all_there_once() {
        let subsets: Vec<_> = RelSet(0b1011).subsets().map(|set| set.0).collect();
        assert_eq!(subsets, [1, 2, 3, 8, 9, 10, 11]);
        assert_eq!(RelSet::EMPTY.subsets().count(), 0);
        assert_eq!(RelSet(0b1001).iter().collect::<Vec<_>>(), [0, 3]);
    }
}
