//! Data files are opened when they are first read, few at a time, and stay as long as they may be read.

use std::time::{Duration, Instant};

use hotshelf_cache::model::ItemClass;
use hotshelf_cache::{CacheManager, CacheOptions, ColumnId, ScanContext};
use hotshelf_store::data_file::{Opener, Sums, TableColumns, TableFile, Unreadable};
use hotshelf_tier::TierError;
use hotshelf_tier::io::{IoEngine, IoOptions};

use super::*;

/// An open database of one table, and what reads it.
struct Reader {
    files: Vec<Arc<TableFile>>,
    opener: Arc<Opener>,
    cache: Arc<CacheManager>,
    store: Store,
    row: TableRow,
}

impl Reader {
    fn new(fixture: &Fixture, descriptors: usize, budget_bytes: u64) -> Self {
        let (store, mut rows) = fixture.open();
        let engine = IoEngine::start(IoOptions::default()).unwrap();
        let cache = CacheManager::new(CacheOptions {
            budget_bytes,
            ..CacheOptions::default()
        });
        let session = vortex_session();
        let opener = store.opener_with_descriptors(&engine, &cache, session, descriptors);
        let row = rows.remove(0);
        let column_ids: Vec<ColumnId> = (0..=row.schema.fields().len() as u32)
            .map(ColumnId)
            .collect();
        let files = row.files.iter().map(|file| {
            let paths = FilePaths::new(store.root(), &row.folder, file.number);
            let columns = TableColumns {
                schema: &row.schema,
                column_ids: &column_ids,
            };
            Arc::new(TableFile::new(file.clone(), paths, columns, &opener).unwrap())
        });
        Self {
            files: files.collect(),
            opener,
            cache,
            store,
            row,
        }
    }

    /// Opens a file and reads its first segment.
    fn read(&self, file: &TableFile) -> Result<usize> {
        let opened = file.open()?;
        let scan = Arc::new(ScanContext::new(1, 0, 0).with_populate(false));
        let bytes = futures::executor::block_on(opened.request(0, &scan));
        Ok(bytes
            .map_err(|error| StoreError::Input(Box::new(error)))?
            .len())
    }

    fn path(&self, fixture: &Fixture, file_idx: usize) -> PathBuf {
        let number = self.row.files[file_idx].number;
        fixture.at(&format!("data/{}/{number}.vortex", self.row.folder))
    }
}

/// A database with one table of many files, closed. They share their bytes, not their identities.
fn many_files(count: usize, column_count: usize) -> Fixture {
    let fixture = Fixture::new();
    let (store, _) = fixture.open();
    let folder = folder_name("t", store.next_number().unwrap());
    let (schema, first) = write_wide(&store, &folder, column_count);
    let of_first = FilePaths::new(store.root(), &folder, first.number);
    let mut sums = Sums::read(store.root(), &of_first.sums()).unwrap();
    let mut files = vec![first];
    for _ in 1..count {
        let paths = FilePaths::new(store.root(), &folder, store.next_number().unwrap());
        std::fs::hard_link(of_first.data(), paths.data()).unwrap();
        let origin = store.origin(&paths, &[]);
        let id = origin.id;
        sums.origin = Some(origin);
        std::fs::write(paths.sums(), sums.encode()).unwrap();
        files.push(FileRow {
            number: paths.number,
            id,
            ..files[0].clone()
        });
    }
    let row = TableRow::new("t".into(), folder, schema, files);
    store.add_table(&row, None).unwrap();
    fixture
}

/// Writes a file of ten rows and this many columns.
fn write_wide(store: &Store, folder: &str, column_count: usize) -> (SchemaRef, FileRow) {
    let column = |idx| Field::new(format!("c{idx}"), DataType::Int64, true);
    let schema: SchemaRef = Arc::new(Schema::new(
        (0..column_count).map(column).collect::<Vec<_>>(),
    ));
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
    let batch = RecordBatch::try_new(schema.clone(), vec![values; column_count]).unwrap();
    let file = write_batch(store, folder, batch, &[]).unwrap();
    (schema, file)
}

/// Descriptors of this process into a folder's data files.
fn descriptors_into(fixture: &Fixture) -> usize {
    let folder = fixture.at("data");
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let is_data = |path: &PathBuf| {
        path.starts_with(&folder) && path.extension().is_some_and(|ending| ending == "vortex")
    };
    targets.filter(is_data).count()
}

#[test]
fn opening_a_database_opens_no_data_file() {
    let fixture = many_files(2000, 1);
    let reader = Reader::new(&fixture, 64, 1 << 26);
    assert_eq!(reader.files.len(), 2000);
    assert_eq!(descriptors_into(&fixture), 0);
    assert_eq!(reader.opener.descriptors().open_count(), 0);
    assert_eq!(reader.opener.footers().read_count(), 0);
    assert!(reader.files.iter().all(|file| file.row_group_count() == 1));
    assert!(
        reader
            .files
            .iter()
            .all(|file| file.known_trouble().is_none())
    );
    assert_eq!(reader.opener.footers().read_count(), 0);
}

