//! Pure: which parts of a file are free.

use std::collections::BTreeMap;

/// The free parts of a file. Parts are given out from the lowest offset on, so that what was freed is used again.
///
/// Invariant: free parts neither touch nor overlap, and all end before `end`.
#[derive(Debug, Default)]
pub(super) struct Extents {
    /// Lengths by offset.
    free: BTreeMap<u64, u64>,
    end: u64,
}

impl Extents {
    /// Where the file ends if it has to hold `bytes` more.
    pub(super) fn end_with(&self, bytes: u64) -> u64 {
        match self.first_fit(bytes) {
            Some(_) => self.end,
            None => self.end + bytes,
        }
    }

    /// Takes a part of `bytes` and returns its offset.
    pub(super) fn take(&mut self, bytes: u64) -> u64 {
        let Some(offset) = self.first_fit(bytes) else {
            self.end += bytes;
            return self.end - bytes;
        };
        if let Some(len) = self.free.remove(&offset).filter(|&len| len > bytes) {
            self.free.insert(offset + bytes, len - bytes);
        }
        offset
    }

    /// Gives a part back that was taken.
    pub(super) fn give_back(&mut self, mut offset: u64, mut bytes: u64) {
        let before = self.free.range(..offset).next_back();
        if let Some((&start, &len)) = before.filter(|&(&start, &len)| start + len == offset) {
            self.free.remove(&start);
            (offset, bytes) = (start, bytes + len);
        }
        if let Some(len) = self.free.remove(&(offset + bytes)) {
            bytes += len;
        }
        if offset + bytes == self.end {
            self.end = offset;
        } else {
            self.free.insert(offset, bytes);
        }
    }

    fn first_fit(&self, bytes: u64) -> Option<u64> {
        let mut parts = self.free.iter();
        let fit = parts.find(|&(_, &len)| len >= bytes);
        fit.map(|(&offset, _)| offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_never_overlap_and_nothing_is_lost(
            steps in proptest::collection::vec((0u8..3, 1u64..9, any::<usize>()), 1..200),
        ) {
            let mut extents = Extents::default();
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (step, bytes, pick) in steps {
                if step > 0 {
                    let expected_end = extents.end_with(bytes);
                    let offset = extents.take(bytes);
                    prop_assert_eq!(extents.end, expected_end);
                    for &(other, len) in &taken {
                        prop_assert!(offset + bytes <= other || other + len <= offset);
                    }
                    taken.push((offset, bytes));
                } else if !taken.is_empty() {
                    let (offset, bytes) = taken.swap_remove(pick % taken.len());
                    extents.give_back(offset, bytes);
                }
                let used: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
                prop_assert_eq!(used + extents.free.values().sum::<u64>(), extents.end);
                let end = taken.iter().map(|(offset, bytes)| offset + bytes).max();
                prop_assert_eq!(extents.end, end.unwrap_or(0));
            }
        }
    }
}
