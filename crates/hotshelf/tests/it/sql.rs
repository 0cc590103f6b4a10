//! SQL over stored tables.

use crate::Fixture;

#[test]
fn a_created_table_is_there_after_reopening() {
    let mut db = Fixture::new();
    db.run("CREATE TABLE t (a INT, b VARCHAR)").unwrap();
    assert_eq!(db.rows("SELECT count(*) FROM t"), ["0"]);
    db.run("INSERT INTO t VALUES (1, 'one'), (2, NULL)")
        .unwrap();
    db.run("INSERT INTO t SELECT a + 10, b FROM t").unwrap();
    db.reopen();
    assert_eq!(
        db.rows("SELECT a, b FROM t ORDER BY a"),
        ["1|one", "2|", "11|one", "12|"]
    );
}

#[test]
fn create_table_as_keeps_values_of_every_common_type() {
    let db = Fixture::new();
    let select = "SELECT 1::TINYINT i8, -2::SMALLINT i16, 3::INT i32, 4::BIGINT i64, 5::INT UNSIGNED u32, \
        1.5::FLOAT f32, 2.5::DOUBLE f64, true b, 'text' s, DATE '2020-02-29' d, 12.34::DECIMAL(10,2) dec, \
        TIMESTAMP '2021-01-02 03:04:05.678' ts, X'0aff' bin, [1, 2, NULL] l, {x: 1, y: 'z'} st, NULL::INT n";
    let direct = db.rows(select);
    db.run(&format!("CREATE TABLE t AS {select}")).unwrap();
    assert_eq!(db.rows("SELECT * FROM t"), direct);
}

#[test]
fn dictionaries_with_nulls_are_stored() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE words AS SELECT value AS a, arrow_cast(concat('w', value % 3), 'Dictionary(Int32, Utf8)') AS w
         FROM generate_series(1, 20) AS s(value)",
    )
    .unwrap();
    for (case, count) in [
        ("CASE WHEN a % 2 = 0 THEN w END", "10"),
        ("CASE WHEN a > 100 THEN w END", "0"),
        ("CASE WHEN a > 5 THEN NULL ELSE w END", "5"),
        ("arrow_cast(NULL, 'Dictionary(Int8, Utf8)')", "0"),
    ] {
        db.run(&format!(
            "CREATE OR REPLACE TABLE t AS SELECT a, {case} AS x FROM words"
        ))
        .unwrap();
        assert_eq!(db.rows("SELECT count(x) FROM t"), [count], "{case}");
        let stored = db.rows("SELECT x FROM t ORDER BY a");
        assert_eq!(
            stored,
            db.rows(&format!("SELECT {case} FROM words ORDER BY a"))
        );
    }
}

#[test]
fn filters_answer_as_datafusion_does_on_values_nulls_and_strings() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT value AS a, CASE WHEN value % 7 = 0 THEN NULL ELSE value % 5 END AS b, \
         concat('k', value % 3) AS s FROM generate_series(1, 300000) AS g(value)",
    )
    .unwrap();
    for predicate in [
        "a = 77",
        "a > 299000 AND b = 2",
        "b IS NULL",
        "b IS NOT NULL AND s = 'k1'",
        "s IN ('k0', 'k2') OR a < 5",
        "s LIKE 'k%' AND a BETWEEN 100 AND 200000",
        "NOT (b = 1)",
        "a + b > 150000",
        "a < 0",
    ] {
        let stored = db.rows(&format!(
            "SELECT count(*), sum(a), min(s), max(b) FROM t WHERE {predicate}"
        ));
        let computed = db.rows(&format!(
            "SELECT count(*), sum(a), min(s), max(b) FROM (SELECT value AS a, CASE WHEN value % 7 = 0 THEN NULL \
             ELSE value % 5 END AS b, concat('k', value % 3) AS s FROM generate_series(1, 300000) AS g(value)) \
             WHERE {predicate}"
        ));
        assert_eq!(stored, computed, "{predicate}");
    }
}

