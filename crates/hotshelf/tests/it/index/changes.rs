//! Statements about indexes, and their files through appends, merges, damage and leftovers.

use std::path::PathBuf;

use super::{both, explain, index_files, numbered, numbered_to};

#[test]
fn statements_say_what_is_wrong_with_them() {
    let db = numbered();
    db.run("CREATE TABLE l AS SELECT [1, 2] AS list, 3 AS x")
        .unwrap();
    db.run("CREATE INDEX i ON t USING elf (a)").unwrap();
    let error = |sql: &str| db.error(sql);
    let exists = error("CREATE INDEX i ON l USING elf (x)");
    assert_eq!(exists.code(), "index_exists");
    assert_eq!(exists.to_string(), "index 'i' already exists, on table 't'");
    db.run("CREATE INDEX IF NOT EXISTS i ON t USING elf (b)")
        .unwrap();
    let unknown = error("CREATE INDEX j ON t USING elf (idd)");
    assert_eq!(unknown.code(), "unknown_column");
    assert_eq!(unknown.hint().unwrap(), "did you mean 'id'?");
    assert_eq!(
        error("CREATE INDEX j ON l USING elf (list)").code(),
        "not_indexable"
    );
    assert_eq!(
        error("CREATE INDEX j ON tt USING elf (a)").code(),
        "unknown_table"
    );
    assert_eq!(
        error("CREATE INDEX j ON t USING elf (a, a)").code(),
        "invalid_value"
    );
    assert_eq!(
        error("CREATE INDEX j ON t USING btree (a)").code(),
        "invalid_value"
    );
    assert_eq!(error("CREATE INDEX j ON t (a)").code(), "invalid_value");
    assert_eq!(
        error("CREATE UNIQUE INDEX j ON t USING elf (a)").code(),
        "not_supported"
    );
    assert_eq!(
        error("CREATE INDEX j ON t USING elf (a DESC)").code(),
        "not_supported"
    );
    assert_eq!(
        error("CREATE INDEX j ON t USING elf (a + 1)").code(),
        "not_supported"
    );
    for option in [
        "order = 'best'",
        "speed = 'high'",
        "clustered = 7",
        "cache = 'arc'",
        "cache = 5",
        "cache_bytes = 'many'",
        "cache_bytes = -5",
        "cache = 'levels'",
        "cache = 'levels:0'",
        "cache = 'levels:2'",
        "cache = 'lru', cache = 'lru'",
        "order = 'auto', cache = 'lru', ORDER = 'given'",
    ] {
        let sql = format!("CREATE INDEX j ON t USING elf (a) WITH ({option})");
        assert!(error(&sql).code() == "invalid_value", "{option}");
    }
    let words = error("CREATE INDEX j ON t USING elf (a) WITH (cache = 'arc')").to_string();
    assert!(
        words.contains("'auto', 'static', 'hybrid', 'naive', 'lru', 'lfu', 'lla', '2q', 'sieve'"),
        "{words}"
    );
    assert!(
        words.contains("'none' or 'levels:N' for N from 1"),
        "{words}"
    );
    let altered = error("ALTER INDEX i SET (cache = 'levels:9')");
    assert_eq!(altered.code(), "invalid_value");
    let altered = error("ALTER INDEX i SET (cache = 'lru', cache = 'lfu')").to_string();
    assert!(altered.contains("every option once"), "{altered}");
    let unknown = error("DROP INDEX ii");
    assert_eq!(unknown.code(), "unknown_index");
    assert_eq!(unknown.hint().unwrap(), "did you mean 'i'?");
    db.run("DROP INDEX IF EXISTS ii").unwrap();
    db.run("DROP INDEX i").unwrap();
    assert_eq!(db.rows("SELECT count(*) FROM hotshelf_indexes()"), ["0"]);
    db.run("CREATE INDEX c ON t USING elf (a) WITH (clustered = true)")
        .unwrap();
    assert_eq!(
        error("CREATE INDEX d ON t USING elf (b) WITH (clustered = true)").code(),
        "not_supported"
    );
    db.run("DROP TABLE t").unwrap();
    assert_eq!(db.rows("SELECT count(*) FROM hotshelf_indexes()"), ["0"]);
    assert_eq!(index_files(&db).len(), 0);
}

