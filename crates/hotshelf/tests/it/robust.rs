//! No statement ends the process: deep, long and wide statements, panics, endless queries and bombs.

use std::time::{Duration, Instant};

use hotshelf::{Database, Options, Result, internals};
use tokio::runtime::{Builder, Handle};

use crate::{Fixture, lines};

/// With tables `t` (1 000 rows) and `big` (300 000 rows), and a budget of 64 MB.
fn with_tables() -> Fixture {
    let db = Fixture::with(Options {
        budget_bytes: 64 << 20,
        threads: 2,
        ..Options::default()
    });
    for (table, rows) in [("t", 1_000), ("big", 300_000)] {
        db.run(&format!(
            "CREATE TABLE {table} AS SELECT value AS a, value % 7 AS b, 'x' AS s, 1 AS one
             FROM generate_series(1, {rows}) AS g(value)"
        ))
        .unwrap();
    }
    db
}

fn chain(count: usize, between: &str, part: impl Fn(usize) -> String) -> String {
    let parts: Vec<String> = (0..count).map(part).collect();
    parts.join(between)
}

fn nested(depth: usize, open: &str, inside: &str, close: &str) -> String {
    format!("{}{inside}{}", open.repeat(depth), close.repeat(depth))
}

/// Footers of small tables, which are kept, take no more.
const FOOTER_BYTES: u64 = 64 << 10;

/// Whether operators hold nothing but footers.
fn holds_nothing(database: &Database) -> bool {
    internals::cache(database)
        .budget()
        .snapshot()
        .operator_bytes
        <= FOOTER_BYTES
}

#[test]
fn a_panic_ends_its_statement_only() {
    let db = with_tables();
    let session = db.database().session();
    let boom = datafusion::logical_expr::create_udf(
        "boom",
        Vec::new(),
        arrow::datatypes::DataType::Int32,
        datafusion::logical_expr::Volatility::Volatile,
        std::sync::Arc::new(|_| panic!("on purpose")),
    );
    internals::context(&session).register_udf(boom);
    let run = |sql: &str| {
        db.database()
            .block_on(async { session.sql(sql).await?.collect().await })
    };
    let error = run("SELECT boom() FROM t").unwrap_err();
    assert!(error.code() == "panic", "{error}");
    assert!(error.hint().unwrap().contains("bug"));
    assert_eq!(lines(&run("SELECT count(*) FROM t").unwrap()), ["1000"]);
    assert!(holds_nothing(db.database()));
}

#[test]
fn long_chains_are_answered() {
    let db = with_tables();
    let ors = chain(3000, " OR ", |n| format!("a = {}", 2 * n));
    assert_eq!(
        db.rows(&format!("SELECT count(*) FROM t WHERE {ors}")),
        ["500"]
    );
    let mixed = chain(1000, " OR ", |n| format!("(a = {n} AND b < {n})"));
    assert_eq!(
        db.rows(&format!("SELECT count(*) FROM t WHERE {mixed}")),
        ["993"]
    );
    let ands = chain(2000, " AND ", |n| format!("a <> {n}"));
    assert_eq!(
        db.rows(&format!("SELECT count(*) FROM t WHERE {ands}")),
        ["0"]
    );
    let unions = chain(300, " UNION ALL ", |n| format!("SELECT {n} AS n"));
    assert_eq!(
        db.rows(&format!("SELECT sum(n) FROM ({unions})")),
        ["44850"]
    );
}

#[test]
fn nested_expressions_are_answered_or_refused_with_words() {
    let db = with_tables();
    assert_eq!(
        db.rows(&format!("SELECT {}", nested(300, "(", "7", ")"))),
        ["7"]
    );
    assert_eq!(
        db.rows(&format!("SELECT {}", nested(100, "NOT ", "true", ""))),
        ["true"]
    );
    let sums = |count| format!("SELECT sum({}) FROM t", chain(count, "+", |_| "one".into()));
    assert_eq!(db.rows(&sums(200)), ["200000"]);
    for sql in [
        sums(20_000),
        format!("SELECT {}", nested(50_000, "(", "1", ")")),
    ] {
        let error = db.error(&sql);
        assert!(error.code() == "too_deep", "{error}");
        assert!(error.hint().is_some());
    }
}

