//! Names mean what they stand for when a statement runs, not when something else first looked at them.

use hotshelf::Value;

use super::{Fixture, lines};

/// Runs statements in one session; the rows of the last.
fn in_session(db: &Fixture, statements: &[&str]) -> Vec<String> {
    let session = db.database().session();
    db.database().block_on(async {
        let mut rows = Vec::new();
        for sql in statements {
            let answer = session.sql(sql).await.unwrap();
            rows = answer.collect().await.unwrap();
        }
        lines(&rows)
    })
}

#[test]
fn prepared_statements_see_what_was_inserted_since() {
    let db = Fixture::new();
    let rows = in_session(
        &db,
        &[
            "CREATE TABLE t AS SELECT 1 AS a",
            "PREPARE q AS SELECT count(*) AS n FROM t",
            "INSERT INTO t VALUES (2)",
            "EXECUTE q",
        ],
    );
    assert_eq!(rows, ["2"]);
}

#[test]
fn prepared_statements_take_parameters_and_can_insert() {
    let db = Fixture::new();
    let rows = in_session(
        &db,
        &[
            "CREATE TABLE t (a BIGINT, s VARCHAR)",
            "PREPARE add(BIGINT, VARCHAR) AS INSERT INTO t VALUES ($1, $2)",
            "EXECUTE add(1, 'one')",
            "EXECUTE add(1 + 1, 'two')",
            "PREPARE find AS SELECT s FROM t WHERE a = $1",
            "EXECUTE find(2)",
        ],
    );
    assert_eq!(rows, ["two"]);
    let session = db.database().session();
    let refused = |sql: &str| {
        let run = async { session.sql(sql).await?.collect().await };
        db.database().block_on(run).unwrap_err().to_string()
    };
    refused("EXECUTE find(2)"); // It belongs to another session.
    in_session(&db, &["PREPARE p AS SELECT 1", "DEALLOCATE p"]);
    assert!(refused("DEALLOCATE p").contains("no prepared statement"));
    db.database()
        .block_on(session.sql("PREPARE p(INT) AS SELECT $1"))
        .unwrap();
    assert!(refused("PREPARE p AS SELECT 2").contains("exists already"));
    assert!(refused("EXECUTE p").contains("1 parameter"));
    assert!(refused("EXECUTE p(1, 2)").contains("1 parameter"));
}

#[test]
fn a_statement_runs_with_values_from_the_program() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT * FROM (VALUES (1, 'one'), (2, 'two')) v(a, s)")
        .unwrap();
    let session = db.database().session();
    let statement = session
        .parse("SELECT s FROM t WHERE a = $1 OR s = $2 ORDER BY s")
        .unwrap()
        .remove(0);
    let rows = |a: i64, s: &str| {
        let values = [Value::from(a), Value::from(s)];
        let run = async {
            session
                .execute_with(&statement, &values)
                .await?
                .collect()
                .await
        };
        lines(&db.database().block_on(run).unwrap())
    };
    assert_eq!(rows(2, "x"), ["two"]);
    db.run("INSERT INTO t VALUES (7, 'x')").unwrap();
    assert_eq!(rows(2, "x"), ["two", "x"]);
}

#[test]
fn an_insert_whose_answer_is_dropped_has_happened() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT 1 AS a").unwrap();
    let session = db.database().session();
    drop(
        db.database()
            .block_on(session.sql("INSERT INTO t VALUES (2)"))
            .unwrap(),
    );
    assert_eq!(db.rows("SELECT sum(a) AS s FROM t"), ["3"]);
}

