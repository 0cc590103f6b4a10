//! ORDER BY of all rows: Hotshelf's own sort, beside DataFusion's, with little memory.

use super::*;

fn with_budget(bytes: u64) -> Fixture {
    Fixture::with_little_memory(bytes, 2)
}

/// Rows of many types, with NULLs, equal keys, signed zeros and NaN.
const ROWS: &str = "CREATE TABLE t AS SELECT value AS id, \
    CASE WHEN value % 7 = 0 THEN NULL ELSE value * 7919 % 10007 END AS number, \
    CASE value % 11 WHEN 0 THEN 'NaN'::double WHEN 1 THEN -0.0 WHEN 2 THEN 0.0 WHEN 3 THEN NULL \
        ELSE (value * 31 % 1009) / 8.0 - 60 END AS float, \
    CASE WHEN value % 13 = 0 THEN NULL ELSE repeat(chr((97 + value % 26)::int), (value % 40)::int) END AS text, \
    (value % 97)::decimal(12, 2) / 4 AS price, value % 3 = 0 AS flag, \
    DATE '2020-01-01' + (value % 700)::int AS day FROM range(30000)";

#[test]
fn rows_come_in_the_order_that_datafusions_sort_gives_them() {
    let fixture = with_budget(64 << 20);
    fixture.run(ROWS).unwrap();
    let orders = [
        "id DESC",
        "number, id",
        "number DESC NULLS LAST, text NULLS FIRST, id",
        "float NULLS FIRST, id DESC",
        "text DESC, float, id",
        "flag, price DESC, day, id",
        "number % 10, length(text) DESC, id",
        "price + number, upper(text), id",
    ];
    for order in orders {
        let rows = |switch: &str| {
            let sql = format!(
                "SET hotshelf.operators = {switch}; SELECT id, number, float, text FROM t ORDER BY {order}"
            );
            fixture.rows(&sql)
        };
        let own = rows("on");
        assert_eq!(own.len(), 30000, "{order}");
        assert!(own == rows("off"), "{order}");
    }
}

#[test]
fn windows_and_merge_joins_sort_their_input() {
    let fixture = with_budget(64 << 20);
    fixture.run(ROWS).unwrap();
    let queries = [
        "SELECT id, row_number() OVER (PARTITION BY text ORDER BY number, id) AS n, \
         sum(id) OVER (ORDER BY float, id ROWS 3 PRECEDING) AS s FROM t ORDER BY id",
        "SELECT a.id, b.id AS other FROM (SELECT id, number FROM t ORDER BY number, id LIMIT 3000) a \
         JOIN t b ON a.number = b.number ORDER BY a.id, other",
        "SELECT text, array_agg(id ORDER BY number DESC, id) AS ids FROM t GROUP BY text ORDER BY text",
    ];
    for query in queries {
        for joins in ["true", "false"] {
            let rows = |switch: &str| {
                let sql = format!(
                    "SET datafusion.optimizer.prefer_hash_join = {joins}; SET hotshelf.operators = {switch}; {query}"
                );
                fixture.rows(&sql)
            };
            assert!(rows("on") == rows("off"), "{query}");
        }
    }
}

#[test]
fn columns_that_a_merging_join_compares_are_in_orders_of_their_own() {
    let db = Fixture::new();
    db.run("CREATE TABLE a AS SELECT value * 11 AS x FROM range(1, 5)")
        .unwrap();
    db.run("CREATE TABLE b AS SELECT value * 44 + 11 AS y FROM range(2)")
        .unwrap();
    let merging = |sql: &str| {
        let set = "SET datafusion.optimizer.enable_piecewise_merge_join = true";
        db.rows(&format!("{set}; {sql}"))
    };
    let query = "SELECT x, y FROM b JOIN a ON y < x ORDER BY x";
    let plan = merging(&format!("EXPLAIN FORMAT INDENT {query}")).join("\n");
    assert!(plan.contains("PiecewiseMergeJoin"), "{plan}");
    assert_eq!(merging(query), ["22|11", "33|11", "44|11"]);
}

