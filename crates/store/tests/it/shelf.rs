//! Elfs of index files that are asked where they lie: heads in memory, blocks read as queries need them.

use std::ops::Range;

use hotshelf_cache::model::ItemClass;
use hotshelf_cache::{CacheManager, CacheOptions};
use hotshelf_elf::cost::CostModel;
use hotshelf_elf::keys::{CodeTable, QueryBox, Restriction};
use hotshelf_elf::layout::packed::{PackedElf, PackedOptions};
use hotshelf_store::index::IndexCache;
use hotshelf_store::index::IndexPaths;
use hotshelf_store::index::elfs::{Asked, ElfStore, Unavailable};
use hotshelf_store::index::file::{IndexFile, Indexes};
use hotshelf_store::index::keys::{KeyColumn, KeyLearner};
use hotshelf_store::index::policy::BlockPolicyKind;
use hotshelf_store::index::shelf::OpenElf;
use hotshelf_store::index::write::{BuiltStretch, FileWriter as IndexWriter};
use hotshelf_store::index::zones::Zones;
use hotshelf_tier::io::{Fault, FaultPlan, IoEngine, IoOptions};

use super::*;

const STRETCH_ROWS: u64 = 6_000;
const INDEXES: Indexes = Indexes {
    row_count: 2 * STRETCH_ROWS,
    file_bytes: 1,
    footer_sum: 2,
    id: 3,
};

/// An index file of two stretches of three columns, and its Elfs in memory.
pub struct Shelf {
    _fixture: Fixture,
    store: Store,
    paths: IndexPaths,
    pub elfs: Vec<PackedElf>,
    tables: Vec<CodeTable>,
}

/// What reads a [`Shelf`].
pub struct Asker {
    pub elfs: Arc<ElfStore>,
    pub file: Arc<IndexFile>,
    pub cache: Arc<CacheManager>,
    pub engine: Arc<IoEngine>,
}

fn numbers(seed: u64, count: u64, below: u64) -> ArrayRef {
    let mut state = seed;
    let next = (0..count).map(move |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((state >> 33) % below) as i64
    });
    Arc::new(Int64Array::from_iter_values(next))
}

/// The rows of a stretch, in the order of the index if they are to be `clustered`.
fn columns(stretch: u64, clustered: bool) -> Vec<ArrayRef> {
    let columns: Vec<ArrayRef> = [40, 30, 50]
        .into_iter()
        .zip(1..)
        .map(|(below, seed)| numbers(seed + 10 * stretch, STRETCH_ROWS, below))
        .collect();
    if !clustered {
        return columns;
    }
    let values = |column: &ArrayRef| column.as_primitive::<Int64Type>().values().to_vec();
    let columns: Vec<Vec<i64>> = columns.iter().map(values).collect();
    let mut rows: Vec<usize> = (0..columns[0].len()).collect();
    rows.sort_by_key(|row| [columns[0][*row], columns[1][*row], columns[2][*row]]);
    let sorted = |column: &Vec<i64>| -> ArrayRef {
        let values = rows.iter().map(|row| column[*row]);
        Arc::new(Int64Array::from_iter_values(values))
    };
    columns.iter().map(sorted).collect()
}

impl Shelf {
    pub fn new(clustered: bool) -> Self {
        let fixture = Fixture::new();
        let (store, _) = fixture.open();
        let folder = folder_name("t", store.next_number().unwrap());
        let table = store.root().table(&folder);
        store.root().create_folder(&table).unwrap();
        let paths = IndexPaths::new(store.root(), &folder, 7, 1);
        paths.create_folder().unwrap();
        let stretches = [columns(0, clustered), columns(1, clustered)];
        let learn = |column: usize| {
            let mut learner = KeyLearner::default();
            for stretch in &stretches {
                learner.add(&stretch[column]).unwrap();
            }
            learner.finish().unwrap()
        };
        let keys: Vec<KeyColumn> = (0..3).map(learn).collect();
        let mut writer = IndexWriter::create(store.root(), &paths.file(), clustered).unwrap();
        let (mut elfs, mut tables) = (Vec::new(), Vec::new());
        for (stretch, first) in stretches.iter().zip([0, STRETCH_ROWS]) {
            let codes = keys.iter().zip(stretch);
            let codes = codes.map(|(key, column)| key.encode(column).unwrap());
            let table = CodeTable::new(codes.collect()).unwrap();
            let options = PackedOptions {
                clustered,
                ..PackedOptions::default()
            };
            let elf = PackedElf::build(&table, &options).unwrap();
            let built = BuiltStretch {
                model: CostModel::new(&elf, &table),
                zones: Zones::new(&table),
                elf,
            };
            writer.add(first..first + STRETCH_ROWS, &built).unwrap();
            elfs.push(built.elf);
            tables.push(table);
        }
        writer.finish(&keys, INDEXES, 1).unwrap();
        Self {
            _fixture: fixture,
            store,
            paths,
            elfs,
            tables,
        }
    }