#[test]
fn files_and_folders_are_read_as_they_are() {
    let db = Fixture::new();
    let folder = db.path("files");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(format!("{folder}/{name}"), text).unwrap();
    };
    write("1.csv", "a\n1\n");
    let session = db.database().session();
    let rows = |sql: &str| {
        let run = async { session.sql(sql).await?.collect().await };
        lines(&db.database().block_on(run).unwrap())
    };
    let sql = format!("SELECT count(*) AS n, sum(a) AS s FROM '{folder}'");
    assert_eq!(rows(&sql), ["1|1"]);
    write("2.csv", "a\n2\n");
    assert_eq!(rows(&sql), ["2|3"]);
    write("1.csv", "a\n7\n");
    assert_eq!(rows(&sql), ["2|9"]);
    let parquet = |values: &str| {
        let path = db.path("p.parquet");
        rows(&format!(
            "COPY (SELECT * FROM (VALUES {values}) v(a)) TO '{path}' STORED AS PARQUET"
        ));
        rows(&format!("SELECT count(*) AS n, max(a) AS m FROM '{path}'"))
    };
    rows(&format!(
        "CREATE EXTERNAL TABLE e STORED AS CSV LOCATION '{folder}/' OPTIONS ('format.has_header' 'true')"
    ));
    let external = "SELECT count(*) AS n, sum(a) AS s FROM e";
    assert_eq!(rows(external), ["2|9"]);
    write("3.csv", "a\n1\n");
    assert_eq!(rows(external), ["3|10"]);
    std::fs::remove_file(format!("{folder}/1.csv")).unwrap();
    assert_eq!(rows(external), ["2|3"]);
    assert_eq!(parquet("(1), (2)"), ["2|2"]);
    assert_eq!(parquet("(1), (9)"), ["2|9"]);
    assert_eq!(parquet("(1), (9), (3)"), ["3|9"]);
}

#[test]
fn views_see_what_was_inserted_since_and_outlive_the_process() {
    let mut db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT 1 AS a;
         CREATE VIEW v AS SELECT count(*) AS n, sum(a) AS s FROM t;
         CREATE VIEW w (number) AS SELECT n + 1 FROM v;
         INSERT INTO t VALUES (2)",
    )
    .unwrap();
    assert_eq!(db.rows("SELECT * FROM v"), ["2|3"]);
    assert_eq!(db.rows("SELECT number FROM w"), ["3"]);
    db.reopen();
    db.run("INSERT INTO t VALUES (7)").unwrap();
    assert_eq!(db.rows("SELECT * FROM v"), ["3|10"]);
    db.run("CREATE OR REPLACE VIEW v AS SELECT 5 AS n").unwrap();
    assert_eq!(db.rows("SELECT number FROM w"), ["6"]);
    let kinds = "SELECT table_name, table_type FROM information_schema.tables
        WHERE table_schema = 'public' ORDER BY 1";
    assert_eq!(db.rows(kinds), ["t|BASE TABLE", "v|VIEW", "w|VIEW"]);
    db.run("DROP VIEW w").unwrap();
    db.reopen();
    assert_eq!(db.rows(kinds), ["t|BASE TABLE", "v|VIEW"]);
}

#[test]
fn lists_bear_with_a_view_whose_table_is_gone() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT 1 AS a; CREATE TABLE u AS SELECT 2 AS b;
         CREATE VIEW v AS SELECT * FROM t; DROP TABLE t",
    )
    .unwrap();
    let tables =
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 1";
    assert_eq!(db.rows(tables), ["u", "v"]);
    db.run("SHOW TABLES").unwrap();
    let columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'";
    assert_eq!(db.rows(columns), ["u|b"]);
    assert_eq!(db.rows("SELECT b FROM u"), ["2"]);
    let error = db.error("SELECT a FROM v").to_string();
    assert!(error.contains("table 't' does not exist"), "{error}");
}

#[test]
fn views_that_cannot_be_are_refused() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT 1 AS a; CREATE VIEW v AS SELECT a FROM t; CREATE VIEW w AS SELECT a FROM v")
        .unwrap();
    let refused = |sql: &str| db.error(sql).to_string();
    assert!(refused("CREATE VIEW v AS SELECT 2").contains("exists already"));
    assert!(refused("CREATE OR REPLACE VIEW v AS SELECT a FROM v").contains("refers to itself"));
    assert!(refused("CREATE OR REPLACE VIEW v AS SELECT a FROM w").contains("refers to itself"));
    assert!(refused("CREATE OR REPLACE VIEW t AS SELECT 1 AS a").contains("stored table"));
    assert!(refused("CREATE TABLE v AS SELECT 1 AS a").contains("view"));
    assert!(refused("CREATE VIEW x AS SELECT a, 2 AS a FROM t").contains('a'));
    assert!(refused("CREATE VIEW nowhere.x AS SELECT 1").contains("no schema 'nowhere'"));
    assert!(refused("DROP VIEW x").contains("no view 'x'"));
    db.run("DROP VIEW IF EXISTS x").unwrap();
    db.run("DROP TABLE t").unwrap();
    assert!(
        refused("SELECT * FROM w").contains("'t'"),
        "{}",
        refused("SELECT * FROM w")
    );
    assert_eq!(db.rows("SELECT 1 AS a"), ["1"]);
}