#[test]
fn the_plan_says_whose_sort_it_is() {
    let fixture = with_budget(64 << 20);
    let plan = |sql: &str| fixture.rows(sql).join("\n");
    let all = "EXPLAIN SELECT value FROM range(1000000) ORDER BY value % 10";
    let is_own = |plan: &str| plan.contains("SharedSort") || plan.contains("SpillingSort");
    assert!(plan(all).contains("SpillingSortExec: expr=["));
    let off = format!("SET hotshelf.operators = off; {all}");
    assert!(!is_own(&plan(&off)));
    let first = plan(&format!("{all} LIMIT 5"));
    assert!(!is_own(&first), "the first rows need no memory");
    let many = plan(&format!("{all} LIMIT 5000"));
    assert!(many.contains("SpillingSortExec: fetch=5000"), "{many}");
}

/// 400 000 rows in a table, which several workers scan.
const MANY_ROWS: &str = "CREATE TABLE many AS SELECT value AS id, value * 7919 % 100003 AS number, value % 3 AS few, \
    CASE WHEN value % 5 = 0 THEN NULL ELSE 'text ' || (value * 31 % 60013) END AS text FROM range(400000)";

#[test]
fn workers_that_share_a_sort_give_the_order_of_datafusions_whatever_the_memory() {
    let fixtures = [with_budget(256 << 20), with_budget(4 << 20)];
    for fixture in &fixtures {
        fixture.run(MANY_ROWS).unwrap();
    }
    let numbered = |order: &str, rest: &str| {
        format!(
            "SELECT count(*), sum(n % 1000 * id), max(n) FROM \
             (SELECT id, row_number() OVER (ORDER BY {order}) AS n FROM many) x {rest}"
        )
    };
    for sql in [
        numbered("number, id", ""),
        numbered("few DESC, id DESC", ""),
        numbered("text DESC NULLS LAST, few, id", ""),
        numbered("number % 10, length(text), id", ""),
        numbered("number, id", "WHERE n > 350000"),
        "SELECT id, text FROM many ORDER BY text, id LIMIT 9000 OFFSET 7000".to_owned(),
        "SELECT id FROM many WHERE id < 0 ORDER BY text, id".to_owned(),
        "SELECT id, number FROM many WHERE id % 100 = 7 ORDER BY number, id".to_owned(),
    ] {
        let rows = |fixture: &Fixture, operators: &str| {
            fixture.rows(&format!("SET hotshelf.operators = {operators}; {sql}"))
        };
        let expected = rows(&fixtures[0], "off");
        for fixture in &fixtures {
            assert!(rows(fixture, "on") == expected, "{sql}");
        }
    }
}

#[test]
fn a_shared_sort_is_in_the_plan_and_says_what_it_did() {
    let analyze = |budget_bytes: u64| {
        let fixture = with_budget(budget_bytes);
        fixture.run(MANY_ROWS).unwrap();
        let sql = "EXPLAIN ANALYZE SELECT id, text FROM many ORDER BY text, id";
        let plan = fixture.rows(sql).join("\n");
        assert!(!plan.contains("SortPreservingMerge"), "{plan}");
        let line = plan
            .lines()
            .find(|line| line.contains("SharedSortExec: expr=["));
        line.unwrap_or_else(|| panic!("{plan}")).to_owned()
    };
    let (rich, poor) = (analyze(256 << 20), analyze(4 << 20));
    assert!(rich.contains("spill_count=0"), "{rich}");
    assert!(!poor.contains("spill_count=0"), "{poor}");
    assert!(rich.contains("output_rows=400"), "{rich}");
    assert!(poor.contains("output_rows=400"), "{poor}");
}