#[test]
fn an_index_follows_appends_merges_and_reopening() {
    let mut db = numbered();
    db.run("CREATE INDEX i ON t USING elf (s, a, b) WITH (order = 'auto')")
        .unwrap();
    for _ in 0..3 {
        db.run("INSERT INTO t SELECT id + 300000, a, b, s FROM t WHERE id < 1000")
            .unwrap();
    }
    let indexes = "SELECT index_name, table_name, columns, files, indexed_files, rows, damage FROM hotshelf_indexes()";
    assert_eq!(db.rows(indexes), ["i|t|s, b, a|4|4|302997|"]);
    assert_eq!(index_files(&db).len(), 4);
    let question = "SELECT count(*), sum(id) FROM t WHERE s = 's3' AND b IN (1, 2, 3)";
    let before = both(&db, question);
    assert_eq!(before.0, before.1);
    db.run("OPTIMIZE TABLE t").unwrap();
    assert_eq!(db.rows(indexes), ["i|t|s, b, a|1|1|302997|"]);
    assert_eq!(index_files(&db).len(), 1);
    assert_eq!(both(&db, question), before);
    db.reopen();
    assert_eq!(both(&db, question), before);
    assert_eq!(db.rows("SELECT sum(rows) FROM elf_stats()"), ["302997"]);
    assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
}

#[test]
fn a_clustered_index_puts_rows_next_to_each_other() {
    let db = numbered();
    let question = "SELECT count(*), sum(id), min(s) FROM t WHERE a BETWEEN 10 AND 12 AND b > 70";
    let plain = db.rows(question);
    db.run("CREATE INDEX i ON t USING elf (a, b) WITH (clustered = true)")
        .unwrap();
    let (with, without) = both(&db, question);
    assert_eq!((&with, &without), (&plain, &plain));
    let plan = explain(&db, question);
    assert!(plan.contains("row_groups_pruned=2"), "{plan}");
    db.run("INSERT INTO t SELECT * FROM t WHERE a = 11")
        .unwrap();
    assert_eq!(
        db.rows("SELECT index_name, file > 0, clustered FROM elf_stats()"),
        ["i|true|true", "i|true|true"]
    );
    let (with, without) = both(&db, question);
    assert_eq!(with, without);
}

#[test]
fn a_table_made_with_cluster_by_has_its_rows_and_later_ones_in_order() {
    let mut db = numbered();
    db.run("CREATE TABLE c CLUSTER BY elf (a, b) AS SELECT * FROM t")
        .unwrap();
    db.run("CREATE TABLE d (a INT, s VARCHAR) CLUSTER BY elf (s, a)")
        .unwrap();
    db.run("INSERT INTO d SELECT a, s FROM t WHERE id <= 1000")
        .unwrap();
    let indexes = "SELECT index_name, columns, clustered, indexed_files, rows FROM hotshelf_indexes() ORDER BY 1";
    let expected = ["c_a_b_elf|a, b|true|1|300000", "d_s_a_elf|s, a|true|1|1000"];
    assert_eq!(db.rows(indexes), expected);
    assert_eq!(db.rows("SELECT s, a FROM d LIMIT 1"), ["s0|25"]);
    let question = "SELECT count(*), sum(id), min(s) FROM c WHERE a BETWEEN 10 AND 12 AND b > 70";
    let (with, without) = both(&db, question);
    assert_eq!(with, without);
    assert!(explain(&db, question).contains("row_groups_pruned=2"));
    db.reopen();
    assert_eq!(db.rows(indexes), expected);
    assert_eq!(both(&db, question), (with.clone(), with));
    assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
}

#[test]
fn cluster_by_says_what_is_wrong_and_leaves_nothing_behind() {
    let db = numbered_to(100);
    for wrong in ["a", "elf ()", "elf (a + 1)", "tree (a)", "elf (a), b"] {
        let error = db.error(&format!(
            "CREATE TABLE c CLUSTER BY {wrong} AS SELECT * FROM t"
        ));
        assert!(
            error.code() == "invalid_value" && error.to_string().contains("CLUSTER BY elf"),
            "{wrong}: {error}"
        );
    }
    let unknown = db.error("CREATE TABLE c CLUSTER BY elf (aa) AS SELECT * FROM t");
    assert_eq!(unknown.code(), "unknown_column");
    assert_eq!(unknown.hint().unwrap(), "did you mean 'a'?");
    db.run("CREATE INDEX c_a_elf ON t USING elf (b)").unwrap();
    assert_eq!(
        db.error("CREATE TABLE c CLUSTER BY elf (a) AS SELECT * FROM t")
            .code(),
        "index_exists"
    );
    assert_eq!(db.database().table_names(), ["t"]);
    db.run("CREATE OR REPLACE TABLE t CLUSTER BY elf (b) AS SELECT * FROM t")
        .unwrap();
    db.run("CREATE OR REPLACE TABLE t CLUSTER BY elf (b) AS SELECT * FROM t WHERE id < 50")
        .unwrap();
    assert_eq!(
        db.rows("SELECT index_name, rows FROM hotshelf_indexes()"),
        ["t_b_elf|49"]
    );
}

