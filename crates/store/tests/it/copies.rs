//! Leaves on other shelves than their file: the same answers, and none of a damaged or foreign copy's bytes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hotshelf_elf::keys::QueryBox;
use hotshelf_store::index::IndexCache;
use hotshelf_store::shelf::{MissingShelf, Shelf as Place};
use hotshelf_tier::io::IoOptions;

use crate::shelf::{Asker, Shelf};

/// Asks so that the copy is begun, and waits until it exists. Nothing stays in memory.
fn copied(shelf: &Shelf, to: &Place) -> Asker {
    awaited(begun(shelf, to), to)
}

fn awaited(asker: Asker, to: &Place) -> Asker {
    let patience = Instant::now() + Duration::from_secs(20);
    while !asker.file.is_copied() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(asker.file.is_copied(), "{to}");
    asker
}

/// Nothing stays in memory, so that everything is read from the shelf.
fn begun(shelf: &Shelf, to: &Place) -> Asker {
    begun_with(shelf, to, "none")
}

fn begun_with(shelf: &Shelf, to: &Place, policy: &str) -> Asker {
    let asker = shelf.asker(64 << 20, IoOptions::default());
    let policy = IndexCache::default().with_word(policy);
    asker.elfs.set_cache(1, policy.unwrap());
    asker.elfs.set_shelf(1, to);
    asker.check(shelf);
    asker
}

fn pools(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn leaves_on_every_shelf_give_the_answers_of_their_file_and_leave_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    for clustered in [false, true] {
        let shelf = Shelf::new(clustered);
        for to in [
            Place::Node(0),
            Place::Emulated("cxl".into()),
            Place::Dax(folder.path().into()),
        ] {
            let asker = copied(&shelf, &to);
            let before = asker.engine.stats();
            let counted = asker.elfs.blocks_of(1).stats().reads;
            asker.check(&shelf);
            let read = asker.engine.stats().since(&before);
            assert_eq!(read.reads, 0, "{to}: {read:?}");
            let reads = asker.elfs.blocks_of(1).stats().reads;
            assert!(reads.shelf_blocks > counted.shelf_blocks);
        }
        pools(folder.path())
            .iter()
            .for_each(|pool| std::fs::remove_file(pool).unwrap());
    }
}

#[test]
fn a_pool_is_found_again_and_anything_else_at_its_place_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, to) = (Shelf::new(false), Place::Dax(folder.path().into()));
    drop(copied(&shelf, &to));
    let pool = pools(folder.path()).remove(0);
    let sound = std::fs::read(&pool).unwrap();
    let written = std::fs::metadata(&pool).unwrap().modified().unwrap();
    drop(copied(&shelf, &to));
    assert_eq!(std::fs::read(&pool).unwrap(), sound, "it was made again");
    assert_eq!(
        std::fs::metadata(&pool).unwrap().modified().unwrap(),
        written
    );
    let cut = sound[..sound.len() / 2].to_vec();
    let foreign = vec![0x5a; sound.len()];
    let mut other = sound.clone();
    // Not published: the copying was cut off.
    other[..8192].fill(0);
    for bytes in [cut, foreign, other] {
        std::fs::write(&pool, &bytes).unwrap();
        drop(copied(&shelf, &to));
        drop(copied(&shelf, &to));
    }
}

