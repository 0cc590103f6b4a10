//! Aggregations: Hotshelf's own beside DataFusion's, with memory and without.

use super::*;

pub(crate) fn with_budget(bytes: u64) -> Fixture {
    let fixture = Fixture::with_little_memory(bytes, 2);
    let table = "CREATE TABLE t AS SELECT value AS id, \
         CASE WHEN value % 17 = 0 THEN NULL ELSE value * 7 % 4001 END AS k, \
         CASE WHEN value % 19 = 0 THEN NULL ELSE 'text ' || (value * 3 % 9973) END AS t, \
         (value % 211)::decimal(10, 2) AS d, value % 31 AS small, (value % 97)::double AS f FROM range(60000)";
    fixture.run(table).unwrap();
    fixture
}

const AGGREGATIONS: &[&str] = &[
    "SELECT k, count(*) AS n, sum(id) AS s FROM t GROUP BY k",
    "SELECT id, sum(small) AS s, min(t) AS l FROM t GROUP BY id",
    "SELECT t, count(k) AS n, max(id) AS m, avg(d) AS a FROM t GROUP BY t",
    "SELECT k, t, d, small, count(*) AS n FROM t GROUP BY k, t, d, small",
    "SELECT DISTINCT k, t FROM t",
    "SELECT t, k, count(*) AS n FROM t GROUP BY t, k, t.k, t.t",
    "SELECT k, count(DISTINCT t) AS n, count(DISTINCT small) AS m FROM t GROUP BY k, t.k",
    "SELECT id FROM t GROUP BY id, t.id, t HAVING count(*) = 1",
    "SELECT k, count(DISTINCT t) AS n, count(DISTINCT small) AS m FROM t GROUP BY k",
    "SELECT k % 1000 AS r, sum(id) FILTER (WHERE small > 3) AS s, count(*) FILTER (WHERE t IS NULL) AS n \
     FROM t GROUP BY k % 1000",
    "SELECT small, median(id) AS m, bool_and(id > 5) AS b, round(stddev(f), 6) AS v FROM t GROUP BY small",
    "SELECT k, max(t) AS m FROM t GROUP BY k HAVING count(*) > 14",
    "SELECT n, count(*) AS c FROM (SELECT k, t, count(*) AS n FROM t GROUP BY k, t) GROUP BY n",
    "SELECT k FROM t WHERE small = 1 INTERSECT SELECT id FROM t WHERE small = 2",
    "SELECT k AS v FROM t UNION SELECT id AS v FROM t",
    "SELECT small, count(DISTINCT id) AS n, count(DISTINCT t) AS m, sum(f) AS s FROM t GROUP BY small",
    "SELECT count(DISTINCT a.t) AS n, count(DISTINCT b.id) AS m FROM t a JOIN t b ON a.id = b.k",
];

fn answers(fixture: &Fixture, settings: &str, query: &str) -> Vec<String> {
    let no_stars = "SET hotshelf.star_pipelines = off;";
    let mut rows = fixture.rows(&format!("{no_stars} {settings} {query}"));
    rows.sort_unstable();
    rows
}

const OFF: &str = "SET hotshelf.operators = off;";
const ALWAYS: &str = "SET hotshelf.operators = always;";

#[test]
fn groups_are_those_of_datafusion() {
    let fixture = with_budget(64 << 20);
    for query in AGGREGATIONS {
        let expected = answers(&fixture, OFF, query);
        for threads in [1, 2] {
            let own = format!("{ALWAYS} SET hotshelf.threads = {threads};");
            let rows = answers(&fixture, &own, query);
            assert!(
                rows == expected,
                "{query}: {} groups, not {}",
                rows.len(),
                expected.len()
            );
        }
    }
}

#[test]
fn groups_are_the_same_where_they_have_to_spill() {
    let rich = with_budget(64 << 20);
    let poor = with_budget(1 << 20);
    for query in AGGREGATIONS {
        let expected = answers(&rich, OFF, query);
        assert!(answers(&poor, ALWAYS, query) == expected, "{query}");
    }
}

#[test]
fn grouping_sets_are_the_same_where_their_states_do_not_fit() {
    let rich = with_budget(64 << 20);
    let poor = with_budget(2 << 20);
    let sql = "SELECT id, small, sum(d) AS s, count(*) AS n FROM t GROUP BY ROLLUP (id, small)";
    let expected = answers(&rich, OFF, sql);
    assert_eq!(expected.len(), 2 * 60_000 + 1);
    assert!(answers(&poor, "SET hotshelf.threads = 4;", sql) == expected);
}

