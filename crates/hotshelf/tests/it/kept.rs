//! Plans of queries that are kept for the next time that the same is asked.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Fixture, lines};

/// How often a kept plan of a query was used; none if it is not kept.
fn uses(db: &Fixture, query: &str) -> Option<u64> {
    let rows = db.rows("SELECT query, uses FROM kept_plans()");
    let of_query = rows.iter().find_map(|row| row.strip_prefix(query));
    of_query.map(|uses| uses.trim_start_matches('|').parse().unwrap())
}

/// Whether files of tables are in the database's folder.
fn has_files(db: &Fixture) -> bool {
    let mut folders = vec![std::path::PathBuf::from(db.path("db"))];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "vortex") => return true,
                false => {}
            }
        }
    }
    false
}

#[test]
fn what_is_asked_again_has_its_plan_until_something_of_it_changes() {
    let mut db = Fixture::new();
    let run = |db: &Fixture, sql: &str| {
        drop(db.run(sql).unwrap_or_else(|error| panic!("{sql}: {error}")))
    };
    run(
        &db,
        "CREATE TABLE t AS SELECT value AS k, value % 3 AS g FROM range(100)",
    );
    run(&db, "CREATE TABLE other AS SELECT 1 AS a");
    run(
        &db,
        "CREATE VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g",
    );
    let query = "SELECT sum(n) FROM v";
    for times in 0..3 {
        assert_eq!(db.rows(query), ["100"]);
        assert_eq!(uses(&db, query), Some(times));
    }
    run(&db, "INSERT INTO other VALUES (2)");
    assert_eq!(uses(&db, query), Some(2));
    run(&db, "INSERT INTO t VALUES (7, 7)");
    assert_eq!(uses(&db, query), None);
    assert_eq!(db.rows(query), ["101"]);
    run(&db, "CREATE OR REPLACE VIEW v AS SELECT 5 AS n FROM t");
    assert_eq!(db.rows(query), ["505"]);
    run(&db, "CREATE OR REPLACE TABLE t AS SELECT 'a' AS k");
    assert_eq!(db.rows(query), ["5"]);
    assert_eq!(db.rows("SELECT k FROM t"), ["a"]);
    run(&db, "DROP VIEW v");
    run(&db, "CREATE TABLE v AS SELECT 8 AS n");
    assert_eq!(db.rows(query), ["8"]);
    run(&db, "CREATE INDEX i ON t USING elf (k)");
    assert_eq!(db.rows("SELECT k FROM t"), ["a"]);
    db.reopen();
    assert_eq!(uses(&db, query), None);
    assert_eq!(db.rows(query), ["8"]);
    assert_eq!(
        (
            db.rows("SELECT a FROM other ORDER BY a DESC"),
            uses(&db, query)
        ),
        (vec!["2".into(), "1".into()], Some(0))
    );
    for name in ["t", "v", "other"] {
        run(&db, &format!("DROP TABLE {name}"));
    }
    // A plan that is kept keeps no table.
    assert!(!has_files(&db));
    assert!(db.run(query).is_err());
}

#[test]
fn settings_make_other_plans_and_sessions_without_any_share_theirs() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value AS \"K\", value AS k FROM range(5)")
        .unwrap();
    let query = "SELECT max(K) FROM t";
    let ask = |session: &hotshelf::Session, sql: &str| {
        let rows = db
            .database()
            .block_on(async { session.sql(sql).await?.collect().await });
        lines(&rows.unwrap())
    };
    let sessions = [db.database().session(), db.database().session()];
    assert_eq!(ask(&sessions[0], query), ["4"]);
    assert_eq!(ask(&sessions[1], query), ["4"]);
    assert_eq!(uses(&db, query), Some(1));
    // Names mean other columns: what the other session knows is not for this one.
    ask(
        &sessions[1],
        "SET datafusion.sql_parser.enable_ident_normalization = false",
    );
    assert_eq!(ask(&sessions[1], query), ["4"]);
    ask(
        &sessions[1],
        "SET datafusion.sql_parser.enable_ident_normalization = true",
    );
    ask(&sessions[1], "SET hotshelf.keep_plans = off");
    for _ in 0..3 {
        assert_eq!(ask(&sessions[1], query), ["4"]);
    }
    assert_eq!(uses(&db, query), Some(1));
}