#[test]
fn a_shared_sort_that_fails_or_is_not_read_to_its_end_gives_its_memory_back() {
    for budget_bytes in [4 << 20, 256 << 20] {
        let fixture = with_budget(budget_bytes);
        fixture.run(MANY_ROWS).unwrap();
        let sql = "SELECT id, 10 / (id - 350000) AS n FROM many ORDER BY n, text";
        let error = fixture.error(sql).to_string();
        assert!(error.contains("Divide by zero"), "{error}");
        let first = "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY text, id) AS n FROM many) x \
                     WHERE n > 5 LIMIT 3";
        assert_eq!(fixture.rows(first).len(), 3);
        // Tasks end a moment after the answer.
        let is_free = || {
            std::thread::sleep(std::time::Duration::from_millis(5));
            operator_bytes(&fixture) < 64 << 10
        };
        assert!((0..200).any(|_| is_free()));
        assert_eq!(
            fixture.rows("SELECT spill_used_bytes FROM io_stats()"),
            ["0"]
        );
    }
}

#[test]
fn many_first_rows_of_rows_in_order_read_a_part_of_the_table() {
    let fixture = with_budget(64 << 20);
    // More bytes than a scan reads ahead.
    fixture
        .run(
            "CREATE TABLE t AS SELECT value AS id, CASE WHEN value < 500 THEN NULL ELSE -value END AS down, \
             md5(CAST(value AS VARCHAR)) AS text FROM range(1000000)",
        )
        .unwrap();
    for order in ["id", "down DESC, id", "down DESC NULLS LAST, id"] {
        let sql = format!(
            "SELECT count(*), sum(id), max(text) FROM (SELECT * FROM t ORDER BY {order} LIMIT 6000 OFFSET 1000)"
        );
        let sorted = fixture.rows(&format!("SET hotshelf.operators = off; {sql}"));
        assert_eq!(
            fixture.rows(&format!("SET hotshelf.operators = on; {sql}")),
            sorted,
            "{order}"
        );
        let plan = fixture.rows(&format!("EXPLAIN ANALYZE {sql}")).join("\n");
        assert!(plan.contains("SharedSortExec: fetch=7000"), "{plan}");
        let pruned = plan.split("row_groups_pruned=").nth(1).and_then(|rest| {
            let digits = rest.split(|digit: char| !digit.is_ascii_digit()).next()?;
            digits.parse::<u64>().ok()
        });
        assert!(pruned > Some(0), "{plan}");
    }
}

/// Several files of many row groups. `late` is NULL in few of them, `sparse` in all.
fn scattered() -> Fixture {
    let fixture = Fixture::with(Options {
        budget_bytes: 12 << 20,
        operator_bytes_min: 2 << 20,
        threads: 2,
        merge_files: false,
        ..Options::default()
    });
    let rows = |from: u32| {
        let to = from + 39_999;
        format!(
            "SELECT value AS id, value * 48271 % 2147483647 AS shuffled, value / 1000 AS rising, value % 3 AS few, \
             CASE WHEN value % 4999 = 7 THEN NULL ELSE value * 48271 % 999983 END AS sparse, \
             CASE WHEN value >= 50000 AND value < 50020 THEN NULL ELSE -value END AS late, \
             md5(CAST(value AS VARCHAR)) AS text, DATE '2020-01-01' + (value * 31 % 9973)::int AS day, \
             CAST(value AS DOUBLE) AS float FROM generate_series({from}, {to}) AS g(value)"
        )
    };
    let create = format!("CREATE TABLE t AS {}", rows(40_000));
    fixture.run(&create).unwrap();
    for from in [80_000, 0] {
        fixture
            .run(&format!("INSERT INTO t {}", rows(from)))
            .unwrap();
    }
    fixture
        .run("CREATE TABLE d AS SELECT value AS k, value * 10 AS tens FROM range(2)")
        .unwrap();
    fixture
}

/// Row groups that the scans of a statement skipped.
fn pruned_row_groups(fixture: &Fixture, sql: &str) -> u64 {
    let plan = fixture.rows(&format!("EXPLAIN ANALYZE {sql}")).join("\n");
    let counts = plan.split("row_groups_pruned=").skip(1);
    let count = |rest: &str| {
        let digits = rest.split(|digit: char| !digit.is_ascii_digit()).next()?;
        digits.parse::<u64>().ok()
    };
    counts.filter_map(count).sum()
}

