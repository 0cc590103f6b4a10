use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;
use crate::persist::{Count, Counts, Trace};
use crate::region::{AnonymousOptions, FileOptions};

const LAYOUT: LayoutId = *b"a test's layout!";
const POOL_BYTES: usize = 64 << 10;

fn options() -> PoolOptions {
    PoolOptions {
        layout: LAYOUT,
        pool_id: [7; 16],
        ..PoolOptions::default()
    }
}

fn volatile_pool() -> Pool<RegionOps> {
    let region = Region::anonymous(POOL_BYTES, &AnonymousOptions::default()).unwrap();
    Pool::create(region, &options()).unwrap()
}

fn file_region(path: &Path, len_bytes: u64) -> Region {
    let options = FileOptions {
        len_bytes: Some(len_bytes),
        ..FileOptions::default()
    };
    Region::open_file(path, &options).unwrap()
}

fn reopen(path: &Path) -> Result<Pool<RegionOps>, TierError> {
    Pool::open(file_region(path, 1), &LAYOUT, &WriterOptions::default())
}

/// A pool image with two published generations, and what each segment holds.
fn published_image() -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut pool = Pool::format(Writer::new(Trace::new(vec![0; POOL_BYTES])), &options()).unwrap();
    let contents: Vec<Vec<u8>> = vec![vec![1; 700], (0..=255).collect(), b"third".to_vec()];
    pool.append(10, &[&contents[0]]).unwrap();
    pool.publish().unwrap();
    pool.append(11, &[&contents[1]]).unwrap();
    pool.append(12, &[&contents[2]]).unwrap();
    pool.publish().unwrap();
    (pool.writer().ops().log().current, contents)
}

/// Recovers, and reads every segment the way an opener would.
fn read_all(image: &[u8]) -> Result<Vec<Vec<u8>>, TierError> {
    let recovered = recover(image, &LAYOUT, Path::new("image"))?;
    let read = |entry: &SegmentEntry| {
        let start = entry.offset as usize;
        let bytes = &image[start..start + entry.len_bytes as usize];
        verify_segment(bytes, entry, Path::new("image"))?;
        Ok(bytes.to_vec())
    };
    recovered.segments.iter().map(read).collect()
}

#[test]
fn published_segments_are_found_after_reopening_and_staged_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let mut pool = Pool::create(file_region(&path, POOL_BYTES as u64), &options()).unwrap();
    pool.append(1, &[b"first ", b"segment"]).unwrap();
    assert_eq!(pool.publish().unwrap(), 1);
    pool.append(2, &[&[9; 5000]]).unwrap();
    assert_eq!(pool.publish().unwrap(), 2);
    pool.append(3, &[b"staged"]).unwrap();
    assert!(pool.segment(2).is_err());
    drop(pool);

    let mut pool = reopen(&path).unwrap();
    assert_eq!((pool.generation(), pool.segments().len()), (2, 2));
    assert_eq!(&pool.segment(0).unwrap()[..], b"first segment");
    assert_eq!(&pool.segment(1).unwrap()[..], [9; 5000]);
    pool.remove(0).unwrap();
    pool.append(4, &[b"fourth"]).unwrap();
    assert_eq!(pool.publish().unwrap(), 3);
    assert_eq!(&pool.segment(1).unwrap()[..], b"fourth");
    drop(pool);
    let kinds: Vec<u64> = reopen(&path)
        .unwrap()
        .segments()
        .iter()
        .map(|entry| entry.kind)
        .collect();
    assert_eq!(kinds, [2, 4]);
}

#[test]
fn a_sealed_segment_outlives_later_publishes() {
    let mut pool = volatile_pool();
    pool.append(1, &[b"kept"]).unwrap();
    pool.publish().unwrap();
    let kept = pool.segment(0).unwrap();
    pool.remove(0).unwrap();
    for round in 0..20u8 {
        pool.append(u64::from(round), &[&[round; 300]]).unwrap();
        pool.publish().unwrap();
    }
    assert_eq!(&kept[..], b"kept");
    drop(pool);
    assert_eq!(&kept[..], b"kept");
}

#[test]
fn a_pool_that_was_never_published_is_empty() {
    let pool = Pool::format(Writer::new(Trace::new(vec![0; DATA_OFFSET])), &options()).unwrap();
    let image = pool.writer().ops().log().current;
    let recovered = recover(&image, &LAYOUT, Path::new("image")).unwrap();
    assert_eq!(
        (recovered.root.generation, recovered.segments.len()),
        (0, 0)
    );
}

