//! Pure: rows put in order by the bits that tell most keys apart, then by the rest of the keys.

use super::survey::{KeySurvey, Selection};
use crate::{Result, Stop};

/// A row to be sorted: from the top, 64 bits of its key, the number of its batch, and its number there. Entries of rows
/// with equal keys are in the order in which the rows came.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(u128);

impl Entry {
    pub(super) fn new(prefix: u64, batch: u32, row: u32) -> Self {
        Self(u128::from(prefix) << 64 | u128::from(batch) << 32 | u128::from(row))
    }

    pub(super) fn prefix(self) -> u64 {
        (self.0 >> 64) as u64
    }

    pub(super) fn batch(self) -> usize {
        (self.0 >> 32) as u32 as usize
    }

    pub(super) fn row(self) -> usize {
        self.0 as u32 as usize
    }

    fn with_prefix(self, prefix: u64) -> Self {
        Self(u128::from(prefix) << 64 | u128::from(self.0 as u64))
    }
}

/// Up to this many entries are sorted by comparisons: they fit in a core's cache, and it takes a few milliseconds.
const COMPARED_COUNT_MAX: usize = 1 << 14;
/// Entries that are taken between two looks at the stop: about a millisecond.
const CHECKED_COUNT: usize = 1 << 16;
const BUCKET_COUNT: usize = 256;
/// Entries are made in order of this many bits: enough to make most buckets small, and few enough that the places where
/// they are written stay in the processor's table of pages.
const FIRST_BITS: u32 = 11;
/// Up to this many rows with equal prefixes are sorted by comparing their keys.
const SIMILAR_COUNT_MAX: usize = 64;

/// How many bits from the first on all prefixes have in common.
pub(super) fn common_bits(entries: impl Iterator<Item = Entry>) -> u32 {
    let mut prefixes = entries.map(Entry::prefix);
    let first = prefixes.next().unwrap_or(0);
    let differing = prefixes.fold(0, |bits, prefix| bits | (prefix ^ first));
    differing.leading_zeros()
}

/// Entries by prefix, then by key, then by place. The prefixes are those of `selection`, and their first `common_bits`
/// bits are the same. `entries` gives them twice.
pub(super) fn sorted<'a, I: Iterator<Item = Entry>>(
    entries: impl Fn() -> I,
    common_bits: u32,
    selection: &Selection,
    key: &impl Fn(Entry) -> &'a [u8],
    stop: &Stop,
) -> Result<Vec<Entry>> {
    stop.check()?;
    let common_bits = common_bits.min(64 - FIRST_BITS);
    let first_bucket =
        |entry: Entry| ((entry.prefix() << common_bits) >> (64 - FIRST_BITS)) as usize;
    let mut next = vec![0; 1 << FIRST_BITS];
    for_each_until(stop, entries(), |entry| next[first_bucket(entry)] += 1)?;
    let mut count = 0;
    for next in &mut next {
        count += std::mem::replace(next, count);
    }
    let mut sorted = vec![Entry(0); count];
    for_each_until(stop, entries(), |entry| {
        let next = &mut next[first_bucket(entry)];
        sorted[*next] = entry;
        *next += 1;
    })?;
    let mut start = 0;
    for end in next {
        sort_from_byte(
            &mut sorted[start..end],
            (common_bits + FIRST_BITS) / 8,
            stop,
        )?;
        start = end;
    }
    if !selection.is_complete() {
        sort_similar(&mut sorted, selection.end(), key, stop)?;
    }
    Ok(sorted)
}

/// Takes all entries; ends early when the stop is raised.
fn for_each_until(
    stop: &Stop,
    mut entries: impl Iterator<Item = Entry>,
    mut take: impl FnMut(Entry),
) -> Result<()> {
    loop {
        stop.check()?;
        let mut taken = 0;
        entries.by_ref().take(CHECKED_COUNT).for_each(|entry| {
            taken += 1;
            take(entry);
        });
        if taken < CHECKED_COUNT {
            return Ok(());
        }
    }
}

/// Sorts entries whose prefixes have their first `byte` bytes in common.
fn sort_from_byte(entries: &mut [Entry], byte: u32, stop: &Stop) -> Result<()> {
    stop.check()?;
    if entries.len() <= COMPARED_COUNT_MAX || byte == 8 {
        entries.sort_unstable();
        return Ok(());
    }
    let bucket_of = |entry: &Entry| (entry.prefix() >> (56 - 8 * byte)) as usize % BUCKET_COUNT;
    let ends = distribute(entries, bucket_of);
    let mut start = 0;
    for end in ends {
        sort_from_byte(&mut entries[start..end], byte + 1, stop)?;
        start = end;
    }
    Ok(())
}