#[test]
fn scans_skip_row_groups_that_cannot_match() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 400000) AS g(value)")
        .unwrap();
    let plan = db
        .rows("EXPLAIN ANALYZE SELECT count(*) FROM t WHERE a < 100")
        .join("\n");
    assert!(plan.contains("row_groups_pruned=3"), "{plan}");
    assert!(plan.contains("bytes_storage="), "{plan}");
}

#[test]
fn limits_and_empty_results_are_exact() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 300000) AS g(value)")
        .unwrap();
    assert_eq!(
        db.rows("SELECT count(*) FROM (SELECT a FROM t LIMIT 7)"),
        ["7"]
    );
    assert_eq!(
        db.rows("SELECT a FROM t ORDER BY a DESC LIMIT 2"),
        ["300000", "299999"]
    );
    assert_eq!(db.rows("SELECT a FROM t WHERE a < 0").len(), 0);
    assert_eq!(
        db.rows("SELECT count(*) FROM (SELECT a FROM t WHERE a > 10 LIMIT 5 OFFSET 3)"),
        ["5"]
    );
}

#[test]
fn joins_between_stored_tables_answer_right() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE f AS SELECT value AS id, value % 100 AS k FROM generate_series(1, 200000) AS g(value)",
    )
    .unwrap();
    db.run("CREATE TABLE d AS SELECT value AS k, value % 3 AS c FROM generate_series(0, 99) AS g(value)").unwrap();
    let rows = db.rows(
        "SELECT c, count(*), sum(id) FROM f JOIN d ON f.k = d.k WHERE c > 0 GROUP BY c ORDER BY c",
    );
    let counted = db.rows(
        "SELECT k % 3, count(*), sum(id) FROM (SELECT value AS id, value % 100 AS k FROM generate_series(1, 200000) \
         AS g(value)) WHERE k % 3 > 0 GROUP BY 1 ORDER BY 1",
    );
    assert_eq!(rows, counted);
}

#[test]
fn statistics_reach_the_planner() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value AS a FROM generate_series(1, 1000) AS g(value)")
        .unwrap();
    let plan = db
        .rows("EXPLAIN SELECT count(*), min(a), max(a) FROM t")
        .join("\n");
    assert!(
        plan.contains("PlaceholderRowExec"),
        "answered from statistics: {plan}"
    );
    assert_eq!(
        db.rows("SELECT count(*), min(a), max(a) FROM t"),
        ["1000|1|1000"]
    );
}

#[test]
fn dropping_and_replacing_tables_removes_their_rows() {
    let mut db = Fixture::new();
    db.run("CREATE TABLE t AS VALUES (1)").unwrap();
    assert_eq!(
        db.error("CREATE TABLE t AS VALUES (2)").code(),
        "table_exists"
    );
    db.run("CREATE TABLE IF NOT EXISTS t AS VALUES (3)")
        .unwrap();
    assert_eq!(db.rows("SELECT * FROM t"), ["1"]);
    db.run("CREATE OR REPLACE TABLE t AS VALUES (4)").unwrap();
    assert_eq!(db.rows("SELECT * FROM t"), ["4"]);
    db.reopen();
    assert_eq!(db.rows("SELECT * FROM t"), ["4"]);
    db.run("DROP TABLE t").unwrap();
    db.run("DROP TABLE IF EXISTS t").unwrap();
    db.reopen();
    assert!(db.database().table_names().is_empty());
}

#[test]
fn an_unknown_table_offers_the_nearest_name() {
    let db = Fixture::new();
    db.run("CREATE TABLE lineorder AS VALUES (1)").unwrap();
    let error = db.error("SELECT * FROM lineordr");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("'lineorder'")),
        "{error:?}"
    );
    assert!(error.hint().unwrap().contains("lineorder"));
}

#[test]
fn delete_and_update_say_that_they_are_not_supported_yet() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS VALUES (1)").unwrap();
    for sql in ["DELETE FROM t", "UPDATE t SET column1 = 2"] {
        let error = db.error(sql).to_string();
        assert!(error.contains("not supported yet"), "{sql}: {error}");
    }
}