#[test]
fn publishing_costs_two_fences_and_two_small_writes() {
    let ops = Count::new(Trace::new(vec![0; POOL_BYTES]));
    let mut pool = Pool::format(Writer::new(ops), &options()).unwrap();
    let roots_before = pool.roots.ops().counts();
    pool.append(1, &[&[1; 512]]).unwrap();
    pool.publish().unwrap();
    let expected = Counts {
        stored_bytes: 32,
        copied_nt_bytes: 512,
        flushed_line_count: 1,
        fence_count: 1,
        publish_count: 0,
    };
    assert_eq!(pool.data.ops().counts(), expected);
    let roots = pool.roots.ops().counts();
    assert_eq!(roots.fence_count - roots_before.fence_count, 1);
    assert_eq!(
        roots.flushed_line_count - roots_before.flushed_line_count,
        1
    );
    assert_eq!(roots.publish_count - roots_before.publish_count, 1);
}

#[test]
fn segments_staged_by_another_thread_are_flushed_again_before_publishing() {
    let mut pool = Pool::format(Writer::new(Trace::new(vec![0; POOL_BYTES])), &options()).unwrap();
    pool.append(1, &[b"from here"]).unwrap();
    let pool = std::thread::spawn(move || {
        pool.publish().unwrap();
        pool
    });
    let log = pool.join().unwrap().writer().ops().log();
    let flush_of_segment = log.events.iter().rev().find_map(|event| match event {
        crate::persist::Event::Flush { thread, range } if range.start == DATA_OFFSET => {
            Some(*thread)
        }
        _ => None,
    });
    assert_ne!(flush_of_segment.unwrap(), thread::current().id());
}

#[test]
fn a_full_pool_refuses_and_stays_as_it_was() {
    let mut pool = volatile_pool();
    pool.append(1, &[&[1; 1000]]).unwrap();
    pool.publish().unwrap();
    let free_bytes = pool.free_bytes();
    let error = pool.append(2, &[&vec![0; POOL_BYTES]]).unwrap_err();
    assert!(matches!(error, TierError::PoolFull { .. }), "{error}");
    assert_eq!((pool.free_bytes(), pool.segments().len()), (free_bytes, 1));
    while pool.append(3, &[&[3; 2000]]).is_ok() {}
    while pool.append(3, &[&[3; 200]]).is_ok() {}
    assert!(matches!(
        pool.publish().unwrap_err(),
        TierError::PoolFull { .. }
    ));
    assert_eq!(pool.generation(), 1);
    assert_eq!(&pool.segment(0).unwrap()[..], [1; 1000]);
}

