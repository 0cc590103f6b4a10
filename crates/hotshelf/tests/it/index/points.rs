//! Prepared statements that an index answers without a plan: the same answers as planned ones, whatever is asked.

use hotshelf::{Session, Statement, Value};

use super::*;
use crate::lines;

/// Whole numbers, dates, decimals and texts with repeats and NULLs, and an index over most of them.
fn table() -> Fixture {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT CAST(value % 40 AS INT) AS a, \
         CASE WHEN value % 9 > 0 THEN value % 50 END AS b, \
         DATE '2020-01-01' + CAST(value % 31 AS INT) AS d, \
         CAST(value % 17 AS DECIMAL(9, 2)) / 4 AS m, \
         concat('s', value % 5) AS s, CAST(value % 3 AS DOUBLE) AS f, value AS id \
         FROM generate_series(0, 20000) AS g(value)",
    )
    .unwrap();
    db.run("CREATE INDEX i ON t USING elf (a, b, d, m, s)")
        .unwrap();
    db
}

/// The rows of a statement with values.
fn executed(
    session: &Session,
    statement: &Statement,
    values: &[Value],
) -> hotshelf::Result<Vec<String>> {
    let run = async {
        let answer = session.execute_with(statement, values).await?;
        answer.collect().await
    };
    session.database().block_on(run).map(|rows| lines(&rows))
}

fn asked(session: &Session, sql: &str, values: &[Value]) -> Result<Vec<String>, String> {
    let statement = session.parse(sql).unwrap().remove(0);
    // The first time it is planned, and the second time it is known.
    let [planned, known] = [(); 2].map(|()| {
        let rows = executed(session, &statement, values);
        rows.map(|mut rows| {
            rows.sort();
            rows
        })
        .map_err(|error| error.to_string())
    });
    assert_eq!(planned.is_ok(), known.is_ok(), "{sql} with {values:?}");
    if known.is_ok() {
        assert_eq!(planned, known, "{sql} with {values:?}");
    }
    known
}

/// Runs of pipelines: planned queries leave one.
fn runs(session: &Session) -> Vec<String> {
    lines(&session.query("SELECT count(*) FROM pipelines()").unwrap())
}

const COMPARISONS: &[&str] = &[
    "a = $1",
    "a < $1",
    "$1 >= a",
    "a <> $1",
    "b = $1",
    "b > $1",
    "d = $1",
    "d <= $1",
    "m = $1",
    "m < $1",
    "s = $1",
    "a BETWEEN 3 AND $1",
    "a = $1 AND b = 7",
    "a = 3 AND b = $1",
    "a = 3 AND m = $1",
    "a = 3 AND s = $1",
    "a = 3 AND d >= $1",
    "a = 3 AND f = $1",
    "a = 3 AND id = $1",
    "a = 3 AND b + 1 = $1",
    "a = 3 OR b = $1",
];

const LISTS: &[&str] = &[
    "a IN (3, $1, 3, NULL)",
    "a NOT IN (3, $1)",
    "b IN ($1, 7)",
    "d IN ($1, DATE '2020-01-02')",
    "d IN ('2020-01-03', $1)",
    "m IN ($1, 2.25)",
    "s IN ($1, 's1', 's1')",
    "f IN ($1, 1)",
    "a = $1 OR a = 5 OR 7 = a",
    "a IN (2, $1) AND b IN (2, 12, 22)",
    "a = $1 OR a = NULL",
    "a = 3 AND b = 13 AND s = 's3' AND d = DATE '2020-01-05' AND m = 0.5 OR \
     a = $1 AND b = 33 AND s = 's3' AND d = DATE '2020-01-06' AND m = 2.5",
    "(a = 3 AND b = $1 OR b = 13 AND a = 3 OR a = 4 AND b = NULL) AND s IN ('s3', 's4') \
     AND d < DATE '2020-01-20' AND m > 0",
    "a = 3 AND b = $1 OR a = 4",
];

const OUTPUTS: &[&str] = &["a, b", "d, m, s", "f, a", "s AS other", "a, a"];