#[test]
fn settings_are_shown_as_they_were_set() {
    let db = Fixture::new();
    let session = db.database().session();
    let show = |sql: &str| {
        let answer = db
            .database()
            .block_on(async { session.sql(sql).await?.collect().await });
        answer.map(|batches| crate::lines(&batches))
    };
    show("SET hotshelf.budget = '64MB'").unwrap();
    show("SET hotshelf.policy = 'none'").unwrap();
    show("SET hotshelf.storage_bandwidth = '300MB/s'").unwrap();
    show("SET hotshelf.threads = 3").unwrap();
    assert_eq!(
        show("SHOW hotshelf.budget").unwrap(),
        ["hotshelf.budget|64000000"]
    );
    assert_eq!(
        show("SHOW hotshelf.policy").unwrap(),
        ["hotshelf.policy|none"]
    );
    assert_eq!(
        show("SHOW hotshelf.storage_bandwidth").unwrap(),
        ["hotshelf.storage_bandwidth|300000000"]
    );
    assert_eq!(
        show("SHOW datafusion.execution.target_partitions").unwrap()[0],
        "datafusion.execution.target_partitions|3"
    );
}

#[test]
fn settings_and_values_that_do_not_exist_are_answered_with_what_does() {
    let db = Fixture::new();
    for (sql, expected) in [
        (
            "SET hotshelf.elfs = off",
            "there is no setting 'hotshelf.elfs'",
        ),
        (
            "SET Hotshelf.Polcy = 'lru'",
            "hint: did you mean 'hotshelf.policy'?",
        ),
        (
            "SET budget = '1GB'",
            "hint: did you mean 'hotshelf.budget'?",
        ),
        (
            "SET hotshelf.colour = 1",
            "hint: SHOW ALL lists the settings",
        ),
        ("SHOW hotshelf.elfs", "hint: did you mean 'hotshelf.elf'?"),
        (
            "SET datafusion.execution.batchsize = 1",
            "hint: did you mean 'datafusion.execution.batch_size'?",
        ),
        (
            "SET hotshelf.elf = sometimes",
            "'sometimes' is not a value of hotshelf.elf: on, off or always",
        ),
        (
            "SET hotshelf.policy = 'lrru'",
            "'lrru' is not a value of hotshelf.policy: none, all, lru, s3fifo, hpcache",
        ),
        (
            "SET hotshelf.budget = 'lots'",
            "'lots' is not a value of hotshelf.budget: expected a number with a unit",
        ),
        ("SET hotshelf.threads = 0", "a whole number from 1 to 4096"),
        ("SET hotshelf.budget = '1'", "too small"),
        (
            "SET datafusion.execution.batch_size = 99999999",
            "at most 1048576",
        ),
    ] {
        let error = db.error(sql);
        let hint = error.hint().unwrap_or_default();
        let words = format!("{error}\nhint: {hint}");
        assert!(words.contains(expected), "{sql}: {words}");
        assert!(!words.contains("Config"), "{sql}: {words}");
    }
    db.run("SET timezone = '+01:00'").unwrap();
}

#[test]
fn files_are_queried_and_written_without_set_up() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS VALUES (1, 'x'), (2, 'y')")
        .unwrap();
    for ending in ["parquet", "csv", "json", "arrow", "vortex"] {
        let path = db.path(&format!("out.{ending}"));
        db.run(&format!(
            "COPY (SELECT column1 AS a, column2 AS b FROM t) TO '{path}' STORED AS {ending}"
        ))
        .unwrap();
        assert_eq!(
            db.rows(&format!("SELECT a, b FROM '{path}' ORDER BY a")),
            ["1|x", "2|y"],
            "{ending}"
        );
    }
}

