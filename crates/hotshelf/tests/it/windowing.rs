//! Window functions over whole partitions: Hotshelf's way to keep the rows beside DataFusion's.

use super::*;

fn with_budget(bytes: u64) -> Fixture {
    let fixture = Fixture::with_little_memory(bytes, 2);
    fixture
        .run(
            "CREATE TABLE t AS SELECT value AS id, value * 7919 % 100003 AS k, \
             CASE WHEN value < 90000 THEN 0 WHEN value % 3 = 0 THEN NULL ELSE value % 5000 END AS g, \
             CASE WHEN value % 7 = 0 THEN NULL ELSE 'a text with the number ' || (value * 31 % 60013) END AS text \
             FROM range(110000)",
        )
        .unwrap();
    fixture
}

/// Partitions are half of all rows, a sixth of them, and some tens of rows; or everything.
const QUERIES: &[&str] = &[
    "SELECT id, sum(k) OVER (PARTITION BY g) AS s, count(*) OVER (PARTITION BY g) AS n, \
     max(text) OVER (PARTITION BY g) AS m FROM t",
    "SELECT id, text, sum(k) OVER () AS s, count(text) OVER () AS n FROM t",
    "SELECT id, count(*) FILTER (WHERE k > 5000) OVER (PARTITION BY g) AS n, \
     sum(k) OVER (PARTITION BY g) AS s FROM t",
    "SELECT id, sum(k) FILTER (WHERE text < 'a text with the number 3') OVER (PARTITION BY g) AS s, \
     avg(k) FILTER (WHERE k > 9) OVER () AS a, min(text) FILTER (WHERE k % 2 = 0) OVER (PARTITION BY g) AS m, \
     count(*) FILTER (WHERE k > 9) OVER () AS d, max(k) FILTER (WHERE id > 50) OVER (PARTITION BY g ORDER BY id \
     ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS w FROM t",
    "SELECT id, ntile(7) OVER (PARTITION BY g ORDER BY id) AS n, \
     cume_dist() OVER (PARTITION BY g ORDER BY k, id) AS c FROM t",
    "SELECT id, ntile(20000) OVER (PARTITION BY g % 50 ORDER BY k, id) AS n, \
     percent_rank() OVER (PARTITION BY g ORDER BY k % 9) AS p, cume_dist() OVER (ORDER BY k % 7) AS c, \
     ntile(3) OVER (ORDER BY id DESC) AS t, sum(k) OVER (PARTITION BY g) AS s FROM t",
    "SELECT id, percent_rank() OVER () AS p, cume_dist() OVER () AS c, \
     percent_rank() OVER (PARTITION BY id ORDER BY k) AS q FROM t",
    "SELECT id, rank() OVER (ORDER BY k) AS r, percent_rank() OVER (ORDER BY k) AS p, \
     row_number() OVER (ORDER BY id) AS n, ntile(2 * 2) OVER (ORDER BY id) AS t, count(*) OVER (ORDER BY k) AS c, \
     cume_dist() OVER (ORDER BY k) AS d, sum(k * (2 - 1)) OVER (ORDER BY id) AS s FROM t",
    "SELECT *, percent_rank() OVER (ORDER BY k) FROM (SELECT id, k, rank() OVER (ORDER BY k) FROM t)",
    "SELECT *, percent_rank() OVER (ORDER BY k) FROM (SELECT id, k, count(1) OVER () FROM t) x",
    "SELECT id, last_value(text) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 2 PRECEDING AND UNBOUNDED FOLLOWING) \
     AS l, avg(k) OVER (PARTITION BY g) AS a FROM t",
    "SELECT id, sum(k) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s, \
     count(text) OVER (PARTITION BY g ORDER BY id DESC ROWS BETWEEN 3 FOLLOWING AND UNBOUNDED FOLLOWING) AS n, \
     sum(k) OVER (PARTITION BY g ORDER BY id) AS r, \
     max(k) FILTER (WHERE k % 3 = 1) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS m FROM t",
    "SELECT id, min(k) OVER (ORDER BY id % 1000 RANGE BETWEEN 5 PRECEDING AND UNBOUNDED FOLLOWING) AS a, \
     count(*) OVER (ORDER BY g GROUPS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS b, \
     count(*) OVER (ORDER BY g NULLS FIRST RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS c FROM t",
    "SELECT id, last_value(text) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED \
     FOLLOWING) AS l, last_value(text) IGNORE NULLS OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED \
     FOLLOWING) AS m, last_value(k) OVER (ORDER BY id RANGE BETWEEN 4 PRECEDING AND UNBOUNDED FOLLOWING) AS n FROM t",
    "SELECT id, first_value(text) OVER (PARTITION BY g) IS NULL AS f, \
     first_value(text) IGNORE NULLS OVER (PARTITION BY g ORDER BY k, id ROWS BETWEEN UNBOUNDED PRECEDING AND \
     UNBOUNDED FOLLOWING) AS i, first_value(k) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 3 FOLLOWING AND \
     UNBOUNDED FOLLOWING) AS a, first_value(text) IGNORE NULLS OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 1 \
     FOLLOWING AND UNBOUNDED FOLLOWING) AS n, first_value(k) OVER (ORDER BY id RANGE BETWEEN 2 PRECEDING AND \
     UNBOUNDED FOLLOWING) AS r FROM t WHERE id > 100000",
    "SELECT id, last_value(k) OVER (PARTITION BY g ORDER BY k, id ROWS BETWEEN 40 FOLLOWING AND UNBOUNDED FOLLOWING) \
     AS l, last_value(text) IGNORE NULLS OVER (PARTITION BY g ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND \
     UNBOUNDED FOLLOWING) AS i, row_number() OVER (PARTITION BY g ORDER BY k, id) AS n, \
     sum(k) OVER (PARTITION BY g ORDER BY k, id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s \
     FROM t WHERE id > 100000",
    "SELECT id, nth_value(text, 3) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED \
     FOLLOWING) AS a, nth_value(k, 50) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 7 PRECEDING AND UNBOUNDED \
     FOLLOWING) AS b, nth_value(k, 1) OVER (ORDER BY id ROWS BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING) AS c, \
     nth_value(k, 40000) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS d FROM t",
    // Functions of several kinds in one order, whose numbers of rows are shared.
    "SELECT id, first_value(text) IGNORE NULLS OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED \
     FOLLOWING) AS f, sum(k) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED \
     FOLLOWING) AS s FROM t WHERE id > 100000",
    "SELECT id, ntile(3) OVER (PARTITION BY g ORDER BY id) AS n, first_value(text) IGNORE NULLS OVER (PARTITION BY g \
     ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS f FROM t WHERE id > 100000",
    "SELECT id, last_value(text) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l, \
     first_value(k) IGNORE NULLS OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS f \
     FROM t WHERE id > 100000",
    "SELECT id, ntile(3) OVER (PARTITION BY g ORDER BY id DESC) AS n, sum(k) OVER (PARTITION BY g ORDER BY id DESC \
     ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s, last_value(k) OVER (PARTITION BY g ORDER BY id DESC ROWS \
     BETWEEN 3 FOLLOWING AND UNBOUNDED FOLLOWING) AS l, max(k) OVER (PARTITION BY g) AS m FROM t",
    // Names of columns leave casts out.
    "SELECT id, count(text) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) \
     AS a, count(TRY_CAST(text AS BIGINT)) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND \
     UNBOUNDED FOLLOWING) AS b FROM t",
    "SELECT id, sum(k) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) \
     AS a, sum(CAST(k AS DOUBLE)) OVER (PARTITION BY g ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED \
     FOLLOWING) AS b FROM t",
    // Aggregates up to all rows with equal keys, of which there are many.
    "SELECT id, sum(k) OVER (ORDER BY id % 11) AS s, count(text) OVER (ORDER BY id % 11 DESC) AS n, \
     min(text) OVER (PARTITION BY g % 3 ORDER BY id % 4) AS m, sum(k) OVER (ORDER BY id % 11 NULLS FIRST) AS f FROM t",
    "SELECT id, avg(k) OVER (PARTITION BY id % 2 ORDER BY g NULLS FIRST) AS a, \
     max(k) FILTER (WHERE id % 3 = 1) OVER (ORDER BY g DESC NULLS LAST) AS m, row_number() OVER (ORDER BY id) AS r, \
     count(*) OVER (ORDER BY id % 5, id % 3 GROUPS UNBOUNDED PRECEDING) AS c, \
     sum(k) OVER (ORDER BY id % 6 RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS e FROM t",
    "SELECT id, sum(k) OVER (PARTITION BY id) AS s FROM t",
    "SELECT id, sum(k) OVER (PARTITION BY g) AS s FROM t WHERE g = 0",
    "SELECT id, sum(k) OVER (PARTITION BY g) AS s FROM t WHERE id < 0",
];

