//! Values of a column from dictionaries and indexes, beside those of all rows.

use super::*;

const OFF: &str =
    "SET hotshelf.operators = off; SET hotshelf.star_pipelines = off; SET hotshelf.elf = off;";

/// Two files of the same size, with NULLs, both zeros and a NaN.
fn with_rows() -> Fixture {
    let fixture = Fixture::with_little_memory(64 << 20, 2);
    let rows = "SELECT value AS id, CASE WHEN value % 11 = 0 THEN NULL ELSE 'text ' || (value % 40) END AS w, \
         CASE WHEN value % 13 = 0 THEN NULL ELSE value * 7919 % 50 END AS k, (value % 9) * 1000003 AS far, \
         CASE value % 5 WHEN 0 THEN '0.0'::double WHEN 1 THEN '-0.0'::double WHEN 2 THEN 'NaN'::double \
         ELSE (value % 5)::double END AS f, (value % 100)::decimal(10, 2) AS d, \
         ('2020-01-0' || (1 + value % 7))::date AS day, value % 3 = 1 AS b FROM range";
    fixture
        .run(&format!(
            "CREATE TABLE t AS {rows}(70000); INSERT INTO t {rows}(30000, 100000)"
        ))
        .unwrap();
    fixture
}

const COLUMNS: [&str; 7] = ["w", "k", "far", "f", "d", "day", "b"];

const QUERIES: &[&str] = &[
    "SELECT DISTINCT {c} AS v FROM t",
    "SELECT count(DISTINCT {c}) AS n FROM t",
    "SELECT min({c}) AS l, max({c}) AS h, count(DISTINCT {c}) AS n FROM t",
    "SELECT DISTINCT CAST({c} AS text) || '!' AS v FROM t WHERE {c} IS NOT NULL",
    "SELECT count(DISTINCT {c}) AS n FROM t WHERE {c} > (SELECT min({c}) FROM t)",
    "SELECT count(DISTINCT {c}) FILTER (WHERE {c} IS NOT NULL) AS n, max({c}) AS m FROM t",
    "SELECT max({c}) AS m, count(DISTINCT {c}) AS n FROM t WHERE {c} IS NULL",
    "SELECT {c} AS v FROM t UNION SELECT {c} AS v FROM t WHERE id < 5",
    "SELECT count(*) AS n FROM (SELECT DISTINCT {c} FROM t LIMIT 2) x",
    "SELECT DISTINCT {c} AS v FROM t ORDER BY v DESC NULLS LAST LIMIT 2 OFFSET 1",
    "SELECT {c} AS v, grouping({c}) AS g FROM t GROUP BY ROLLUP ({c})",
    "SELECT x.{c} AS v, count(*) AS n FROM t JOIN (SELECT DISTINCT {c} FROM t) x ON x.{c} = t.{c} GROUP BY x.{c}",
];

fn check(fixture: &Fixture, columns: &[&str]) {
    for column in columns {
        for query in QUERIES {
            let query = query.replace("{c}", column);
            let answer = |settings: &str| {
                let mut rows = fixture.rows(&format!("{settings} {query}"));
                rows.sort_unstable();
                rows
            };
            let expected = answer(OFF);
            for settings in ["", "SET hotshelf.threads = 1;"] {
                assert_eq!(answer(settings), expected, "{settings} {query}");
            }
        }
    }
}

/// The columns whose values are stored.
fn stored(fixture: &Fixture) -> Vec<&'static str> {
    let is_stored = |column: &&str| {
        let format = "SET datafusion.explain.format = 'indent'";
        let plan = fixture.rows(&format!(
            "{format}; EXPLAIN SELECT DISTINCT {column} FROM t"
        ));
        plan.join("\n").contains("StoredValuesExec")
    };
    COLUMNS.into_iter().filter(is_stored).collect()
}

#[test]
fn values_are_those_of_the_rows() {
    let fixture = with_rows();
    assert!(stored(&fixture).contains(&"w"));
    check(&fixture, &COLUMNS);
    for row in ["'one more' AS w, 1234 AS k, 17 AS f", "NULL AS w, -5 AS k"] {
        let sql = format!("INSERT INTO t SELECT * REPLACE ({row}) FROM t LIMIT 1");
        fixture.run(&sql).unwrap();
    }
    assert!(stored(&fixture).contains(&"w"));
    check(&fixture, &["w", "k", "f"]);
    assert_eq!(
        fixture.rows("SELECT count(DISTINCT w), max(w), min(w) FROM t"),
        ["41|text 9|one more"]
    );
}

#[test]
fn values_of_indexed_columns_are_those_of_the_rows() {
    let fixture = with_rows();
    fixture
        .run(
            "CREATE INDEX i ON t USING elf (k); CREATE INDEX j ON t USING elf (far); \
             CREATE INDEX l ON t USING elf (day, w)",
        )
        .unwrap();
    let columns = stored(&fixture);
    assert!(
        ["w", "k", "far"]
            .iter()
            .all(|column| columns.contains(column)),
        "{columns:?}"
    );
    check(&fixture, &COLUMNS);
    fixture
        .run("INSERT INTO t SELECT * REPLACE (id % 70 AS k, 'more ' || (id % 3) AS w) FROM t WHERE id < 300")
        .unwrap();
    assert_eq!(stored(&fixture), columns);
    check(&fixture, &["w", "k"]);
    fixture.run("OPTIMIZE TABLE t").unwrap();
    check(&fixture, &["w", "far"]);
}

#[test]
fn values_of_rows_in_the_order_of_an_index_are_those_of_the_rows() {
    let fixture = with_rows();
    fixture
        .run("CREATE INDEX i ON t USING elf (k, b) WITH (clustered = true)")
        .unwrap();
    check(&fixture, &COLUMNS);
}

#[test]
fn explain_says_why_values_are_read_from_rows() {
    let fixture = with_rows();
    let why = |query: &str| {
        let plan = fixture.rows(&format!("EXPLAIN VERBOSE {query}")).join("\n");
        let at = plan.find("the values of t.")?;
        let line = plan[at..].lines().next().unwrap_or_default();
        Some(line.trim_end_matches('|').trim_end().to_owned())
    };
    assert_eq!(why("SELECT DISTINCT w FROM t"), None);
    let reason = why("SELECT DISTINCT id FROM t").unwrap();
    assert_eq!(
        reason,
        "the values of t.id are read from all rows: neither dictionaries nor an index have them"
    );
}
