//! Rows in the order of their keys.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hotshelf_tier::region::{HugeWords, shared_words};
use hotshelf_tier::simd::prefetch;
use parking_lot::Mutex;

use super::direct::Direct;
use super::part::Part;
use super::store::{Partition, RowStore};
use crate::memory::Charge;
use crate::threads::on_threads;

/// Rows whose memory is fetched ahead.
const AHEAD: usize = 32;

/// Builds the parts, of which the first has the heaps of all. The partitions come back if there is no memory.
pub fn build(
    store: &RowStore,
    partitions: Vec<Partition>,
    direct: &mut Direct,
    marks: bool,
    threads: usize,
) -> Result<Vec<Part>, Vec<Partition>> {
    let stride = store.layout().stride();
    let rows: u64 = partitions.iter().map(|partition| partition.rows).sum();
    let mark_bytes = if marks { rows.div_ceil(8) } else { 0 };
    let mut charge = Charge::adopt(store.grant(), 0);
    let bytes = rows * stride as u64 * 8 + mark_bytes;
    if !charge.try_grow(bytes) || !direct.count(store, &partitions, threads) {
        return Err(partitions);
    }
    let lens = part_lens(rows as usize, direct.part_rows());
    let mut words: Vec<_> = lens.map(|len| HugeWords::zeroed(len * stride)).collect();
    let heaps = Scattering {
        store,
        direct,
        parts: words.iter_mut().map(|words| shared_words(words)).collect(),
    }
    .run(partitions, threads);
    direct.finish();
    let heap_bytes = heaps.iter().map(|heap| heap.capacity() as u64).sum();
    charge.adopt_more(heap_bytes);
    let mut parts: Vec<Part> = words
        .into_iter()
        .map(|words| Part::in_order(words, stride, marks))
        .collect();
    parts[0].keep_for_all(heaps, charge);
    Ok(parts)
}

/// The rows of each part.
fn part_lens(rows: usize, part_rows: usize) -> impl Iterator<Item = usize> {
    let starts = (0..rows.max(1)).step_by(part_rows);
    starts.map(move |start| part_rows.min(rows - start))
}

struct Scattering<'a> {
    store: &'a RowStore,
    direct: &'a Direct,
    parts: Vec<&'a [AtomicU64]>,
}

impl Scattering<'_> {
    /// Copies all rows to their places. What was lent for them is returned, except for their heaps.
    fn run(&self, partitions: Vec<Partition>, threads: usize) -> Vec<Vec<u8>> {
        let mut first = 0;
        let numbered = partitions.into_iter().map(|partition| {
            let number = first;
            first += partition.chunks.len();
            (number, partition)
        });
        let waiting = Mutex::new(numbered.collect::<Vec<_>>());
        let scatter_some = || {
            let mut heaps = Vec::new();
            loop {
                let Some((first, partition)) = waiting.lock().pop() else {
                    return heaps;
                };
                self.scatter_partition(first, partition, &mut heaps);
            }
        };
        let mut heaps = on_threads(threads, scatter_some).concat();
        heaps.sort_unstable_by_key(|(number, _)| *number);
        heaps.into_iter().map(|(_, heap)| heap).collect()
    }

    fn scatter_partition(
        &self,
        first: usize,
        partition: Partition,
        heaps: &mut Vec<(usize, Vec<u8>)>,
    ) {
        if self.store.stop().is_raised() {
            self.store.grant().shrink(partition.held_bytes);
            return;
        }
        let mut heap_bytes = 0;
        for (number, mut chunk) in (first..).zip(partition.chunks) {
            if self.store.layout().has_heap() {
                let rows = chunk.words.chunks_exact_mut(self.store.layout().stride());
                rows.for_each(|row| self.store.layout().set_heap(row, number));
                heap_bytes += chunk.heap.capacity() as u64;
                heaps.push((number, chunk.heap));
            }
            match self.store.layout().stride() {
                1 => self.scatter::<1>(&chunk.words),
                2 => self.scatter::<2>(&chunk.words),
                3 => self.scatter::<3>(&chunk.words),
                4 => self.scatter::<4>(&chunk.words),
                _ => self.scatter_wide(&chunk.words),
            }
        }
        self.store.grant().shrink(partition.held_bytes - heap_bytes);
    }

    fn scatter<const STRIDE: usize>(&self, words: &[u64]) {
        let (rows, _) = words.as_chunks::<STRIDE>();
        let mut places = [(0, 0); AHEAD];
        for rows in rows.chunks(AHEAD) {
            for (place, row) in places.iter_mut().zip(rows) {
                *place = self.direct.take_place(row[0]);
                prefetch(self.parts[place.0], place.1 * STRIDE);
            }
            for (place, row) in places.iter().zip(rows) {
                let start = place.1 * STRIDE;
                let words = &self.parts[place.0][start..start + STRIDE];
                let words = words.iter().zip(row);
                words.for_each(|(word, value)| word.store(*value, Relaxed));
            }
        }
    }

    fn scatter_wide(&self, words: &[u64]) {
        let stride = self.store.layout().stride();
        for row in words.chunks_exact(stride) {
            let (part, number) = self.direct.take_place(row[0]);
            let words = &self.parts[part][number * stride..(number + 1) * stride];
            let words = words.iter().zip(row);
            words.for_each(|(word, value)| word.store(*value, Relaxed));
        }
    }
}
