//! A model of the CPU's last cache: which pieces of a shelf a program has touched recently.
//!
//! Sets of eight, each ordered by recency. The paper's machine has 13.75 MB; an emulated shelf must not wait for what
//! that cache would have, and must wait for the rest even if this machine's cache happens to have it.

/// Pieces of one set.
const WAYS: usize = 8;

/// A place without a piece.
const FREE: u32 = u32::MAX;

/// Spreads neighbouring pieces over sets.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which pieces are in a cache of limited size.
#[derive(Debug, Clone)]
pub struct CpuCache {
    sets: Vec<[u32; WAYS]>,
}

impl CpuCache {
    /// A cache of this many bytes for pieces of `1 << piece_shift` bytes.
    pub fn new(size_bytes: u64, piece_shift: u32) -> Self {
        let set_count = (size_bytes >> piece_shift) as usize / WAYS;
        Self {
            sets: vec![[FREE; WAYS]; set_count.max(1)],
        }
    }

    #[inline]
    fn set_of(&self, piece: u32) -> usize {
        let spread = (u64::from(piece).wrapping_mul(SPREAD)) >> 32;
        ((spread * self.sets.len() as u64) >> 32) as usize
    }

    /// Whether the piece was there; it is the most recent one of its set afterwards.
    #[inline]
    pub fn touch(&mut self, piece: u32) -> bool {
        let set = self.set_of(piece);
        let set = &mut self.sets[set];
        if set[0] == piece {
            return true;
        }
        let found = set.iter().position(|&own| own == piece);
        let last = found.unwrap_or(WAYS - 1);
        set.copy_within(0..last, 1);
        set[0] = piece;
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_there_until_others_of_its_set_push_it_out() {
        let mut cache = CpuCache::new(64 * WAYS as u64, 6);
        assert!(!cache.touch(7));
        for piece in 100..100 + WAYS as u32 - 1 {
            assert!(!cache.touch(piece));
        }
        assert!(cache.touch(7));
        for piece in 200..200 + WAYS as u32 {
            assert!(!cache.touch(piece));
        }
        assert!(!cache.touch(7));
    }
}