#[test]
fn what_depends_on_more_than_stored_rows_is_planned_each_time() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value AS k FROM range(5)")
        .unwrap();
    std::fs::write(db.path("f.csv"), "a\n1\n").unwrap();
    let file = format!("SELECT a FROM '{}'", db.path("f.csv"));
    for query in [
        "SELECT count(*) FROM t WHERE now() > TIMESTAMP '2020-01-01'",
        "SELECT count(*) FROM t WHERE k < (SELECT count(*) FROM io_stats() WHERE CAST(current_date AS TEXT) > '2')",
        "SELECT count(*) FROM t, generate_series(1, 2)",
        "SELECT count(random()) FROM t",
        "SELECT count(*) FROM hotshelf_tables()",
        &file,
    ] {
        db.rows(query);
        db.rows(query);
        assert_eq!(uses(&db, query), None, "{query}");
    }
    assert_eq!(db.rows(&file), ["1"]);
    std::fs::write(db.path("f.csv"), "a\n2\n").unwrap();
    assert_eq!(db.rows(&file), ["2"]);
}

#[test]
fn only_so_much_is_kept() {
    let db = Fixture::with_little_memory(64 << 20, 2);
    db.run("CREATE TABLE t AS SELECT value AS k FROM range(50)")
        .unwrap();
    let first = "SELECT count(*) FROM t";
    for from in 0..40 {
        let list: Vec<String> = (from..from + 20).map(|k| format!("{k}.5")).collect();
        let list = list.join(", ");
        let is_in = format!("CAST(k AS DOUBLE) + 0.5 IN ({list})");
        let query = format!("SELECT count(*) FILTER (WHERE {is_in}) FROM t");
        assert_eq!(db.rows(&query), [(50 - from).min(20).to_string()]);
        db.rows(first);
    }
    let kept = db.rows("SELECT sum(bytes) <= 2097152, count(*) BETWEEN 5 AND 39 FROM kept_plans()");
    assert_eq!(kept, ["true|true"]);
    // What was used is still there.
    assert_eq!(uses(&db, first), Some(39));
    // Nor one with long names, wherever they come from.
    let name = "n".repeat(100_000);
    db.run(&format!("CREATE VIEW v AS SELECT k AS \"{name}\" FROM t"))
        .unwrap();
    db.run("CREATE VIEW w AS SELECT * FROM (SELECT * FROM v)")
        .unwrap();
    let named = "SELECT count(*) FROM w";
    assert_eq!(db.rows(named), ["50"]);
    assert_eq!(uses(&db, named), None);
    db.run("DROP VIEW w").unwrap();
    assert_eq!(uses(&db, first), None);
    db.rows(first);
    // A plan with large values, also such that rules have made, is not kept.
    let long = "x".repeat(700_000);
    for query in [
        "SELECT count(*) FROM t WHERE array_has(range(1, 200000), k)",
        "SELECT count(*) FROM t WHERE repeat('12', 400000) = CAST(k AS TEXT)",
        &format!("SELECT count(*) FROM t WHERE CAST(k AS TEXT) = '{long}'"),
    ] {
        db.rows(query);
        assert_eq!(uses(&db, &query[..query.len().min(40)]), None, "{query}");
    }
}

#[test]
fn an_answer_has_all_rows_that_were_there_before_it_was_asked() {
    let db = Fixture::new();
    db.run("CREATE TABLE t (k INT)").unwrap();
    let (inserted, database) = (AtomicUsize::new(0), db.database());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..60 {
                database
                    .session()
                    .query(&format!("INSERT INTO t VALUES ({number})"))
                    .unwrap();
                inserted.fetch_add(1, Ordering::SeqCst);
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let session = database.session();
                let mut last = 0;
                while inserted.load(Ordering::SeqCst) < 60 {
                    let before = inserted.load(Ordering::SeqCst);
                    let rows = lines(&session.query("SELECT count(*) FROM t").unwrap());
                    let found = rows[0].parse::<usize>().unwrap();
                    assert!(found >= before.max(last), "{found} of {before}, {last}");
                    last = found;
                }
            });
        }
    });
    assert_eq!(db.rows("SELECT count(*), sum(k) FROM t"), ["60|1770"]);
}

