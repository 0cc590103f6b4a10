use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::*;
use crate::index::policy::BlockPolicyKind;
use crate::index::{IndexCache, IndexDefinition};
use crate::root::Lifetime;
use crate::shelf::Shelf;
use crate::statistics::FileStats;

struct Fixture {
    _folder: tempfile::TempDir,
    root: Root,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.create_folder(&root.data()).unwrap();
        Self {
            _folder: folder,
            root,
        }
    }

    fn open(&self) -> Catalog {
        Catalog::open(&self.root).unwrap()
    }

    /// Changes the catalog behind the program's back.
    fn tamper(&self, sql: &str) {
        let connection = Connection::open(self.root.join(CATALOG)).unwrap();
        connection.execute_batch(sql).unwrap();
    }
}

#[test]
fn only_a_temporary_catalog_leaves_writing_to_the_system() {
    for (lifetime, synchronous) in [(Lifetime::Lasting, 2), (Lifetime::Process, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open_for(folder.path(), lifetime).unwrap();
        root.create_folder(&root.data()).unwrap();
        let catalog = Catalog::open(&root).unwrap();
        let connection = &catalog.state.lock().connection;
        let value = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
        let found: i64 = value("synchronous").unwrap();
        assert_eq!(found, synchronous, "{lifetime:?}");
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int32, false),
        Field::new("b", DataType::Utf8, true),
    ]))
}

fn table(folder: &str, files: Vec<FileRow>) -> TableRow {
    TableRow::new("t".into(), folder.into(), schema(), files)
}

fn file(number: u64) -> FileRow {
    let mut stats = FileStats::empty(2);
    stats.row_count = 3;
    stats.columns[1].null_count = Some(1);
    FileRow {
        number,
        file_bytes: 100,
        id: number + 1000,
        is_sound: true,
        stats,
    }
}

fn index(id: i64, columns: Vec<usize>, clustered: bool) -> IndexDefinition {
    IndexDefinition {
        id,
        name: "i".into(),
        columns,
        clustered,
        cache: IndexCache::default(),
        shelf: Shelf::default(),
    }
}

fn change(catalog: &Catalog, id: i64, change: &FileChange<'_>) -> Result<()> {
    let table = TableRef {
        id,
        folder: "t-1",
        schema: &schema(),
    };
    catalog.change_files(&table, change)
}

fn index_file(index: i64, data_file: u64, bytes: u64) -> IndexFileRow {
    IndexFileRow {
        index,
        data_file,
        bytes,
    }
}