#[test]
fn first_rows_are_the_same_whichever_row_groups_are_read_first() {
    let fixture = scattered();
    let without = "SET datafusion.optimizer.enable_topk_dynamic_filter_pushdown = false;";
    let check = |sql: &str| {
        let expected = fixture.rows(&format!("{without} {sql}"));
        assert_eq!(fixture.rows(sql), expected, "{sql}");
    };
    for order in [
        "shuffled DESC, id",
        "shuffled, id DESC",
        "rising DESC, id DESC",
        "rising, float",
        "few DESC, id",
        "sparse DESC NULLS FIRST, id",
        "sparse NULLS FIRST, id DESC",
        "sparse DESC NULLS LAST, id",
        "sparse NULLS LAST, id",
        "late NULLS FIRST, id",
        "late DESC NULLS LAST, id",
        "text DESC, id",
        "day, id",
        "float DESC",
    ] {
        for (limit, offset) in [(1, 0), (30, 5), (5000, 0)] {
            let sql = format!(
                "SELECT id, sparse, late, text FROM t ORDER BY {order} LIMIT {limit} OFFSET {offset}"
            );
            check(&sql);
        }
        for star_pipelines in ["on", "off"] {
            let sql = format!(
                "SET hotshelf.star_pipelines = {star_pipelines}; \
                 SELECT id, tens FROM t JOIN d ON t.few = d.k WHERE id % 5 > 0 ORDER BY {order} LIMIT 20"
            );
            check(&sql);
        }
    }
    // Only the key is certain where it is equal.
    check("SELECT few FROM t ORDER BY few DESC LIMIT 10");
    check("SELECT late FROM t ORDER BY late NULLS FIRST LIMIT 25");
}

#[test]
fn row_groups_without_first_rows_are_skipped_wherever_they_lie() {
    let fixture = scattered();
    let all = pruned_row_groups(&fixture, "SELECT count(*) FROM t WHERE id < -1");
    assert!(all >= 12, "{all} row groups");
    for order in [
        "shuffled DESC",
        "shuffled DESC, id",
        "shuffled, float",
        "rising DESC, id DESC",
        "rising, id",
        "late NULLS FIRST, id",
        "late DESC NULLS LAST, id",
        "text, id",
    ] {
        let sql = format!("SELECT id, text FROM t ORDER BY {order} LIMIT 3");
        let pruned = pruned_row_groups(&fixture, &sql);
        assert!(2 * pruned > all, "{pruned} of {all}: {order}");
    }
}

#[test]
fn only_scans_whose_rows_come_to_the_sort_are_read_in_another_order() {
    let fixture = scattered();
    let plan = |sql: &str| fixture.rows(&format!("EXPLAIN {sql}")).join("\n");
    let greatest = plan("SELECT id FROM t ORDER BY shuffled DESC, id LIMIT 3");
    assert!(greatest.contains("first=greatest shuffled"), "{greatest}");
    let least = plan("SELECT id AS n FROM t WHERE few < 2 ORDER BY n LIMIT 5000");
    assert!(least.contains("first=least id"), "{least}");
    for sql in [
        "SELECT id FROM t ORDER BY shuffled DESC, id",
        "SELECT id FROM t LIMIT 3",
        "SELECT id FROM (SELECT id FROM t LIMIT 100) ORDER BY id LIMIT 3",
        "SELECT few, count(*) AS n FROM t GROUP BY few ORDER BY few DESC LIMIT 2",
        "SELECT id FROM t ORDER BY id % 10, id LIMIT 3",
        "SELECT id FROM t ORDER BY float DESC LIMIT 3",
    ] {
        let plan = plan(sql);
        assert!(!plan.contains("first="), "{plan}");
    }
}