/// Sorts rows that have equal prefixes, in entries that are in order otherwise. Their keys agree up to byte `start`.
fn sort_similar<'a>(
    entries: &mut [Entry],
    start: usize,
    key: &impl Fn(Entry) -> &'a [u8],
    stop: &Stop,
) -> Result<()> {
    let rest = |entry: Entry| key(entry).get(start..).unwrap_or(&[]);
    for similar in entries.chunk_by_mut(|a, b| a.prefix() == b.prefix()) {
        if similar.len() == 1 {
            continue;
        }
        if similar.len() <= SIMILAR_COUNT_MAX {
            similar.sort_unstable_by(|a, b| rest(*a).cmp(rest(*b)).then(a.cmp(b)));
            continue;
        }
        stop.check()?;
        let mut survey = KeySurvey::default();
        similar.iter().for_each(|entry| survey.add(rest(*entry)));
        let selection = survey.selection();
        if selection.end() == 0 {
            continue;
        }
        let prefix = similar[0].prefix();
        for entry in &mut *similar {
            *entry = entry.with_prefix(selection.prefix(rest(*entry)));
        }
        sort_from_byte(similar, 0, stop)?;
        if !selection.is_complete() {
            sort_similar(similar, start + selection.end(), key, stop)?;
        }
        for entry in similar {
            *entry = entry.with_prefix(prefix);
        }
    }
    Ok(())
}

/// Brings entries together by bucket, in place, and returns where each bucket ends.
fn distribute(entries: &mut [Entry], bucket_of: impl Fn(&Entry) -> usize) -> [usize; BUCKET_COUNT] {
    let mut counts = [0; BUCKET_COUNT];
    for entry in &*entries {
        counts[bucket_of(entry)] += 1;
    }
    let mut next = [0; BUCKET_COUNT];
    let mut ends = [0; BUCKET_COUNT];
    let mut sum = 0;
    for bucket in 0..BUCKET_COUNT {
        next[bucket] = sum;
        sum += counts[bucket];
        ends[bucket] = sum;
    }
    for bucket in 0..BUCKET_COUNT {
        while next[bucket] < ends[bucket] {
            let at = next[bucket];
            let home = bucket_of(&entries[at]);
            entries.swap(at, next[home]);
            next[home] += 1;
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn entries_end_up_as_comparing_puts_them(
            seed: u64,
            count in 0usize..60_000,
            len in 0usize..40,
            value_count in 1u8..=255,
            constant in 0.0..1.0,
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let varies: Vec<bool> = (0..len).map(|_| random.f64() > constant).collect();
            let mut byte = |&varies: &bool| if varies { random.u8(..value_count) } else { 9 };
            let keys: Vec<Vec<u8>> = (0..count).map(|_| varies.iter().map(&mut byte).collect()).collect();
            let mut survey = KeySurvey::default();
            keys.iter().for_each(|key| survey.add(key));
            let selection = survey.selection();
            let entry = |(row, key): (usize, &Vec<u8>)| {
                Entry::new(selection.prefix(key), (row / 100) as u32, row as u32)
            };
            let mut entries: Vec<Entry> = keys.iter().enumerate().map(entry).collect();
            let mut expected = entries.clone();
            expected.sort_by_key(|entry| &keys[entry.row()]);
            random.shuffle(&mut entries);
            let key = |entry: Entry| &*keys[entry.row()];
            let common = entries.iter().fold(0, |bits, entry| bits | (entry.prefix() ^ entries[0].prefix()));
            for common_bits in [0, common.leading_zeros()] {
                let entries = || entries.iter().copied();
                let sorted = sorted(entries, common_bits, &selection, &key, &Stop::default()).unwrap();
                prop_assert_eq!(&sorted, &expected);
            }
        }
    }

    #[test]
    fn sorting_ends_when_the_stop_is_raised() {
        let stop = Stop::default();
        stop.raise();
        let selection = KeySurvey::default().selection();
        assert!(sorted(std::iter::empty, 0, &selection, &|_| &[], &stop).is_err());
    }
}
