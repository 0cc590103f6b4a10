//! The data files that the cache knows, and how large their columns are.

use crate::key::{ColumnId, FileId, SegmentInfo, SegmentKey, SegmentKind};
use crate::reader::SegmentReader;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A data file: how it is read, and its segments.
pub(crate) struct FileEntry {
    pub(crate) reader: Arc<dyn SegmentReader>,
    segments: Vec<SegmentInfo>,
    is_removed: AtomicBool,
}

/// The files by id, and the sizes of their columns.
#[derive(Default)]
pub(crate) struct FileTable {
    entries: Vec<Option<Arc<FileEntry>>>,
    /// Charged bytes of data by column.
    sizes: Arc<BTreeMap<ColumnId, u64>>,
}

impl FileTable {
    pub(crate) fn add(
        &mut self,
        reader: Arc<dyn SegmentReader>,
        segments: Vec<SegmentInfo>,
    ) -> FileId {
        let entry = FileEntry::new(reader, segments);
        let sizes = Arc::make_mut(&mut self.sizes);
        for info in entry.data_segments() {
            *sizes.entry(info.column).or_default() += info.charged_bytes;
        }
        self.entries.push(Some(entry));
        FileId((self.entries.len() - 1) as u32)
    }

    /// Gives segments to a file that was added without any. Other files stay as they are.
    pub(crate) fn describe(&mut self, file: FileId, segments: Vec<SegmentInfo>) {
        let slot = self.entries.get_mut(file.0 as usize);
        let Some(entry) = slot.and_then(Option::as_mut) else {
            return;
        };
        if !entry.segments.is_empty() {
            return;
        }
        *entry = FileEntry::new(Arc::clone(&entry.reader), segments);
        let sizes = Arc::make_mut(&mut self.sizes);
        for info in entry.data_segments() {
            *sizes.entry(info.column).or_default() += info.charged_bytes;
        }
    }

    /// Takes a file out. Reads under way still finish.
    pub(crate) fn remove(&mut self, file: FileId) -> Option<()> {
        let entry = self.entries.get_mut(file.0 as usize)?.take()?;
        let sizes = Arc::make_mut(&mut self.sizes);
        for info in entry.data_segments() {
            if let Some(size) = sizes.get_mut(&info.column) {
                *size -= info.charged_bytes;
            }
        }
        sizes.retain(|_, size| *size > 0);
        entry.is_removed.store(true, SeqCst);
        Some(())
    }

    /// A segment and the file it belongs to.
    pub(crate) fn segment(&self, key: SegmentKey) -> Option<(Arc<FileEntry>, SegmentInfo)> {
        let file = self.entries.get(key.file.0 as usize)?.as_ref()?;
        let info = file.segments.get(key.segment_idx as usize)?;
        Some((Arc::clone(file), *info))
    }

    /// Charged bytes of data by column.
    pub(crate) fn sizes(&self) -> &Arc<BTreeMap<ColumnId, u64>> {
        &self.sizes
    }

    /// The files that exist, in order of their ids.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<FileEntry>> {
        self.entries.iter().flatten()
    }
}

impl FileEntry {
    fn new(reader: Arc<dyn SegmentReader>, segments: Vec<SegmentInfo>) -> Arc<Self> {
        Arc::new(Self {
            reader,
            segments,
            is_removed: AtomicBool::new(false),
        })
    }

    pub(crate) fn segments(&self) -> &[SegmentInfo] {
        &self.segments
    }

    /// Whether the file was removed from the cache; a read that is under way is then not kept.
    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(SeqCst)
    }

    fn data_segments(&self) -> impl Iterator<Item = &SegmentInfo> {
        let segments = self.segments.iter();
        segments.filter(|info| info.kind == SegmentKind::Data)
    }
}
