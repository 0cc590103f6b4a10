use std::fs;

use super::*;

fn file_options(len_bytes: u64) -> FileOptions {
    FileOptions {
        len_bytes: Some(len_bytes),
        ..FileOptions::default()
    }
}

#[test]
fn anonymous_memory_is_zeroed_writable_aligned_for_huge_pages_and_volatile() {
    let len_bytes = HUGE_PAGE_BYTES + 123;
    let mut region = Region::anonymous(len_bytes, &AnonymousOptions::default()).unwrap();
    assert!(region.bytes().iter().all(|byte| *byte == 0));
    assert_eq!(region.bytes().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
    assert_eq!(
        (region.media(), region.durability()),
        (Media::Dram, Durability::Volatile)
    );
    region.volatile_bytes_mut().unwrap()[len_bytes - 1] = 7;
    assert_eq!(region.bytes()[len_bytes - 1], 7);
}

#[test]
fn memory_of_an_existing_node_comes_from_that_node_and_of_no_node_from_nowhere() {
    let on_node = |node| AnonymousOptions {
        node: Some(node),
        ..AnonymousOptions::default()
    };
    match Region::anonymous(1 << 16, &on_node(0)) {
        Ok(region) => {
            assert_eq!(region.media(), Media::Node(0));
            assert_eq!(region.node_of(0).unwrap(), 0);
            assert!(region.node_of(1 << 16).is_err());
        }
        // Containers often forbid the call, and some kernels have no NUMA at all.
        Err(error) => assert!(matches!(
            error,
            TierError::NodeBinding { node: 0, .. } | TierError::NoSuchNode { node: 0 }
        )),
    }
    for node in [999, 5000] {
        let error = Region::anonymous(4096, &on_node(node)).unwrap_err();
        assert!(
            matches!(error, TierError::NoSuchNode { node: n } if n == node),
            "{error}"
        );
    }
}

#[test]
fn impossible_lengths_are_refused() {
    assert!(Region::anonymous(0, &AnonymousOptions::default()).is_err());
    assert!(Region::anonymous(usize::MAX, &AnonymousOptions::default()).is_err());
    let error = Region::anonymous(1 << 50, &AnonymousOptions::default()).unwrap_err();
    assert!(matches!(error, TierError::OutOfMemory { .. }), "{error}");
}

#[test]
fn a_file_without_dax_says_that_it_needs_msync() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let region = Region::open_file(&path, &file_options(10_000)).unwrap();
    assert_eq!(region.len_bytes(), 10_000);
    if region.media() == Media::PageCache {
        assert_eq!(region.durability(), Durability::Msync);
        assert_eq!(region.downgrade(), Some(Downgrade::NoSyncMapping));
        drop(region);
        let require = FileOptions {
            sync: SyncMapping::Require,
            ..FileOptions::default()
        };
        let error = Region::open_file(&path, &require).unwrap_err();
        assert!(matches!(error, TierError::NoSyncMapping { .. }), "{error}");
        let never = FileOptions {
            sync: SyncMapping::Never,
            ..FileOptions::default()
        };
        assert_eq!(Region::open_file(&path, &never).unwrap().downgrade(), None);
    }
}

#[test]
fn a_durable_region_cannot_be_written_behind_the_writers_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut region = Region::open_file(&path, &file_options(4096)).unwrap();
    assert!(region.volatile_bytes_mut().is_none());
}

#[test]
fn an_existing_file_keeps_its_content_and_its_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    fs::write(&path, b"some bytes").unwrap();
    let region = Region::open_file(&path, &file_options(4)).unwrap();
    assert_eq!(region.bytes(), b"some bytes");
    drop(region);
    let read_only = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let region = Region::open_file(&path, &read_only).unwrap();
    assert!(!region.writable());
    let second = Region::open_file(&path, &read_only).unwrap();
    assert_eq!(second.bytes(), region.bytes());
}

#[test]
fn a_file_mapped_for_writing_is_locked_against_a_second_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let first = Region::open_file(&path, &file_options(4096)).unwrap();
    let error = Region::open_file(&path, &FileOptions::default()).unwrap_err();
    assert!(matches!(error, TierError::Locked { .. }), "{error}");
    drop(first);
    Region::open_file(&path, &FileOptions::default()).unwrap();
}

