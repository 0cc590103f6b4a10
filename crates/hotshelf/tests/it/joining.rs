//! Joins: Hotshelf's own beside DataFusion's, with memory and without.

use super::*;

fn with_budget(bytes: u64) -> Fixture {
    let fixture = Fixture::with_little_memory(bytes, 2);
    let table = |name: &str, rows: u32, step: u32| {
        format!(
            "CREATE TABLE {name} AS SELECT value AS id, \
             CASE WHEN value % 17 = 0 THEN NULL WHEN value % 50 = 0 THEN 7 ELSE value * {step} % 4001 END AS k, \
             CASE WHEN value % 19 = 0 THEN NULL ELSE 'text ' || (value * {step} % 997) END AS t, \
             (value % 211)::decimal(10, 2) AS d, value % 31 AS small FROM range({rows})"
        )
    };
    fixture.run(&table("a", 2000, 3)).unwrap();
    fixture.run(&table("b", 3000, 7)).unwrap();
    fixture
}

const JOINS: &[&str] = &[
    "SELECT a.id, b.id AS o, b.t FROM a JOIN b ON a.k = b.k AND a.small = b.small",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.t = b.t AND a.id < b.id",
    "SELECT a.id, b.id AS o, b.d FROM a LEFT JOIN b ON a.k = b.k AND a.d = b.d",
    "SELECT a.id, b.id AS o, a.t FROM a RIGHT JOIN b ON a.k = b.k AND a.t = b.t AND a.small > 3",
    "SELECT a.id, b.id AS o FROM a FULL JOIN b ON a.id = b.k AND a.small < b.small",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.id = b.id",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.id % 100 = b.id % 90 AND a.small = b.small",
    "SELECT a.id, a.t FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.id > a.id)",
    "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.t = a.t AND b.small = a.small)",
    "SELECT a.id FROM a WHERE a.k IN (SELECT k FROM b WHERE small < 3)",
    "SELECT a.id FROM a WHERE a.id NOT IN (SELECT k FROM b WHERE k IS NOT NULL)",
    "SELECT a.id FROM a WHERE a.id NOT IN (SELECT k FROM b)",
    "SELECT a.id FROM a WHERE a.small = 1 OR EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.small = 2)",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.k = b.k JOIN b c ON c.id = a.id AND c.t = b.t",
    "SELECT count(*) AS n, sum(a.id) AS s FROM a JOIN b ON a.d = b.d",
    "SELECT g.k, count(*) AS n FROM (SELECT k, sum(id) AS s FROM a GROUP BY k) g JOIN b m ON m.k = g.k \
     JOIN b ON b.id = m.id GROUP BY g.k",
    "SELECT DISTINCT g.t FROM (SELECT t, count(*) AS n FROM b GROUP BY t) g JOIN a ON a.t = g.t",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.small = b.small WHERE a.id < 0",
];

/// By any comparison, or by none.
const KEYLESS_JOINS: &[&str] = &[
    "SELECT count(*) AS n, sum(a.id * b.id) AS s, min(b.t) AS t FROM a CROSS JOIN b",
    "SELECT a.id, b.id AS o, b.t FROM a JOIN b ON a.id > b.id * 600 AND a.t < b.t",
    "SELECT a.id, b.id AS o FROM a LEFT JOIN b ON a.id > b.id * 600 AND a.small > b.small",
    "SELECT a.id, b.id AS o FROM a RIGHT JOIN b ON a.id * 900 < b.id AND a.small > b.small",
    "SELECT a.id, b.id AS o, a.t FROM a FULL JOIN b ON a.id > b.id * 800 AND a.t <> b.t",
    "SELECT a.id FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k > a.k + 3000 AND b.t < a.t)",
    "SELECT a.id FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k > a.k + 500 AND b.t < a.t)",
    "SELECT a.id FROM a WHERE a.small = 1 OR EXISTS (SELECT 1 FROM b WHERE b.k > a.k + 3000 AND b.t < a.t)",
    "SELECT a.id, b.id AS o FROM a JOIN b ON a.id < b.id - 2990 WHERE b.id < 0",
];