    pub fn asker(&self, budget_bytes: u64, options: IoOptions) -> Asker {
        let engine = IoEngine::start(options).unwrap();
        let cache = CacheManager::new(CacheOptions {
            budget_bytes,
            ..CacheOptions::default()
        });
        let opener = self.store.opener(&engine, &cache, vortex_session());
        let elfs = ElfStore::new(cache.clone());
        let file = IndexFile::open(&opener, &elfs, &self.paths, INDEXES, 3).unwrap();
        Asker {
            elfs,
            file: Arc::new(file),
            cache,
            engine,
        }
    }

    /// Drops the index; its file goes when nothing uses it.
    pub fn drop_index(&self) {
        let file = self.paths.file();
        let folder = file.ancestors().nth(2).and_then(|table| table.file_name());
        let folder = folder.unwrap().to_str().unwrap();
        self.store
            .drop_index(folder, self.paths.index_id())
            .unwrap();
    }

    fn large(&self) -> Asker {
        self.asker(1 << 30, IoOptions::default())
    }

    /// Changes the file's bytes from where the leaves of a stretch begin.
    fn damage(&self, stretch: usize, change: impl FnOnce(&mut Vec<u8>, usize)) {
        let mut bytes = std::fs::read(self.paths.file()).unwrap();
        let mut elf = Vec::new();
        self.elfs[stretch].write_to(&mut elf).unwrap();
        let starts = (0..bytes.len()).step_by(4096);
        let start = starts
            .into_iter()
            .find(|at| bytes[*at..].starts_with(&elf))
            .unwrap();
        let leaves = start + elf.len() - self.elfs[stretch].leaf_bytes() as usize;
        change(&mut bytes, leaves);
        std::fs::write(self.paths.file(), bytes).unwrap();
    }

    /// Boxes around rows, of which each accepts some rows.
    fn queries(&self) -> Vec<QueryBox> {
        let around = |row: usize| {
            let key = self.tables[row % 2].row(row * 7 % STRETCH_ROWS as usize);
            let restrict = |(dimension, code): (usize, &u32)| match (row + dimension) % 4 {
                0 => Restriction::Any,
                1 => Restriction::exactly(*code),
                width => Restriction::Range {
                    lo: code.saturating_sub(width as u32 * 5),
                    hi: code + 3,
                },
            };
            QueryBox::new(key.iter().enumerate().map(restrict).collect())
        };
        let mut queries: Vec<QueryBox> = (0..16).map(around).collect();
        queries.push(QueryBox::unrestricted(3));
        queries.push(QueryBox::exactly(&self.tables[0].row(17)));
        queries
    }

    /// Keys of one stretch of which about half are in the other one too.
    fn keys(&self) -> Vec<u32> {
        let rows = (0..STRETCH_ROWS as usize).step_by(11);
        rows.flat_map(|row| self.tables[0].row(row)).collect()
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    futures::executor::block_on(future)
}

impl Asker {
    pub fn select(&self, stretch: usize, query: &QueryBox) -> Result<Vec<u32>> {
        let mut elf = now(self.elfs.open(&self.file, stretch)).expect("the head is sound");
        now(elf.select(query))
    }

    /// An Elf to be asked about a box, or about keys.
    fn open_for(&self, stretch: usize, query: Option<&QueryBox>, keys: Option<&[u32]>) -> OpenElf {
        let asked = Asked {
            query,
            keys,
            weight: 1.0,
        };
        now(self.elfs.open_for(&self.file, stretch, asked)).unwrap()
    }