#[test]
fn hundreds_of_files_are_read_with_sixteen_descriptors() {
    let fixture = many_files(300, 1);
    let reader = Reader::new(&fixture, 16, 1 << 26);
    let opened = TableFile::open_all(&reader.files, 1.0);
    assert!(opened.iter().all(Result::is_ok));
    assert_eq!(reader.opener.footers().read_count(), 300);
    assert!(descriptors_into(&fixture) <= 16);
    for file in &reader.files {
        assert!(reader.read(file).unwrap() > 0);
        assert!(reader.opener.descriptors().kept_count() <= 16);
    }
    assert!(descriptors_into(&fixture) <= 16);
    let open_count = reader.opener.descriptors().open_count();
    assert!(open_count > 300, "{open_count}");
    drop(opened);
    drop(reader);
    assert_eq!(descriptors_into(&fixture), 0);
}

#[test]
fn uses_of_footers_count_as_much_as_the_query_weighs() {
    let fixture = many_files(3, 1);
    let reader = Reader::new(&fixture, 16, 1 << 26);
    let saved = || {
        let rows = reader.cache.memory_market().into_iter();
        let mut rows = rows.filter(|row| row.class == ItemClass::Metadata && row.number.is_none());
        rows.next().unwrap().saved_s_per_byte_s.unwrap()
    };
    TableFile::open_all(&reader.files, 0.0);
    assert!(reader.files[0].opened().is_some());
    assert_eq!(saved(), 0.0);
    assert!(reader.files[0].opened_for(0.5).is_some());
    assert!(saved() > 0.0);
}

#[test]
fn a_file_that_is_read_again_and_again_keeps_its_descriptor() {
    let fixture = many_files(100, 1);
    let reader = Reader::new(&fixture, 16, 1 << 26);
    for file in &reader.files {
        reader.read(&reader.files[0]).unwrap();
        reader.read(file).unwrap();
    }
    assert_eq!(reader.opener.descriptors().open_count(), 100);
}

#[test]
fn a_descriptor_that_was_given_up_is_opened_again_where_the_folder_is_now() {
    let fixture = many_files(3, 1);
    let reader = Reader::new(&fixture, 1, 1 << 26);
    let before: Vec<_> = reader.files.iter().map(|file| reader.read(file)).collect();
    let moved = fixture.folder.path().join("moved");
    std::fs::rename(fixture.path(), &moved).unwrap();
    for (file, before) in reader.files.iter().zip(before) {
        assert_eq!(reader.read(file).unwrap(), before.unwrap());
    }
    assert!(reader.opener.descriptors().open_count() > 3);
}

#[test]
fn footers_are_on_the_budget_and_give_way_to_others() {
    let fixture = many_files(50, 1);
    let reader = Reader::new(&fixture, 16, 1 << 24);
    let used = || reader.cache.budget().snapshot().operator_bytes;
    assert_eq!(used(), 0);
    TableFile::open_all(&reader.files, 1.0);
    let footers = reader.opener.footers();
    assert_eq!(footers.kept_count(), 50);
    let all = used();
    assert!(all > 50 * 500, "{all}");
    let in_use = reader.files[7].open().unwrap();
    reader.cache.budget().reserve_operator(1 << 24);
    assert_eq!(footers.kept_count(), 1, "the one in use stays");
    reader.cache.budget().release_operator(1 << 24);
    drop(in_use);
    // The cache keeps its knowledge of the segments: they may be cached.
    assert!(used() < all / 2, "{} of {all}", used());
    assert!(reader.files[3].opened().is_none() && reader.files[7].opened().is_some());
    assert!(reader.read(&reader.files[3]).unwrap() > 0);
    assert_eq!(footers.read_count(), 51);
    let cache = reader.cache.clone();
    drop(reader);
    // The engine's thread may still hold the buffer of the last read.
    let is_returned = |_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        cache.budget().snapshot().used_bytes == 0
    };
    assert!((0..6_000).any(is_returned));
}

#[test]
fn footers_that_nobody_uses_take_a_small_part_of_the_budget() {
    let fixture = many_files(200, 1);
    let reader = Reader::new(&fixture, 16, 1 << 20);
    for file in &reader.files {
        file.open().unwrap();
    }
    let kept = reader.opener.footers().kept_count();
    assert!(kept > 0 && kept < 200, "{kept}");
}