/// Callers have runtimes whose threads have the usual stack of 2 MiB.
#[test]
fn a_callers_runtime_has_stack_enough_for_the_deepest_statements() {
    let db = with_tables();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let database = db.database().clone();
    let work = async move {
        let session = database.session();
        for count in [390, 500, 5000] {
            let sum = chain(count, "+", |_| "a".into());
            let sql = format!("SELECT b, max(CASE WHEN a > 3 THEN {sum} END) FROM t GROUP BY b");
            let done: Result<_> = async { session.sql(&sql).await?.collect().await }.await;
            assert!(
                done.as_ref()
                    .err()
                    .is_none_or(|error| error.code() == "too_deep"),
                "{count}"
            );
        }
        let selects = nested(90, "SELECT * FROM (", "SELECT a FROM t", ")");
        session.sql(&selects).await?.collect().await
    };
    let rows = runtime.block_on(runtime.spawn(work)).unwrap().unwrap();
    assert_eq!(
        rows.iter().map(|batch| batch.num_rows()).sum::<usize>(),
        1000
    );
}

#[test]
fn a_recursive_query_under_a_limit_ends() {
    let db = with_tables();
    let endless = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)";
    let numbers: Vec<String> = (1..=10).map(|n| n.to_string()).collect();
    assert_eq!(
        db.rows(&format!("{endless} SELECT * FROM r LIMIT 10")),
        numbers
    );
    let over_a_table = "WITH RECURSIVE r(n) AS (
            SELECT CAST(1 AS BIGINT) UNION ALL SELECT t.a + 1 FROM r JOIN t ON r.n = t.a WHERE t.a < 50)
        SELECT count(*), max(n) FROM r";
    assert_eq!(db.rows(over_a_table), ["50|50"]);
}

#[test]
fn values_too_large_to_make_are_refused() {
    let db = with_tables();
    for sql in [
        "SELECT length(repeat('x', 2000000000))",
        "SELECT max(length(repeat('x', a * 1000))) FROM t",
        "SELECT max(length(repeat(repeat(s, 1000), 1000))) FROM t",
        "SELECT max(length(lpad(s, 1000000))) FROM t",
        "SELECT length(rpad('x', 2000000000, 'yz'))",
        "SELECT cardinality(array_repeat(1, 2000000000))",
        "SELECT cardinality(list_repeat(repeat('x', 100000), 100000))",
        "SELECT cardinality(array_resize([1], 2000000000))",
        "SELECT cardinality(range(0, 1000000000))",
        "SELECT cardinality(generate_series(1, a * 1000000)) FROM t",
        "SELECT cardinality(generate_series(TIMESTAMP '1970-01-01', TIMESTAMP '2200-01-01', INTERVAL '1 millisecond'))",
        "SELECT max(length(concat(repeat('x', a * 10000), s))) FROM t",
        "SELECT max(length(replace(repeat('x', 10000), 'x', repeat(s, 100)))) FROM t",
        "SELECT length(regexp_replace(repeat('x', 1000000), 'x', repeat('y', 500), 'g'))",
    ] {
        let error = db.error(sql);
        assert!(error.code() == "too_large", "{sql}: {error}");
        assert!(error.hint().unwrap().contains("budget"));
    }
    assert!(holds_nothing(db.database()));
}

#[test]
fn what_might_be_too_large_is_made_in_pieces() {
    let db = with_tables();
    let long = "concat(repeat('x', 20000), s)";
    for (sql, expected) in [
        (
            format!("SELECT sum(length(regexp_replace({long}, 'z', 'yyy', 'g'))) FROM t"),
            "20001000",
        ),
        (
            format!("SELECT sum(length(replace({long}, 'z', 'yyy'))) FROM t"),
            "20001000",
        ),
    ] {
        assert_eq!(db.rows(&sql), [expected], "{sql}");
    }
}

#[test]
fn settings_that_would_take_all_memory_are_refused() {
    let db = with_tables();
    for setting in ["target_partitions = 1000000", "batch_size = 1000000000"] {
        let error = db.error(&format!("SET datafusion.execution.{setting}"));
        assert!(error.code() == "invalid_value", "{error}");
    }
    db.run("SET datafusion.execution.batch_size = 100").unwrap();
}

#[test]
fn long_literals_are_repeated_for_few_rows_at_a_time() {
    let db = with_tables();
    let sql = "SELECT count(*) AS n, max(length(concat(repeat('x', 1000000), s))) AS l,
               max(repeat('y', 1000000)) = repeat('y', 1000000) AS e FROM t";
    assert_eq!(db.rows(sql), ["1000|1000001|true"]);
}