pub(crate) fn answers(fixture: &Fixture, settings: &str, query: &str) -> Vec<String> {
    let mut rows = fixture.rows(&format!("{settings} {query}"));
    rows.sort_unstable();
    rows
}

#[test]
fn joins_give_the_rows_that_datafusions_give() {
    let fixture = with_budget(64 << 20);
    for query in JOINS {
        let theirs = "SET hotshelf.operators = off; SET hotshelf.star_pipelines = off;";
        let expected = answers(&fixture, theirs, query);
        for broadcast in [0, 1 << 30] {
            let own = format!(
                "SET hotshelf.operators = always; SET hotshelf.star_pipelines = off; \
                 SET datafusion.optimizer.hash_join_single_partition_threshold = {broadcast}; \
                 SET datafusion.optimizer.hash_join_single_partition_threshold_rows = {broadcast};"
            );
            let rows = answers(&fixture, &own, query);
            assert!(
                rows == expected,
                "{query}: {} rows, not {}",
                rows.len(),
                expected.len()
            );
        }
    }
}

#[test]
fn joins_give_the_same_rows_where_they_have_to_spill() {
    let rich = with_budget(64 << 20);
    let poor = with_budget(1 << 20);
    for query in JOINS.iter().chain(KEYLESS_JOINS) {
        let off = "SET hotshelf.operators = off;";
        let expected = answers(&rich, off, query);
        let own = "SET hotshelf.operators = always; SET hotshelf.star_pipelines = off;";
        assert!(answers(&poor, own, query) == expected, "{query}");
    }
}

#[test]
fn all_kinds_of_joins_are_replaced_unless_the_setting_says_no() {
    let fixture = with_budget(8 << 20);
    let own = "SET hotshelf.star_pipelines = off;";
    for query in JOINS {
        let always = format!("{own} SET hotshelf.operators = always; EXPLAIN {query}");
        let plan = fixture.rows(&always).join("\n");
        assert!(plan.contains("SpillingHashJoinExec"), "{query}: {plan}");
        let plan = fixture.rows(&format!("{own} EXPLAIN {query}")).join("\n");
        let is_by_text = query.contains(".t = ");
        let is_shared = plan.contains("SpillingHashJoinExec: mode=CollectLeft");
        assert!(is_shared || is_by_text, "{query}: {plan}");
        let off = format!("{own} SET hotshelf.operators = off; EXPLAIN {query}");
        let plan = fixture.rows(&off).join("\n");
        assert!(!plan.contains("SpillingHashJoinExec"), "{query}: {plan}");
    }
    let wide =
        "CREATE TABLE c AS SELECT value AS id, value * 3 AS x, value % 7 AS y FROM range(200000)";
    fixture.run(wide).unwrap();
    let no_stars = "SET hotshelf.star_pipelines = off;";
    let large =
        "SELECT count(*) AS n, sum(l.x + r.y) AS s FROM c l JOIN c r ON l.x = r.x AND l.id <= r.id";
    let plan = fixture
        .rows(&format!("{no_stars} EXPLAIN {large}"))
        .join("\n");
    assert!(plan.contains("SpillingHashJoinExec"), "{plan}");
    let sum: u64 = (0..200_000u64).map(|id| id * 3 + id % 7).sum();
    let rows = fixture.rows(&format!("{no_stars} {large}"));
    assert_eq!(rows, [format!("200000|{sum}")]);
}