#[test]
fn values_are_those_of_datafusion_whatever_the_memory() {
    let (rich, poor) = (with_budget(256 << 20), with_budget(1 << 20));
    for query in QUERIES {
        let answer = |fixture: &Fixture, operators: &str| {
            let mut rows = fixture.rows(&format!("SET hotshelf.operators = {operators}; {query}"));
            rows.sort_unstable();
            rows
        };
        let expected = answer(&rich, "off");
        for fixture in [&rich, &poor] {
            let rows = answer(fixture, "on");
            assert!(rows == expected, "{query}: {} rows", rows.len());
        }
    }
}

#[test]
fn frames_to_the_end_keep_no_partition_beside_windows_in_their_order() {
    let fixture = with_budget(1 << 20);
    let query = "SELECT id, sum(k) OVER (ORDER BY id) AS r, \
         sum(k) OVER (ORDER BY id RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s FROM t";
    let plan = fixture.rows(&format!("EXPLAIN {query}")).join("\n");
    let sorted = plan.matches("SortExec: expr").count();
    assert_eq!(plan.matches("BoundedWindowAggExec").count(), 2, "{plan}");
    assert_eq!(plan.matches(" WindowAggExec").count(), 0, "{plan}");
    assert_eq!(sorted, 2, "{plan}");
}