#[test]
fn prepared_questions_get_the_answers_of_planned_ones() {
    let answered = compare(COMPARISONS);
    assert!(answered > 200, "{answered}");
}

#[test]
fn prepared_questions_about_lists_get_the_answers_of_planned_ones() {
    let answered = compare(LISTS);
    assert!(answered > 100, "{answered}");
}

/// How many questions have an answer; it is the same with a plan and without.
fn compare(conditions: &[&str]) -> usize {
    let db = table();
    let session = db.database().session();
    let planned = db.database().session();
    planned.query("SET hotshelf.elf = 'off'").unwrap();
    let values: Vec<Value> = vec![
        7.into(),
        Value::Null,
        (-1i64).into(),
        i64::MAX.into(),
        2.5.into(),
        3.0.into(),
        0.1.into(),
        f64::NAN.into(),
        true.into(),
        "2020-01-11".into(),
        "s3".into(),
        "2.25".into(),
        "2.251".into(),
        "3".into(),
        "no date".into(),
        vec![1u8, 2].into(),
    ];
    let mut answered = 0;
    for (turn, comparison) in conditions.iter().enumerate() {
        for (idx, value) in values.iter().enumerate() {
            for output in ["count(*)", OUTPUTS[(turn + idx) % OUTPUTS.len()]] {
                let sql = format!("SELECT {output} FROM t WHERE {comparison}");
                let one = std::slice::from_ref(value);
                let (with, without) = (asked(&session, &sql, one), asked(&planned, &sql, one));
                assert_eq!(
                    with.is_ok(),
                    without.is_ok(),
                    "{sql} with {value:?}: {with:?}"
                );
                if let (Ok(with), Ok(without)) = (with, without) {
                    assert_eq!(with, without, "{sql} with {value:?}");
                    answered += 1;
                }
            }
        }
    }
    answered
}

#[test]
fn lists_over_all_columns_of_an_index_find_each_row_once() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE t AS SELECT CASE WHEN value % 11 > 0 THEN value % 100 END AS a, \
         concat('s', value % 9) AS s, value AS id FROM generate_series(0, 20000) AS g(value)",
    )
    .unwrap();
    db.run("CREATE INDEX i ON t USING elf (a, s)").unwrap();
    let session = db.database().session();
    session
        .query("PREPARE p AS SELECT s, a FROM t WHERE a IN ($1, $2, 7, $1) AND s IN ($3, 's8')")
        .unwrap();
    session
        .query("PREPARE o AS SELECT count(*) FROM t WHERE (a = $1 OR a IN ($2, 7)) AND s IN ($3, 's8')")
        .unwrap();
    session
        .query("PREPARE pairs AS SELECT s, a FROM t WHERE a = $1 AND s = $3 OR a = 7 AND s = 's8' OR s = $3 AND a = $2")
        .unwrap();
    session
        .query("PREPARE q AS SELECT count(*) FROM t WHERE a IN ($1, $2, 7, $1) AND s IN ($3, 's8')")
        .unwrap();
    let rows = |sql: &str| {
        let mut rows = lines(&session.query(sql).unwrap());
        rows.sort();
        rows
    };
    // No number, no text and nothing that the index has; the first have many rows.
    for (a, b, s) in [
        ("3", "4", "'s1'"),
        ("3", "3", "'s8'"),
        ("NULL", "500", "NULL"),
    ] {
        let condition = format!("WHERE a IN ({a}, {b}, 7, {a}) AND s IN ({s}, 's8')");
        session.query("SET hotshelf.elf = 'off'").unwrap();
        let expected = rows(&format!("SELECT s, a FROM t {condition}"));
        session.query("SET hotshelf.elf = 'on'").unwrap();
        // Planned once after the setting changed.
        let execute = format!("({a}, {b}, {s})");
        rows(&format!("EXECUTE p{execute}"));
        rows(&format!("EXECUTE q{execute}"));
        rows(&format!("EXECUTE o{execute}"));
        let pairs = format!("a = {a} AND s = {s} OR a = 7 AND s = 's8' OR s = {s} AND a = {b}");
        let of_pairs = rows(&format!("SELECT s, a FROM t WHERE {pairs}"));
        rows(&format!("EXECUTE pairs{execute}"));
        let known = runs(&session);
        assert_eq!(
            rows(&format!("EXECUTE p{execute}")),
            expected,
            "{condition}"
        );
        let count = vec![expected.len().to_string()];
        assert_eq!(rows(&format!("EXECUTE q{execute}")), count, "{condition}");
        assert_eq!(rows(&format!("EXECUTE o{execute}")), count, "{condition}");
        assert_eq!(
            rows(&format!("EXECUTE pairs{execute}")),
            of_pairs,
            "{pairs}"
        );
        assert_eq!(runs(&session), known, "they were planned");
    }
}

