//! Deleted rows: a bitmap over TIDs beside an immutable Elf.

/// A set of deleted TIDs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteBitmap {
    words: Vec<u64>,
    count: u64,
}

impl DeleteBitmap {
    /// Marks a TID as deleted; says whether it was not before.
    pub fn insert(&mut self, tid: u32) -> bool {
        let (word_idx, bit) = (tid as usize / 64, 1 << (tid % 64));
        if word_idx >= self.words.len() {
            self.words.resize(word_idx + 1, 0);
        }
        let is_new = self.words[word_idx] & bit == 0;
        self.words[word_idx] |= bit;
        self.count += u64::from(is_new);
        is_new
    }

    /// Whether a TID is deleted.
    #[inline]
    pub fn contains(&self, tid: u32) -> bool {
        self.words
            .get(tid as usize / 64)
            .is_some_and(|word| word >> (tid % 64) & 1 == 1)
    }

    /// Number of deleted TIDs.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether nothing is deleted.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes deleted TIDs from an answer.
    pub fn filter(&self, tids: &mut Vec<u32>) {
        if !self.is_empty() {
            tids.retain(|&tid| !self.contains(tid));
        }
    }

    /// The deleted TIDs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let words = self.words.iter().enumerate();
        words.flat_map(|(word_idx, &word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| word_idx as u32 * 64 + bit)
        })
    }
}

impl FromIterator<u32> for DeleteBitmap {
    fn from_iter<I: IntoIterator<Item = u32>>(tids: I) -> Self {
        let mut bitmap = Self::default();
        for tid in tids {
            bitmap.insert(tid);
        }
        bitmap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_tids_disappear_from_answers() {
        let mut deletes: DeleteBitmap = [3, 64, 3, 1000].into_iter().collect();
        assert_eq!(
            (deletes.len(), deletes.iter().collect::<Vec<_>>()),
            (3, vec![3, 64, 1000])
        );
        assert!(!deletes.insert(64) && deletes.insert(65));
        let mut tids = vec![2, 3, 64, 65, 66, 5000];
        deletes.filter(&mut tids);
        assert_eq!(tids, [2, 66, 5000]);
    }
}