#[test]
fn rows_with_equal_keys_are_not_kept_by_the_engine_where_they_are_many() {
    let (rich, fixture) = (with_budget(256 << 20), with_budget(1 << 20));
    let few = "CREATE TABLE few AS SELECT value * 31 % 9 AS g, CASE WHEN value % 5 > 0 THEN value % 4 END AS h, \
         value AS k FROM range(60000)";
    rich.run(few).unwrap();
    fixture.run(few).unwrap();
    let rows = |fixture: &Fixture, operators: &str| {
        let query = "SELECT k, sum(k) OVER (ORDER BY g) AS s, count(h) OVER (PARTITION BY h ORDER BY g DESC) AS n, \
             min(k) FILTER (WHERE k % 3 = 1) OVER (ORDER BY h NULLS FIRST) AS m, avg(k) OVER (ORDER BY h DESC, g) \
             AS a, count(*) OVER (ORDER BY g RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS c, \
             sum(h) OVER (ORDER BY g GROUPS UNBOUNDED PRECEDING) AS p FROM few ORDER BY k";
        fixture.rows(&format!("SET hotshelf.operators = {operators}; {query}"))
    };
    assert!(rows(&fixture, "on") == rows(&rich, "off"));
    let plan = |query: &str| fixture.rows(&format!("EXPLAIN {query}")).join("\n");
    let many = plan("SELECT sum(k) OVER (ORDER BY g) AS s FROM few");
    let different = plan("SELECT sum(k) OVER (ORDER BY k) AS s FROM few");
    let up_to_equal_keys = "frame: RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW";
    assert!(!many.contains(up_to_equal_keys), "{many}");
    assert!(different.contains(up_to_equal_keys), "{different}");
    assert_eq!(many.matches("SortExec").count(), 1, "{many}");
}