#[test]
fn a_pool_of_another_index_file_is_not_taken_for_this_ones() {
    let folder = tempfile::tempdir().unwrap();
    let to = Place::Dax(folder.path().into());
    let shelves = [false, true, false].map(Shelf::new);
    for shelf in shelves.iter().chain(&shelves) {
        drop(copied(shelf, &to));
    }
    assert_eq!(pools(folder.path()).len(), shelves.len());
    let pool = pools(folder.path()).remove(0);
    std::os::unix::fs::symlink("elsewhere", folder.path().join("link")).unwrap();
    let precious = folder.path().join("precious");
    std::fs::rename(&pool, &precious).unwrap();
    std::os::unix::fs::symlink(&precious, &pool).unwrap();
    let kept = std::fs::read(&precious).unwrap();
    for shelf in &shelves {
        begun(shelf, &to).check(shelf);
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(std::fs::read(&precious).unwrap(), kept);
}

#[test]
fn damage_of_a_copy_is_found_at_the_block_and_the_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, to) = (Shelf::new(false), Place::Dax(folder.path().into()));
    drop(copied(&shelf, &to));
    let pool = pools(folder.path()).remove(0);
    let sound = std::fs::read(&pool).unwrap();
    for share in [0.1, 0.2] {
        let mut bytes = sound.clone();
        // Room for directories is at the end of the pool.
        let leaves = bytes.len() - (1 << 20);
        let at = 16_384 + ((leaves - 16_384) as f64 * share) as usize;
        bytes[at..at + 64].iter_mut().for_each(|byte| *byte ^= 0x11);
        std::fs::write(&pool, &bytes).unwrap();
        // A sound copy is mapped within a moment and used from then on.
        let asker = begun(&shelf, &to);
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(10));
            asker.check(&shelf);
        }
        assert!(!asker.file.is_copied());
        assert!(pools(folder.path()).is_empty(), "it is made again");
    }
}

#[test]
fn without_the_shelf_the_file_is_read() {
    let shelf = Shelf::new(false);
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("gone");
    for to in [Place::Dax(missing), Place::Node(1_000)] {
        let asker = begun(&shelf, &to);
        std::thread::sleep(Duration::from_millis(50));
        asker.check(&shelf);
        assert!(!asker.file.is_copied(), "{to}");
    }
}

#[test]
fn names_of_shelves_are_read_back_and_others_refused() {
    for name in ["file", "dax:/mnt/pmem 0/x", "node:3", "emulated:optane"] {
        let shelf: Place = name.parse().unwrap();
        assert_eq!(shelf.to_string(), name);
    }
    for wrong in [
        "",
        "dax:",
        "node:",
        "node:-1",
        "node:x",
        "emulated:",
        "emulated:tape",
        "disk",
        "File",
    ] {
        let error = wrong.parse::<Place>().unwrap_err();
        assert!(error.to_string().contains("is not a shelf"), "{wrong}");
    }
}

#[test]
fn a_folder_is_kept_by_its_full_path_and_what_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let roundabout = folder
        .path()
        .join("..")
        .join(folder.path().file_name().unwrap());
    let full = folder.path().canonicalize().unwrap();
    let found = Place::Dax(roundabout).on_this_machine().unwrap();
    assert_eq!(found, Place::Dax(full.clone()));
    assert_eq!(Place::Node(0).on_this_machine().unwrap(), Place::Node(0));
    let file = full.join("file");
    std::fs::write(&file, "").unwrap();
    for (missing, named) in [
        (Place::Dax(full.join("none")), "none"),
        (Place::Dax(file), "file"),
        (Place::Node(1_000), "1000"),
    ] {
        let error = missing.on_this_machine().unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn what_cannot_hold_a_pool_is_refused_with_the_systems_reason_and_nothing_remains_of_the_trial() {
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().canonicalize().unwrap();
    assert!(Place::Dax(full.clone()).on_this_machine().is_ok());
    assert!(pools(&full).is_empty());
    for refused in ["/proc", "/sys", "/dev/null"] {
        let refused = PathBuf::from(refused);
        let error = Place::Dax(refused.clone()).on_this_machine().unwrap_err();
        let MissingShelf::Folder { folder, source } = error else {
            panic!("{error}");
        };
        assert_eq!(folder, refused);
        assert!(!source.to_string().is_empty());
    }
    let mut rights = std::fs::metadata(&full).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut rights, 0o555);
    std::fs::set_permissions(&full, rights).unwrap();
    // Root may write there all the same.
    let may_write = std::fs::write(full.join("trial"), "").is_ok();
    assert_eq!(Place::Dax(full).on_this_machine().is_ok(), may_write);
}