#[test]
fn a_known_question_is_not_planned_again_until_its_table_changes() {
    let db = table();
    let session = db.database().session();
    let sql = "SELECT count(*) FROM t WHERE a = $1 AND b = $2";
    let statement = session.parse(sql).unwrap().remove(0);
    let ask = |a: i64, b: i64| {
        let rows = executed(&session, &statement, &[a.into(), b.into()]);
        rows.unwrap().remove(0)
    };
    let before = ask(3, 13);
    let known = runs(&session);
    assert_eq!(ask(3, 13), before);
    assert_eq!(ask(3, 14), "0");
    assert_eq!(runs(&session), known, "it was planned again");
    session.query("SET hotshelf.elf = 'off'").unwrap();
    assert_eq!(ask(3, 13), before);
    assert_ne!(runs(&session), known, "it should not use an index");
    session.query("SET hotshelf.elf = 'on'").unwrap();
    let one_more =
        "INSERT INTO t SELECT a, b, d, m, s, f, id FROM t WHERE a = 3 AND b = 13 LIMIT 1";
    session.query(one_more).unwrap();
    let number = |text: &str| text.parse::<u64>().unwrap();
    assert_eq!(number(&ask(3, 13)), number(&before) + 1);
    assert_eq!(number(&ask(3, 13)), number(&before) + 1);
    session.query("DROP INDEX i").unwrap();
    assert_eq!(number(&ask(3, 13)), number(&before) + 1);
    session
        .query("CREATE OR REPLACE TABLE t AS SELECT 3 AS a, 13 AS b")
        .unwrap();
    assert_eq!((ask(3, 13), ask(3, 13)), ("1".into(), "1".into()));
    session.query("DROP TABLE t").unwrap();
    let gone = executed(&session, &statement, &[3.into(), 13.into()]);
    let gone = gone.expect_err("the table is gone");
    assert!(gone.to_string().contains("'t'"), "{gone}");
}