#[test]
fn tables_and_files_survive_reopening() {
    let fixture = Fixture::new();
    let catalog = fixture.open();
    let id = catalog
        .add_table(&table("t-1", vec![file(1)]), None)
        .unwrap();
    let index = index(9, vec![1, 0], true);
    let added = FileChange {
        added: &[file(2)],
        new_index: Some(&index),
        index_files: &[index_file(9, 1, 70), index_file(9, 2, 80)],
        ..FileChange::default()
    };
    change(&catalog, id, &added).unwrap();
    drop(catalog);
    let tables = fixture.open().tables().unwrap();
    assert_eq!(tables.len(), 1);
    assert_eq!(tables[0].schema, schema());
    let numbers: Vec<u64> = tables[0].files.iter().map(|file| file.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(tables[0].files[0].stats.columns[1].null_count, Some(1));
    assert!(tables[0].files.iter().all(|file| file.is_sound) && tables[0].damage.is_none());
    assert_eq!(tables[0].indexes[0].definition, index);
    assert_eq!(tables[0].indexes[0].files, [(1, 70), (2, 80)]);
}

#[test]
fn removed_files_take_their_index_files_along() {
    let fixture = Fixture::new();
    let catalog = fixture.open();
    let id = catalog
        .add_table(&table("t-1", vec![file(1), file(2)]), None)
        .unwrap();
    let index = index(3, vec![0], false);
    let added = FileChange {
        new_index: Some(&index),
        index_files: &[index_file(3, 1, 70), index_file(3, 2, 80)],
        ..FileChange::default()
    };
    change(&catalog, id, &added).unwrap();
    let exchanged = FileChange {
        removed: &[1],
        added: &[file(5)],
        index_files: &[index_file(3, 5, 90)],
        ..FileChange::default()
    };
    change(&catalog, id, &exchanged).unwrap();
    let tables = catalog.tables().unwrap();
    assert_eq!(tables[0].indexes[0].files, [(2, 80), (5, 90)]);
    assert!(tables[0].damage.is_none());
    catalog.drop_index("t-1", 3).unwrap();
    assert!(catalog.tables().unwrap()[0].indexes.is_empty());
}

#[test]
fn what_is_said_about_the_blocks_of_an_index_goes_with_it() {
    let fixture = Fixture::new();
    let catalog = fixture.open();
    let lru = IndexCache {
        policy: Some(BlockPolicyKind::Lru),
        limit_bytes: Some(70),
    };
    let id = catalog.add_table(&table("t-1", vec![]), None).unwrap();
    let index = IndexDefinition {
        cache: lru,
        ..index(3, vec![0], false)
    };
    let added = FileChange {
        new_index: Some(&index),
        ..FileChange::default()
    };
    change(&catalog, id, &added).unwrap();
    let tables = catalog.tables().unwrap();
    assert_eq!(tables[0].indexes[0].definition.cache, lru);
    let kept = || -> i64 {
        let sql = "SELECT count(*) FROM meta WHERE key LIKE 'index_cache.%'";
        let connection = Connection::open(fixture.root.join(CATALOG)).unwrap();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    drop(catalog);
    assert_eq!(kept(), 1);
    let catalog = fixture.open();
    catalog.drop_table(id).unwrap();
    drop(catalog);
    assert_eq!(kept(), 0);
}

#[test]
fn dropping_a_table_forgets_its_files() {
    let fixture = Fixture::new();
    let catalog = fixture.open();
    let id = catalog
        .add_table(&table("t-1", vec![file(1)]), None)
        .unwrap();
    catalog.drop_table(id).unwrap();
    assert!(catalog.tables().unwrap().is_empty());
    let next = catalog.add_table(&table("t-2", vec![]), None).unwrap();
    assert_ne!(next, id, "ids are never used twice");
}

#[test]
fn an_index_file_that_is_built_again_takes_the_place_of_the_old_one() {
    let fixture = Fixture::new();
    let catalog = fixture.open();
    let mut row = table("t-1", vec![file(1)]);
    row.indexes.push(IndexRow {
        definition: index(3, vec![0], false),
        files: vec![(1, 70)],
    });
    let id = catalog.add_table(&row, None).unwrap();
    let built = FileChange {
        index_files: &[index_file(3, 1, 75)],
        ..FileChange::default()
    };
    change(&catalog, id, &built).unwrap();
    assert_eq!(catalog.tables().unwrap()[0].indexes[0].files, [(1, 75)]);
}

#[test]
fn a_newer_format_is_refused() {
    let fixture = Fixture::new();
    drop(fixture.open());
    fixture.tamper("UPDATE meta SET value = '99' WHERE key = 'format_version'");
    assert!(matches!(
        Catalog::open(&fixture.root),
        Err(StoreError::NewerFormat { found: 99, .. })
    ));
}

#[test]
fn what_a_change_made_obsolete_is_named_until_it_is_gone() {
    let fixture = Fixture::new();
    let catalog = fixture.open();
    let id = catalog
        .add_table(&table("t-1", vec![file(1)]), None)
        .unwrap();
    catalog.reserve(5..69).unwrap();
    catalog.drop_table(id).unwrap();
    drop(catalog);
    let catalog = fixture.open();
    let obsolete = vec![Obsolete::Table {
        folder: "t-1".into(),
    }];
    let journal = Journal {
        reserved: 5..69,
        obsolete: obsolete.clone(),
    };
    assert_eq!(catalog.journal().unwrap(), journal);
    catalog.forget(obsolete);
    catalog.add_table(&table("t-2", vec![]), None).unwrap();
    assert_eq!(catalog.journal().unwrap().obsolete, []);
}

#[test]
fn schemas_and_views_are_kept_and_forgotten() {
    let fixture = Fixture::new();
    let catalog = fixture.open();
    catalog.add_schema("s").unwrap();
    catalog
        .put_view("s.v", "CREATE VIEW s.v AS SELECT 1")
        .unwrap();
    catalog
        .put_view("s.v", "CREATE VIEW s.v AS SELECT 2")
        .unwrap();
    catalog.put_view("w", "CREATE VIEW w AS SELECT 3").unwrap();
    catalog.drop_view("w").unwrap();
    drop(catalog);
    let catalog = fixture.open();
    let names = catalog.names().unwrap();
    assert!(names.schemas.iter().eq(["s"]));
    assert!(
        names
            .views
            .iter()
            .eq([(&"s.v".to_owned(), &"CREATE VIEW s.v AS SELECT 2".to_owned())])
    );
    catalog.drop_schema("s", &[], &[]).unwrap();
    assert!(catalog.names().unwrap().schemas.is_empty());
    drop(catalog);
    fixture.tamper("UPDATE views SET sql = 'CREATE VIEW s.v AS SELECT 3'");
    let names = fixture.open().names().unwrap();
    assert_eq!((names.views.len(), names.damages.len()), (0, 1));
}

#[test]
fn a_schema_goes_with_what_it_holds_in_one_change() {
    let fixture = Fixture::new();
    let catalog = fixture.open();
    let id = catalog
        .add_table(&table("t-1", vec![file(1)]), None)
        .unwrap();
    catalog.add_schema("s").unwrap();
    catalog
        .put_view("s.v", "CREATE VIEW s.v AS SELECT 1")
        .unwrap();
    let before = catalog.last().change.number;
    catalog.drop_schema("s", &[id], &["s.v".into()]).unwrap();
    assert_eq!(catalog.last().change.number, before + 1);
    drop(catalog);
    let catalog = fixture.open();
    let names = catalog.names().unwrap();
    assert!(names.schemas.is_empty() && names.views.is_empty());
    assert!(catalog.tables().unwrap().is_empty());
    let folder = "t-1".into();
    let obsolete = [Obsolete::Table { folder }];
    assert_eq!(catalog.journal().unwrap().obsolete, obsolete);
}