#[test]
fn the_inside_shows_in_table_functions() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value AS a, value * 2 AS b FROM generate_series(1, 300000) AS g(value)").unwrap();
    db.run("SELECT sum(a) FROM t").unwrap();
    let columns =
        db.rows("SELECT table_name, column_name, cached_bytes > 0 FROM cache_columns() ORDER BY 2");
    let of_columns: Vec<_> = columns.iter().filter(|row| !row.contains("||")).collect();
    assert_eq!(of_columns, ["t|a|true", "t|b|false"], "{columns:?}");
    assert_ne!(
        db.rows("SELECT count(*) FROM cache_segments() WHERE kind = 'data'"),
        ["0"]
    );
    assert_ne!(
        db.rows("SELECT count(*) FROM cache_events() WHERE event = 'miss'"),
        ["0"]
    );
    assert_eq!(
        db.rows("SELECT reads > 0, device_bytes > 0 FROM io_stats()"),
        ["true|true"]
    );
}

#[test]
fn views_and_information_schema_work_over_stored_tables() {
    let db = Fixture::new();
    let session = db.database().session();
    let run = |sql: &str| {
        let answer = db
            .database()
            .block_on(async { session.sql(sql).await?.collect().await });
        crate::lines(&answer.unwrap())
    };
    run("CREATE TABLE t AS VALUES (1), (2)");
    run("CREATE VIEW v AS SELECT sum(column1) AS s FROM t");
    assert_eq!(run("SELECT s FROM v"), ["3"]);
    let tables = run(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1",
    );
    assert_eq!(tables, ["t", "v"]);
}

#[test]
fn replacing_and_keeping_a_table_at_once_is_refused() {
    let db = Fixture::new();
    let error = db.error("CREATE OR REPLACE TABLE IF NOT EXISTS t AS VALUES (1)");
    assert!(
        error
            .to_string()
            .contains("'IF NOT EXISTS' cannot coexist with 'REPLACE'"),
        "{error}"
    );
}

#[test]
fn keys_that_are_not_kept_are_named_in_the_answer() {
    let db = Fixture::new();
    let session = db.database().session();
    let message = |sql: &'static str| {
        let answer = db.database().block_on(session.sql(sql));
        answer.unwrap().message().unwrap().to_owned()
    };
    let note = "its keys are neither checked nor kept";
    assert!(message("CREATE TABLE t (a INT PRIMARY KEY)").ends_with(note));
    assert!(message("CREATE TABLE u (a INT, UNIQUE (a))").ends_with(note));
    assert!(!message("CREATE TABLE v (a INT)").contains(note));
}

#[test]
fn nothing_is_replaced_by_something_of_another_kind() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT 1 AS a").unwrap();
    let session = db.database().session();
    let run = |sql: &str| {
        db.database()
            .block_on(async { session.sql(sql).await?.collect().await })
    };
    for sql in [
        "CREATE OR REPLACE VIEW t AS SELECT 2 AS a",
        "CREATE VIEW t AS SELECT 2 AS a",
        "CREATE OR REPLACE EXTERNAL TABLE t STORED AS PARQUET LOCATION '/nowhere/x.parquet'",
    ] {
        let error = run(sql).expect_err(sql);
        assert!(error.code() == "other_kind", "{sql}: {error}");
        assert!(error.hint().unwrap().contains("DROP TABLE t"), "{sql}");
    }
    run("CREATE VIEW v AS SELECT a + 1 AS a FROM t").unwrap();
    let error = run("CREATE OR REPLACE TABLE v AS SELECT 3 AS a").unwrap_err();
    assert!(error.code() == "other_kind", "{error}");
    run("CREATE OR REPLACE VIEW v AS SELECT a + 2 AS a FROM t").unwrap();
    assert_eq!(crate::lines(&run("SELECT a FROM v").unwrap()), ["3"]);
    assert_eq!(db.rows("SELECT a FROM t"), ["1"]);
    assert!(run("DROP VIEW t").is_err());
    assert_eq!(db.rows("SELECT a FROM t"), ["1"]);
}

