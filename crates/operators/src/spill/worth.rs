//! Whether compressing spilled batches takes less time than it saves on the device.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Where compression does not pay, one of this many batches is compressed to see whether it still does not.
const TRY_EVERY: u64 = 128;
/// The share of the last measurement in an average: one of this many. Single writes may take many times the usual.
const WEIGHT: u64 = 16;

/// Averages over the batches of a file. Threads share it.
#[derive(Debug, Default)]
pub(super) struct Worth {
    batches: AtomicU64,
    pack: Average,
    /// Bytes that are stored of a thousand that are compressed.
    stored_permille: Average,
    write: Average,
    read: Average,
}

/// A moving average, zero as long as there is none.
#[derive(Debug, Default)]
struct Average(AtomicU64);

impl Average {
    fn note(&self, value: u64) {
        let old = self.0.load(Relaxed);
        let new = match old {
            0 => value,
            old => (old * (WEIGHT - 1) + value) / WEIGHT,
        };
        self.0.store(new.max(1), Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Picoseconds for a byte.
fn pace(time: Duration, bytes: usize) -> u64 {
    let picoseconds = time.as_nanos().saturating_mul(1000) / bytes.max(1) as u128;
    picoseconds.min(u128::from(u32::MAX)) as u64
}

impl Worth {
    /// Whether to compress the next batch.
    pub fn compresses(&self) -> bool {
        self.pays() || self.batches.fetch_add(1, Relaxed).is_multiple_of(TRY_EVERY)
    }

    /// Whether bytes that need not be written and read save more than compressing takes, and a quarter of that for
    /// the way back.
    fn pays(&self) -> bool {
        let saved_permille = 1000_u64.saturating_sub(self.stored_permille.get());
        let write = self.write.get();
        let read = match self.read.get() {
            0 => write,
            read => read,
        };
        let is_measured = self.pack.get() > 0 && write > 0;
        is_measured && saved_permille * (write + read) > 1000 * (self.pack.get() * 5 / 4)
    }

    /// What compressing a batch took and came to.
    pub fn note_packed(&self, raw_bytes: usize, stored_bytes: usize, time: Duration) {
        self.pack.note(pace(time, raw_bytes));
        let permille = stored_bytes as u64 * 1000 / raw_bytes.max(1) as u64;
        self.stored_permille.note(permille);
    }

    /// How long a thread waited for the device to write a batch.
    pub fn note_written(&self, stored_bytes: usize, time: Duration) {
        self.write.note(pace(time, stored_bytes));
    }

    /// How long a thread waited for the device to read a batch.
    pub fn note_read(&self, stored_bytes: usize, time: Duration) {
        self.read.note(pace(time, stored_bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 1_000_000;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_is_known_before_the_first_batch_which_is_compressed() {
        let worth = Worth::default();
        assert!(!worth.pays());
        assert!(worth.compresses());
        assert!(!worth.compresses());
    }

    #[test]
    fn compression_pays_where_the_device_is_slower_than_it() {
        for (pack_ms, stored, device_ms, pays) in [
            (6, BYTES / 2, 1, false),
            (6, BYTES / 2, 10, true),
            (1, BYTES, 10, false),
            (1, BYTES / 10, 1, true),
        ] {
            let worth = Worth::default();
            worth.note_packed(BYTES, stored, pack_ms * MS);
            worth.note_written(BYTES, device_ms * MS);
            assert_eq!(
                worth.pays(),
                pays,
                "{pack_ms} ms, {stored} bytes, {device_ms} ms"
            );
        }
    }

    #[test]
    fn reading_that_never_waits_saves_nothing() {
        let worth = Worth::default();
        worth.note_packed(BYTES, BYTES / 2, 6 * MS);
        worth.note_written(BYTES, 10 * MS);
        worth.note_read(BYTES, Duration::ZERO);
        assert!(!worth.pays());
    }

    #[test]
    fn what_does_not_pay_is_tried_now_and_then_and_found_to_pay() {
        let worth = Worth::default();
        let tries = |batches: u64| (0..batches).filter(|_| worth.compresses()).count();
        worth.note_packed(BYTES, BYTES, MS);
        worth.note_written(BYTES, 10 * MS);
        assert_eq!(tries(4 * TRY_EVERY), 4);
        (0..3).for_each(|_| worth.note_packed(BYTES, BYTES / 10, MS));
        assert_eq!(tries(10), 10);
    }
}