#[test]
fn functions_with_a_limit_give_what_they_gave() {
    let db = with_tables();
    for (expression, expected) in [
        ("repeat('ab', 3)", "ababab"),
        ("repeat(s, a) FROM t WHERE a = 4", "xxxx"),
        ("lpad('a', 3, '-')", "--a"),
        ("rpad(s, a, '-') FROM t WHERE a = 3", "x--"),
        ("replace('banana', 'an', 'AN')", "bANANa"),
        ("concat('a', NULL, s, 'b') FROM t WHERE a = 1", "axb"),
        ("concat_ws('-', 'a', s, 'b') FROM t WHERE a = 1", "a-x-b"),
        ("array_repeat(7, 3)", "[7, 7, 7]"),
        ("range(1, 4)", "[1, 2, 3]"),
        ("generate_series(1, 3)", "[1, 2, 3]"),
        (
            "cardinality(generate_series(DATE '2000-01-01', DATE '2000-03-01', INTERVAL '1 day'))",
            "61",
        ),
    ] {
        assert_eq!(
            db.rows(&format!("SELECT {expression}")),
            [expected],
            "{expression}"
        );
    }
}

/// Statements that would run for hours.
fn endless() -> Vec<String> {
    let queries = [
        "SELECT count(*) FROM big x JOIN big y ON x.a % 10 = y.a % 10",
        "SELECT count(*) FROM big x JOIN big y ON x.one = y.one AND x.a + y.a < 0",
        "SELECT count(*) FROM big x, big y WHERE x.a + y.b > 5",
        "SELECT count(*) FROM big x, big y WHERE x.a + y.a < 0",
        "SELECT x.b, max(x.a * y.a) FROM big x JOIN big y ON x.b = y.b GROUP BY x.b",
        "SELECT count(*) FROM big x WHERE EXISTS (SELECT 1 FROM big y WHERE y.one = x.one AND y.a < -x.a)",
        "SELECT count(*) FROM big x WHERE NOT EXISTS (SELECT 1 FROM big y WHERE y.b = x.b AND y.a * x.a < 0)",
        "SELECT count(*) FROM big x WHERE EXISTS (SELECT 1 FROM big y WHERE y.a * x.a < 0)",
        "SELECT count(*) FROM big x LEFT JOIN big y ON x.a * y.a < 0",
        "SELECT count(*) FROM big x FULL JOIN big y ON x.one = y.one AND x.a > y.a * 1000000",
        "SELECT count(*) FROM big x RIGHT JOIN big y ON x.a * y.a < 0",
        "SELECT x.a FROM big x CROSS JOIN big y ORDER BY x.a + y.a LIMIT 5",
        "SELECT max(x.a * y.b + z.a) FROM t x, t y, big z",
        "SELECT count(*) FROM generate_series(1, 1000000000000)",
        "SELECT max(value) FROM generate_series(1, 1000000000000) WHERE value % 3 = 7",
        "SELECT count(*) FROM (SELECT unnest(range(0, 1000)) FROM big x CROSS JOIN t)",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT 1 FROM r) SELECT count(*) FROM r",
        "WITH RECURSIVE r(n) AS (SELECT CAST(1 AS BIGINT) UNION SELECT n + 1 FROM r) SELECT max(n) FROM r",
        "CREATE TABLE never AS SELECT x.a FROM big x CROSS JOIN big y",
        "SELECT count(DISTINCT x.b + y.a) FROM big x JOIN big y ON x.one = y.one",
        "EXPLAIN ANALYZE SELECT count(*) FROM big x, big y WHERE x.a + y.b > 5",
    ];
    queries.map(str::to_owned).into()
}

/// The time from dropping a statement's work until none of its tasks is left.
async fn stop_after(database: &Database, sql: &str, moment: Duration) -> Option<Duration> {
    let metrics = Handle::current().metrics();
    let idle = metrics.num_alive_tasks();
    let session = database.session();
    let run = async { session.sql(sql).await?.collect().await };
    if tokio::time::timeout(moment, run).await.is_ok() {
        return None;
    }
    let dropped = Instant::now();
    while metrics.num_alive_tasks() > idle && dropped.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Some(dropped.elapsed())
}

