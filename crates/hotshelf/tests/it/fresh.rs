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
    refused("EXECUTE find(2)"); // Another session's.
    in_session(&db, &["PREPARE p AS SELECT 1", "DEALLOCATE p"]);
    assert!(refused("DEALLOCATE p").contains("no prepared statement"));
    db.database()
        .block_on(session.sql("PREPARE p(INT) AS SELECT $1"))
        .unwrap();
    assert!(refused("PREPARE p AS SELECT 2").contains("exists already"));
    assert!(refused("EXECUTE p").contains("1 parameter"));
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
    assert_eq!(parquet("(1), (2)"), ["2|2"]);
    assert_eq!(parquet("(1), (9)"), ["2|9"]);
    assert_eq!(parquet("(1), (9), (3)"), ["3|9"]);
}
