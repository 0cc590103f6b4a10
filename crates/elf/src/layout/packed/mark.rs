//! Marks: the first bits of rows' suffixes, without guard bits. They ascend with the rows of a group.

/// Bits of a mark.
const MARK_BITS: u32 = 15;

/// The first bits of a row's suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u16);

impl Mark {
    /// The parts of all codes.
    #[inline]
    pub(crate) fn new(parts: u32) -> Self {
        Self(parts as u16)
    }

    /// Sorts after every block that rows with smaller marks can reach, and before every other.
    pub(crate) fn low(self) -> u16 {
        self.0 << 1
    }

    /// Sorts after every block that rows with this mark can reach.
    pub(crate) fn high(self) -> u16 {
        self.0 << 1 | 1
    }
}

/// Which bits of a code are in a mark: those above the lowest `drop`, from bit `at` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MarkPart {
    mask: u32,
    drop: u8,
    at: u8,
}

impl MarkPart {
    /// The parts of codes with these masks.
    pub(crate) fn of(masks: impl Iterator<Item = u32>) -> Box<[Self]> {
        let mut room = MARK_BITS;
        let parts = masks.map_while(|mask| {
            let taken = mask.count_ones().min(room);
            room -= taken;
            (taken > 0).then_some(Self {
                mask,
                drop: (mask.count_ones() - taken) as u8,
                at: room as u8,
            })
        });
        parts.collect()
    }

    /// What of a code is in a mark. A code too large for its column counts as the largest.
    #[inline]
    pub(crate) fn of_code(&self, code: u32) -> u32 {
        code.min(self.mask) >> self.drop << self.at
    }
}