#[test]
fn joins_without_keys_spill_where_a_side_does_not_fit() {
    let fixture = with_budget(2 << 20);
    for query in KEYLESS_JOINS {
        let plan = fixture.rows(&format!("EXPLAIN {query}")).join("\n");
        let is_theirs = plan.contains("CrossJoinExec") || plan.contains("NestedLoopJoinExec");
        assert!(is_theirs, "what fits is the engine's: {query}: {plan}");
        let always = format!("SET hotshelf.operators = always; EXPLAIN {query}");
        let plan = fixture.rows(&always).join("\n");
        assert!(plan.contains("SpillingHashJoinExec"), "{query}: {plan}");
    }
    let wide = "CREATE TABLE c AS SELECT value AS id, repeat('x', 2500) || (value + 1000) AS t FROM range(1000)";
    fixture.run(wide).unwrap();
    let cross =
        "SELECT count(*) AS n, length(min(l.t)) + length(max(r.t)) AS m FROM c l CROSS JOIN c r";
    let error = fixture.error(&format!("SET hotshelf.operators = off; {cross}"));
    assert!(error.to_string().contains("CrossJoin"), "{error}");
    assert_eq!(fixture.rows(cross), ["1000000|5008"]);
    // Of two rows in order, whose number is not known.
    let ordered =
        "SELECT r.value, length(min(c.t)) AS m FROM c CROSS JOIN range(2) r GROUP BY 1 ORDER BY 1";
    assert_eq!(fixture.rows(ordered), ["0|2504", "1|2504"]);
    let compared = format!("{cross} WHERE l.t <> r.t");
    assert_eq!(fixture.rows(&compared), ["999000|5008"]);
}

#[test]
fn a_query_that_runs_out_of_memory_begins_again_with_joins_that_spill() {
    let fixture = with_budget(4 << 20);
    let table =
        "CREATE TABLE c AS SELECT value AS id, repeat('x', 150) || value AS text FROM range(40000)";
    fixture.run(table).unwrap();
    // The statistics know neither the length of the texts nor that the conditions keep all of them.
    let sql = "SELECT count(*) AS n, sum(length(l.text || r.text)) AS bytes FROM c l JOIN c r \
        ON l.id = r.id AND l.text <= r.text WHERE length(l.text) > 3 AND length(r.text) > 3";
    let bytes: usize = (0..40_000)
        .map(|id: u32| 2 * (150 + id.to_string().len()))
        .sum();
    for stars in ["on", "off"] {
        let set = format!("SET hotshelf.star_pipelines = {stars};");
        let error = fixture.error(&format!("{set} SET hotshelf.operators = off; {sql}"));
        assert!(error.to_string().contains("HashJoinInput"), "{error}");
        let rows = fixture.rows(&format!("{set} {sql}"));
        assert_eq!(rows, [format!("40000|{bytes}")], "stars {stars}");
    }
    let explain = format!("SET hotshelf.star_pipelines = off; EXPLAIN ANALYZE {sql}");
    let analyzed = fixture.rows(&explain).join("\n");
    assert!(analyzed.contains("SpillingHashJoinExec"), "{analyzed}");
}

#[test]
fn rows_are_in_order_above_a_join_whatever_the_memory() {
    let sql = "SELECT b.small, b.id, a.id AS o FROM a JOIN b ON a.k = b.k ORDER BY b.small, b.id";
    let expected = with_budget(64 << 20).rows(&format!("SET hotshelf.operators = off; {sql}"));
    let keys = |rows: &[String]| -> Vec<String> {
        let key = |row: &String| row.rsplit_once('|').unwrap().0.to_owned();
        rows.iter().map(key).collect()
    };
    for budget in [1 << 20, 64 << 20] {
        let stars = "SET hotshelf.star_pipelines = off;";
        let fixture = with_budget(budget);
        let found = fixture.rows(&format!("{stars} {sql}"));
        assert_eq!(keys(&found), keys(&expected), "{budget}");
        let plan = fixture.rows(&format!("{stars} EXPLAIN {sql}")).join("\n");
        assert!(plan.contains("SpillingHashJoinExec"), "{plan}");
    }
}