#[test]
fn many_first_rows_are_those_of_the_whole_order() {
    for budget_bytes in [4 << 20, 64 << 20] {
        let fixture = with_budget(budget_bytes);
        fixture.run(ROWS).unwrap();
        for order in [
            "number DESC NULLS LAST, text, id",
            "float, id DESC",
            "text DESC, id",
            "id",
        ] {
            let all = fixture.rows(&format!("SELECT id, text FROM t ORDER BY {order}"));
            for (limit, offset) in [(4097, 0), (9000, 5000), (20_000, 15_000), (90_000, 0)] {
                let sql = format!(
                    "SELECT id, text FROM t ORDER BY {order} LIMIT {limit} OFFSET {offset}"
                );
                let end = all.len().min(offset + limit);
                assert!(fixture.rows(&sql) == all[offset..end], "{sql}");
            }
        }
        let sorted = "SELECT count(*), min(id), max(id) FROM (SELECT id FROM \
                      (SELECT id FROM t ORDER BY id LIMIT 8000) ORDER BY id LIMIT 6000)";
        assert_eq!(fixture.rows(sorted), ["6000|0|5999"]);
    }
}

#[test]
fn sorts_side_by_side_spill_where_datafusions_fail() {
    let fixture = with_budget(6 << 20);
    let numbered = |order: &str, text: &str| {
        format!(
            "(SELECT row_number() OVER (ORDER BY {order}, text) AS n, text FROM \
             (SELECT value, repeat('{text}', 50) || value AS text FROM range(200000)))"
        )
    };
    let (one, other) = (numbered("value % 1009", "x"), numbered("value % 997", "y"));
    let sql = format!(
        "SELECT count(*), sum(length(a.text) + length(b.text)) FROM {one} a FULL JOIN {other} b ON a.n = b.n"
    );
    let merge = "SET datafusion.optimizer.prefer_hash_join = false;";
    let digits: u64 = (0..200_000u64)
        .map(|value| value.to_string().len() as u64)
        .sum();
    let expected = format!("200000|{}", 2 * (200_000 * 50 + digits));
    assert_eq!(fixture.rows(&format!("{merge} {sql}")), [expected]);
    let explain = format!("{merge} EXPLAIN ANALYZE {sql}");
    let ran = fixture.rows(&explain).join("\n");
    assert!(ran.contains("SharedSortExec"), "{ran}");
    let spills = |text: &str| {
        let counts = text.split("spill_count=").skip(1);
        let count = |rest: &str| rest.split([',', ']', ' ']).next()?.parse::<u64>().ok();
        counts.filter_map(count).sum::<u64>()
    };
    assert!(spills(&ran) > 2, "{ran}");
    let counted = "SELECT spilled_raw_bytes > 0, unspilled_bytes > 0, \
                   written_bytes >= spilled_bytes, spill_used_bytes, spill_used_bytes_max > 0 FROM io_stats()";
    assert_eq!(fixture.rows(counted), ["true|true|true|0|true"]);
}

#[test]
fn a_full_spill_folder_ends_the_query_and_says_what_was_needed() {
    let fixture = Fixture::with(Options {
        budget_bytes: 4 << 20,
        operator_bytes_min: 2 << 20,
        spill_bytes_max: Some(1 << 20),
        ..Options::default()
    });
    fixture
        .run("CREATE TABLE digests AS SELECT value, sha256(value::text) AS digest FROM range(400000)")
        .unwrap();
    fixture
        .run("CREATE TABLE clustered CLUSTER BY elf (digest) AS SELECT * FROM digests LIMIT 10")
        .unwrap();
    for sql in [
        "SELECT value, digest FROM digests ORDER BY digest",
        "SELECT a.value, b.value FROM digests a JOIN digests b ON a.digest = b.digest",
        "CREATE TABLE sorted CLUSTER BY elf (digest) AS SELECT * FROM digests",
        "INSERT INTO clustered SELECT value, digest FROM digests",
    ] {
        let error = fixture.error(sql);
        let text = error.to_string();
        assert!(text.contains("may spill 1048576 bytes"), "{text}");
        let keeps = text.split("keep are about ").nth(1);
        let keeps = keeps.and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(keeps > Some(400_000 * 16), "{text}");
        assert_eq!(error.code(), "spill_limit");
    }
    let error = fixture.error("SELECT value FROM digests ORDER BY digest");
    assert!(error.hint().is_some_and(|hint| hint.contains("budget")));
    assert_eq!(
        fixture.rows("SELECT count(*) FROM clustered"),
        ["10"],
        "others go on"
    );
}