#[test]
fn wrong_paths_give_errors_that_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let error = Region::open_file(&missing, &FileOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot open "), "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
    let read_only = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    assert!(Region::open_file(folder.path(), &read_only).is_err());
    fs::write(&missing, b"").unwrap();
    let error = Region::open_file(&missing, &FileOptions::default()).unwrap_err();
    assert!(matches!(error, TierError::InvalidOption { .. }), "{error}");
    let error = Region::open_devdax(Path::new("/dev/null"), 1).unwrap_err();
    assert!(matches!(error, TierError::NotDevDax { .. }), "{error}");
    assert!(Region::open_devdax(&missing, 1).is_err());
}

#[test]
fn a_file_that_cannot_get_its_space_is_not_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge");
    let result = Region::open_file(&path, &file_options(1 << 60));
    assert!(result.is_err());
    assert!(!path.exists());
}

#[test]
fn prefaulting_makes_every_page_present_and_changes_no_byte() {
    let mut region = Region::anonymous(40 << 20, &AnonymousOptions::default()).unwrap();
    region.volatile_bytes_mut().unwrap()[5] = 9;
    match region.prefault().unwrap().wait() {
        Ok(present_bytes) => assert_eq!(present_bytes, 40 << 20),
        Err(error) => assert!(matches!(error, TierError::System { .. }), "{error}"),
    }
    assert_eq!(region.bytes()[5], 9);
    drop(region.prefault().unwrap());
}

#[test]
fn sealed_parts_stay_readable_after_the_region_is_gone() {
    let mut region = Region::anonymous(8192, &AnonymousOptions::default()).unwrap();
    region.volatile_bytes_mut().unwrap()[4096..4100].copy_from_slice(b"abcd");
    let mut window = region.into_window();
    let front = window.seal_to(4096);
    let tail = window.split_off(4100);
    assert_eq!(
        (front.len(), window.range(), tail.range()),
        (4096, 4096..4100, 4100..8192)
    );
    let middle = window.seal_to(4100);
    drop((window, tail, front));
    assert_eq!(&middle[..], b"abcd");
    assert_eq!(
        (&middle.slice(1..3).unwrap()[..], middle.offset()),
        (&b"bc"[..], 4096)
    );
    assert!(middle.slice(3..5).is_err());
}

#[test]
fn a_sealed_region_is_read_until_its_file_is_cut_short_which_it_tells() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("region");
    let sealed = Region::open_file(&path, &file_options(8192))
        .unwrap()
        .seal();
    let (front, back) = (
        sealed.slice(0..4096).unwrap(),
        sealed.slice(4096..8192).unwrap(),
    );
    assert_eq!((sealed.len(), sealed.path()), (8192, path.as_path()));
    assert!(front.is_backed() && back.is_backed());
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    assert!(front.is_backed() && !back.is_backed() && !sealed.is_backed());
    assert_eq!(front[4095], 0);
    let memory = Region::anonymous(100, &AnonymousOptions::default())
        .unwrap()
        .seal();
    assert!(memory.is_backed() && memory.iter().all(|byte| *byte == 0));
}

#[test]
fn memory_moves_to_a_node_and_keeps_its_bytes() {
    let numbers: Vec<u64> = (0..100_000).collect();
    match move_to_node(&numbers, 0) {
        // What is not a whole page of its own stays.
        Ok(there) => assert!(
            there <= size_of_val(&*numbers) && there > 700_000,
            "{there}"
        ),
        // Some containers forbid it, and some kernels have no nodes.
        Err(error) => assert!(matches!(
            error,
            TierError::NodeBinding { .. } | TierError::NoSuchNode { .. }
        )),
    }
    assert!(
        numbers
            .iter()
            .zip(0..)
            .all(|(number, expected)| *number == expected)
    );
    assert!(matches!(
        move_to_node(&numbers, 999),
        Err(TierError::NoSuchNode { node: 999 })
    ));
    if Path::new("/sys/devices/system/node/node0").is_dir() {
        assert_eq!(move_to_node(&[1u8; 9], 0).unwrap_or(0), 0);
    }
}
