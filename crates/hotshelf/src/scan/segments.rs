//! Connects Vortex's layout readers to the cache: every segment request of a scan goes through here and
//! carries the scan's identity (`SegmentSource::request` is HPCache's willNeedPage, awaiting is getPage).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use hotshelf_cache::{ReadError, ScanContext};
use parking_lot::Mutex;
use vortex::array::buffer::BufferHandle;
use vortex::buffer::{Alignment, ByteBuffer};
use vortex::error::{VortexError, VortexResult, vortex_err};
use vortex::layout::segments::{SegmentFuture, SegmentId, SegmentSource};

use crate::error::Error;
use hotshelf_store::data_file::DataFile;

type SharedRead = Shared<BoxFuture<'static, Result<Bytes, ReadError>>>;

/// A read begun ahead of its use, and the number of row groups that asked for it.
struct ReadAhead {
    read: SharedRead,
    row_groups: u32,
}

/// The segments of one file for one scan.
pub(crate) struct ScanSegments {
    file: Arc<DataFile>,
    context: Arc<ScanContext>,
    /// Reads begun ahead of their use. They stay shared until released, whatever the cache's policy keeps.
    ahead: Mutex<HashMap<u32, ReadAhead>>,
    /// The first failure, with its type: Vortex's own errors would lose it.
    failure: Mutex<Option<ReadError>>,
}

impl ScanSegments {
    pub fn new(file: Arc<DataFile>, context: Arc<ScanContext>) -> Arc<Self> {
        Arc::new(Self {
            file,
            context,
            ahead: Mutex::default(),
            failure: Mutex::default(),
        })
    }

    /// Begins reading segments that will be needed soon. Returns their bytes.
    pub fn look_ahead(&self, segments: impl IntoIterator<Item = u32>) -> u64 {
        let mut bytes = 0;
        for segment_idx in segments {
            if let Some(ahead) = self.ahead.lock().get_mut(&segment_idx) {
                ahead.row_groups += 1;
                continue;
            }
            let read = self
                .file
                .request(segment_idx, &self.context)
                .boxed()
                .shared();
            bytes += u64::from(self.file.map.specs[segment_idx as usize].length);
            let ahead = ReadAhead {
                read,
                row_groups: 1,
            };
            self.ahead.lock().insert(segment_idx, ahead);
        }
        bytes
    }

    /// Waits until segments that were read ahead have arrived, or failed: their user gets the error. They arrive in
    /// order, so that waiting for the last one first is mostly waiting once.
    pub async fn arrive(&self, segments: &[u32]) {
        for segment_idx in segments.iter().rev() {
            let read = self
                .ahead
                .lock()
                .get(segment_idx)
                .map(|ahead| ahead.read.clone());
            if let Some(read) = read {
                read.await.ok();
            }
        }
    }

    /// Lets go of segments that were read ahead.
    pub fn release(&self, segments: impl IntoIterator<Item = u32>) {
        let mut released = Vec::new();
        let mut ahead = self.ahead.lock();
        for segment_idx in segments {
            let Some(held) = ahead.get_mut(&segment_idx) else {
                continue;
            };
            held.row_groups -= 1;
            if held.row_groups == 0 {
                released.push(ahead.remove(&segment_idx));
            }
        }
        drop(ahead);
        // Dropping bytes may start other reads: not under the lock.
        drop(released);
    }

    /// The typed failure behind an error of Vortex if a read failed, else Vortex's own.
    pub fn typed(&self, error: VortexError) -> Error {
        match self.failure.lock().clone() {
            Some(ReadError::Tier(hotshelf_tier::TierError::Corruption(found))) => {
                Error::Corruption(found)
            }
            Some(ReadError::Tier(failure)) => Error::Tier(failure),
            Some(failure) => Error::Read(failure),
            None => Error::Format(error),
        }
    }
}

/// What Vortex's readers hold: they ask, the scan answers.
pub(crate) struct SegmentAdapter(pub Arc<ScanSegments>);

impl SegmentSource for SegmentAdapter {
    fn request(&self, id: SegmentId) -> SegmentFuture {
        let segments = self.0.clone();
        let Some(alignment) = segments
            .file
            .map
            .specs
            .get(*id as usize)
            .map(|spec| spec.alignment)
        else {
            return futures::future::ready(Err(vortex_err!("no segment {id}"))).boxed();
        };
        let ahead = segments
            .ahead
            .lock()
            .get(&*id)
            .map(|ahead| ahead.read.clone());
        let read = match ahead {
            Some(read) => read.boxed(),
            None => segments.file.request(*id, &segments.context).boxed(),
        };
        async move { finish(&segments, read.await, alignment) }.boxed()
    }
}

fn finish(
    segments: &ScanSegments,
    read: Result<Bytes, ReadError>,
    alignment: Alignment,
) -> VortexResult<BufferHandle> {
    match read {
        Ok(bytes) => Ok(BufferHandle::new_host(
            ByteBuffer::from(bytes).aligned(alignment),
        )),
        Err(error) => {
            let message = vortex_err!("{error}");
            segments.failure.lock().get_or_insert(error);
            Err(message)
        }
    }
}