#[test]
fn the_pool_of_a_dropped_index_goes_also_if_nothing_had_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let to = Place::Dax(folder.path().into());
    let (shelf, other) = (Shelf::new(false), Shelf::new(false));
    for shelf in [&shelf, &other] {
        drop(copied(shelf, &to));
    }
    let all = pools(folder.path());
    assert_eq!(all.len(), 2);
    // What a power cut would have left of earlier tries.
    for pool in &all {
        std::fs::copy(pool, pool.with_extension("pool.tmp")).unwrap();
    }
    let asker = shelf.asker(64 << 20, IoOptions::default());
    asker.file.put_on(&to);
    shelf.drop_index();
    assert_eq!(pools(folder.path()).len(), 4, "it is in use");
    drop(asker);
    assert_eq!(pools(folder.path()).len(), 2, "the other index has its own");
    let asker = other.asker(64 << 20, IoOptions::default());
    asker.file.put_on(&to);
    asker.file.leave_shelf();
    assert!(pools(folder.path()).is_empty());
    // It has left: nothing is made again for queries that still have the file.
    asker.elfs.set_shelf(1, &to);
    asker.check(&other);
    std::thread::sleep(Duration::from_millis(50));
    assert!(pools(folder.path()).is_empty() && !asker.file.is_copied());
}

/// The pool in a folder, opened so that its bytes change under those who have it mapped.
fn open_pool(folder: &Path) -> std::fs::File {
    let pool = pools(folder).remove(0);
    let opened = std::fs::OpenOptions::new().write(true).open(pool);
    opened.unwrap()
}

#[test]
fn a_pool_that_is_cut_short_while_it_is_mapped_is_not_read_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let (shelf, to) = (Shelf::new(false), Place::Dax(folder.path().into()));
    for kept_bytes in [0, 20_000] {
        let asker = copied(&shelf, &to);
        open_pool(folder.path()).set_len(kept_bytes).unwrap();
        asker.check(&shelf);
        assert!(!asker.file.is_copied());
        drop(asker);
        // It is made again.
        copied(&shelf, &to).check(&shelf);
    }
}

#[test]
fn bytes_that_change_after_their_check_give_no_panic_and_pages_in_memory_are_not_among_them() {
    use std::os::unix::fs::FileExt;
    let shelf = Shelf::new(false);
    let every = QueryBox::unrestricted(3);
    for (policy, is_kept) in [("none", false), ("lru", true)] {
        let folder = tempfile::tempdir().unwrap();
        let to = Place::Dax(folder.path().into());
        let asker = awaited(begun_with(&shelf, &to, policy), &to);
        // What was kept before the copy existed comes from the file.
        asker
            .elfs
            .set_cache(1, IndexCache::default().with_word("none").unwrap());
        asker
            .elfs
            .set_cache(1, IndexCache::default().with_word(policy).unwrap());
        (0..2).for_each(|stretch| drop(asker.select(stretch, &every).unwrap()));
        asker.check(&shelf);
        let held_bytes = asker.elfs.blocks_of(1).stats().held_bytes;
        assert_eq!(held_bytes > 0, is_kept);
        let pool = open_pool(folder.path());
        let noise = vec![0xd7; pool.metadata().unwrap().len() as usize - 16_384];
        pool.write_all_at(&noise, 16_384).unwrap();
        assert!(asker.file.is_copied());
        match is_kept {
            true => asker.check(&shelf),
            false => (0..2).for_each(|stretch| {
                let expected = shelf.elfs[stretch].select(&every).unwrap();
                assert_ne!(asker.select(stretch, &every).unwrap(), expected);
            }),
        }
        // A page that was not checked before is found out.
        let fresh = begun_with(&shelf, &to, policy);
        fresh.check(&shelf);
    }
}