#[test]
fn executing_a_prepared_statement_asks_the_index() {
    let db = table();
    let session = db.database().session();
    let rows = |sql: &str| session.query(sql).map(|rows| lines(&rows));
    session
        .query("PREPARE p AS SELECT a, b, s FROM t WHERE a = $1 AND b = $2 AND d = $3")
        .unwrap();
    session
        .query("PREPARE q(INT, TEXT) AS SELECT count(*) FROM t WHERE a = $1 AND s = $2")
        .unwrap();
    let planned =
        rows("SELECT a, b, s FROM t WHERE a = 3 AND b = 13 AND d = DATE '2020-01-05'").unwrap();
    let counted = rows("SELECT count(*) FROM t WHERE a = 3 AND s = 's3'").unwrap();
    let known = runs(&session);
    for _ in 0..2 {
        assert_eq!(
            rows("EXECUTE p(3, 13, DATE '2020-01-05')").unwrap(),
            planned
        );
        assert_eq!(rows("EXECUTE p(3, 13, '2020-01-05')").unwrap(), planned);
        assert_eq!(rows("EXECUTE q('3', 's3')").unwrap(), counted);
    }
    assert_eq!(runs(&session), known, "they were planned");
    for wrong in [
        "EXECUTE p(3, 13)",
        "EXECUTE p(3, 13, DATE '2020-01-05', 4)",
        "EXECUTE q(3)",
    ] {
        assert!(rows(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn questions_that_find_much_are_planned_and_damage_is_scanned_around() {
    let db = table();
    let session = db.database().session();
    let all = asked(
        &session,
        "SELECT count(*) FROM t WHERE a >= $1",
        &[0.into()],
    );
    assert_eq!(all, Ok(vec!["20001".to_owned()]));
    let sql = "SELECT count(*) FROM t WHERE a = $1 AND b = $2";
    let expected = asked(&session, sql, &[3.into(), 13.into()]);
    let file = index_files(&db).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    let leaves = bytes.len() / 3;
    bytes[leaves..leaves * 2].fill(0x5a);
    std::fs::write(&file, bytes).unwrap();
    session.query("SET hotshelf.budget = '2MB'").unwrap();
    session.query("SET hotshelf.budget = '256MB'").unwrap();
    assert_eq!(asked(&session, sql, &[3.into(), 13.into()]), expected);
}

#[test]
fn a_known_question_keeps_no_files_of_a_former_table_and_follows_the_schema() {
    let db = table();
    let session = db.database().session();
    let sql = "SELECT count(*) FROM t WHERE a = $1 AND b = $2";
    let statement = session.parse(sql).unwrap().remove(0);
    let ask = || {
        let rows = executed(&session, &statement, &[3.into(), 13.into()]);
        rows.unwrap().remove(0)
    };
    let before = ask();
    assert_eq!(ask(), before);
    session.query("CREATE SCHEMA other").unwrap();
    session
        .query("CREATE TABLE other.t AS SELECT 3 AS a, 13 AS b")
        .unwrap();
    session
        .query("SET datafusion.catalog.default_schema = 'other'")
        .unwrap();
    assert_eq!((ask(), ask()), ("1".into(), "1".into()));
    session
        .query("SET datafusion.catalog.default_schema = 'public'")
        .unwrap();
    assert_eq!((ask(), ask()), (before.clone(), before));
    let folders = || {
        let entries = std::fs::read_dir(db.path("db/data")).unwrap().flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    };
    assert_eq!(folders(), 2);
    session.query("DROP TABLE t").unwrap();
    assert_eq!(folders(), 1, "the statement keeps the table's files");
}

#[test]
fn settings_that_change_what_names_mean_and_other_statements_of_a_name_are_followed() {
    let db = table();
    let session = db.database().session();
    session
        .query("CREATE TABLE \"T\" AS SELECT * FROM t WHERE a < 3")
        .unwrap();
    session
        .query("CREATE INDEX j ON \"T\" USING elf (a, b)")
        .unwrap();
    let rows = |sql: &str| lines(&session.query(sql).unwrap());
    let [lower, upper] = ["t", "\"T\""].map(|table| {
        rows(&format!(
            "SELECT count(*) FROM {table} WHERE a = 3 AND b = 3"
        ))
    });
    assert_ne!(lower, upper);
    session
        .query("PREPARE p AS SELECT count(*) FROM T WHERE a = $1 AND b = $2")
        .unwrap();
    assert_eq!(
        (rows("EXECUTE p(3, 3)"), rows("EXECUTE p(3, 3)")),
        (lower.clone(), lower.clone())
    );
    session
        .query("SET datafusion.sql_parser.enable_ident_normalization = false")
        .unwrap();
    assert_eq!(
        (rows("EXECUTE p(3, 3)"), rows("EXECUTE p(3, 3)")),
        (upper.clone(), upper)
    );
    session
        .query("SET datafusion.sql_parser.enable_ident_normalization = true")
        .unwrap();
    assert_eq!(rows("EXECUTE p(3, 3)"), lower);
    let execute = session.parse("EXECUTE p(3, 3)").unwrap().remove(0);
    let run = || executed(&session, &execute, &[]).unwrap();
    assert_eq!((run(), run()), (lower.clone(), lower));
    session
        .query("DEALLOCATE p; PREPARE p AS SELECT count(*) FROM t WHERE a = $1 AND b > $2")
        .unwrap();
    let expected = rows("SELECT count(*) FROM t WHERE a = 3 AND b > 3");
    assert_eq!((run(), run()), (expected.clone(), expected));
}