#[test]
fn files_that_were_taken_out_can_be_read_until_nobody_may() {
    let fixture = many_files(3, 1);
    let reader = Reader::new(&fixture, 16, 1 << 26);
    let (first, second) = (reader.path(&fixture, 0), reader.path(&fixture, 1));
    let table = TableRef {
        id: reader.row.id,
        folder: &reader.row.folder,
        schema: &reader.row.schema,
    };
    let removed = [reader.row.files[0].number, reader.row.files[1].number];
    let change = FileChange {
        removed: &removed,
        ..FileChange::default()
    };
    reader.store.change_files(&table, &change).unwrap();
    assert!(first.exists() && second.exists());
    // None of them was open when the change happened.
    let opened = reader.files[0].open().unwrap();
    assert!(reader.read(&reader.files[1]).unwrap() > 0);
    let killed = fixture.copy("killed");
    let Reader { mut files, .. } = reader;
    files.remove(1);
    assert!(!second.exists(), "it has no owner");
    files.remove(0);
    assert!(first.exists(), "it is open");
    drop(opened);
    assert!(!first.exists());
    // A process that was killed meanwhile leaves them to the next opening.
    assert_eq!(
        killed
            .files()
            .iter()
            .filter(|name| name.ends_with(".vortex"))
            .count(),
        3
    );
    let (_, rows) = killed.open();
    assert_eq!(rows[0].files.len(), 1);
    assert_eq!(
        killed
            .files()
            .iter()
            .filter(|name| name.ends_with(".vortex"))
            .count(),
        1
    );
    assert!(!killed.at("lost+found").exists());
}

#[test]
fn a_table_that_was_dropped_can_be_read_until_nobody_may() {
    let fixture = many_files(3, 1);
    let mut reader = Reader::new(&fixture, 16, 1 << 26);
    let folder = fixture.at("data").join(&reader.row.folder);
    reader
        .store
        .drop_table(reader.row.id, &reader.row.folder)
        .unwrap();
    assert!(reader.read(&reader.files[2]).unwrap() > 0);
    let last = reader.files.pop();
    reader.files.clear();
    assert!(folder.exists());
    drop(last);
    assert!(!folder.exists());
    assert!(fixture.files().iter().all(|name| !name.contains("t-")));
}

#[test]
fn a_file_that_cannot_be_opened_is_an_io_error_and_the_next_use_tries_again() {
    let fixture = many_files(2, 1);
    let reader = Reader::new(&fixture, 16, 1 << 26);
    let (file, path) = (&reader.files[1], reader.path(&fixture, 1));
    let aside = fixture.folder.path().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    for _ in 0..2 {
        match file.open() {
            Err(StoreError::Tier(TierError::Io { path: named, .. })) => assert_eq!(named, path),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            file.known_trouble(),
            Some(Unreadable::Unavailable(_))
        ));
    }
    assert!(reader.read(&reader.files[0]).is_ok());
    std::fs::remove_file(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    assert!(file.known_trouble().is_none());
    assert!(reader.read(file).is_ok());
}

#[test]
fn a_missing_or_cut_file_is_damage_that_is_seen_without_reading_it() {
    let fixture = many_files(2, 1);
    let reader = Reader::new(&fixture, 16, 1 << 26);
    let (missing, cut) = (reader.path(&fixture, 0), reader.path(&fixture, 1));
    let aside = fixture.folder.path().join("aside");
    std::fs::rename(&missing, &aside).unwrap();
    std::fs::remove_file(&cut).unwrap();
    std::fs::write(&cut, "short").unwrap();
    for file in &reader.files {
        assert!(matches!(file.known_trouble(), Some(Unreadable::Damaged(_))));
        assert!(matches!(file.open(), Err(StoreError::Corruption(_))));
    }
    assert_eq!(reader.store.verify(|_, _| {}).unwrap().damage.len(), 2);
    std::fs::rename(&aside, &missing).unwrap();
    assert!(reader.files[0].open().is_ok() && reader.files[0].known_trouble().is_none());
}

/// Time of the clock and of this thread's processor.
fn timed<R>(work: impl FnOnce() -> R) -> (R, String) {
    let (start, busy_ns) = (Instant::now(), hotshelf_tier::thread_time_ns());
    let result = work();
    let busy = Duration::from_nanos(hotshelf_tier::thread_time_ns() - busy_ns);
    (result, format!("{:.0?} ({busy:.0?} busy)", start.elapsed()))
}

/// Prints how long a database of 10 000 files takes to open.
#[test]
#[ignore = "measures"]
fn how_long_ten_thousand_files_take_to_open() {
    for column_count in [1, 8] {
        let fixture = many_files(10_000, column_count);
        for _ in 0..3 {
            let ((store, rows), opened) = timed(|| fixture.open());
            assert_eq!(rows[0].files.len(), 10_000);
            drop(store);
            let (reader, known) = timed(|| Reader::new(&fixture, 4096, 1 << 30));
            let (footers, read) = timed(|| TableFile::open_all(&reader.files, 1.0));
            assert!(footers.iter().all(Result::is_ok));
            println!(
                "{column_count} columns: store {opened}, with its files {known}, then all footers {read}"
            );
        }
    }
}
