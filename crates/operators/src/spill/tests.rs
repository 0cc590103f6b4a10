//! Spilled batches come back, their space is counted, and faults are typed errors.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use hotshelf_tier::TierError;
use hotshelf_tier::io::PAGE_BYTES;
use proptest::prelude::*;

use super::*;
use crate::OperatorError;
use crate::testing::{batch, spill_folder};

/// A folder and a file of it for batches like `of`.
fn file(
    limit_bytes: u64,
    of: &RecordBatch,
) -> (tempfile::TempDir, Arc<SpillFolder>, Arc<SpillFile>) {
    let path = tempfile::tempdir().unwrap();
    let folder = spill_folder(path.path(), limit_bytes);
    let file = folder.create_file(of.schema(), &uncounted()).unwrap();
    (path, folder, file)
}

#[test]
fn batches_come_back_in_any_order_and_from_any_thread() {
    let batches: Vec<_> = (0..8).map(|n| batch(1000 * n, n, n as u64)).collect();
    let (path, folder, file) = file(u64::MAX, &batches[0]);
    let write = |batch: &RecordBatch| file.write(batch).unwrap();
    let spilled: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = batches
            .iter()
            .map(|batch| scope.spawn(|| write(batch)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    for (batch, spilled) in batches.iter().zip(&spilled).rev() {
        assert_eq!(&spilled.read().unwrap(), batch);
        assert_eq!(spilled.row_count(), batch.num_rows());
    }
    let stats = folder.stats();
    assert_eq!((stats.written_count, stats.read_count), (8, 8));
    assert_eq!(
        std::fs::read_dir(path.path()).unwrap().count(),
        0,
        "no name remains"
    );
    drop((spilled, file));
    assert_eq!(folder.stats().used_bytes, 0);
}

#[test]
fn batches_are_compressed_where_room_is_short() {
    let column: arrow_array::ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![7; 20_000]));
    let equal = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let raw_bytes = 160_000;
    let (_path, folder, file) = file(10 * raw_bytes, &equal);
    let spilled: Vec<_> = (0..100).map(|_| file.write(&equal).unwrap()).collect();
    let stats = folder.stats();
    assert!(stats.raw_bytes >= 100 * raw_bytes, "{stats:?}");
    assert!(stats.used_bytes < 8 * raw_bytes, "{stats:?}");
    assert_eq!(spilled[0].read().unwrap(), equal);
    assert_eq!(spilled[99].read().unwrap(), equal);
}

#[test]
fn a_slice_is_spilled_without_the_rest_of_its_buffers() {
    let large = batch(50_000, 0, 1);
    let (_path, _folder, file) = file(u64::MAX, &large);
    let spilled = file.write(&large.slice(10_000, 10)).unwrap();
    assert_eq!(spilled.read().unwrap(), large.slice(10_000, 10));
    assert!(
        spilled.raw_bytes() < 8 << 10,
        "{} bytes",
        spilled.raw_bytes()
    );
}

#[test]
fn batches_without_columns_keep_their_rows() {
    let empty = batch(5, 0, 1).project(&[]).unwrap();
    let (_path, _folder, file) = file(u64::MAX, &empty);
    assert_eq!(file.write(&empty).unwrap().read().unwrap().num_rows(), 5);
}

#[test]
fn space_is_used_again_and_the_limit_is_an_error_with_figures() {
    let batch = batch(2000, 0, 1);
    let (_path, folder, file) = file(u64::MAX, &batch);
    let first = file.write(&batch).unwrap();
    let one = folder.stats().used_bytes;
    assert_eq!(
        one,
        first.stored_bytes().next_multiple_of(PAGE_BYTES as u64)
    );
    folder.set_limit_bytes(2 * one);
    let second = file.write(&batch).unwrap();
    let third = file.write(&batch).err().expect("beyond the limit");
    assert!(
        matches!(third, OperatorError::SpillLimit { limit_bytes, used_bytes, needed_bytes, .. }
            if (limit_bytes, used_bytes, needed_bytes) == (2 * one, 2 * one, one)),
        "{third}"
    );
    drop(first);
    let third = file.write(&batch).unwrap();
    assert_eq!(third.read().unwrap(), second.read().unwrap());
    assert_eq!(folder.stats().used_bytes_max, 2 * one);
}

#[test]
fn opening_removes_what_a_killed_process_left_and_nothing_else() {
    let path = tempfile::tempdir().unwrap();
    for name in ["hotshelf-7.spill", "hotshelf-x.spill", "notes.txt"] {
        std::fs::write(path.path().join(name), "x").unwrap();
    }
    spill_folder(path.path(), 0);
    let names = std::fs::read_dir(path.path()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["hotshelf-x.spill", "notes.txt"]);
}

#[test]
fn a_damaged_batch_is_an_error_that_names_file_and_offset() {
    let batch = batch(2000, 0, 1);
    let (_path, _folder, file) = file(u64::MAX, &batch);
    let (_first, second) = (file.write(&batch).unwrap(), file.write(&batch).unwrap());
    file.damage(second.offset() + 100);
    match second.read() {
        Err(OperatorError::Damaged(found)) => {
            assert_eq!(found.offset, second.offset());
            assert!(found.file.ends_with("hotshelf-0.spill"), "{found}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_is_an_error_that_says_what_is_needed() {
    let path = tempfile::tempdir().unwrap();
    let folder = spill_folder(path.path(), u64::MAX);
    let mut full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let source = full.write_all(&[0]).unwrap_err();
    let error = folder.write_error(path.path(), 4096, source);
    assert!(
        matches!(&error, OperatorError::DiskFull { folder, needed_bytes: 4096, used_bytes: 0 }
            if folder == path.path()),
        "{error}"
    );
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    assert!(
        folder
            .engine()
            .write_pages(&full, &[0; PAGE_BYTES], 0)
            .is_err()
    );
}

#[test]
fn a_file_that_was_cut_is_an_error() {
    let batch = batch(2000, 0, 1);
    let (_path, _folder, file) = file(u64::MAX, &batch);
    let spilled = file.write(&batch).unwrap();
    file.cut();
    let error = spilled.read().unwrap_err();
    assert!(
        matches!(error, OperatorError::Tier(TierError::ShortRead { .. })),
        "{error}"
    );
}

impl SpillFile {
    /// Changes the bytes at an offset.
    pub(crate) fn damage(&self, offset: u64) {
        let page = offset - offset % PAGE_BYTES as u64;
        let mut space = vec![0xa5; 2 * PAGE_BYTES];
        let start = space.as_mut_ptr().align_offset(PAGE_BYTES);
        self.writer()
            .write_all_at(&space[start..start + PAGE_BYTES], page)
            .unwrap();
    }

    fn cut(&self) {
        self.writer().set_len(0).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_slice_of_any_columns_comes_back(
        seed: u64,
        rows in 0usize..3000,
        from in 0.0f64..1.0,
        take in 0.0f64..1.0,
        columns in proptest::sample::subsequence((0usize..9).collect::<Vec<_>>(), 0..9),
    ) {
        let whole = batch(rows, 0, seed).project(&columns).unwrap();
        let from = (from * rows as f64) as usize;
        let slice = whole.slice(from, (take * (rows - from) as f64) as usize);
        let (_path, folder, file) = file(u64::MAX, &whole);
        let spilled = file.write(&slice).unwrap();
        prop_assert_eq!(&spilled.read().unwrap(), &slice);
        drop((spilled, file));
        prop_assert_eq!(folder.stats().used_bytes, 0);
    }
}
