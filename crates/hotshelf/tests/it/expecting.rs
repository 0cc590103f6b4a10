//! What plans expect of joins, and what earlier runs have to do with it.

use crate::{Fixture, lines};

/// Rows that the only join of a query is expected to give, in a new session.
fn expected(db: &Fixture, query: &str) -> f64 {
    expected_of(
        "Join",
        db,
        &format!("SET hotshelf.star_pipelines = off; EXPLAIN {query}"),
    )
}

/// Rows that the innermost star of a query is expected to give, in a new session.
fn expected_of_star(db: &Fixture, query: &str) -> f64 {
    expected_of("StarPipeline", db, &format!("EXPLAIN {query}"))
}

/// Rows that the last operator with this end of its name is expected to give.
fn expected_of(operator: &str, db: &Fixture, explain: &str) -> f64 {
    let explained = db.run(&format!(
        "SET datafusion.explain.format = 'pgjson'; {explain}"
    ));
    let text = lines(&explained.unwrap()).join("\n");
    let found = text.rfind(&format!("{operator}\""));
    let found = found.unwrap_or_else(|| panic!("{text}"));
    let rows = text[found..].split("\"Plan Rows\":").nth(1).unwrap();
    let digits: String = rows
        .trim_start()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap()
}

fn run(db: &Fixture, query: &str) -> Vec<String> {
    let rows = db.run(&format!("SET hotshelf.star_pipelines = off; {query}"));
    lines(&rows.unwrap())
}

#[test]
fn joins_are_expected_as_they_were_when_the_query_ran_before() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE f AS SELECT (value % 100) * 97 AS k, value AS v FROM range(200000);
         CREATE TABLE g AS SELECT value AS k, CASE WHEN value % 97 = 0 THEN 1 ELSE 0 END AS flag FROM range(10000)",
    )
    .unwrap();
    let query = "SELECT count(*), max(v) FROM f JOIN g ON f.k = g.k WHERE g.flag = 1";
    let first = expected(&db, query);
    assert!(first < 20_000.0, "{first}");
    // What EXPLAIN plans does not count: nothing ran.
    assert_eq!(expected(&db, query), first);
    assert_eq!(run(&db, query), ["200000|199999"]);
    let again = expected(&db, query);
    assert!((100_000.0..400_000.0).contains(&again), "{again}");
    assert_eq!(run(&db, query), ["200000|199999"]);
    // Another literal is the same template, another table is not.
    let other = query.replace("flag = 1", "flag = 0");
    assert!(expected(&db, &other) > 100_000.0);
    assert_eq!(expected(&db, &query.replace("max(v)", "min(v)")), first);
    // Part of the rows shows nothing.
    let some = "SELECT f.v FROM f JOIN g ON f.k = g.k WHERE g.flag = 1 LIMIT 10";
    let before = expected(&db, some);
    assert_eq!(run(&db, some).len(), 10);
    assert_eq!(expected(&db, some), before);
    // Where others may have been kept back, it shows how many there are at least.
    let greatest = "SELECT max(v) FROM f JOIN g ON f.k = g.k WHERE g.flag = 1";
    let before = expected(&db, greatest);
    assert_eq!(run(&db, greatest), ["199999"]);
    let again = expected(&db, greatest);
    assert!(again > before * 4.0, "{again} {before}");
}

/// All rows of `f` have keys that `g` flags, which are few.
const FLAGGED: &str = "
    CREATE TABLE f AS SELECT (value % 100) * 97 AS k, (value % 1000) * 2 AS x, value AS v FROM range(200000);
    CREATE TABLE g AS SELECT value AS k, CASE WHEN value % 97 = 0 THEN 1 ELSE 0 END AS flag FROM range(10000)";

