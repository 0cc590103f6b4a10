//! Slots in an order, any of which can be taken out: what most policies need.

/// No slot.
const NONE: u32 = u32::MAX;

/// The ends of one order.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    first: u32,
    last: u32,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
        }
    }
}

impl Ends {
    /// The slot that was put in front most recently.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The slot at the end.
    pub fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }
}

/// Neighbours of every slot, in whichever order it is.
#[derive(Debug, Clone)]
pub struct Chain {
    before: Vec<u32>,
    after: Vec<u32>,
}

impl Chain {
    /// For this many slots.
    pub fn new(slot_count: usize) -> Self {
        Self {
            before: vec![NONE; slot_count],
            after: vec![NONE; slot_count],
        }
    }

    /// Bytes in memory.
    pub fn size_bytes(&self) -> u64 {
        (self.before.len() + self.after.len()) as u64 * 4
    }

    /// The slot before another, closer to the front.
    pub fn before(&self, slot: u32) -> Option<u32> {
        let before = self.before[slot as usize];
        (before != NONE).then_some(before)
    }

    /// Puts a slot that is in no order in front.
    pub fn push_front(&mut self, ends: &mut Ends, slot: u32) {
        self.before[slot as usize] = NONE;
        self.after[slot as usize] = ends.first;
        match ends.first {
            NONE => ends.last = slot,
            first => self.before[first as usize] = slot,
        }
        ends.first = slot;
    }

    /// Takes a slot out of its order.
    pub fn remove(&mut self, ends: &mut Ends, slot: u32) {
        let (before, after) = (self.before[slot as usize], self.after[slot as usize]);
        match before {
            NONE => ends.first = after,
            before => self.after[before as usize] = after,
        }
        match after {
            NONE => ends.last = before,
            after => self.before[after as usize] = before,
        }
    }
}