#[test]
fn functions_of_one_order_see_rows_with_equal_keys_in_one_order() {
    let (rich, poor) = (with_budget(256 << 20), with_budget(1 << 20));
    let wrong = [
        "SELECT count(*) FROM (SELECT k, sum(k) OVER () AS a, \
         sum(k) OVER (ORDER BY id % 7 ROWS UNBOUNDED PRECEDING) AS f, \
         sum(k) OVER (ORDER BY id % 7 ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS b FROM t) \
         WHERE f + b - k <> a",
        "SELECT count(*) FROM (SELECT id, row_number() OVER (ORDER BY id % 7) AS n, \
         last_value(id) OVER (ORDER BY id % 7 \
         ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM t) WHERE n = 110000 AND id <> l",
        "SELECT count(*) FROM (SELECT id, row_number() OVER (ORDER BY id % 7) AS n, \
         nth_value(id, 5) OVER (ORDER BY id % 7 ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS v, \
         first_value(id) IGNORE NULLS OVER (ORDER BY id % 7 ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) AS p, \
         lag(id) OVER (ORDER BY id % 7) AS q, last_value(id) OVER (ORDER BY id % 7 ROWS BETWEEN 1 PRECEDING AND \
         UNBOUNDED FOLLOWING) AS l FROM t) WHERE n = 5 AND id <> v OR n > 1 AND p <> q OR n = 110000 AND id <> l",
    ];
    for sql in wrong {
        for operators in ["off", "on", "always"] {
            let sql = format!("SET hotshelf.operators = {operators}; {sql}");
            assert_eq!(rich.rows(&sql), ["0"], "{sql}");
            // Without our operators there is not the memory.
            if operators != "off" {
                assert_eq!(poor.rows(&sql), ["0"], "{sql}");
            }
        }
    }
}

#[test]
fn a_long_partition_is_spilled_where_its_value_is_computed_as_it_comes() {
    let fixture = with_budget(1 << 20);
    let shown = |query: &str| {
        let plan = fixture.rows(&format!("EXPLAIN ANALYZE {query}")).join("\n");
        let line = plan
            .lines()
            .find(|line| line.contains("SpillingWindowAggExec"));
        line.unwrap_or_else(|| panic!("{plan}")).to_owned()
    };
    let spilled = shown("SELECT id, text, sum(k) OVER () AS s FROM t");
    assert!(!spilled.contains("spill_count=0"), "{spilled}");
    assert!(spilled.contains("output_rows=110"), "{spilled}");
    let filtered = shown("SELECT id, text, sum(k) FILTER (WHERE k > 5) OVER () AS s FROM t");
    assert!(!filtered.contains("spill_count=0"), "{filtered}");
    // What another row has is not one value for all.
    let held = shown(
        "SELECT id, text, nth_value(text, 7) IGNORE NULLS OVER (ORDER BY id \
         ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s FROM t",
    );
    assert!(held.contains("spill_count=0"), "{held}");
    assert!(operator_bytes(&fixture) < 64 << 10);
}

#[test]
fn where_a_row_is_in_a_long_partition_is_known_without_keeping_it() {
    let fixture = with_budget(1 << 20);
    let rows = ["SELECT id, k, text FROM t"; 3].join(" UNION ALL ");
    for function in ["ntile(4)", "percent_rank()", "cume_dist()"] {
        let sql = format!("SELECT id, text, {function} OVER (ORDER BY k) AS s FROM ({rows}) x");
        let plan = fixture.rows(&format!("EXPLAIN ANALYZE {sql}")).join("\n");
        let mut lines = plan.lines();
        let line = lines.find(|line| line.contains("SpillingWindowAggExec"));
        let line = line.unwrap_or_else(|| panic!("{plan}"));
        assert!(!line.contains("spill_count=0"), "{line}");
    }
    assert!(operator_bytes(&fixture) < 64 << 10);
}

