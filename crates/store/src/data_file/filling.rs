//! How copies of data files are filled: each of a shelf's writers has a part of its own, which it writes in pieces that
//! the device likes (PMEM-OLAP 2021, insights 6 and 7).

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use hotshelf_tier::TierError;
use hotshelf_tier::io::{IoFile, ReadFuture};
use hotshelf_tier::topology::pin_to;
use parking_lot::Mutex;

use super::open::DataFile;
use super::places::Place;
use super::sums::verify;
use crate::error::{Result, StoreError};
use crate::shelf_use::ShelfUse;

/// Reads of a file that is copied at a time.
const READS: usize = 8;

/// What a copy is written to: all of it, or one writer's part, which begins at `base`.
pub(super) enum Target<'a> {
    Memory { base: usize, bytes: &'a mut [u8] },
    File(&'a File),
}

impl<'a> Target<'a> {
    /// The part before an offset of the copy, and the rest.
    fn split(self, at: usize) -> (Self, Self) {
        match self {
            Self::Memory { base, bytes } => {
                let (before, bytes) = bytes.split_at_mut((at - base).min(bytes.len()));
                let before = Self::Memory {
                    base,
                    bytes: before,
                };
                (before, Self::Memory { base: at, bytes })
            }
            Self::File(file) => (Self::File(file), Self::File(file)),
        }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Memory { base, bytes: own } => {
                let start = offset - *base;
                if let Some(target) = own.get_mut(start..start + bytes.len()) {
                    target.copy_from_slice(bytes);
                }
                Ok(())
            }
            Self::File(file) => file.write_all_at(bytes, offset as u64),
        }
    }
}

/// Divides segments among writers: consecutive ones, about the same number of bytes for each.
fn shares(places: &[Option<Place>], writers: usize) -> Vec<Range<usize>> {
    let share = end_of(places).div_ceil(writers.max(1)).max(1);
    let mut shares: Vec<(usize, Range<usize>)> = Vec::new();
    for (idx, place) in places.iter().enumerate() {
        let Some((start, _)) = place else { continue };
        match shares.last_mut() {
            Some((writer, own)) if *writer == start / share => own.end = idx + 1,
            _ => shares.push((start / share, idx..idx + 1)),
        }
    }
    shares.into_iter().map(|(_, own)| own).collect()
}

fn end_of(places: &[Option<Place>]) -> usize {
    let last = places.iter().flatten().last();
    last.map_or(0, |(start, len)| start + len)
}

/// Gives segments, by their numbers, with their places.
pub(super) type Give<'a> = &'a mut dyn FnMut(Place, &[u8]) -> Result<()>;

/// A piece of a copy that is about to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub writer: usize,
    /// Where the writer runs; none: anywhere.
    pub cpus: Option<&'a [u32]>,
    pub offset: usize,
    pub len_bytes: usize,
}

