//! Whether compressing pays: whether it takes less time than the device needs for the bytes that it saves.

use parking_lot::Mutex;

/// How much a new figure counts.
const NEWS: f64 = 0.25;
/// One batch in this many is compressed in any case, so that all three figures remain known.
const LOOK_AGAIN: u64 = 32;

/// What compressing and writing took lately, in nanoseconds per byte. All files of a folder share it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    costs: Mutex<Costs>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Costs {
    compress: Option<f64>,
    write: Option<f64>,
}

/// How well the batches of a file are compressed.
#[derive(Debug, Default)]
pub(super) struct Compressibility {
    /// The share of the bytes that remains.
    share: Option<f64>,
    batch_count: u64,
}

impl Pace {
    /// Whether to compress the next batch of a file. As long as something is unknown, yes.
    pub fn compresses(&self, file: &mut Compressibility) -> bool {
        let look = file.batch_count.is_multiple_of(LOOK_AGAIN);
        file.batch_count += 1;
        let Costs { compress, write } = *self.costs.lock();
        match (compress, write, file.share) {
            (Some(compress), Some(write), Some(share)) => look || compress < (1.0 - share) * write,
            _ => true,
        }
    }

    /// A batch was compressed: its bytes before and after.
    pub fn note_compressed(
        &self,
        file: &mut Compressibility,
        (raw_bytes, bytes): (usize, usize),
        took_ns: u64,
    ) {
        let raw_bytes = raw_bytes.max(1) as f64;
        learn(&mut file.share, bytes as f64 / raw_bytes);
        learn(&mut self.costs.lock().compress, took_ns as f64 / raw_bytes);
    }

    /// Bytes were written, waits included.
    pub fn note_written(&self, bytes: usize, took_ns: u64) {
        let cost = took_ns as f64 / bytes.max(1) as f64;
        learn(&mut self.costs.lock().write, cost);
    }
}

fn learn(known: &mut Option<f64>, news: f64) {
    *known = Some(known.map_or(news, |known| known + NEWS * (news - known)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 64 batches are compressed where this is what it takes.
    fn compressed(compress_ns: u64, write_ns: u64, share_percent: usize) -> usize {
        let (pace, mut file) = (Pace::default(), Compressibility::default());
        let batches = (0..64).filter(|_| {
            let compresses = pace.compresses(&mut file);
            if compresses {
                let bytes = (1000, 10 * share_percent);
                pace.note_compressed(&mut file, bytes, 1000 * compress_ns);
            }
            pace.note_written(1000, 1000 * write_ns);
            compresses
        });
        batches.count()
    }

    #[test]
    fn bytes_are_compressed_if_that_is_quicker_than_writing_what_it_saves() {
        assert_eq!(compressed(1, 10, 20), 64, "a slow device");
        assert_eq!(compressed(3, 1, 20), 2, "a quick device");
        assert_eq!(compressed(3, 1, 1), 2);
        assert_eq!(compressed(1, 10, 100), 2, "bytes that do not become fewer");
    }

    #[test]
    fn what_changes_is_noticed() {
        let (pace, mut file) = (Pace::default(), Compressibility::default());
        pace.note_compressed(&mut file, (1000, 100), 3000);
        pace.note_written(1000, 1000);
        pace.compresses(&mut file);
        assert!(!pace.compresses(&mut file));
        (0..10).for_each(|_| pace.note_written(1000, 10_000));
        assert!(pace.compresses(&mut file), "the device became slow");
    }
}