#[test]
fn a_dropped_statement_frees_the_workers() {
    let db = with_tables();
    for sql in endless() {
        let moment = Duration::from_millis(300);
        let took = db
            .database()
            .block_on(stop_after(db.database(), &sql, moment));
        let took = took.unwrap_or_else(|| panic!("{sql} ended"));
        // Debug builds on busy machines are slow; what does not stop takes hours.
        assert!(took < Duration::from_secs(10), "{sql}: {took:?}");
    }
    assert!(holds_nothing(db.database()));
    assert_eq!(db.database().table_names(), ["big", "t"]);
}

/// Statements that are large, deep or strange, but quick to answer or to refuse.
fn hostile() -> Vec<String> {
    let mut all: Vec<String> = [
        "", ";", ";;;", "SELECT", "SELECT (", "SELECT ')", "SELECT \"", "SELECT 'abc", "SELECT /* x",
        "SELECT 1 FROM", "WITH a AS (SELECT * FROM a) SELECT * FROM a", "SELECT * FROM t WHERE",
        "SELECT ?", "SELECT $1", "EXECUTE nothing", "PREPARE v AS SELECT DISTINCT ON (?) 42",
        "SELECT CAST('x' AS INT)", "SELECT 1/0", "SELECT 1%0", "SELECT -9223372036854775808 / -1",
        "SELECT abs(-9223372036854775808)", "SELECT sqrt(-1)", "SELECT power(10, 400)",
        "SELECT substr('abc', -5, 9223372036854775807)", "SELECT left('abc', -9223372036854775808)",
        "SELECT split_part('a', '', 0)", "SELECT to_timestamp(9223372036854775807)",
        "SELECT DATE '9999-12-31' + INTERVAL '10000000 years'", "SELECT INTERVAL '1' YEAR * 1e30",
        "SELECT array_element([1], 9223372036854775807)", "SELECT array_slice([1, 2], -5, 9223372036854775807)",
        "SELECT regexp_like('aaaaaaaaaaaaaaaaaaaaaaaaaaaa!', '(a+)+$')", "SELECT regexp_like('a', '(')",
        "SELECT 'a' LIKE '%%%%%%%%%%%%%%%%%%%%%%%%%b'", "SELECT chr(0)", "SELECT chr(-1)",
        "SELECT decode('zz', 'hex')", "SELECT to_hex(-1)", "SELECT date_bin(INTERVAL '0', now())",
        "SELECT date_trunc('eon', now())", "SELECT nullif(1, 'a')", "SELECT ntile(0) OVER () FROM t",
        "SELECT lag(a, 9223372036854775807) OVER (ORDER BY a) FROM t LIMIT 1", "SELECT nth_value(a, 0) OVER () FROM t",
        "SELECT sum(a) OVER (ROWS BETWEEN 9223372036854775807 PRECEDING AND CURRENT ROW) FROM t LIMIT 1",
        "SELECT * FROM t LIMIT -1", "SELECT * FROM t LIMIT 9223372036854775807 OFFSET 9223372036854775807",
        "SELECT * FROM t ORDER BY 99", "SELECT a FROM t GROUP BY 99", "SELECT count(*) FROM range(5, 1, 0)",
        "SELECT 1e999999", "SELECT 99999999999999999999999999999999999999999999999999",
        "SELECT 1::DECIMAL(38, 38)", "SELECT approx_percentile_cont(2) WITHIN GROUP (ORDER BY a) FROM t",
        "DROP TABLE nothing", "INSERT INTO t VALUES (1)", "SET datafusion.execution.batch_size = 0",
        "COPY t TO '/dev/null/there/x.parquet'", "SELECT * FROM '/nowhere.parquet'",
        "CREATE EXTERNAL TABLE e STORED AS nothing LOCATION '/'", "EXPLAIN EXPLAIN SELECT 1",
        "DESCRIBE nothing", "SHOW nothing",
    ]
    .map(str::to_owned)
    .into();
    let text = |bytes| "y".repeat(bytes);
    all.extend([
        format!("SELECT '{}'", text(1 << 20)),
        format!("SELECT \"{}\"", text(100_000)),
        format!(
            "SELECT a FROM t WHERE a IN ({})",
            chain(5_000, ",", |n| n.to_string())
        ),
        format!("SELECT {}", chain(1_000, ",", |n| format!("{n} AS c{n}"))),
        format!(
            "SELECT * FROM (VALUES {}) v",
            chain(5_000, ",", |n| format!("({n})"))
        ),
        format!(
            "WITH {} SELECT 1",
            chain(200, ",", |n| format!("c{n} AS (SELECT {n})"))
        ),
        format!("SELECT * FROM t {}", "CROSS JOIN t ".repeat(5_000)),
        nested(1_500, "SELECT * FROM (", "SELECT 1", ")"),
        format!(
            "SELECT {}",
            nested(2_000, "CASE WHEN true THEN ", "1", " END")
        ),
        format!("SELECT {}", nested(3_000, "abs(", "1", ")")),
        format!("SELECT {}", nested(3_000, "[", "1", "]")),
        format!("SELECT {}", nested(3_000, "- ", "1", "")),
        format!("SELECT {}", nested(3_000, "(SELECT ", "1", ")")),
        format!("SELECT {}", nested(20_000, "(", "1", "")),
        format!("SELECT 1{}", "::INT".repeat(3_000)),
        format!("SELECT max({}) FROM t", chain(4_000, "||", |_| "s".into())),
        format!("SELECT * FROM {}", nested(300, "(", "t", ")")),
        format!(
            "SELECT 1 {}",
            chain(3_000, "", |_| " EXCEPT SELECT 1".into())
        ),
    ]);
    all
}