/// What a session answers, its rows sorted: a query without ORDER BY may have them in any order.
fn outcome(session: &hotshelf::Session, sql: &str) -> Result<Vec<String>, String> {
    let run = async {
        let answer = session.sql(sql).await?;
        let schema = answer.schema();
        Ok((schema, answer.collect().await?))
    };
    let answer: hotshelf::Result<_> = session.database().block_on(run);
    let (schema, batches) = answer.map_err(|error| error.to_string())?;
    let columns = schema.fields().iter();
    let mut rows: Vec<String> = columns
        .map(|field| format!("{}: {}", field.name(), field.data_type()))
        .collect();
    let mut of_batches = lines(&batches);
    of_batches.sort();
    rows.extend(of_batches);
    Ok(rows)
}

/// Values of a condition: what a column's type has, what it has not, and what it cannot have.
const NUMBERS: &[&str] = &[
    "1",
    "2",
    "2",
    "-3",
    "0",
    "-0",
    "17",
    "3000000000",
    "-9223372036854775808",
    "9223372036854775808",
    "1.5",
    "2.0",
    "0.25",
    "-0.0",
    "1e2",
    "0.1000000000000000055",
    "'2'",
    "'abc'",
    "NULL",
    "12345678901234567890123",
    "true",
];
const TEXTS: &[&str] = &[
    "'s1'",
    "'s2'",
    "'s2'",
    "''",
    "'it''s'",
    "2",
    "NULL",
    "'2020-01-03'",
    "'2020-01-04'",
    "'2020-02-30'",
    "DATE '2020-01-05'",
];

/// Conditions with two values each.
const CONDITIONS: &[&str] = &[
    "{c} = {x}",
    "{x} < {c}",
    "{c} <> {x}",
    "{c} = {x} OR {c} = {x}",
    "{c} = {x} OR {c} = {y}",
    "{c} = {x} AND {c} = {y}",
    "{c} BETWEEN {x} AND {y}",
    "{c} NOT BETWEEN {x} AND {y}",
    "{c} IN ({x}, {y})",
    "{c} IN ({x}, {y}, {x}, {y})",
    "{c} NOT IN ({x}, {y}) OR {c} NOT IN ({y}, {x})",
    "NOT ({c} >= {x} OR n = {y})",
    "{c} >= {x} AND 1 = 1",
    "{c} > {x} AND n < 300 AND n > 20",
    "coalesce({c}, {c}) = {x}",
];

/// Tables of all types, one of them with an index.
fn typed_tables(db: &Fixture) {
    for table in ["plain", "indexed"] {
        let rows = "SELECT CAST(value % 40 AS INT) AS k, value AS n, CASE WHEN value % 7 > 0 THEN value % 5 END AS g, \
                    CAST(value % 9 AS DECIMAL(9, 2)) / 4 AS m, CAST(value % 4 AS DOUBLE) / 2 - 1 AS f, \
                    concat('s', value % 6) AS s, DATE '2020-01-01' + CAST(value % 31 AS INT) AS d, \
                    CAST(value % 3 AS TINYINT) AS y FROM range(400)";
        db.run(&format!("CREATE TABLE {table} AS {rows}")).unwrap();
    }
    db.run("CREATE INDEX i ON indexed USING elf (k, g, m, s, d)")
        .unwrap();
}

#[test]
fn queries_that_differ_in_values_get_the_answers_of_their_own_plans() {
    let db = Fixture::new();
    typed_tables(&db);
    let (with, without) = (db.database().session(), db.database().session());
    outcome(&without, "SET hotshelf.keep_plans = off").unwrap();
    let selects = ["k, s", "count(*)", "g + 1, g + 1, max(n) AS x"];
    let mut asked = 0;
    for (at, condition) in CONDITIONS.iter().enumerate() {
        for column in ["k", "n", "g", "m", "f", "s", "d", "y"] {
            let values = if "sd".contains(column) {
                TEXTS
            } else {
                NUMBERS
            };
            let (table, select) = (["plain", "indexed"][(at + asked) % 2], selects[asked % 3]);
            let rest = if select.contains("max") {
                " GROUP BY g ORDER BY 1 DESC LIMIT 3"
            } else {
                ""
            };
            for (idx, x) in values.iter().enumerate() {
                let y = values[(idx * 7 + at) % values.len()];
                let condition = condition
                    .replace("{c}", column)
                    .replace("{x}", x)
                    .replace("{y}", y);
                let sql = format!("SELECT {select} FROM {table} WHERE {condition}{rest}");
                assert_eq!(outcome(&with, &sql), outcome(&without, &sql), "{sql}");
            }
            asked += 1;
        }
        if at == 4 {
            for table in ["plain", "indexed"] {
                db.run(&format!(
                    "INSERT INTO {table} SELECT * FROM {table} WHERE n < 20"
                ))
                .unwrap();
            }
        }
    }
    let used = "SELECT count(*), sum(uses) FROM kept_plans() WHERE query LIKE '%$1%'";
    let used = db.rows(used).remove(0);
    let (templates, uses) = used.split_once('|').unwrap();
    let (templates, uses): (u32, u32) = (templates.parse().unwrap(), uses.parse().unwrap());
    assert!(templates > 80 && uses > 150, "{used}");
}

