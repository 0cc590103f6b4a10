//! HPCache as users see it: settings, table functions, predictions, and what happens to its knowledge.

use std::time::{Duration, Instant};

use hotshelf::{Options, internals};

use super::{Fixture, lines};

fn with_table() -> Fixture {
    let fixture = Fixture::with(Options {
        budget_bytes: 64 << 20,
        threads: 2,
        ..Options::default()
    });
    fixture
        .run(
            "CREATE TABLE t AS SELECT value AS a, value * 7 % 1000 AS b, value % 13 AS c \
             FROM generate_series(1, 200000)",
        )
        .unwrap();
    fixture
}

/// Runs a query until the tuner has learned of its pipeline.
fn observed(fixture: &Fixture) {
    let tuner = internals::tuner(fixture.database()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        fixture
            .run("SELECT sum(a), sum(b) FROM t WHERE c < 9")
            .unwrap();
        tuner.step_now();
        if !tuner.inspect(|tuner| tuner.pipelines()).is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "the tuner learns nothing");
        // Bandwidth is learned from reads, and those must take a while.
        internals::cache(fixture.database()).clear();
    }
}

#[test]
fn settings_of_the_tuner_are_shown_as_they_were_set() {
    let fixture = with_table();
    for (name, value, shown) in [
        ("priority", "3", "3"),
        ("estimate_error", "100 seed 7", "100 seed 7"),
        ("tuner", "off", "false"),
        ("tuner", "on", "true"),
        ("tuner_period_ms", "50", "50"),
        ("tuner_window", "8 queries", "8 queries"),
        ("tuner_window", "last 15", "last 15"),
        ("tuner_window", "auto", "auto"),
        ("response_goal", "250ms", "250ms"),
        ("response_goal", "none", "none"),
    ] {
        let rows = fixture.rows(&format!(
            "SET hotshelf.{name} = '{value}'; SHOW hotshelf.{name}"
        ));
        assert_eq!(rows, [format!("hotshelf.{name}|{shown}")], "{name} {value}");
    }
    for (name, value) in [
        ("priority", "-1"),
        ("priority", "much"),
        ("estimate_error", "0"),
        ("tuner", "perhaps"),
        ("tuner_period_ms", "0"),
        ("tuner_window", "last 0"),
        ("tuner_window", "0 queries"),
        ("response_goal", "-3s"),
    ] {
        let error = fixture.error(&format!("SET hotshelf.{name} = '{value}'"));
        assert!(error.to_string().contains(value), "{name}: {error}");
    }
}

#[test]
fn explain_analyze_says_what_was_predicted_for_a_known_query() {
    let fixture = with_table();
    observed(&fixture);
    let explained = || {
        let plan = fixture.rows("EXPLAIN ANALYZE SELECT sum(a), sum(b) FROM t WHERE c < 9");
        plan.join("\n")
    };
    // A query does not wait for the tuner: while that works, nothing is predicted.
    let plans: Vec<String> = (0..20).map(|_| explained()).collect();
    for metric in ["pipeline_time=", "predicted_time="] {
        let has_metric = |plan: &String| plan.contains(metric);
        assert!(plans.iter().any(has_metric), "{metric}: {}", plans[0]);
    }
    let unknown = fixture
        .rows("EXPLAIN ANALYZE SELECT max(b) FROM t")
        .join("\n");
    assert!(!unknown.contains("predicted_time="), "{unknown}");
}

#[test]
fn table_functions_show_columns_pipelines_tuner_and_advice() {
    let fixture = with_table();
    observed(&fixture);
    let pipelines =
        fixture.rows("SELECT table_name, weight > 0, bytes > 0, bound FROM hpcache_pipelines()");
    assert!(pipelines[0].starts_with("t|true|true|"), "{pipelines:?}");
    let columns = fixture.rows(
        "SELECT column_name, target BETWEEN 0 AND 1, actual BETWEEN 0 AND 1 FROM hpcache_columns() ORDER BY 1",
    );
    assert_eq!(columns, ["a|true|true", "b|true|true", "c|true|true"]);
    let tuner =
        fixture.rows("SELECT working, steps > 0, step_ns > 0, decisions > 0 FROM hpcache_tuner()");
    assert_eq!(tuner, ["true|true|true|true"]);
    assert_eq!(
        fixture.rows("SELECT count(*) FROM hpcache_advice()"),
        ["21"]
    );
}

#[test]
fn the_least_memory_for_a_slowdown_is_less_for_a_greater_one() {
    let fixture = with_table();
    let slowdown = |slowdown: &str| {
        fixture.rows(&format!(
            "SELECT slowdown <= {slowdown} + 1e-3 FROM hpcache_advice({slowdown})"
        ))
    };
    assert!(slowdown("1.1").is_empty(), "nothing is known yet");
    observed(&fixture);
    for within in ["1", "1.1", "2"] {
        assert_eq!(slowdown(within), ["true"], "{within}");
    }
    assert_eq!(
        fixture.rows(
            "SELECT a.budget_bytes >= b.budget_bytes AND b.budget_bytes >= c.budget_bytes \
             FROM hpcache_advice(1) a, hpcache_advice(1.5) b, hpcache_advice(100) c"
        ),
        ["true"]
    );
    for (arguments, word) in [("0.5", "0.5"), ("'much'", "much"), ("1.1, 2", "slowdown")] {
        let error = fixture.error(&format!("SELECT * FROM hpcache_advice({arguments})"));
        assert!(error.to_string().contains(word), "{arguments}: {error}");
    }
}