    /// Compares every kind of answer with that of the Elf in memory.
    pub fn check(&self, shelf: &Shelf) {
        for (stretch, expected) in shelf.elfs.iter().enumerate() {
            for query in shelf.queries() {
                let mut elf = self.open_for(stretch, Some(&query), None);
                assert_eq!(
                    now(elf.select(&query)).unwrap(),
                    expected.select(&query).unwrap()
                );
                assert_eq!(
                    now(elf.count(&query)).unwrap(),
                    expected.count(&query).unwrap()
                );
                let rows = now(elf.select_rows(&query)).unwrap();
                assert_eq!(rows, expected.select_rows(&query).unwrap());
                let (mut codes, mut own) = (vec![vec![]; 2], vec![vec![]; 2]);
                now(elf.read_rows(&rows, &[2, 0], &mut codes)).unwrap();
                expected.read_rows(&rows, &[2, 0], &mut own).unwrap();
                assert_eq!(codes, own);
            }
            let keys = shelf.keys();
            let mut elf = self.open_for(stretch, None, Some(&keys));
            let (mut found, mut own) = (Vec::new(), Vec::new());
            now(elf.exact_batch(&keys, |key, tid| found.push((key, tid)))).unwrap();
            expected
                .exact_batch(&keys, |key, tid| own.push((key, tid)))
                .unwrap();
            found.sort_unstable();
            own.sort_unstable();
            assert_eq!(found, own);
        }
    }

