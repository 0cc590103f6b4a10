//! Pure: where ranges of rows begin, so that each has about as many rows as the others.

use super::order::Entry;

/// Rows are looked up by this many bits of their prefixes first.
const SLOT_BITS: u32 = 12;
/// There are no more ranges than this.
pub(super) const RANGE_COUNT_MAX: usize = 128;

/// A row: its entry, and what of its key its prefix does not say. Nothing, if the prefix says it all.
type Sampled<'a> = (Entry, &'a [u8]);

/// The rows at which all ranges but the first begin, in order.
pub(super) struct Splitters {
    splitters: Vec<(Entry, Vec<u8>)>,
    /// For each value of the first bits of a prefix, how many splitters have a lower one.
    lower_counts: Vec<u16>,
}

impl Splitters {
    /// Begins of at most `range_count` ranges, given some of the rows.
    pub(super) fn new(mut sample: Vec<Sampled<'_>>, range_count: usize) -> Self {
        sample.sort_unstable_by(|a, b| order(*a).cmp(&order(*b)));
        let (sample_count, range_count) = (sample.len(), range_count.clamp(1, RANGE_COUNT_MAX));
        let is_begin = |at: usize| {
            let range = |at: usize| at * range_count / sample_count;
            at > 0 && range(at) > range(at - 1)
        };
        let begins = (0..sample_count).filter(|&at| is_begin(at));
        let splitters: Vec<_> = begins
            .map(|at| (sample[at].0, sample[at].1.to_vec()))
            .collect();
        let lower =
            |slot: usize| splitters.partition_point(|(entry, _)| slot_of(*entry) < slot) as u16;
        Self {
            lower_counts: (0..=1 << SLOT_BITS).map(lower).collect(),
            splitters,
        }
    }

    pub(super) fn range_count(&self) -> usize {
        self.splitters.len() + 1
    }

    /// The range of a row. `rest` is what of its key its prefix does not say.
    pub(super) fn range_of(&self, entry: Entry, rest: &[u8]) -> usize {
        let slot = slot_of(entry);
        let lower = |slot: usize| usize::from(self.lower_counts[slot]);
        let (start, end) = (lower(slot), lower(slot + 1));
        let similar = &self.splitters[start..end];
        start
            + similar.partition_point(|(begin, begin_rest)| {
                order((*begin, begin_rest)) <= order((entry, rest))
            })
    }
}

/// What rows are compared by: it is equal for no two rows.
fn order((entry, rest): Sampled<'_>) -> (u64, &[u8], Entry) {
    (entry.prefix(), rest, entry)
}

fn slot_of(entry: Entry) -> usize {
    (entry.prefix() >> (64 - SLOT_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_in_order_and_of_similar_sizes(
            seed: u64,
            row_count in 1u32..3000,
            bits in 0u32..=64,
            rest_len in 0usize..3,
            range_count in 1usize..40,
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut row = |row: u32| {
                let prefix = random.u64(..).checked_shr(64 - bits).unwrap_or(0);
                let rest: Vec<u8> = (0..rest_len).map(|_| random.u8(..3)).collect();
                (prefix, rest, Entry::new(prefix, row / 100, row))
            };
            let mut rows: Vec<_> = (0..row_count).map(&mut row).collect();
            let every = 1 + rows.len() / (16 * range_count);
            let sampled = rows.iter().step_by(every);
            let sample = sampled.map(|(_, rest, entry)| (*entry, &**rest));
            let splitters = Splitters::new(sample.collect(), range_count);
            prop_assert!(splitters.range_count() <= range_count);
            rows.sort_unstable();
            let range = |(_, rest, entry): &(u64, Vec<u8>, Entry)| splitters.range_of(*entry, rest);
            let ranges: Vec<usize> = rows.iter().map(range).collect();
            prop_assert!(ranges.is_sorted());
            let longest = ranges.chunk_by(|a, b| a == b).map(<[usize]>::len).max();
            prop_assert!(longest <= Some(16 + 3 * rows.len().div_ceil(range_count)), "{longest:?}");
        }
    }
}