#[test]
fn a_join_whose_other_side_is_ordered_spills() {
    let fixture = with_budget(1 << 20);
    let query = "SELECT a.id, a.t, r.k, r.n FROM a JOIN (SELECT k, row_number() OVER (PARTITION BY k ORDER BY id) AS n \
         FROM b) r ON a.k = r.k AND a.id >= r.n ORDER BY r.k, r.n, a.id";
    let stars = "SET hotshelf.star_pipelines = off;";
    let rich = with_budget(64 << 20);
    let expected = rich.rows(&format!("{stars} SET hotshelf.operators = off; {query}"));
    let own = format!("{stars} SET hotshelf.operators = always;");
    let plan = fixture.rows(&format!("{own} EXPLAIN {query}")).join("\n");
    assert!(plan.contains("SpillingHashJoinExec"), "{plan}");
    let rows = fixture.rows(&format!("{own} {query}"));
    assert!(
        rows == expected,
        "{} rows, not {}",
        rows.len(),
        expected.len()
    );
}

#[test]
fn a_limit_ends_a_spilling_join_early() {
    let fixture = with_budget(2 << 20);
    let sql = "SET hotshelf.operators = always; SET hotshelf.star_pipelines = off; \
        SELECT a.id, b.id AS o FROM a JOIN b ON a.small = b.small LIMIT 10";
    assert_eq!(fixture.rows(sql).len(), 10);
    assert_eq!(fixture.rows("SELECT count(*) AS n FROM a"), ["2000"]);
}

#[test]
fn keys_with_signed_zeros_and_nan_meet_as_in_datafusions_joins() {
    let fixture = with_budget(64 << 20);
    let sql = "SELECT a.n, b.n AS o FROM \
        (VALUES (1, 0.0::double), (2, -0.0::double), (3, 'NaN'::double), (4, NULL)) a(n, f) JOIN \
        (VALUES (1, 0.0::double), (2, -0.0::double), (3, 'NaN'::double), (4, NULL)) b(n, f) ON a.f = b.f";
    let stars = "SET hotshelf.star_pipelines = off;";
    let theirs = answers(
        &fixture,
        &format!("{stars} SET hotshelf.operators = off;"),
        sql,
    );
    let own = answers(
        &fixture,
        &format!("{stars} SET hotshelf.operators = always;"),
        sql,
    );
    assert_eq!(own, theirs);
}