#[test]
fn values_of_frames_to_the_end_are_found_without_keeping_the_partition() {
    let fixture = with_budget(1 << 20);
    let end = "UNBOUNDED FOLLOWING";
    for function in [
        format!("sum(k) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN CURRENT ROW AND {end})"),
        format!(
            "min(k) FILTER (WHERE id > 9) OVER (ORDER BY k ROWS BETWEEN 3 PRECEDING AND {end})"
        ),
        format!("max(k) OVER (ORDER BY k ROWS BETWEEN UNBOUNDED PRECEDING AND {end})"),
        format!("last_value(k) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND {end})"),
        format!("last_value(k) IGNORE NULLS OVER (ORDER BY id ROWS BETWEEN 3 FOLLOWING AND {end})"),
        format!("first_value(k) OVER (ORDER BY id ROWS BETWEEN 3 FOLLOWING AND {end})"),
        format!("nth_value(k, 9) OVER (ORDER BY id ROWS BETWEEN 3 FOLLOWING AND {end})"),
    ] {
        let others = ", ntile(3) OVER (ORDER BY id) AS n, count(*) OVER () AS c";
        for others in ["", others] {
            let sql = format!("EXPLAIN ANALYZE SELECT id, text, {function} AS s{others} FROM t");
            let plan = fixture.rows(&sql).join("\n");
            let kept = plan.lines().filter(|line| {
                line.contains("SpillingWindowAggExec") && line.contains("spill_count=0")
            });
            assert_eq!(kept.count(), 0, "{plan}");
            assert!(plan.contains("WindowAggExec"), "{plan}");
        }
    }
    assert!(operator_bytes(&fixture) < 64 << 10);
}

#[test]
fn an_error_in_a_function_ends_the_query() {
    let fixture = with_budget(4 << 20);
    for over in ["", "PARTITION BY g"] {
        let error = fixture.error(&format!(
            "SELECT sum(9223372036854775807 - id) OVER ({over}) AS s FROM t"
        ));
        assert!(
            error.to_string().to_lowercase().contains("overflow"),
            "{error}"
        );
    }
}

#[test]
fn rows_are_numbered_as_datafusion_numbers_them() {
    let (rich, poor) = (with_budget(256 << 20), with_budget(1 << 20));
    for query in [
        "SELECT id, row_number() OVER (ORDER BY k, id) AS n FROM t",
        "SELECT id, row_number() OVER (ORDER BY k, id) AS n, row_number() OVER (ORDER BY k, id) + 1 AS m FROM t",
        "SELECT id, row_number() OVER (ORDER BY text DESC, id) AS n, \
         row_number() OVER (ORDER BY g, id DESC) AS m FROM t",
        "SELECT id, row_number() OVER (ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS n, g FROM t",
        "SELECT n, id, text FROM (SELECT id, text, row_number() OVER (ORDER BY k, id) AS n FROM t) x \
         WHERE n % 1000 = 7",
        "SELECT id, row_number() OVER (ORDER BY k DESC, id) AS n FROM t ORDER BY n LIMIT 5000 OFFSET 20000",
        "SELECT id, row_number() OVER (ORDER BY k, id) AS n, sum(k) OVER (ORDER BY k, id) AS s FROM t",
        "SELECT row_number() OVER (ORDER BY id) AS n FROM t WHERE id < 0",
        "SELECT row_number() OVER () AS n, row_number() OVER () AS m FROM t",
    ] {
        let answer = |fixture: &Fixture, operators: &str| {
            let mut rows = fixture.rows(&format!("SET hotshelf.operators = {operators}; {query}"));
            rows.sort_unstable();
            rows
        };
        let expected = answer(&rich, "off");
        for fixture in [&rich, &poor] {
            assert!(answer(fixture, "on") == expected, "{query}");
        }
    }
    // Which row has which number is open here, but not the numbers.
    let all =
        "SELECT count(DISTINCT n), min(n), max(n) FROM (SELECT row_number() OVER () AS n FROM t) x";
    assert_eq!(rich.rows(all), ["110000|1|110000"]);
}