#[test]
fn a_name_without_quotes_never_means_a_folder() {
    // The crate's folder, where tests run, has the folder `src`.
    let db = Fixture::new();
    db.error("SELECT * FROM src");
    db.run("CREATE TABLE src AS SELECT 1 AS a").unwrap();
    assert_eq!(db.rows("SELECT a FROM src"), ["1"]);
    assert_eq!(db.rows("SELECT a FROM 'src'"), ["1"]);
    db.run("DROP TABLE src").unwrap();
    let error = db.error("SELECT * FROM src");
    assert!(error.to_string().contains("src"), "{error}");
}

#[test]
fn resetting_a_setting_of_ours_is_answered_with_what_to_do() {
    let db = Fixture::new();
    let refused = db.run("RESET hotshelf.budget").unwrap_err().to_string();
    assert!(refused.contains("SHOW hotshelf.budget"), "{refused}");
    db.run("RESET datafusion.execution.batch_size").unwrap();
}

#[test]
fn inserted_rows_get_the_types_of_the_table_s_columns() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (h INT)").unwrap();
    // The planner takes the first branch's type for that of the whole.
    let insert = "INSERT INTO t SELECT CASE WHEN value < 3 THEN CAST(value AS INT) ELSE";
    db.run(&format!("{insert} 500 END FROM generate_series(1, 4)"))
        .unwrap();
    assert_eq!(
        db.rows("SELECT h, count(*) FROM t GROUP BY h ORDER BY h"),
        ["1|1", "2|1", "500|2"]
    );
    let error = db.run(&format!(
        "{insert} 5000000000 END FROM generate_series(1, 4)"
    ));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("5000000000") && !error.contains("Backtrace"),
        "{error}"
    );
    // As everywhere in INSERT, nothing is rounded.
    let error = db.run(&format!("{insert} 2.5 END FROM generate_series(1, 4)"));
    assert!(error.unwrap_err().to_string().contains("2.5"));
    assert_eq!(db.rows("SELECT count(*) FROM t"), ["4"]);
}

#[test]
fn a_select_list_may_have_an_expression_twice() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value AS a, value + 1 AS a_1 FROM range(3)")
        .unwrap();
    for (query, rows) in [
        ("SELECT 7, 7", vec!["7|7"]),
        (
            "SELECT a, a, a_1, a FROM t ORDER BY a DESC LIMIT 1",
            vec!["2|2|3|2"],
        ),
        ("SELECT t.a, t.a, t.a FROM t WHERE a = 1", vec!["1|1|1"]),
        ("SELECT count(*), sum(a), count(*) FROM t", vec!["3|3|3"]),
        (
            "SELECT a % 2, a % 2, count(*) FROM t GROUP BY a % 2 ORDER BY 1",
            vec!["0|0|2", "1|1|1"],
        ),
        (
            "SELECT DISTINCT 1, 1 FROM t UNION ALL SELECT 2, 2 ORDER BY 1",
            vec!["1|1", "2|2"],
        ),
        (
            "SELECT a, \"a:1\" FROM (SELECT a, a, a_1 FROM t) ORDER BY 1 LIMIT 1",
            vec!["0|0"],
        ),
    ] {
        assert_eq!(db.rows(query), rows, "{query}");
    }
    // The names that are made up stand for nothing else.
    db.run("CREATE TABLE z AS SELECT 3 - value AS a, value AS a_1, 1 AS \"T.a\" FROM range(3)")
        .unwrap();
    assert_eq!(
        db.rows("SELECT a, a FROM z ORDER BY a_1"),
        ["3|3", "2|2", "1|1"]
    );
    assert_eq!(db.rows("SELECT max(a) AS a, max(\"T.a\") FROM z"), ["3|1"]);
    db.run("INSERT INTO t SELECT 9, 9").unwrap();
    db.run("CREATE TABLE u AS SELECT a, a FROM t WHERE a = 9")
        .unwrap();
    assert_eq!(db.rows("SELECT a, \"a:1\" FROM u"), ["9|9"]);
}