#[test]
fn stars_are_expected_as_they_were_when_the_query_ran_before() {
    let db = Fixture::new();
    db.run(FLAGGED).unwrap();
    // Keys that repeat are not looked up: the join with `h` is above the star.
    db.run("CREATE TABLE h AS SELECT value % 4000 AS y, value AS w FROM range(8000)")
        .unwrap();
    let query =
        "SELECT count(*), max(w) FROM f JOIN g ON f.k = g.k JOIN h ON f.x = h.y WHERE g.flag = 1";
    let first = expected_of_star(&db, query);
    assert!(first < 20_000.0, "{first}");
    assert_eq!(db.rows(query), ["400000|5998"]);
    let again = expected_of_star(&db, query);
    assert!((100_000.0..400_000.0).contains(&again), "{again}");
    assert_eq!(db.rows(query), ["400000|5998"]);
}

#[test]
fn rows_that_a_star_did_not_read_are_expected_still() {
    let db = Fixture::new();
    db.run(FLAGGED).unwrap();
    // One value in fifty of `f.x` occurs in `i`, which the star learns while it runs.
    db.run(
        "CREATE TABLE i AS SELECT (value % 1000) * 2 + CASE WHEN value % 1000 < 20 THEN 0 ELSE 1 END AS y,
             value AS w FROM range(20000)",
    )
    .unwrap();
    // Nothing is grouped before it is joined where values are to be counted once.
    let query = "SELECT count(*), max(w), count(DISTINCT w % 2) FROM f JOIN g ON f.k = g.k JOIN i ON f.x = i.y";
    let first = expected_of_star(&db, query);
    assert!((100_000.0..400_000.0).contains(&first), "{first}");
    assert_eq!(db.rows(query), ["80000|19019|2"]);
    assert_eq!(expected_of_star(&db, query), first);
}

#[test]
fn build_sides_of_stars_are_expected_as_they_were() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE a AS SELECT value % 50000 AS k, value AS v FROM range(400000);
         CREATE TABLE b AS SELECT value AS k, (value % 10) * 97 AS c FROM range(50000);
         CREATE TABLE s AS SELECT value AS c, CASE WHEN value % 97 = 0 THEN 1 ELSE 0 END AS flag FROM range(1000)",
    )
    .unwrap();
    let query =
        "SELECT count(*), max(v) FROM a JOIN b ON a.k = b.k JOIN s ON b.c = s.c WHERE s.flag = 1";
    let first = expected_of_star(&db, query);
    assert!(first < 5_000.0, "{first}");
    assert_eq!(db.rows(query), ["400000|399999"]);
    let again = expected_of_star(&db, query);
    assert!((25_000.0..100_000.0).contains(&again), "{again}");
}

#[test]
fn a_star_whose_data_was_none_teaches_what_its_original_plan_showed() {
    let db = Fixture::new();
    db.run(FLAGGED).unwrap();
    // One key in ten occurs twice, which nothing says about values of a function.
    db.run(
        "CREATE TABLE d AS SELECT k, CASE WHEN k % 97 = 0 THEN 1 ELSE 0 END AS flag
             FROM (SELECT CASE WHEN value % 10 = 9 THEN value - 1 ELSE value END AS k FROM range(10000))",
    )
    .unwrap();
    let query = "SELECT count(*), max(v) FROM f JOIN (SELECT abs(k) AS k, flag FROM d) d ON f.k = d.k WHERE flag = 1";
    expected_of_star(&db, query);
    assert_eq!(db.rows(query), ["200000|199999"]);
    let again = expected_of("Join", &db, &format!("EXPLAIN {query}"));
    assert!((100_000.0..400_000.0).contains(&again), "{again}");
}

#[test]
fn keys_of_several_columns_count_as_one() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE p AS SELECT value / 4 AS a, value % 4 + (value / 4) % 50 AS b, value AS v FROM range(80000);
         CREATE TABLE l AS SELECT (value % 80000) / 4 AS a,
             (value % 80000) % 4 + ((value % 80000) / 4) % 50 AS b FROM range(240000)",
    )
    .unwrap();
    let query = "SELECT count(*) FROM l JOIN p ON l.a = p.a AND l.b = p.b";
    let rows = expected(&db, query);
    assert!((120_000.0..480_000.0).contains(&rows), "{rows}");
    assert_eq!(run(&db, query), ["240000"]);
}

