//! Finding rows by the key itself, without its hash: where keys are one word each and lie close together.
//!
//! Keys that come in order, as those of a table's rows often do, then find what they need beside what the key before
//! them did.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::part::Part;
use super::table::Tables;
use crate::memory::{Charge, Grant};

/// An array of places has room for at most this many keys for each row,
const PLACES_PER_ROW_MAX: u64 = 2;
/// and a bitmap for this many.
const BITS_PER_ROW_MAX: u64 = 128;
const BITS_PER_ROW_MIN: u64 = 1 << 16;

/// What is known about the keys between the least and the greatest.
pub struct Direct {
    least: u64,
    /// One more than the distance to the greatest.
    len: u64,
    found: Found,
    _charge: Charge,
}

enum Found {
    /// One more than the place of each key's only row; zero where there is none, and at the end.
    Places(Vec<AtomicU64>),
    /// A bit for each key that has rows, and a word without any at the end.
    Bits(Vec<AtomicU64>),
}

impl Direct {
    /// For the first parts, whose rows all have keys. `None`: keys lie too far apart, or there is no memory.
    pub fn build(
        parts: &[Part],
        stride: usize,
        grant: &Arc<Grant>,
        threads: usize,
    ) -> Option<Self> {
        let rows: u64 = parts.iter().map(|part| part.len as u64).sum();
        let ranges = parts.iter().filter_map(Part::key_range);
        let (least, greatest) =
            ranges.reduce(|all, part| (all.0.min(part.0), all.1.max(part.1)))?;
        let len = (greatest - least).checked_add(1)?;
        let direct = |words: u64| {
            let mut charge = Charge::adopt(grant, 0);
            let is_lent = charge.try_grow(8 * words);
            is_lent.then(|| {
                let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
                (words, charge)
            })
        };
        if len <= PLACES_PER_ROW_MAX.saturating_mul(rows)
            && let Some((places, charge)) = direct(len + 1)
            && fill(parts, stride, threads, &|key, place| {
                places[(key - least) as usize].swap(place + 1, Relaxed) == 0
            })
        {
            return Some(Self {
                least,
                len,
                found: Found::Places(places),
                _charge: charge,
            });
        }
        if len > BITS_PER_ROW_MAX.saturating_mul(rows).max(BITS_PER_ROW_MIN) {
            return None;
        }
        let (bits, charge) = direct(len.div_ceil(64) + 1)?;
        fill(parts, stride, threads, &|key, _| {
            let bit = key - least;
            bits[(bit / 64) as usize].fetch_or(1 << (bit % 64), Relaxed);
            true
        });
        Some(Self {
            least,
            len,
            found: Found::Bits(bits),
            _charge: charge,
        })
    }

    /// Replaces `rows` by the numbers of the keys that have rows, of those that `counts` says count, and `starts` by
    /// the places of their only rows. False: only which keys have rows is known.
    #[inline(always)]
    pub fn find(
        &self,
        keys: &[u64],
        counts: impl Fn(usize) -> bool,
        rows: &mut Vec<u32>,
        starts: &mut Vec<u64>,
    ) -> bool {
        rows.clear();
        rows.resize(keys.len(), 0);
        starts.clear();
        let (least, len) = (self.least, self.len);
        // The number of the end stands for all keys that are less or greater.
        let number = |key: u64| key.wrapping_sub(least).min(len) as usize;
        let mut count = 0;
        match &self.found {
            Found::Places(places) => {
                starts.resize(keys.len(), 0);
                for (row, &key) in keys.iter().enumerate() {
                    let place = places[number(key)].load(Relaxed);
                    rows[count] = row as u32;
                    starts[count] = place.wrapping_sub(1);
                    count += usize::from(place != 0 && counts(row));
                }
                starts.truncate(count);
            }
            Found::Bits(bits) => {
                for (row, &key) in keys.iter().enumerate() {
                    let number = number(key);
                    let bit = bits[number / 64].load(Relaxed) >> (number % 64) & 1;
                    rows[count] = row as u32;
                    count += usize::from(bit == 1 && counts(row));
                }
            }
        }
        rows.truncate(count);
        matches!(self.found, Found::Places(_))
    }
}

/// Takes each row to `note`, until that says no. Whether it never did.
fn fill(
    parts: &[Part],
    stride: usize,
    threads: usize,
    note: &(impl Fn(u64, u64) -> bool + Sync),
) -> bool {
    let fill_some = |first: usize| {
        let mine = parts.iter().enumerate().skip(first).step_by(threads);
        mine.into_iter().all(|(idx, part)| {
            let keys = part.rows.chunks_exact(stride).map(|row| row[0]);
            let mut places = keys.enumerate();
            places.all(|(row, key)| note(key, Tables::place(idx, row)))
        })
    };
    std::thread::scope(|scope| {
        let others = (1..threads).map(|first| scope.spawn(move || fill_some(first)));
        let others: Vec<_> = others.collect();
        let mine = fill_some(0);
        others.into_iter().fold(mine, |all, other| {
            other.join().expect("noting keys does not panic") && all
        })
    })
}