#[test]
fn tables_of_other_schemas_are_kept() {
    let mut db = Fixture::new();
    db.run(
        "CREATE SCHEMA s;
         CREATE TABLE s.t AS SELECT 1 AS a;
         CREATE TABLE t AS SELECT 10 AS a;
         CREATE VIEW s.v AS SELECT sum(a) AS n FROM s.t;
         CREATE INDEX i ON s.t USING elf (a);
         INSERT INTO s.t VALUES (2)",
    )
    .unwrap();
    db.reopen();
    assert_eq!(db.rows("SELECT n FROM s.v"), ["3"]);
    assert_eq!(
        db.rows("SELECT x.a, y.a AS b FROM s.t x JOIN t y ON x.a < y.a ORDER BY 1"),
        ["1|10", "2|10"]
    );
    assert_eq!(db.rows("SELECT a FROM s.t WHERE a = 2"), ["2"]);
    let refused = |sql: &str| db.error(sql).to_string();
    assert!(refused("SELECT * FROM s.missing").contains("missing"));
    assert!(refused("CREATE TABLE nowhere.t AS SELECT 1 AS a").contains("no schema 'nowhere'"));
    assert!(refused("CREATE SCHEMA s").contains("exists already"));
    assert!(refused("CREATE TABLE \"a.b\" AS SELECT 1 AS a").contains("no schema 'a'"));
    assert!(refused("DROP SCHEMA s").contains("2 tables and views"));
    assert!(refused("DROP SCHEMA public").contains("cannot be dropped"));
    db.run("DROP VIEW s.v; DROP TABLE s.t; DROP SCHEMA s")
        .unwrap();
    refused("SELECT * FROM s.t");
    assert_eq!(db.rows("SELECT a FROM t"), ["10"]);
}

#[test]
fn a_schema_is_dropped_with_what_it_holds() {
    let mut db = Fixture::new();
    db.run(
        "CREATE SCHEMA q;
         CREATE TABLE q.t AS SELECT 1 AS a;
         CREATE TABLE q.u AS SELECT 2 AS a;
         CREATE VIEW q.v AS SELECT a FROM q.t;
         CREATE INDEX i ON q.t USING elf (a);
         CREATE TABLE t AS SELECT 10 AS a;
         CREATE VIEW v AS SELECT a FROM t",
    )
    .unwrap();
    let error = db.error("DROP SCHEMA q");
    assert_eq!(error.code(), "schema_in_use");
    assert!(error.hint().is_some_and(|hint| hint.contains("CASCADE")));
    assert_eq!(db.rows("SELECT a FROM q.v"), ["1"]);
    assert_eq!(
        db.error("DROP SCHEMA public CASCADE").code(),
        "schema_in_use"
    );
    db.run("DROP SCHEMA q CASCADE").unwrap();
    for again in [false, true] {
        if again {
            db.reopen();
        }
        for name in ["q.t", "q.u", "q.v"] {
            db.error(&format!("SELECT * FROM {name}"));
        }
        assert_eq!(db.rows("SELECT a FROM v"), ["10"]);
        assert_eq!(
            db.rows("SELECT count(*) FROM hotshelf_tables() WHERE table_name LIKE 'q%'"),
            ["0"]
        );
    }
    db.run("CREATE SCHEMA q; CREATE TABLE q.t AS SELECT 3 AS a; DROP SCHEMA IF EXISTS q CASCADE")
        .unwrap();
    assert!(db.database().verify(|_, _| {}).unwrap().damage.is_empty());
}