#[test]
fn aggregations_are_replaced_on_demand_and_large_ones_and_quick_ones_by_themselves() {
    let fixture = with_budget(8 << 20);
    let no_stars = "SET hotshelf.star_pipelines = off;";
    for query in AGGREGATIONS {
        let plan = fixture.rows(&format!("{no_stars} {ALWAYS} EXPLAIN {query}"));
        let plan = plan.join("\n");
        assert!(plan.contains("SpillingAggregateExec"), "{query}: {plan}");
    }
    let plan = |query: &str| {
        let rows = fixture.rows(&format!("{no_stars} EXPLAIN {query}"));
        rows.join("\n")
    };
    for keys in ["small, d", "t", "small, t"] {
        let quick = plan(&format!(
            "SELECT {keys}, count(*) AS n FROM t WHERE id < 100 GROUP BY {keys}"
        ));
        assert!(quick.contains("SpillingAggregateExec"), "{quick}");
    }
    let texts = plan("SELECT lower(t) AS l, t, count(*) AS n FROM t WHERE id < 100 GROUP BY l, t");
    assert!(!texts.contains("SpillingAggregateExec"), "{texts}");
    let large = plan("SELECT id, t, count(*) AS n FROM t GROUP BY id, t");
    assert!(large.contains("SpillingAggregateExec"), "{large}");
}

#[test]
fn keys_of_distinct_on_may_be_named_twice() {
    let fixture = with_budget(8 << 20);
    let firsts = |keys: &str| {
        let query =
            format!("SELECT DISTINCT ON ({keys}) small, id FROM t ORDER BY {keys}, id DESC");
        fixture.rows(&query)
    };
    let expected = firsts("small");
    assert_eq!(expected.len(), 31);
    assert_eq!(firsts("small, t.small"), expected);
}

#[test]
fn the_order_inside_an_aggregate_may_name_a_key_twice() {
    let fixture = with_budget(8 << 20);
    let lasts = |order: &str| {
        let query =
            format!("SELECT small, last_value(id ORDER BY {order}) AS l FROM t GROUP BY small");
        answers(&fixture, ALWAYS, &query)
    };
    let expected = lasts("d, id");
    assert_eq!(expected.len(), 31);
    assert_eq!(lasts("d, t.d, id, d DESC, id DESC"), expected);
}

#[test]
fn zeros_of_both_signs_and_nan_are_groups_as_in_datafusion() {
    let fixture = with_budget(64 << 20);
    let query = "SELECT f, count(*) AS n FROM (VALUES (0.0::double), (-0.0::double), ('NaN'::double), (NULL), \
        ('NaN'::double)) v(f) GROUP BY f";
    let expected = answers(&fixture, OFF, query);
    assert_eq!(answers(&fixture, ALWAYS, query), expected);
}

fn unsigned_zeros(rows: &[String]) -> Vec<String> {
    let rows = rows.iter().map(|row| row.replace("-0.0", "0.0"));
    let mut rows: Vec<String> = rows.collect();
    rows.sort_unstable();
    rows
}

#[test]
fn extremes_of_floats_are_those_of_each_group_alone() {
    let values = "CASE value * 11 % 8 WHEN 0 THEN 'NaN' WHEN 1 THEN 'inf' WHEN 2 THEN '-inf' WHEN 3 THEN '-0.0' \
        WHEN 4 THEN '0.0' WHEN 5 THEN NULL ELSE value % 5 - 2 END";
    // Groups of a few rows, and 40 whose values are all equal.
    let table = |name: &str, order: &str| {
        format!(
            "CREATE TABLE {name} AS SELECT value AS id, value * 7 % 4001 AS g, value % 40 AS h, \
             ({values})::double AS x, ({values})::real AS y FROM range(12000) ORDER BY {order}"
        )
    };
    let rich = with_budget(64 << 20);
    let poor = with_budget(1 << 20);
    for fixture in [&rich, &poor] {
        fixture.run(&table("rising", "value")).unwrap();
        fixture
            .run(&table("mixed", "value * 7919 % 12011"))
            .unwrap();
    }
    for key in ["g", "h"] {
        // A window over a whole partition has the engine's extremes of rows without groups.
        let alone = |what: &str| format!("{what} OVER (PARTITION BY {key})");
        let even = "CASE WHEN id % 2 = 0 THEN x END";
        let expected = format!(
            "SELECT {key}, a, b, c, d, e, f FROM (SELECT {key}, id, \
             {} AS a, {} AS b, {} AS c, {} AS d, {} AS e, {} AS f FROM rising) WHERE id = f",
            alone("min(x)"),
            alone("max(x)"),
            alone("min(y)"),
            alone("max(y)"),
            alone(&format!("max({even})")),
            alone("min(id)"),
        );
        let expected = answers(&rich, OFF, &expected);
        assert!(expected.iter().any(|row| row.contains("|NaN|")));
        assert!(expected.iter().any(|row| row.contains("|-0.0|")));
        assert!(expected.iter().any(|row| row.contains("|inf|")));
        for table in ["rising", "mixed"] {
            for (max, stars) in [
                ("max(x)", "off"),
                ("max(x)", "on"),
                ("max(DISTINCT x)", "off"),
            ] {
                let found = format!(
                    "SELECT {key}, min(x) AS a, {max} AS b, min(y) AS c, max(y) AS d, \
                     max(x) FILTER (WHERE id % 2 = 0) AS e, min(id) AS f FROM {table} GROUP BY {key}"
                );
                for (fixture, operators) in [(&rich, OFF), (&rich, ALWAYS), (&poor, ALWAYS)] {
                    let settings = format!("{operators} SET hotshelf.star_pipelines = {stars};");
                    let rows = answers(fixture, &settings, &found);
                    let is_right = match max.contains("DISTINCT") {
                        // Of zeros of both signs one is a distinct value.
                        true => unsigned_zeros(&rows) == unsigned_zeros(&expected),
                        false => rows == expected,
                    };
                    assert!(is_right, "{settings} {found}");
                }
            }
        }
    }
}