#[test]
fn frequent_values_make_most_of_the_pairs() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE a AS SELECT CASE WHEN value % 2 = 0 THEN 7 ELSE value END AS k FROM range(20000);
         CREATE TABLE b AS SELECT CASE WHEN value % 5 = 0 THEN 7 ELSE value END AS k FROM range(1, 20001)",
    )
    .unwrap();
    let query = "SELECT count(*) FROM a JOIN b ON a.k = b.k";
    let truth: f64 = run(&db, query)[0].parse().unwrap();
    assert!(truth > 2e7);
    let fresh = query.replace("count(*)", "count(*) AS n");
    let rows = expected(&db, &fresh);
    assert!((truth / 1.5..truth * 1.5).contains(&rows), "{rows} {truth}");
}

#[test]
fn few_rows_of_both_sides_have_few_keys_in_common() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE o AS SELECT value AS k, value % 1000 AS x FROM range(100000);
         CREATE TABLE l AS SELECT (value * 7919) % 100000 AS k, value % 1000 AS y FROM range(100000)",
    )
    .unwrap();
    let query = "SELECT count(*) FROM (SELECT * FROM o WHERE x < 10) o
        JOIN (SELECT * FROM l WHERE y < 10) l ON o.k = l.k";
    let rows = expected(&db, query);
    assert!(rows < 100.0, "{rows}");
}

/// Columns of `t` that belong together: 1 000 combinations of a million that there could be.
const PAIRS: &str = "CREATE TABLE t AS
    SELECT value % 1000 AS a, (value % 1000) * 3 AS b, value AS v FROM range(200000)";

/// Groups that the last aggregation of a query is expected to give.
fn expected_groups(db: &Fixture, query: &str) -> f64 {
    expected_of("Aggregate", db, &format!("EXPLAIN {query}"))
}

#[test]
fn groups_are_expected_as_many_as_an_aggregation_of_all_rows_gave() {
    let db = Fixture::new();
    db.run(PAIRS).unwrap();
    let query = "SELECT a, b, count(*) FROM t GROUP BY a, b";
    assert_eq!(db.rows(query).len(), 1_000);
    for other in [
        query,
        "SELECT DISTINCT b, a FROM t",
        "SELECT a + b, max(v) FROM t GROUP BY a + b",
        "SELECT b, a, max(v) FROM t WHERE v % 3 = 1 GROUP BY b, a",
    ] {
        let groups = expected_groups(&db, other);
        assert!((500.0..=1_010.0).contains(&groups), "{other}: {groups}");
    }
    // What is computed anew for each row, and columns of two scans, have nothing to do with it.
    for other in [
        "SELECT a + random(), count(*) FROM t GROUP BY a + random()",
        "SELECT x.a, y.b, count(*) FROM t x JOIN t y ON x.v = y.v GROUP BY x.a, y.b",
    ] {
        let groups = expected_groups(&db, other);
        assert!(groups > 20_000.0, "{other}: {groups}");
    }
    db.run("INSERT INTO t SELECT value % 1000, value, value FROM range(200000)")
        .unwrap();
    let groups = expected_groups(&db, query);
    assert!(groups > 20_000.0, "{groups}");
    assert_eq!(db.rows(query).len(), 200_998);
}

#[test]
fn remainders_and_tests_have_few_values() {
    let db = Fixture::new();
    db.run(PAIRS).unwrap();
    for (keys, groups) in [
        ("a, v % 4", 8_000.0),
        ("v % 4, v > 9", 24.0),
        ("CAST(v % -3 AS TINYINT), a", 6_000.0),
        ("a % 5000", 1_000.0),
        ("a, v % 2.5", 200_000.0),
    ] {
        let found = expected_groups(
            &db,
            &format!("SELECT {keys}, count(*) FROM t GROUP BY {keys}"),
        );
        assert!(
            (0.9 * groups..=1.1 * groups).contains(&found),
            "{keys}: {found}"
        );
    }
}

#[test]
fn each_grouping_set_has_its_groups() {
    let db = Fixture::new();
    db.run(PAIRS).unwrap();
    assert_eq!(db.rows("SELECT DISTINCT a, b FROM t").len(), 1_000);
    let query = "SELECT a, b, count(*) FROM t GROUP BY GROUPING SETS ((a, b), (a), ())";
    let groups = expected_groups(&db, query);
    assert!((1_500.0..=2_100.0).contains(&groups), "{groups}");
    assert_eq!(db.rows(query).len(), 2_001);
}

