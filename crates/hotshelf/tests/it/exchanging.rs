//! Rows that go from some partitions to others.

use std::time::Duration;

use super::*;

fn with_budget(bytes: u64, threads: usize) -> Fixture {
    let fixture = Fixture::with_little_memory(bytes, threads);
    fixture
        .run(
            "CREATE TABLE t AS SELECT value AS id, value * 7919 % 100003 AS k, value % 211 AS small, \
             'a text of some length with the number ' || (value * 31 % 60013) AS text FROM range(80000)",
        )
        .unwrap();
    fixture
}

/// The answer, in any order. What waits forever fails.
fn within_minutes(fixture: &Fixture, settings: &str, query: &str) -> Vec<String> {
    let database = fixture.database();
    let asked = database.block_on(async {
        let session = database.session();
        for setting in settings.split(';') {
            session.sql(setting).await?.collect().await?;
        }
        let answer = async { session.sql(query).await?.collect().await };
        let answer = tokio::time::timeout(Duration::from_secs(300), answer).await;
        answer.unwrap_or_else(|_| panic!("no answer: {query}"))
    });
    let mut rows = lines(&asked.unwrap_or_else(|error| panic!("{settings}: {query}: {error:?}")));
    rows.sort_unstable();
    rows
}

/// Each has rows on their way to several receivers more than once.
const QUERIES: &[&str] = &[
    "SELECT small, count(DISTINCT text) AS n, count(*) AS m FROM t GROUP BY small",
    "SELECT n, count(*) AS m FROM (SELECT text, k, count(*) AS n FROM t GROUP BY text, k) GROUP BY n",
    "SELECT count(*) AS n, sum(length(a.text)) AS s, sum(length(b.text)) AS u \
     FROM t a JOIN t b ON a.k = b.id AND a.text <> b.text",
    "SELECT text, count(*) AS n FROM (SELECT text FROM t UNION ALL SELECT text FROM t WHERE small = 3) GROUP BY text \
     ORDER BY n DESC, text LIMIT 50",
    "SELECT id, rank() OVER (PARTITION BY k ORDER BY text) AS r FROM t ORDER BY id LIMIT 1000",
];

#[test]
fn rows_arrive_whatever_the_memory_and_whoever_runs_the_operators() {
    let rich = with_budget(256 << 20, 2);
    for threads in [2, 5] {
        let poor = with_budget(1 << 20, threads);
        for query in QUERIES {
            let mut expected = rich.rows(query);
            expected.sort_unstable();
            for operators in ["on", "always"] {
                let rows = within_minutes(
                    &poor,
                    &format!(
                        "SET hotshelf.operators = {operators}; SET hotshelf.star_pipelines = off"
                    ),
                    query,
                );
                assert!(rows == expected, "{query}: {} rows", rows.len());
            }
        }
        returns_its_memory(&poor);
    }
}

#[test]
fn exchanges_are_shown_and_tell_what_they_spilled() {
    let fixture = with_budget(64 << 20, 2);
    let query = "SELECT text, count(*) FROM t GROUP BY text";
    let plan = fixture.rows(&format!("EXPLAIN {query}")).join("\n");
    assert!(plan.contains("ExchangeExec: partitioning=Hash("), "{plan}");
    assert!(!plan.contains("RepartitionExec"), "{plan}");
    let plan = fixture.rows(&format!("EXPLAIN ANALYZE {query}")).join("\n");
    let exchange = plan.lines().find(|line| line.contains("ExchangeExec"));
    let exchange = exchange.unwrap();
    for name in [
        "output_rows=",
        "repartition_time=",
        "spill_count=0",
        "peak_mem_used=",
    ] {
        assert!(exchange.contains(name), "{name}: {exchange}");
    }
}

#[test]
fn an_error_on_the_way_ends_the_query_and_returns_its_memory() {
    let fixture = with_budget(4 << 20, 2);
    for operators in ["on", "always"] {
        let query = format!(
            "SET hotshelf.operators = {operators}; \
             SELECT text, sum(1 / (id - 70000)) AS s FROM t GROUP BY text"
        );
        let error = fixture.error(&query).to_string();
        assert!(error.to_lowercase().contains("zero"), "{error}");
    }
    let first = "SELECT text, count(*) AS n FROM t GROUP BY text LIMIT 3";
    assert_eq!(fixture.rows(first).len(), 3);
    returns_its_memory(&fixture);
}

/// Tasks end a moment after the answer.
fn returns_its_memory(fixture: &Fixture) {
    for _ in 0..200 {
        if operator_bytes(fixture) < 64 << 10 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} bytes are still held", operator_bytes(fixture));
}