#[test]
fn a_limit_ends_a_spilling_aggregation_early() {
    let fixture = with_budget(2 << 20);
    let query = "SELECT id, t, count(*) AS n FROM t GROUP BY id, t HAVING count(*) = 1 LIMIT 10";
    assert_eq!(answers(&fixture, ALWAYS, query).len(), 10);
    assert_eq!(fixture.rows("SELECT count(*) AS n FROM t"), ["60000"]);
}

#[test]
fn an_error_of_a_function_is_the_querys() {
    let fixture = with_budget(64 << 20);
    let query = "SELECT small, sum(9223372036854775807 - id) AS s FROM t GROUP BY small";
    for operators in [OFF, ALWAYS] {
        let sql = format!("SET hotshelf.star_pipelines = off; {operators} {query}");
        let error = fixture.error(&sql).to_string();
        assert!(
            error.contains("overflow") || error.contains("range"),
            "{error}"
        );
    }
}

#[test]
fn grouping_sets_are_made_of_groups_by_all_keys() {
    let db = Fixture::new();
    db.run("CREATE TABLE t AS SELECT value % 3 AS a, CASE WHEN value % 5 = 0 THEN NULL ELSE value % 5 END AS b,
            value AS v,
            CAST(value AS DECIMAL(9, 2)) / 4 AS d FROM generate_series(1, 9000) AS g(value)")
        .unwrap();
    let functions =
        "count(*) AS c, sum(v), avg(d), min(v), count(b), sum(v) FILTER (WHERE v < 100)";
    for (sets, split) in [
        ("ROLLUP (a, b)", true),
        ("CUBE (a, b)", true),
        ("GROUPING SETS ((a, b), (b), (a, b), ())", true),
        ("GROUPING SETS ((a), (b))", false),
    ] {
        for condition in ["v > 0", "v % 7 = 1", "v < 0"] {
            let grouped = |functions: &str| {
                format!(
                    "SELECT a, b, grouping(a, b) AS g, {functions} FROM t WHERE {condition} GROUP BY {sets}"
                )
            };
            // An ordered aggregate is not split.
            let ordered = grouped(&format!(
                "{functions}, array_length(array_agg(v ORDER BY v)) AS n"
            ));
            let names = "a, b, g, c, \"sum(t.v)\", \"avg(t.d)\", \"min(t.v)\", \"count(t.b)\"";
            let expected = format!("SELECT {names} FROM ({ordered}) ORDER BY g, a, b, c");
            let found = format!(
                "SELECT {names} FROM ({}) ORDER BY g, a, b, c",
                grouped(functions)
            );
            let plan = db.rows(&format!("EXPLAIN {found}")).join("\n");
            assert_eq!(plan.contains("mode=PartialReduce"), split, "{plan}");
            assert_eq!(plan.matches(" AggregateExec").count(), 0, "{plan}");
            assert_eq!(db.rows(&found), db.rows(&expected), "{found}");
        }
    }
}

#[test]
fn grouping_sets_take_any_number_of_groups() {
    let rich = with_budget(64 << 20);
    let poor = with_budget(1 << 20);
    for query in [
        "SELECT id, k, sum(d) AS s, grouping(id, k) AS g FROM t GROUP BY ROLLUP (id, k)",
        "SELECT id, t, count(*) AS n, min(t) AS l FROM t GROUP BY GROUPING SETS ((id), (t), (t), ())",
        "SELECT k, small, count(DISTINCT id) AS n FROM t GROUP BY CUBE (k, small)",
        "SELECT t, k + 1 AS l, max(f) AS m FROM t WHERE id < 0 GROUP BY GROUPING SETS ((t), (k + 1), ())",
        "SELECT small, sum(id) FILTER (WHERE k > 9) AS s FROM t WHERE id < 0 GROUP BY ROLLUP (small)",
        "SELECT small, k, count(*) AS n, avg(d) AS a, min(t) AS l, stddev(f) AS v, bool_or(k > 1) AS b FROM t \
         WHERE id < 0 GROUP BY GROUPING SETS ((small, k), (), (k), ())",
        "SELECT small, k, d, count(*) AS n, sum(id) AS s FROM t WHERE id % 9 = 0 GROUP BY CUBE (small, k, d)",
        // Each set's groups are made of another's.
        "SELECT small, t, k, id % 500 AS r, sum(d) AS s, count(*) AS n, avg(d) AS a, \
         grouping(small, t, k, id % 500) AS g FROM t GROUP BY ROLLUP (small, t, k, id % 500)",
        "SELECT k, t, small, min(id) AS l, count(d) AS n FROM t GROUP BY \
         GROUPING SETS ((t), (k, t, small), (small, t))",
        "SELECT small, k, t, sum(id) AS s, count(*) AS n FROM t WHERE id < 0 GROUP BY ROLLUP (small, k, t)",
    ] {
        let expected = answers(&rich, OFF, query);
        for threads in [1, 4] {
            let settings = format!("SET hotshelf.threads = {threads};");
            assert_eq!(answers(&rich, &settings, query), expected, "{query}");
            assert_eq!(answers(&poor, &settings, query), expected, "{query}");
        }
    }
}

/// Aggregates that keep every value, with and without groups; some groups have no values, some inputs no rows.
const KEEPING_VALUES: &[&str] = &[
    "SELECT count(DISTINCT id) AS i, count(DISTINCT t) AS t, sum(DISTINCT small) AS s, count(*) AS n, max(k) AS m \
     FROM t",
    "SELECT median(id) AS i, median(d) AS d, median(f) AS f, median(DISTINCT small) AS s, avg(DISTINCT d) AS a FROM t",
    "SELECT percentile_cont(0.3) WITHIN GROUP (ORDER BY f) AS p, percentile_cont(f, 0.9) AS q, \
     percentile_cont(0.31) WITHIN GROUP (ORDER BY id DESC) AS r, \
     count(DISTINCT t) FILTER (WHERE small > 3) AS n FROM t",
    "SELECT small, count(DISTINCT t) AS t, count(DISTINCT id) AS i, count(k) AS n FROM t GROUP BY small",
    "SELECT k % 3 AS r, t IS NULL AS e, median(id) AS m, min(DISTINCT t) AS l, count(DISTINCT small) AS s, \
     percentile_cont(0.77) WITHIN GROUP (ORDER BY id) AS p FROM t GROUP BY k % 3, t IS NULL",
    "SELECT small % 5 AS g, median(CASE WHEN small % 5 > 2 THEN d END) AS m, \
     percentile_cont(CASE WHEN small % 5 > 2 THEN f END, 0.4) AS p, median(id) FILTER (WHERE small > 9) AS i \
     FROM t GROUP BY small % 5",
    "SELECT count(DISTINCT id) AS i, median(d) AS m, percentile_cont(f, 0.4) AS p, \
     count(DISTINCT t) AS t FROM t WHERE id < 0",
    "SELECT k, median(d) AS m, count(DISTINCT t) AS t, count(DISTINCT id) AS i FROM t WHERE id < 0 GROUP BY k",
    "SELECT count(DISTINCT a.t) AS t, count(DISTINCT b.id) AS i, median(b.id) AS m \
     FROM t AS a JOIN t AS b ON a.id = b.k",
];

#[test]
fn values_that_are_kept_apart_come_to_the_same() {
    let fixture = with_budget(64 << 20);
    for query in KEEPING_VALUES {
        let expected = answers(&fixture, OFF, query);
        assert!(
            !expected.is_empty() || query.contains("GROUP BY"),
            "{query}"
        );
        assert_eq!(answers(&fixture, ALWAYS, query), expected, "{query}");
        let plan = answers(&fixture, &format!("{ALWAYS} EXPLAIN"), query).join("\n");
        assert!(plan.contains("__part_0"), "{query}: {plan}");
    }
}

#[test]
fn values_that_do_not_fit_are_kept_apart() {
    let rich = with_budget(64 << 20);
    let poor = with_budget(1 << 20);
    let mut refused = 0;
    for query in KEEPING_VALUES {
        let expected = answers(&rich, OFF, query);
        refused += usize::from(poor.run(&format!("{OFF} {query}")).is_err());
        assert_eq!(answers(&poor, "", query), expected, "{query}");
    }
    assert!(refused > 3, "{refused} need more memory than there is");
}