#[test]
fn a_dropped_table_leaves_the_tuner_and_queries_go_on() {
    let fixture = with_table();
    observed(&fixture);
    fixture.run("CREATE TABLE u AS SELECT 1 AS x").unwrap();
    fixture.run("DROP TABLE t").unwrap();
    internals::tuner(fixture.database()).unwrap().step_now();
    assert_eq!(
        fixture.rows("SELECT count(*) FROM hpcache_columns()"),
        ["0"]
    );
    assert_eq!(fixture.rows("SELECT x FROM u"), ["1"]);
}

#[test]
fn a_query_cancelled_in_the_middle_stalls_nothing() {
    let fixture = with_table();
    let session = fixture.database().session();
    for _ in 0..20 {
        fixture.database().block_on(async {
            let mut answer = session.sql("SELECT a, b, c FROM t").await.unwrap();
            let first = answer.next().await.unwrap().unwrap();
            assert!(first.num_rows() > 0);
        });
        internals::tuner(fixture.database()).unwrap().step_now();
    }
    let rows = fixture
        .database()
        .block_on(async { session.sql("SELECT count(*) FROM t").await?.collect().await });
    assert_eq!(lines(&rows.unwrap()), ["200000"]);
    let stats = fixture.rows("SELECT in_flight_bytes, operator_bytes FROM cache_stats()");
    assert!(stats[0].starts_with("0|"), "{stats:?}");
}

#[test]
fn the_memory_market_names_the_operators_of_a_running_query() {
    let fixture = with_table();
    let session = fixture.database().session();
    let running = fixture.database().block_on(async {
        let sorted = "SELECT a, b, c FROM t ORDER BY b, c, a";
        let mut answer = session.sql(sorted).await.unwrap();
        answer.next().await.unwrap().unwrap();
        let other = fixture.database().session();
        let rows =
            "SELECT item FROM memory_market() WHERE item LIKE 'query %: Sort' AND bytes > 1000";
        lines(&other.sql(rows).await.unwrap().collect().await.unwrap())
    });
    assert_eq!(running.len(), 1, "{running:?}");
    let deadline = Instant::now() + Duration::from_secs(20);
    // The query that asks may have operators itself, but none that hold much.
    let ended =
        "SELECT count(*) FROM memory_market() WHERE item LIKE 'query %' AND bytes > 1000000";
    while fixture.rows(ended) != ["0"] {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn a_cancelled_query_teaches_no_time_and_the_whole_one_does() {
    let fixture = with_table();
    let database = fixture.database();
    let session = database.session();
    const SQL: &str = "SELECT a, b, c FROM t WHERE a > 0";
    let known = || {
        let tuner = internals::tuner(database).unwrap();
        tuner.step_now();
        fixture.rows("SELECT count(*), count(actual_s) FROM hpcache_pipelines()")
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        database.block_on(async {
            let mut answer = session.sql(SQL).await.unwrap();
            answer.next().await.unwrap().unwrap();
        });
        // Nothing is known before the storage's bandwidth is, and that takes reads of some length.
        let known = known();
        if known == ["1|0"] {
            break;
        }
        assert_eq!(known, ["0|0"]);
        assert!(Instant::now() < deadline);
        internals::cache(database).clear();
    }
    database
        .block_on(async { session.sql(SQL).await?.collect().await })
        .unwrap();
    assert_eq!(known(), ["1|1"]);
}

#[test]
fn the_least_budget_and_a_paused_tuner_still_answer() {
    let fixture = with_table();
    let rows = fixture.rows(
        "SET hotshelf.policy = 'hpcache'; SET hotshelf.budget = '1MiB'; SET hotshelf.tuner = off; \
         SELECT count(*), sum(c) FROM t",
    );
    assert_eq!(rows, ["200000|1199988"]);
}

#[test]
fn a_policy_that_does_not_exist_is_answered_with_those_that_do() {
    let fixture = with_table();
    let error = fixture.error("SET hotshelf.policy = 'lfu'").to_string();
    for name in ["lfu", "none", "all", "lru", "s3fifo", "hpcache"] {
        assert!(error.contains(name), "{name}: {error}");
    }
}

#[test]
fn the_memory_market_shows_who_has_what() {
    let fixture = with_table();
    observed(&fixture);
    fixture.run("CREATE INDEX i ON t USING elf (b, c)").unwrap();
    fixture.run("SET hotshelf.elf = always").unwrap();
    for _ in 0..3 {
        fixture
            .run("SELECT sum(a), sum(b) FROM t WHERE c < 9")
            .unwrap();
        fixture
            .run("SET hotshelf.elf = always; SELECT count(*) FROM t WHERE b = 7")
            .unwrap();
    }
    internals::tuner(fixture.database()).unwrap().step_now();
    let classes =
        fixture.rows("SELECT class FROM memory_market() WHERE item IS NULL ORDER BY class");
    assert!(classes.len() >= 3, "{classes:?}");
    let all = fixture.rows("SELECT * FROM memory_market()");
    let sum = |condition: &str| {
        let sql =
            format!("SELECT count(*) > 0 FROM memory_market() WHERE {condition} AND bytes > 0");
        fixture.rows(&sql)
    };
    assert_eq!(sum("item LIKE 't.%'"), ["true"], "{all:#?}");
    assert_eq!(
        sum("item = 'i' AND saved_s_per_gb_s > 0"),
        ["true"],
        "{all:#?}"
    );
    assert_eq!(
        sum("class = 'metadata' AND item IS NULL"),
        ["true"],
        "{all:#?}"
    );
    let shelves = fixture.rows(
        "SELECT name, used_bytes > 0, confidence <= 1 FROM hotshelf_shelves() ORDER BY shelf",
    );
    assert_eq!(shelves[0], "memory|true|true");
}