#[test]
fn hostile_statements_are_answered_or_refused_in_words() {
    let db = with_tables();
    let statements = hostile();
    assert!(statements.len() >= 60, "{}", statements.len());
    for sql in statements {
        let shown: String = sql.chars().take(80).collect();
        let session = db.database().session();
        let run = async { session.sql(&sql).await?.collect().await };
        let limit = Duration::from_secs(60);
        let done = db
            .database()
            .block_on(async { tokio::time::timeout(limit, run).await });
        let done = done.unwrap_or_else(|_| panic!("{shown}: takes more than {limit:?}"));
        if let Err(error) = done {
            assert!(error.to_string().len() > 10, "{shown}: {error}");
        }
    }
    assert_eq!(db.rows("SELECT count(*) FROM t"), ["1000"]);
    assert!(holds_nothing(db.database()));
}

#[test]
fn views_that_use_each_other_are_refused_once_there_are_too_many_tables() {
    let db = with_tables();
    let mut below = "t".to_owned();
    let mut refused = None;
    for number in 0..14 {
        let sql = format!(
            "CREATE VIEW v{number} AS SELECT x.a FROM {below} x JOIN {below} y ON x.a = y.a"
        );
        if let Err(error) = db.run(&sql) {
            refused = Some((number, error));
            break;
        }
        below = format!("v{number}");
    }
    // 2 tables, then 4, and so on.
    let (number, error) = refused.unwrap();
    assert_eq!((number, error.code()), (10, "too_wide"), "{error}");
    assert!(error.to_string().contains("every view"), "{error}");
    // Each is short enough, and all together are not.
    let error = db.error("SELECT count(*) FROM v9 a, v9 b WHERE a.a = b.a");
    assert_eq!(error.code(), "too_wide", "{error}");
    assert_eq!(db.rows("SELECT count(*) FROM v2").len(), 1);
}

#[test]
fn what_doubles_at_each_step_is_refused_or_stays_short() {
    let db = with_tables();
    let begun = Instant::now();
    for leaf in [
        "SELECT 1 AS x",
        "VALUES (1)",
        "SELECT unnest(make_array(1)) AS x",
    ] {
        let chain: String = (1..30)
            .map(|n| {
                format!(
                    ", c{n}(x) AS (SELECT x FROM c{0} UNION ALL SELECT x FROM c{0})",
                    n - 1
                )
            })
            .collect();
        let error = db.run(&format!(
            "WITH c0(x) AS ({leaf}){chain} SELECT count(*) FROM c29"
        ));
        assert_eq!(error.unwrap_err().code(), "too_wide", "{leaf}");
    }
    let nest = (0..25).fold("SELECT a AS x, b AS y FROM t".to_owned(), |inner, _| {
        format!("SELECT x + y AS x, x - y AS y FROM ({inner})")
    });
    let doubled = (0..25).fold("SELECT a % 2 AS x FROM t".to_owned(), |inner, n| {
        format!("SELECT x + x AS x FROM ({inner}) s{n}")
    });
    let found = db.run(&format!("SELECT count(*) FROM ({doubled}) WHERE x > 5"));
    assert!(found.is_ok(), "{:?}", found.err());
    let found = db.run(&format!(
        "SELECT count(*) FROM ({nest}) WHERE x > 4096 AND y < 4096"
    ));
    assert!(found.is_ok(), "{:?}", found.err());
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}
