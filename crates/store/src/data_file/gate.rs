//! How importers share the device: a limited number writes at once, in pieces of a size that suits it, and if reads and
//! writes disturb each other, one at a time and after the reads that wait, for as long as anything is read.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hotshelf_tier::io::IoEngine;
use tokio::sync::{Semaphore, SemaphorePermit};

/// When reads and writes take turns, a file is written out after this many bytes and not at any time the system
/// chooses.
const TURN_BYTES: u64 = 16 << 20;
/// How long a writer lets readers go first. It must end: a query may be waiting for this very writer.
const WAIT_MAX: Duration = Duration::from_millis(20);
const WAIT_STEP: Duration = Duration::from_millis(1);

/// The way to the device for everything that is imported into one database.
pub struct WriteGate {
    places: Semaphore,
    writers: u32,
    /// What is smaller is gathered before it is written.
    pub piece_bytes: usize,
    /// The reads to take turns with.
    readers: Option<Arc<IoEngine>>,
}

impl WriteGate {
    /// A gate for `writers` at once. With `readers`, writers take turns with what is read through that engine.
    pub fn new(writers: usize, piece_bytes: usize, readers: Option<Arc<IoEngine>>) -> Self {
        let writers = u32::try_from(writers).unwrap_or(u32::MAX).max(1);
        Self {
            places: Semaphore::new(writers as usize),
            writers,
            piece_bytes,
            readers,
        }
    }

    /// Waits for a place; the device may be written to while it is held.
    pub async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        let places = if self.is_read() { self.writers } else { 1 };
        // The semaphore is never closed; without a place, writing is only less orderly.
        self.places.acquire_many(places).await.ok()
    }

    /// Whether a file with this many unwritten bytes should write them out now. An import without reads beside it does
    /// not wait for the device.
    pub fn is_turn(&self, unsynced_bytes: u64) -> bool {
        unsynced_bytes >= TURN_BYTES && self.is_read()
    }

    /// Gives a file's bytes to the device after the reads that are in flight. The caller holds a place.
    pub async fn take_turn(&self, file: &File) -> io::Result<()> {
        let mut waited = Duration::ZERO;
        while waited < WAIT_MAX && self.is_read() {
            tokio::time::sleep(WAIT_STEP).await;
            waited += WAIT_STEP;
        }
        file.sync_data()
    }

    fn is_read(&self) -> bool {
        let readers = self.readers.as_ref();
        readers.is_some_and(|engine| engine.stats().in_flight > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_tier::io::IoOptions;

    fn free(gate: &WriteGate) -> usize {
        gate.places.available_permits()
    }

    #[tokio::test]
    async fn so_many_writers_get_in_and_their_places_become_free_again() {
        let gate = WriteGate::new(2, 4096, None);
        let first = gate.enter().await;
        assert!(first.is_some() && free(&gate) == 1);
        drop(first);
        assert_eq!(free(&gate), 2);
        assert!(!gate.is_turn(u64::MAX));
    }

    #[tokio::test]
    async fn while_something_is_read_one_writes_in_turns_and_does_not_wait_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [1; 4096]).unwrap();
        let engine = IoEngine::start(IoOptions::default()).unwrap();
        let gate = WriteGate::new(4, 4096, Some(Arc::clone(&engine)));
        let alone = gate.enter().await;
        assert!(free(&gate) == 3 && !gate.is_turn(TURN_BYTES));
        drop(alone);
        // The receiver of the first answer holds the ring, and with it the second read.
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let file = engine.open(&path).unwrap();
        let hold = Box::new(move |_| {
            begun.send(()).unwrap();
            let _ = wait.recv();
        });
        engine.submit(&file, 0, 4096, hold).detach();
        has_begun.recv().unwrap();
        engine.submit(&file, 0, 4096, Box::new(|_| {})).detach();
        assert!(gate.is_turn(TURN_BYTES) && !gate.is_turn(TURN_BYTES - 1));
        let place = gate.enter().await;
        assert_eq!(free(&gate), 0);
        gate.take_turn(&File::open(&path).unwrap()).await.unwrap();
        drop((place, go_on));
    }
}
