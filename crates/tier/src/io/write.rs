//! Writes of whole pages on the thread that asks for them, under the bandwidth cap that holds for reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use super::PAGE_BYTES;
use super::engine::IoEngine;
use super::shared::Shared;
use super::stats::count;

/// How often a thread that waits looks whether the cap has changed.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl IoEngine {
    /// Writes whole pages to a file, and returns when all of them are written; they need not be durable then. The
    /// bytes start at a page of memory if the file was opened for direct writes.
    ///
    /// A write that ends within a page continues at that page's start: direct writes know pages only.
    ///
    /// # Errors
    /// Those of the device. [`io::ErrorKind::WriteZero`] if it does not take a page at once.
    pub fn write_pages(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        debug_assert!(
            bytes.len().is_multiple_of(PAGE_BYTES) && offset.is_multiple_of(PAGE_BYTES as u64)
        );
        let counters = &self.shared.counters;
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let part = &rest[..allowed(&self.shared, rest.len())];
            match file.write_at(part, offset + done as u64) {
                Ok(written) if written < PAGE_BYTES => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let whole = written - written % PAGE_BYTES;
                    count(&counters.writes, 1);
                    count(&counters.written_bytes, whole as u64);
                    done += whole;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// How many of these bytes may be written now. Waits for the cap.
fn allowed(shared: &Shared, bytes: usize) -> usize {
    let mut since_ns = None;
    loop {
        let mut throttle = shared.throttle.lock();
        let bytes = bytes.min(throttle.operation_bytes_max());
        let now_ns = shared.now_ns();
        let Err(wait_ns) = throttle.take(bytes, now_ns) else {
            let waited_ns = since_ns.map_or(0, |since_ns| now_ns - since_ns);
            count(&shared.counters.throttled_ns, waited_ns);
            return bytes;
        };
        drop(throttle);
        since_ns.get_or_insert(now_ns);
        thread::sleep(Duration::from_nanos(wait_ns).min(LOOK_AGAIN));
    }
}