#[test]
fn only_numbers_of_all_rows_are_counted_in_the_plan() {
    let fixture = with_budget(64 << 20);
    let is_numbering = |operators: &str, query: &str| {
        let sql = format!("SET hotshelf.operators = {operators}; EXPLAIN {query}");
        fixture.rows(&sql).join("\n").contains("NumberingExec")
    };
    let all = "SELECT row_number() OVER (ORDER BY k) AS n FROM t";
    assert!(is_numbering("on", all) && !is_numbering("off", all));
    assert!(is_numbering(
        "on",
        "SELECT row_number() OVER () AS n FROM t"
    ));
    for query in [
        "SELECT row_number() OVER (PARTITION BY g ORDER BY k) AS n FROM t",
        "SELECT rank() OVER (ORDER BY k) AS n FROM t",
    ] {
        assert!(!is_numbering("on", query), "{query}");
    }
}

#[test]
fn frames_that_move_forget_what_has_left() {
    let fixture = Fixture::with_little_memory(64 << 20, 2);
    for operators in ["off", "on", "always"] {
        let answers = |rows: &str, windows: &str| {
            fixture.rows(&format!(
                "SET hotshelf.operators = {operators}; SELECT {windows} FROM (VALUES {rows}) v(id, x) ORDER BY id"
            ))
        };
        let two = "OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)";
        let to_the_end = "OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)";
        let large = "(1, 1e20::DOUBLE), (2, 1.0), (3, 1.0), (4, NULL), (5, NULL), (6, 2.0)";
        assert_eq!(
            answers(large, &format!("sum(x) {two}, avg(x) {two}")),
            [
                "1e20|1e20",
                "1e20|5e19",
                "2.0|1.0",
                "1.0|1.0",
                "|",
                "2.0|2.0"
            ],
            "{operators}"
        );
        let sums = answers(large, &format!("sum(x) {to_the_end}"));
        assert_eq!(
            sums,
            ["1e20", "4.0", "3.0", "2.0", "2.0", "2.0"],
            "{operators}"
        );
        let none = "(1, 'NaN'::DOUBLE), (2, 'inf'), (3, 13.0), (4, 13.0), (5, 23.0)";
        assert_eq!(
            answers(none, &format!("stddev_pop(x) {two}, var(x) {two}"))[3..],
            ["0.0|0.0", "5.0|50.0"],
            "{operators}"
        );
        let truths = "(1, true), (2, false), (3, NULL), (4, true)";
        assert_eq!(
            answers(
                truths,
                &format!("bool_or(x) {two}, bool_and(x) {two}, bool_and(x) {to_the_end}")
            ),
            [
                "true|true|false",
                "true|false|false",
                "false|false|true",
                "true|true|true"
            ],
            "{operators}"
        );
        let bits = "(1, 6), (2, 3), (3, 8)";
        assert_eq!(
            answers(
                bits,
                &format!("bit_or(x) {two}, bit_and(x) {two}, bit_xor(x) {to_the_end}")
            ),
            ["6|6|13", "7|2|11", "11|0|8"],
            "{operators}"
        );
    }
}

#[test]
fn a_partition_key_may_be_constant_in_a_join() {
    let fixture = Fixture::with_little_memory(64 << 20, 2);
    fixture
        .run("CREATE TABLE a AS SELECT value AS id, value % 3 AS k FROM range(10)")
        .unwrap();
    for join in ["LEFT JOIN", "JOIN", "RIGHT JOIN", "FULL JOIN"] {
        for key in ["7", "'seven'"] {
            let query = format!(
                "SELECT y.id, \
                 row_number() OVER (PARTITION BY x.c ORDER BY y.id), count(*) OVER (PARTITION BY x.c, y.k) \
                 FROM (SELECT id, {key} AS c FROM a) x {join} a y ON x.id = y.id WHERE x.c = {key} ORDER BY y.id"
            );
            let counts = [4, 3, 3];
            let expected: Vec<String> = (0..10)
                .map(|id| format!("{id}|{}|{}", id + 1, counts[id % 3]))
                .collect();
            for operators in ["off", "on", "always"] {
                let found = fixture.rows(&format!("SET hotshelf.operators = {operators}; {query}"));
                assert_eq!(found, expected, "{operators}: {query}");
            }
        }
    }
}