#[test]
fn foreign_bytes_are_refused_with_the_reason() {
    let (image, _) = published_image();
    let whose = Path::new("/dev/dax0.0");
    let error = recover(&[], &LAYOUT, whose).unwrap_err();
    assert!(error.to_string().contains("length"), "{error}");
    let error = recover(&vec![0; POOL_BYTES], &LAYOUT, whose).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/dev/dax0.0 is not the expected pool: magic"),
        "{error}"
    );
    let error = recover(&image, b"another's layout", whose).unwrap_err();
    assert!(
        matches!(error, TierError::ForeignPool { what: "layout", .. }),
        "{error}"
    );
    let error = recover(&image[..POOL_BYTES / 2], &LAYOUT, whose).unwrap_err();
    assert!(matches!(error, TierError::DeviceTooSmall { .. }), "{error}");
    let mut newer = image.clone();
    for at in HEADER_OFFSETS {
        newer[at + 8] = 2;
    }
    let error = recover(&newer, &LAYOUT, whose).unwrap_err();
    assert!(
        matches!(
            error,
            TierError::ForeignPool {
                what: "format version",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn an_existing_pool_is_overwritten_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("pool");
    let mut pool = Pool::create(file_region(&path, POOL_BYTES as u64), &options()).unwrap();
    pool.append(1, &[b"old"]).unwrap();
    pool.publish().unwrap();
    drop(pool);
    let error = Pool::create(file_region(&path, 1), &options()).unwrap_err();
    assert!(matches!(error, TierError::PoolExists { .. }), "{error}");
    let overwrite = PoolOptions {
        overwrite: true,
        ..options()
    };
    drop(Pool::create(file_region(&path, 1), &overwrite).unwrap());
    assert_eq!(reopen(&path).unwrap().generation(), 0);
}

#[test]
fn the_front_tells_a_pool_from_zeroes_and_from_anything_else_until_it_is_erased() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    assert!(Front::of_file(&path).is_err());
    std::fs::write(&path, vec![0; POOL_BYTES]).unwrap();
    assert_eq!(Front::of_file(&path).unwrap(), Front::Blank);
    let mut pool = Pool::create(file_region(&path, 1), &options()).unwrap();
    pool.append(1, &[b"kept"]).unwrap();
    pool.publish().unwrap();
    drop(pool);
    let own = Front::Pool {
        layout: LAYOUT,
        pool_id: [7; 16],
    };
    assert_eq!(Front::of_file(&path).unwrap(), own);
    let mut image = std::fs::read(&path).unwrap();
    image[20] ^= 1;
    assert_eq!(Front::of(&image), own, "there is a copy of the header");
    image[4096 + 20] ^= 1;
    assert_eq!(Front::of(&image), Front::Other);
    assert_eq!(Front::of(&image[..100]), Front::Other);
    Pool::erase(file_region(&path, 1)).unwrap();
    assert_eq!(Front::of_file(&path).unwrap(), Front::Blank);
    assert!(matches!(reopen(&path), Err(TierError::ForeignPool { .. })));
}

#[test]
fn either_copy_of_the_header_is_enough() {
    let (image, contents) = published_image();
    for at in HEADER_OFFSETS {
        let mut damaged = image.clone();
        damaged[at..at + 4096].fill(0xa5);
        assert_eq!(read_all(&damaged).unwrap(), contents);
    }
}

#[test]
fn losing_the_newest_root_is_an_error_and_not_an_older_state() {
    let (image, _) = published_image();
    for at in [SLOT_OFFSETS[0], SLOT_OFFSETS[0] + 9] {
        let mut damaged = image.clone();
        damaged[at] ^= 1;
        let error = read_all(&damaged).unwrap_err();
        assert!(matches!(error, TierError::Corruption(_)), "{error}");
    }
}

#[test]
fn every_flipped_bit_is_either_harmless_or_found() {
    let (image, contents) = published_image();
    let front = HEADER_OFFSETS
        .into_iter()
        .chain(SLOT_OFFSETS)
        .flat_map(|at| at..at + 128);
    let places: Vec<usize> = front.chain(DATA_OFFSET..DATA_OFFSET + 2000).collect();
    let mut found = 0;
    for at in places {
        for bit in 0..8 {
            let mut damaged = image.clone();
            damaged[at] ^= 1 << bit;
            match read_all(&damaged) {
                Ok(read) => assert_eq!(read, contents, "bit {bit} of byte {at}"),
                Err(_) => found += 1,
            }
        }
    }
    assert!(found > 8 * 900, "only {found} flips were found");
}

proptest! {
    #[test]
    fn a_damaged_pool_gives_an_error_or_its_content_and_never_a_panic(
        damages in prop::collection::vec(
            (prop_oneof![0usize..128, 4096usize..4224, 8192usize..8256, 12_288usize..12_352, 16_384usize..20_000],
             prop::collection::vec(any::<u8>(), 1..16)), 1..6),
        cut in prop::option::of(0usize..POOL_BYTES),
    ) {
        let (mut image, contents) = published_image();
        for (at, bytes) in damages {
            image[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        image.truncate(cut.unwrap_or(POOL_BYTES));
        if let Ok(read) = read_all(&image) {
            prop_assert_eq!(read, contents);
        }
    }

    #[test]
    fn forged_roots_with_sound_checksums_cannot_point_outside(
        offset in any::<u64>(), count in any::<u32>(), tail in any::<u64>(),
        entry_offset in prop_oneof![any::<u64>(), 0u64..70_000], entry_len in prop_oneof![any::<u64>(), 0u64..70_000],
        honest in any::<bool>(),
    ) {
        let (mut image, _) = published_image();
        let entry = SegmentEntry { kind: 1, offset: entry_offset, len_bytes: entry_len, checksum: 0 };
        let start = 32_768;
        image[start..start + ENTRY_BYTES].copy_from_slice(&entry.encode());
        let root = Root {
            generation: 4,
            directory_offset: if honest { start as u64 } else { offset },
            segment_count: if honest { 1 } else { count },
            directory_checksum: crc32fast::hash(&entry.encode()),
            tail: if honest { start as u64 + 32 } else { tail },
        };
        let slot = SLOT_OFFSETS[0];
        image[slot..slot + 8].copy_from_slice(&root.generation_word(&[7; 16]).to_le_bytes());
        image[slot + 8..slot + 64].copy_from_slice(&root.encode_description(&[7; 16]));
        if let Ok(recovered) = recover(&image, &LAYOUT, Path::new("image")) {
            for entry in recovered.segments {
                prop_assert!(entry.offset + entry.len_bytes <= recovered.root.tail);
                prop_assert!(recovered.root.tail <= POOL_BYTES as u64);
            }
        }
    }
}