#[test]
fn what_some_rows_show_is_not_taken_for_all() {
    let db = Fixture::new();
    db.run(PAIRS).unwrap();
    let some = "SELECT b, v, count(*) FROM t WHERE v < 1000 GROUP BY b, v";
    assert_eq!(db.rows(some).len(), 1_000);
    let all = "SELECT b, v, count(*) FROM t GROUP BY b, v";
    assert!(expected_groups(&db, all) > 100_000.0);
    assert_eq!(db.rows(&format!("{all} LIMIT 7")).len(), 7);
    assert!(expected_groups(&db, all) > 100_000.0);
}

#[test]
fn a_join_that_a_star_moved_is_not_expected_to_give_the_rows_of_another() {
    let db = Fixture::new();
    db.run(
        "CREATE TABLE a AS SELECT value % 50000 AS k, value AS v FROM range(400000);
         CREATE TABLE b AS SELECT value AS k, value % 1000 AS c FROM range(50000);
         CREATE TABLE s AS SELECT value AS c, value AS w FROM range(1000)",
    )
    .unwrap();
    // The order joins `s` last, and the star joins it with the rows that it looks up, which are not those of a scan.
    let query = "SELECT sum(v), sum(w) FROM a JOIN (SELECT DISTINCT k, c FROM b) b ON a.k = b.k
        JOIN s ON b.c = s.c";
    let rows = expected_of("Join", &db, &format!("EXPLAIN {query}"));
    assert!((25_000.0..100_000.0).contains(&rows), "{rows}");
}

#[test]
fn what_queries_showed_outlives_the_process() {
    let mut db = Fixture::new();
    db.run(FLAGGED).unwrap();
    db.run(PAIRS).unwrap();
    let join = "SELECT count(*), max(v) FROM f JOIN g ON f.k = g.k WHERE g.flag = 1";
    let groups = "SELECT a, b, count(*) FROM t GROUP BY a, b";
    let first = expected(&db, join);
    assert!(first < 20_000.0, "{first}");
    assert_eq!(run(&db, join), ["200000|199999"]);
    assert_eq!(db.rows(groups).len(), 1_000);
    db.reopen();
    let again = expected(&db, join);
    assert!((100_000.0..400_000.0).contains(&again), "{again}");
    let again = expected_groups(&db, groups);
    assert!((500.0..=1_010.0).contains(&again), "{again}");
    // It is kept also by a process that asks nothing.
    db.reopen();
    db.reopen();
    assert!(expected(&db, join) > 100_000.0);
    // Of a table that has been replaced it says nothing.
    db.run(
        "CREATE TABLE h AS SELECT * FROM g;
         CREATE OR REPLACE TABLE g AS SELECT * FROM h",
    )
    .unwrap();
    db.reopen();
    // About as at first: the sample is of other rows.
    let replaced = expected(&db, join);
    assert!(replaced < 20_000.0, "{replaced}");
    assert_eq!(run(&db, join), ["200000|199999"]);
}

#[test]
fn a_damaged_note_of_what_queries_showed_is_not_used() {
    let mut db = Fixture::new();
    db.run(FLAGGED).unwrap();
    let query = "SELECT count(*), max(v) FROM f JOIN g ON f.k = g.k WHERE g.flag = 1";
    let first = expected(&db, query);
    let path = db.path("db/learned");
    db.reopen();
    assert!(!std::path::Path::new(&path).exists(), "nothing ran");
    assert_eq!(run(&db, query), ["200000|199999"]);
    db.reopen();
    let whole = std::fs::read(&path).unwrap();
    for damage in [0, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[damage] ^= 1;
        db.database = None;
        std::fs::write(&path, &bytes).unwrap();
        db.reopen();
        assert_eq!(expected(&db, query), first);
    }
    assert_eq!(run(&db, query), ["200000|199999"]);
    db.reopen();
    assert!(expected(&db, query) > 100_000.0);
}