/// Has segments that have a place written there, by the shelf's writers, which read them with `read`. `before` is
/// called before each piece is written. The copy has a name for errors. Where one writer fails, the others stop.
pub(super) fn fill(
    places: &[Option<Place>],
    how: &ShelfUse,
    (target, name): (Target<'_>, &Path),
    read: &(impl Fn(Range<usize>, Give<'_>) -> Result<()> + Sync),
    before: &(impl Fn(Piece<'_>) + Sync),
) -> Result<()> {
    let piece_bytes = how.piece_bytes.unwrap_or(usize::MAX).max(1);
    let shares = shares(places, how.writers);
    let failure = Mutex::new(None);
    let (failure, stopped) = (&failure, || StoreError::NotSupported {
        what: "a copy whose writer stopped".into(),
    });
    let filled = std::thread::scope(|scope| {
        let (mut rest, mut writers) = (target, Vec::new());
        for (writer, share) in shares.into_iter().enumerate() {
            let (mut own, after) = rest.split(end_of(&places[share.clone()]));
            rest = after;
            let cpus = how.cpus_of(writer);
            let mut write = move |place: Place, bytes: &[u8]| {
                if failure.lock().is_some() {
                    return Err(stopped());
                }
                let mut at = place.0;
                for piece in bytes.chunks(piece_bytes) {
                    let about = Piece {
                        writer,
                        cpus,
                        offset: at,
                        len_bytes: piece.len(),
                    };
                    tracing::trace!(?about.cpus, about.writer, about.offset, about.len_bytes);
                    before(about);
                    let written = own.write(at, piece);
                    written.map_err(StoreError::io("write a copy", name))?;
                    at += piece.len();
                }
                Ok(())
            };
            let work = move || {
                if let Some(Err(error)) = cpus.map(pin_to) {
                    tracing::debug!(%error, writer, "a writer runs anywhere");
                }
                if let Err(error) = read(share, &mut write) {
                    failure.lock().get_or_insert(error);
                }
            };
            let thread = std::thread::Builder::new().name(format!("hotshelf-fill-{writer}"));
            let thread = thread.spawn_scoped(scope, work);
            writers.push(thread.map_err(StoreError::io("start a thread for", name))?);
        }
        let ends = writers.into_iter().map(|writer| writer.join());
        // All have ended before the first error is looked at.
        let ends: Vec<_> = ends.collect();
        ends.into_iter()
            .try_for_each(|end| end.map_err(|_| stopped()))
    });
    failure.lock().take().map_or(filled, Err)
}

/// A segment that is being read from its file.
struct SegmentRead {
    file: Arc<IoFile>,
    offset: u64,
    sum: u32,
    place: Place,
    bytes: ReadFuture,
}

impl SegmentRead {
    async fn finish(self, give: Give<'_>) -> Result<()> {
        let bytes = self.bytes.await?;
        verify(self.file.path(), self.offset, "segment", &bytes, self.sum)
            .map_err(TierError::from)?;
        give(self.place, &bytes)
    }
}

impl DataFile {
    /// Reads those of some segments that have a place from the file, whatever is in memory.
    pub(super) async fn read_segments(
        &self,
        segments: Range<usize>,
        places: &[Option<Place>],
        give: Give<'_>,
    ) -> Result<()> {
        let io = self.known.handle.open()?;
        let mut under_way: VecDeque<SegmentRead> = VecDeque::new();
        for segment_idx in segments {
            let known = self.known.segment(segment_idx as u32);
            let (Some(place), Some(known)) = (places[segment_idx], known) else {
                continue;
            };
            if under_way.len() == READS
                && let Some(read) = under_way.pop_front()
            {
                read.finish(give).await?;
            }
            let ((offset, length), sum) = known;
            let engine = self.known.handle.engine();
            under_way.push_back(SegmentRead {
                file: io.clone(),
                offset,
                sum,
                place,
                bytes: engine.read(&io, offset, length as usize),
            });
        }
        for read in under_way {
            read.finish(give).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::{ALIGN, Places};
    use super::*;
    use hotshelf_tier::profile::TierProfile;
    use hotshelf_tier::topology::{Topology, Tree};
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    const TWO_SOCKETS: &str = include_str!("../../../tier/src/topology/trees/two-sockets.tree");

    /// Segments of these lengths; none is 0.
    fn places(lens: &[usize]) -> Vec<Option<Place>> {
        let mut end = 0usize;
        let place = |len: &usize| {
            let start = end.next_multiple_of(ALIGN);
            (*len > 0).then(|| {
                end = start + len;
                (start, *len)
            })
        };
        lens.iter().map(place).collect()
    }

    #[test]
    fn writers_have_consecutive_segments_and_about_the_same_number_of_bytes() {
        let even = places(&[1000; 16]);
        assert_eq!(shares(&even, 1).first(), Some(&(0..16)));
        assert_eq!(shares(&even, 4), [0..4, 4..8, 8..12, 12..16]);
        assert_eq!(shares(&places(&[0, 0]), 4), Vec::<Range<usize>>::new());
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..500 {
            let lens: Vec<usize> = (0..random.usize(1..40))
                .map(|_| random.usize(0..9) * 300)
                .collect();
            let (places, writers) = (places(&lens), random.usize(1..9));
            let shares = shares(&places, writers);
            assert!(shares.len() <= writers);
            let mut seen = vec![0; places.len()];
            for share in &shares {
                share.clone().for_each(|idx| seen[idx] += 1);
            }
            let all_once = places
                .iter()
                .zip(&seen)
                .all(|(place, seen)| *seen <= 1 && (place.is_none() || *seen == 1));
            assert!(all_once, "{places:?} {shares:?}");
            let bytes = |share: &Range<usize>| -> usize {
                places[share.clone()]
                    .iter()
                    .flatten()
                    .map(|(_, len)| len)
                    .sum()
            };
            let most = end_of(&places) / writers + 3000;
            assert!(shares.iter().all(|share| bytes(share) <= most));
        }
    }

    /// What a writer did: the processors it was given, and offsets and lengths of its pieces in their order.
    #[derive(Default)]
    struct Written {
        cpus: Option<Vec<u32>>,
        pieces: Vec<(usize, usize)>,
    }

    /// What each writer did to a copy of 64 segments of 10 000 bytes.
    fn trace(how: &ShelfUse) -> BTreeMap<usize, Written> {
        let places: Places = places(&[10_000; 64]).into();
        let mut memory = vec![0; end_of(&places)];
        let written = Mutex::new(BTreeMap::<usize, Written>::new());
        let read = |share: Range<usize>, give: Give<'_>| {
            let mut share = share.filter_map(|idx| Some((idx, places[idx]?)));
            share.try_for_each(|(idx, place)| give(place, &[idx as u8; 10_000]))
        };
        let target = Target::Memory {
            base: 0,
            bytes: &mut memory,
        };
        fill(&places, how, (target, Path::new("")), &read, &|piece| {
            let mut written = written.lock();
            let own = written.entry(piece.writer).or_default();
            own.cpus = piece.cpus.map(<[u32]>::to_vec);
            own.pieces.push((piece.offset, piece.len_bytes));
        })
        .unwrap();
        for (idx, place) in places.iter().enumerate() {
            let (start, len) = place.unwrap();
            assert!(
                memory[start..start + len]
                    .iter()
                    .all(|byte| *byte == idx as u8)
            );
        }
        written.into_inner()
    }

    #[test]
    fn writers_and_pieces_are_those_of_the_shelf() {
        let one = trace(&ShelfUse::default());
        assert_eq!(one.keys().collect::<Vec<_>>(), [&0]);
        let pieces = &one[&0].pieces;
        assert!(pieces.iter().all(|(_, len)| *len == 10_000) && pieces.len() == 64);
        assert_eq!(one[&0].cpus, None);
        let how = ShelfUse {
            writers: 8,
            piece_bytes: Some(1024),
            ..ShelfUse::default()
        };
        let eight = trace(&how);
        assert_eq!(eight.len(), 8);
        for (writer, Written { pieces, .. }) in &eight {
            // Each one a stretch of its own, from its beginning to its end, in pieces of a kilobyte.
            assert!(
                pieces.is_sorted() && pieces.iter().all(|(_, len)| *len <= 1024),
                "{writer}"
            );
            assert_eq!(pieces.iter().map(|(_, len)| len).sum::<usize>(), 80_000);
            let next = eight
                .get(&(writer + 1))
                .map_or(usize::MAX, |next| next.pieces[0].0);
            assert!(pieces.iter().all(|(at, len)| at + len <= next));
        }
    }

    #[test]
    fn on_two_sockets_writers_run_near_a_node_or_share_the_sockets() {
        let topology = Topology::parse(&Tree::from_text(TWO_SOCKETS));
        let cpus_of_node = |id: usize| topology.nodes[id].cpus.clone();
        let with_writers = |mut tier: TierProfile| {
            (tier.write_threads.value, tier.write_threads.measured) = (4, true);
            trace(&ShelfUse::of(&tier, &topology))
        };
        let near = with_writers(TierProfile::defaults("node:2", 8));
        assert_eq!(near.len(), 4);
        assert!(near.values().all(|own| own.cpus == Some(cpus_of_node(2))));

        let mut dram = TierProfile::defaults("dram", 8);
        assert!(
            with_writers(dram.clone())
                .values()
                .all(|own| own.cpus.is_none())
        );
        dram.stripe_sockets.value = true;
        let striped = with_writers(dram);
        let mut bytes = BTreeMap::<Vec<u32>, usize>::new();
        for own in striped.into_values() {
            let lens = own.pieces.iter().map(|(_, len)| len);
            *bytes.entry(own.cpus.unwrap()).or_default() += lens.sum::<usize>();
        }
        let sockets = [[0, 1], [2, 3]].map(|nodes| nodes.map(cpus_of_node).concat());
        assert_eq!(
            bytes.keys().collect::<BTreeSet<_>>(),
            sockets.iter().collect()
        );
        assert!(bytes.values().all(|bytes| *bytes == 320_000), "{bytes:?}");
    }

    #[test]
    fn a_writer_that_fails_stops_the_others_and_fails_the_copy() {
        let places: Places = places(&[100; 8]).into();
        let mut memory = vec![0; end_of(&places)];
        let how = ShelfUse {
            writers: 4,
            ..ShelfUse::default()
        };
        // The writer of the sixth segment fails; the others write until they are stopped.
        let stopped = AtomicUsize::new(0);
        let read = |share: Range<usize>, give: Give<'_>| {
            if share.contains(&5) {
                let what = "this".into();
                return Err(StoreError::NotSupported { what });
            }
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(20) {
                let given = give(places[share.start].unwrap(), &[1; 100]);
                given.inspect_err(|_| _ = stopped.fetch_add(1, Relaxed))?;
            }
            Ok(())
        };
        let target = Target::Memory {
            base: 0,
            bytes: &mut memory,
        };
        let filled = fill(&places, &how, (target, Path::new("")), &read, &|_| {});
        assert!(filled.unwrap_err().to_string().contains("this"));
        assert_eq!(stopped.into_inner(), 3);
    }

    #[test]
    fn each_part_takes_its_own_bytes_and_no_others() {
        let mut memory = vec![0u8; 1000];
        let whole = Target::Memory {
            base: 0,
            bytes: &mut memory,
        };
        let (mut first, rest) = whole.split(300);
        let (mut second, mut third) = rest.split(800);
        first.write(0, &[1; 300]).unwrap();
        second.write(300, &[2; 500]).unwrap();
        third.write(900, &[3; 100]).unwrap();
        // Beyond a part nothing is written.
        first.write(299, &[9; 2]).unwrap();
        assert_eq!(memory[298..302], [1, 1, 2, 2]);
        assert_eq!((memory[799], memory[800], memory[999]), (2, 0, 3));
    }
}