#[test]
fn a_template_serves_from_the_third_query_until_something_of_it_changes() {
    let db = Fixture::new();
    typed_tables(&db);
    let template = "SELECT count(*) FROM indexed WHERE k = $1 AND n < $2";
    let ask = |k: u32, n: &str| {
        db.rows(&format!(
            "SELECT count(*) FROM indexed WHERE k = {k} AND n < {n}"
        ))
        .remove(0)
    };
    assert_eq!((ask(1, "400"), uses(&db, template)), ("10".into(), None));
    assert_eq!((ask(2, "200"), uses(&db, template)), ("5".into(), Some(0)));
    assert_eq!((ask(3, "3"), uses(&db, template)), ("0".into(), Some(1)));
    assert_eq!((ask(3, "4"), uses(&db, template)), ("1".into(), Some(2)));
    // Values of other types are another template.
    assert_eq!((ask(3, "4.5"), uses(&db, template)), ("1".into(), Some(2)));
    db.run("INSERT INTO indexed SELECT * FROM plain WHERE k = 3")
        .unwrap();
    assert_eq!(uses(&db, template), None);
    for (k, n) in [(3, 400), (4, 400), (3, 399), (3, 1)] {
        assert_eq!(
            ask(k, &n.to_string()),
            (if k == 4 {
                10
            } else if n == 1 {
                0
            } else {
                20
            })
            .to_string()
        );
    }
    db.run("CREATE OR REPLACE TABLE indexed AS SELECT '3' AS k, 1 AS n")
        .unwrap();
    for (k, n) in [(3, 400), (4, 400), (3, 399), (5, 400)] {
        assert_eq!(ask(k, &n.to_string()), u32::from(k == 3).to_string());
    }
    db.run("DROP TABLE indexed").unwrap();
    assert!(
        !db.rows("SELECT query FROM kept_plans()")
            .iter()
            .any(|query| query.contains("indexed"))
    );
}

#[test]
fn an_index_answers_queries_with_other_values_by_itself() {
    let db = Fixture::new();
    typed_tables(&db);
    let runs = || db.rows("SELECT count(*) FROM pipelines()");
    let ask = |k: u32| {
        db.rows(&format!("SELECT s, k FROM indexed WHERE k = {k}"))
            .len()
    };
    assert_eq!((ask(1), ask(2)), (10, 10));
    let before = runs();
    assert_eq!(
        (ask(3), ask(4), ask(3), ask(100), ask(1)),
        (10, 10, 10, 0, 10)
    );
    assert_eq!(runs(), before);
    let session = db.database().session();
    for sql in [
        "SET hotshelf.elf = off",
        "SELECT s, k FROM indexed WHERE k = 5",
        "SELECT s, k FROM indexed WHERE k = 6",
    ] {
        session.query(sql).unwrap();
    }
    let before = runs();
    assert_eq!(
        lines(
            &session
                .query("SELECT s, k FROM indexed WHERE k = 7")
                .unwrap()
        )
        .len(),
        10
    );
    assert_ne!(runs(), before);
    // What explains a plan makes it anew.
    let plan = db
        .rows("EXPLAIN SELECT s, k FROM indexed WHERE k = 8")
        .join("\n");
    assert!(plan.contains("k@"), "{plan}");
    assert!(!plan.contains('$'), "{plan}");
}