#[test]
fn a_join_that_compares_in_silence_ends_when_its_answer_is_dropped() {
    let fixture = with_budget(64 << 20);
    let session = fixture.database().session();
    // Ten thousand million pairs, none of which passes.
    let sql = "SET hotshelf.operators = always; SET hotshelf.star_pipelines = off; SELECT count(*) AS n FROM \
        (SELECT value AS id, value % 1 AS k FROM range(100000)) a JOIN \
        (SELECT value AS id, value % 1 AS k FROM range(100000)) b ON a.k = b.k AND a.id + b.id < 0";
    fixture.database().block_on(async {
        let mut answer = session.sql(sql).await.unwrap();
        let wait = std::time::Duration::from_millis(300);
        let early = tokio::time::timeout(wait, answer.next()).await;
        assert!(early.is_err(), "{early:?}");
    });
    // What the join holds is given back when its work has ended.
    let held = "SELECT operator_bytes FROM cache_stats()";
    for _ in 0..600 {
        if fixture.rows(held) == ["0"] {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the join goes on without a reader");
}

#[test]
fn a_spilling_join_narrows_the_scan_of_its_other_side() {
    let fixture = Fixture::new();
    fixture
        .run(
            "CREATE TABLE t AS SELECT value AS a, value::text AS s FROM generate_series(1, 400000) AS g(value); \
             CREATE TABLE b AS SELECT value % 100 AS k, value AS n FROM range(1000)",
        )
        .unwrap();
    let plan_of = |condition: &str| {
        let plan = fixture.rows(&format!(
            "SET hotshelf.operators = always; SET hotshelf.star_pipelines = off; \
             EXPLAIN ANALYZE SELECT count(*), sum(n) FROM b JOIN t ON b.k = t.a WHERE {condition}"
        ));
        plan.join("\n")
    };
    let few = plan_of("n < 500");
    assert!(few.contains("SpillingHashJoinExec"), "{few}");
    assert!(few.contains("row_groups_pruned=3"), "{few}");
    let none = plan_of("n % 7 > 10");
    let scan = none.lines().find(|line| line.contains("table=t"));
    let scan = scan.unwrap_or_default();
    assert!(
        scan.contains("output_rows=0") && scan.contains("bytes_cache=0"),
        "{none}"
    );
    assert!(scan.contains("bytes_storage=0"), "not read at all: {none}");
}

#[test]
fn a_scan_tests_the_keys_of_joins_above_before_it_decodes_more() {
    let fixture = Fixture::new();
    // Keys as they are stored in any way: runs, codes, packed, with NULLs.
    fixture
        .run(
            "CREATE TABLE facts AS SELECT value AS id, CASE WHEN value % 29 = 3 THEN NULL ELSE value / 40 END AS run, \
             CASE WHEN value % 31 = 5 THEN NULL ELSE CAST(value * 7919 % 5003 AS INT) END AS few, \
             date '2020-01-01' + CAST(value % 700 AS INT) AS day, concat('a text ', value % 97) AS s, \
             value % 6007 * 1000000007 AS far FROM range(150000); \
             CREATE TABLE far AS SELECT value * 1000000007 AS far, date '2020-01-01' + CAST(value % 9 AS INT) AS day \
             FROM range(80); \
             CREATE TABLE picks AS SELECT CASE WHEN value % 7 = 1 THEN NULL ELSE value * 131 % 4000 END AS run, \
             CAST(value * 131 * 40 * 7919 % 5003 AS INT) AS few, date '2020-01-01' + CAST(value % 40 AS INT) AS day, \
             value % 5 AS n FROM range(300)",
        )
        .unwrap();
    let queries = [
        "SELECT count(*), sum(id), min(s) FROM facts f JOIN picks p ON f.run = p.run AND f.few = p.few",
        "SELECT count(*), sum(id), max(s) FROM facts f JOIN picks p ON f.run = p.run AND f.day = p.day WHERE n < 3",
        "SELECT count(*), sum(id), max(s) FROM picks p LEFT JOIN facts f ON f.few = p.few AND f.day = p.day",
        "SELECT count(*), sum(id), max(s) FROM facts f RIGHT JOIN picks p ON f.run = p.run AND id % 3 < n",
        "SELECT count(*), sum(n) FROM picks p WHERE EXISTS (SELECT 1 FROM facts f WHERE f.run = p.run AND f.id > n)",
        "SELECT count(*), sum(id), max(s) FROM facts f WHERE NOT EXISTS \
         (SELECT 1 FROM picks p WHERE f.run = p.run AND f.few = p.few)",
        "SELECT count(*), sum(id) FROM facts f JOIN picks p ON f.few = p.few AND f.day = p.day WHERE n > 9",
        "SELECT count(*), sum(f.id), max(f.s) FROM facts f JOIN picks p ON f.run = p.run AND f.few = p.few \
         JOIN picks q ON q.day = f.day AND q.run > f.run",
        "SELECT count(*), sum(id), min(s) FROM facts f JOIN far p ON f.far = p.far AND f.day = p.day",
    ];
    let mut tested = 0;
    for sql in queries {
        let without = "SET datafusion.optimizer.enable_dynamic_filter_pushdown = false; \
             SET hotshelf.star_pipelines = off; ";
        let expected = fixture.rows(&format!("{without}{sql}"));
        for setting in ["on", "always"] {
            let set = format!("SET hotshelf.operators = {setting}; ");
            assert_eq!(fixture.rows(&format!("{set}{sql}")), expected, "{sql}");
            let plan = fixture.rows(&format!("{set}EXPLAIN ANALYZE {sql}"));
            tested += usize::from(plan.join("\n").contains("keys of joins above kept"));
        }
    }
    assert!(tested >= 6, "{tested}");
}

/// Many rows, of which some have NULL for a key, and few rows without such and with.
fn with_facts() -> Fixture {
    let fixture = Fixture::new();
    let statements = [
        "CREATE TABLE facts AS SELECT value AS id, CASE WHEN value % 29 = 3 THEN NULL ELSE value / 40 END AS run, \
         CASE WHEN value % 31 = 5 THEN NULL ELSE value * 7919 % 5003 END AS few FROM range(150000)",
        "CREATE TABLE whole AS SELECT value * 131 % 4000 AS run, value * 37 % 5003 AS few FROM range(300)",
        "CREATE TABLE gaps AS SELECT CASE WHEN value % 7 = 1 THEN NULL ELSE run END AS run, few FROM \
         (SELECT value, value * 131 % 4000 AS run, value * 37 % 5003 AS few FROM range(300))",
    ];
    statements
        .iter()
        .for_each(|sql| drop(fixture.run(sql).unwrap()));
    fixture
}

/// For each scan that tested rows by the keys of joins above: how many rows it kept, and of how many. The answer is
/// that of scans that learn nothing.
pub(crate) fn kept_by_keys(fixture: &Fixture, more: &str, sql: &str) -> Vec<(u64, u64)> {
    let without = "SET datafusion.optimizer.enable_dynamic_filter_pushdown = false; \
        SET hotshelf.star_pipelines = off;";
    let expected = answers(fixture, without, sql);
    assert!(!expected.is_empty(), "{sql}");
    let own = &format!("SET hotshelf.operators = always; {more}");
    // Each thread joins keys of its own.
    let apart = "SET datafusion.optimizer.hash_join_single_partition_threshold = 0; \
        SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0;";
    for settings in [own, &format!("{own} {apart}")] {
        let rows = answers(fixture, settings, sql);
        assert!(rows == expected, "{settings} {sql}: {} rows", rows.len());
    }
    let plan = fixture
        .rows(&format!("{own} EXPLAIN ANALYZE {sql}"))
        .join("\n");
    let counts = plan
        .split("keys of joins above kept ")
        .skip(1)
        .map(|counts| {
            let mut numbers = counts.split(|c: char| !c.is_ascii_digit());
            let mut next = || {
                numbers
                    .find_map(|number| number.parse::<u64>().ok())
                    .unwrap()
            };
            (next(), next())
        });
    counts.collect()
}

#[test]
fn keys_of_joins_that_take_nulls_for_equal_narrow_scans_unless_they_have_nulls() {
    let fixture = with_facts();
    let narrowed = [
        "SELECT run FROM facts WHERE id > -1 INTERSECT SELECT run FROM whole",
        "SELECT run FROM whole EXCEPT SELECT run FROM facts WHERE id > -1",
        "SELECT count(*), sum(f.id) FROM facts f JOIN whole w ON f.run IS NOT DISTINCT FROM w.run",
        "SELECT count(*), sum(f.id) FROM whole w LEFT JOIN facts f ON f.run IS NOT DISTINCT FROM w.run",
        "SELECT count(*), sum(n) FROM (SELECT run, id % 7 AS n FROM facts) f JOIN whole w \
         ON f.run IS NOT DISTINCT FROM w.run",
        // By the second key alone.
        "SELECT run, few FROM facts INTERSECT SELECT run, few FROM gaps",
        "SELECT count(*), sum(f.id) FROM facts f JOIN gaps g \
         ON f.run IS NOT DISTINCT FROM g.run AND f.few IS NOT DISTINCT FROM g.few",
    ];
    for sql in narrowed {
        let kept = kept_by_keys(&fixture, "", sql);
        assert!(
            matches!(kept[..], [(kept, of)] if kept * 5 < of),
            "{sql}: {kept:?}"
        );
    }
    let not_narrowed = [
        "SELECT run FROM facts WHERE id > -1 INTERSECT SELECT run FROM gaps",
        "SELECT run FROM gaps EXCEPT SELECT run FROM facts WHERE id > -1",
        "SELECT run FROM gaps EXCEPT SELECT run FROM facts WHERE run IS NOT NULL AND id > -1",
        "SELECT count(*), sum(f.id) FROM facts f JOIN gaps g ON f.run IS NOT DISTINCT FROM g.run",
        // Rows without a partner are wanted.
        "SELECT run FROM facts WHERE id > -1 EXCEPT SELECT run FROM whole",
        "SELECT count(*), sum(f.id) FROM facts f FULL JOIN whole w ON f.run IS NOT DISTINCT FROM w.run",
    ];
    for sql in not_narrowed {
        let kept = kept_by_keys(&fixture, "", sql);
        assert!(kept.is_empty(), "{sql}: {kept:?}");
    }
    let has_null = |sql: &str| fixture.rows(sql).contains(&String::new());
    assert!(!has_null(narrowed[0]) && !has_null(not_narrowed[1]));
    for with_null in [0, 2, 4] {
        assert!(has_null(not_narrowed[with_null]), "{with_null}");
    }
}

#[test]
fn scans_below_a_union_test_the_keys_of_a_join_above() {
    let fixture = with_facts();
    let of_union = |union: &str, on: &str| {
        let sql =
            format!("SELECT count(*), sum(n), min(tag) FROM ({union}) u JOIN whole w ON {on}");
        kept_by_keys(&fixture, "", &sql)
    };
    let stored =
        "SELECT run, id AS n, 1 AS tag FROM facts UNION ALL SELECT few, id * 2, 74 FROM facts";
    for on in ["u.run = w.run", "u.run = w.run AND u.tag = w.few"] {
        let kept = of_union(stored, on);
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(
            kept.iter().all(|(kept, of)| kept * 5 < *of),
            "{on}: {kept:?}"
        );
    }
    let computed = "SELECT run, id AS n, 1 AS tag FROM facts UNION ALL SELECT few - 7, id, 2 FROM facts \
        UNION ALL SELECT 131, id, 3 FROM facts";
    let kept = of_union(computed, "u.run = w.run");
    assert_eq!(kept.len(), 1, "only one of them has the key: {kept:?}");
}

#[test]
fn keys_of_a_join_above_narrow_both_sides_of_a_join_below() {
    let fixture = with_facts();
    let order = "SET hotshelf.join_order = off;";
    for key in ["a.run", "b.run"] {
        let sql = format!(
            "SELECT count(*), sum(f.n) FROM whole w JOIN (SELECT {key}, a.id + b.id AS n FROM facts a JOIN facts b \
             ON a.run = b.run AND a.few = b.few) f ON w.run = f.run"
        );
        let kept = kept_by_keys(&fixture, order, &sql);
        assert_eq!(kept.len(), 2, "{key}: {kept:?}");
        assert!(
            kept.iter().all(|(kept, of)| kept * 5 < *of),
            "{key}: {kept:?}"
        );
    }
    // Rows of the side that is kept whole are not dropped.
    let outer = "SELECT count(*), count(f.run), sum(f.n) FROM whole w JOIN (SELECT b.run, a.id + b.id AS n \
        FROM facts a RIGHT JOIN facts b ON a.run = b.run AND a.few = b.few + 1) f ON w.run = f.run";
    let kept = kept_by_keys(&fixture, order, outer);
    assert!(!kept.is_empty(), "{kept:?}");
}