    pub fn operator_bytes(&self) -> u64 {
        self.cache.budget().snapshot().operator_bytes
    }
}

#[test]
fn every_policy_and_budget_gives_the_answers_of_elfs_in_memory() {
    for clustered in [false, true] {
        let shelf = Shelf::new(clustered);
        for (policy, limit_bytes) in BlockPolicyKind::ALL
            .into_iter()
            .flat_map(|policy| [0, 3_000, 40_000, u64::MAX].map(|limit| (policy, limit)))
        {
            let asker = shelf.asker(4 << 20, IoOptions::default());
            let chosen = IndexCache {
                policy: Some(policy),
                limit_bytes: Some(limit_bytes),
            };
            asker.elfs.set_cache(1, chosen);
            asker.check(&shelf);
            let stats = asker.elfs.blocks_of(1).stats();
            assert_eq!(asker.elfs.blocks_of(0).stats().page_count, 0);
            assert!(stats.held_bytes <= limit_bytes.min(2 << 20));
            assert_eq!(stats.page_count == 0, limit_bytes == 0);
            assert_eq!(stats.evict_count > 0, (1..100_000).contains(&limit_bytes));
        }
    }
}

#[test]
fn the_first_levels_answer_with_what_is_read_for_a_question() {
    for clustered in [false, true] {
        let shelf = Shelf::new(clustered);
        for levels in [1, 2, 3] {
            let asker = shelf.large();
            let chosen = IndexCache {
                policy: Some(BlockPolicyKind::Levels(levels)),
                limit_bytes: None,
            };
            asker.elfs.set_cache(1, chosen);
            asker.check(&shelf);
            let stretch = &asker.file.stretches[0];
            let is_whole = usize::from(levels) >= shelf.elfs[0].head_level_count();
            assert_eq!(asker.elfs.has_head(stretch), is_whole, "{levels}");
            let left = (!is_whole).then_some(usize::from(levels));
            assert_eq!(asker.elfs.upper_level_count(stretch), left);
        }
    }
}

#[test]
fn a_head_without_room_leaves_its_upper_levels_and_questions_are_answered_still() {
    let shelf = Shelf::new(false);
    let asker = shelf.large();
    let stretch = &asker.file.stretches[0];
    let key = shelf.tables[0].row(5);
    let query = QueryBox::exactly(&key);
    let ask = || {
        let mut elf = asker.open_for(0, Some(&query), None);
        assert_eq!(
            now(elf.select(&query)).unwrap(),
            shelf.elfs[0].select(&query).unwrap()
        );
    };
    ask();
    assert!(asker.elfs.has_head(stretch));
    let whole_bytes = asker
        .elfs
        .unread_head(&asker.file, &asker.file.stretches[1])
        .bytes;
    // Others take all memory but a little.
    let budget = asker.cache.budget();
    let before = asker.operator_bytes();
    let rest = budget.limit_bytes() - before + 1;
    budget.try_reserve_operator(rest).unwrap();
    while asker.elfs.has_head(stretch) {
        budget.try_reserve_operator(64).unwrap();
    }
    assert_eq!(asker.elfs.upper_level_count(stretch), Some(1));
    let unread = asker.elfs.unread_head(&asker.file, stretch).bytes;
    assert!(unread > 0 && unread <= whole_bytes);
    // What one key needs of the head is much less than the head.
    let held = budget.limit_bytes() - asker.operator_bytes();
    budget.reserve_operator(held.saturating_sub(whole_bytes / 2));
    ask();
    assert!(!asker.elfs.has_head(stretch));
    // A head that was never read: for a moment it has all it needs.
    let mut elf = asker.open_for(1, Some(&query), None);
    assert_eq!(
        now(elf.count(&query)).unwrap(),
        shelf.elfs[1].count(&query).unwrap()
    );
    assert!(
        asker
            .elfs
            .upper_level_count(&asker.file.stretches[1])
            .is_some()
    );
}

#[test]
fn a_damaged_part_of_a_head_is_named() {
    let shelf = Shelf::new(false);
    let asker = shelf.large();
    let first = IndexCache::default().with_word("levels:1").unwrap();
    asker.elfs.set_cache(1, first);
    let key = shelf.tables[0].row(5);
    drop(asker.open_for(0, None, Some(&key)));
    shelf.damage(0, |bytes, leaves| {
        let head = shelf.elfs[0].head_bytes() as usize;
        bytes[leaves - head.next_multiple_of(4096)..leaves].fill(0x5a);
    });
    let keys = shelf.keys();
    let asked = Asked {
        query: None,
        keys: Some(&keys),
        weight: 1.0,
    };
    let opened = now(asker.elfs.open_for(&asker.file, 0, asked));
    assert!(matches!(opened, Err(Unavailable::Damaged(_))));
}

#[test]
fn a_choice_made_once_is_read_before_it_is_asked_for() {
    let shelf = Shelf::new(false);
    let leaf_bytes: u64 = shelf.elfs.iter().map(|elf| elf.leaf_bytes()).sum();
    for (word, expected) in [
        ("hybrid", leaf_bytes),
        ("static", leaf_bytes),
        ("levels:1", 0),
    ] {
        let asker = shelf.large();
        let chosen = IndexCache::default().with_word(word).unwrap();
        asker.elfs.set_cache(1, chosen);
        drop(asker.open_for(0, None, Some(&[1, 2, 3])));
        let held = || asker.elfs.blocks_of(1).stats().held_bytes;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while held() < expected && std::time::Instant::now() < end {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(held() >= expected, "{word} holds {}", held());
        let before = asker.engine.stats();
        asker.check(&shelf);
        let read = asker.engine.stats().since(&before);
        assert_eq!(
            read.reads <= 1,
            expected > 0,
            "{word}: the other head at most"
        );
    }
}

#[test]
fn an_exact_match_is_one_device_read_and_neighbours_are_read_together() {
    let shelf = Shelf::new(false);
    let asker = shelf.large();
    let mut elf = now(asker.elfs.open(&asker.file, 0)).unwrap();
    let before = asker.engine.stats();
    for row in (0..STRETCH_ROWS as usize).step_by(400) {
        let key = shelf.tables[0].row(row);
        let mut tids = Vec::new();
        now(elf.exact(&key, &mut tids)).unwrap();
        assert!(tids.contains(&(row as u32)));
    }
    let read = asker.engine.stats().since(&before);
    let reads = elf.reads();
    assert_eq!((reads.look_ups, read.reads), (15, reads.accesses));
    assert!((1..=15).contains(&read.device_operations), "{read:?}");
    let every = QueryBox::unrestricted(3);
    let leaf_bytes = shelf.elfs[1].leaf_bytes();
    let mut other = now(asker.elfs.open(&asker.file, 1)).unwrap();
    let before = asker.engine.stats();
    assert_eq!(
        now(other.select(&every)).unwrap().len(),
        STRETCH_ROWS as usize
    );
    let read = asker.engine.stats().since(&before);
    assert_eq!(other.reads().shelf_blocks * 256, leaf_bytes);
    assert!(read.device_bytes >= leaf_bytes);
    let regions = other.head().level_shapes().len() as u64;
    assert!(read.device_operations <= 2 * regions, "{read:?}");
    drop((elf, other));
    let stats = asker.elfs.blocks_of(0).stats();
    assert_eq!(
        (stats.reads.look_ups, stats.reads.accesses),
        (16, reads.accesses + read.reads)
    );
}

#[test]
fn uses_of_heads_and_blocks_count_as_much_as_the_query_weighs() {
    let shelf = Shelf::new(false);
    let asker = shelf.large();
    let every = QueryBox::unrestricted(3);
    let saved_after = |weight| {
        for _ in 0..2 {
            let asked = Asked {
                query: Some(&every),
                keys: None,
                weight,
            };
            let mut elf = now(asker.elfs.open_for(&asker.file, 0, asked)).unwrap();
            now(elf.select(&every)).unwrap();
        }
        let rows = asker.cache.memory_market().into_iter();
        let items = rows.filter(|row| row.class == ItemClass::IndexBlock && row.number.is_some());
        let saved = items.map(|row| row.saved_s_per_byte_s.unwrap() > 0.0);
        saved.collect::<Vec<_>>()
    };
    assert_eq!(saved_after(0.0), [false, false]);
    assert_eq!(saved_after(0.5), [true, true], "a head and its blocks");
}

#[test]
fn what_is_kept_is_not_read_again_and_its_memory_is_given_back() {
    let shelf = Shelf::new(false);
    let asker = shelf.large();
    let every = QueryBox::unrestricted(3);
    let idle_bytes = asker.operator_bytes();
    asker.select(0, &every).unwrap();
    let before = asker.engine.stats();
    asker.select(0, &every).unwrap();
    assert_eq!(asker.engine.stats().since(&before).reads, 0);
    let stats = asker.elfs.blocks_of(0).stats();
    assert!(stats.held_bytes > shelf.elfs[0].leaf_bytes());
    assert!(asker.operator_bytes() > idle_bytes + stats.held_bytes);
    // Others take all the memory that there is.
    let budget = asker.cache.budget();
    let rest = budget.limit_bytes() - asker.operator_bytes();
    budget
        .try_reserve_operator(rest + stats.held_bytes / 2)
        .unwrap();
    let less = asker.elfs.blocks_of(0).stats();
    assert!(less.held_bytes <= stats.held_bytes && less.evict_count > 0);
    assert_eq!(
        asker.select(0, &every).unwrap().len(),
        STRETCH_ROWS as usize
    );
    budget.release_operator(rest + stats.held_bytes / 2);
    let none = IndexCache::default().with_word("none").unwrap();
    asker.elfs.set_cache(1, none);
    asker.select(1, &every).unwrap();
    assert_eq!(asker.elfs.blocks_of(1).stats().held_bytes, 0);
    let lru = IndexCache::default().with_word("lru").unwrap();
    asker.elfs.set_cache(1, lru);
    asker.select(1, &every).unwrap();
    assert!(asker.elfs.blocks_of(1).stats().page_count > 0);
    let Asker {
        elfs, file, cache, ..
    } = asker;
    drop(file);
    assert_eq!(elfs.blocks_of(0).stats().page_count, 0);
    assert_eq!(elfs.blocks_of(1).stats().page_count, 0);
    assert_eq!(cache.budget().snapshot().operator_bytes, 0);
}

#[test]
fn a_damaged_block_is_named_and_the_others_still_answer() {
    let shelf = Shelf::new(false);
    let mut leaves = 0;
    shelf.damage(0, |bytes, at| {
        leaves = at;
        bytes[at + 5 * 256 + 77] ^= 4;
    });
    let asker = shelf.large();
    let every = QueryBox::unrestricted(3);
    let error = asker.select(0, &every).unwrap_err();
    let StoreError::Corruption(found) = error else {
        panic!("{error}");
    };
    assert_eq!(
        (found.what.as_ref(), found.offset),
        ("block checksum", leaves as u64 + 5 * 256)
    );
    assert_eq!(found.file, shelf.paths.file());
    let key = |row: usize| QueryBox::exactly(&shelf.tables[0].row(row));
    let answers = (0..STRETCH_ROWS as usize).step_by(50).map(|row| {
        let found = asker.select(0, &key(row)).ok()?;
        assert_eq!(found, shelf.elfs[0].select(&key(row)).unwrap());
        Some(found)
    });
    let (sound, damaged): (Vec<_>, Vec<_>) = answers.partition(Option::is_some);
    assert!(
        sound.len() > 20 * damaged.len(),
        "{} {}",
        sound.len(),
        damaged.len()
    );
    assert_eq!(
        asker.select(1, &every).unwrap(),
        shelf.elfs[1].select(&every).unwrap()
    );
}

#[test]
fn a_damaged_head_and_one_without_room_are_told_apart() {
    let shelf = Shelf::new(false);
    shelf.damage(0, |bytes, leaves| bytes[leaves - 4096] ^= 1);
    let asker = shelf.large();
    let opened = now(asker.elfs.open(&asker.file, 0));
    assert!(matches!(opened, Err(Unavailable::Damaged(_))));
    let held = asker.cache.budget().limit_bytes() - asker.operator_bytes();
    asker.cache.budget().reserve_operator(held);
    let opened = now(asker.elfs.open(&asker.file, 1));
    assert!(matches!(opened, Err(Unavailable::Memory { needed_bytes }) if needed_bytes > 4096));
    asker.cache.budget().release_operator(held);
    assert!(now(asker.elfs.open(&asker.file, 1)).is_ok());
    assert!(asker.elfs.has_head(&asker.file.stretches[1]));
    assert!(!asker.elfs.has_head(&asker.file.stretches[0]));
}

#[test]
fn a_file_that_ends_early_and_a_device_that_fails_are_named() {
    let shelf = Shelf::new(false);
    let every = QueryBox::unrestricted(3);
    let asker = shelf.large();
    asker
        .select(0, &QueryBox::exactly(&shelf.tables[0].row(1)))
        .unwrap();
    shelf.damage(0, |bytes, leaves| bytes.truncate(leaves + 8192));
    let error = asker.select(0, &every).unwrap_err();
    assert!(error.to_string().contains("1.elf"), "{error}");
    let shelf = Shelf::new(false);
    let mut seen = (0, 0);
    for first in 0..12 {
        let faults = FaultPlan::none().with(first + 6, u64::MAX, Fault::Errno(5));
        let asker = shelf.asker(
            1 << 30,
            IoOptions {
                faults: Some(Arc::new(faults)),
                ..IoOptions::default()
            },
        );
        for query in shelf.queries() {
            let Ok(mut elf) = now(asker.elfs.open(&asker.file, 0)) else {
                seen.0 += 1;
                continue;
            };
            match now(elf.select(&query)) {
                Ok(found) => assert_eq!(found, shelf.elfs[0].select(&query).unwrap()),
                Err(StoreError::Tier(_)) => seen.1 += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(seen.1 > 0, "{seen:?}");
}

#[test]
fn rows_of_a_query_come_back_from_few_reads() {
    let shelf = Shelf::new(true);
    let asker = shelf.large();
    let mut elf = now(asker.elfs.open(&asker.file, 0)).unwrap();
    let mut query = QueryBox::unrestricted(3);
    query
        .restrict(0, &Restriction::Range { lo: 10, hi: 12 })
        .unwrap();
    // The head alone knows the rows of a range of the first column.
    let rows: Vec<Range<u32>> = now(elf.select_rows(&query)).unwrap();
    assert_eq!((rows.len(), elf.reads().accesses), (1, 0));
    let mut codes = vec![Vec::new()];
    now(elf.read_rows(&rows, &[2], &mut codes)).unwrap();
    assert_eq!(codes[0].len(), rows[0].len());
    assert!(elf.reads().accesses <= elf.head().level_shapes().len() as u64);
}