#[test]
fn damaged_missing_and_foreign_index_files_are_named_and_never_believed() {
    let question = "SELECT count(*), sum(id) FROM t WHERE a = 5 AND b < 30";
    let length = |path: &PathBuf| std::fs::metadata(path).unwrap().len() as usize;
    type Harm = Box<dyn Fn(&PathBuf, &PathBuf)>;
    let flip = move |place: fn(usize) -> usize| -> Harm {
        Box::new(move |path, _| {
            let mut bytes = std::fs::read(path).unwrap();
            let at = place(length(path));
            bytes[at] ^= 0x40;
            std::fs::write(path, bytes).unwrap();
        })
    };
    let harms: Vec<(&str, Harm)> = vec![
        ("superblock", flip(|_| 20)),
        ("head", flip(|_| 4096 + 40)),
        ("leaves", flip(|length| length / 2)),
        ("description", flip(|length| length - 9)),
        (
            "cut",
            Box::new(move |path, _| {
                let file = std::fs::File::options().write(true).open(path).unwrap();
                file.set_len(length(path) as u64 / 2).unwrap();
            }),
        ),
        (
            "gone",
            Box::new(|path, _| std::fs::remove_file(path).unwrap()),
        ),
        (
            "foreign",
            Box::new(|path, other| {
                std::fs::copy(other, path).unwrap();
            }),
        ),
    ];
    for (name, harm) in harms {
        let mut db = numbered_to(40_000);
        db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
        db.run("CREATE TABLE o AS SELECT id, a, b + 1 AS b FROM t")
            .unwrap();
        db.run("CREATE INDEX oi ON o USING elf (a, b)").unwrap();
        let right = both(&db, question).1;
        let mut files = index_files(&db);
        files.sort();
        let of = |table: &str| {
            let is = |path: &&PathBuf| path.to_string_lossy().contains(&format!("/{table}-"));
            files.iter().find(is).unwrap().clone()
        };
        harm(&of("t"), &of("o"));
        db.reopen();
        let (with, without) = both(&db, question);
        assert_eq!((&with, &without), (&right, &right), "{name}");
        let report = db.database().verify(|_, _| {}).unwrap();
        assert_eq!(report.damage.len(), 1, "{name}: {:?}", report.damage);
        assert_eq!(report.damage[0].what, "t", "{name}");
        db.run("DROP INDEX i").unwrap();
        db.run("CREATE INDEX i ON t USING elf (a, b)").unwrap();
        assert_eq!(both(&db, question).0, right, "{name}");
        assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
    }
}

#[test]
fn leftovers_of_index_files_are_swept_on_opening() {
    let mut db = numbered();
    db.run("CREATE INDEX i ON t USING elf (a)").unwrap();
    let file = index_files(&db).remove(0);
    let folder = file.parent().unwrap();
    for orphan in ["9-9.elf", "1-2.elf.tmp", "run-0.tmp"] {
        std::fs::write(folder.join(orphan), "half").unwrap();
    }
    db.reopen();
    assert_eq!(index_files(&db), [file]);
}

#[test]
fn appends_while_an_index_is_made_are_indexed_too() {
    let db = numbered();
    let database = db.database();
    database.block_on(async {
        let (one, other) = (database.session(), database.session());
        let create = one.sql("CREATE INDEX i ON t USING elf (a, b)");
        let append = async {
            for _ in 0..3 {
                let insert = "INSERT INTO t SELECT id, a, b, s FROM t WHERE id < 100";
                other.sql(insert).await.unwrap().collect().await.unwrap();
            }
        };
        let (created, ()) = futures::join!(create, append);
        created.unwrap();
    });
    assert_eq!(
        db.rows("SELECT files, indexed_files FROM hotshelf_indexes()"),
        ["4|4"]
    );
    let (with, without) = both(&db, "SELECT count(*) FROM t WHERE a < 50 AND b = 2");
    assert_eq!(with, without);
}
