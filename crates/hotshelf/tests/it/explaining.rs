//! What EXPLAIN shows people and tools.

use arrow::array::AsArray;

use super::*;

const QUERY: &str = "SELECT region, count(*) AS n, sum(price) AS s FROM sales JOIN shops ON sales.shop = shops.shop \
    WHERE day < 30 GROUP BY region ORDER BY s DESC LIMIT 3";

fn with_sales() -> Fixture {
    let fixture = Fixture::new();
    fixture
        .run(
            "CREATE TABLE sales AS SELECT value AS id, value % 1000 AS shop, value % 365 AS day, value % 97 AS price
                 FROM range(100000);
             CREATE TABLE shops AS SELECT value AS shop, 'region ' || (value % 5) AS region FROM range(1000)",
        )
        .unwrap();
    fixture
}

/// The rows of a statement: the first column, and the lines of the second.
fn shown(fixture: &Fixture, format: &str, statement: &str) -> Vec<(String, Vec<String>)> {
    let settings = format!("SET datafusion.explain.format = '{format}'; SET hotshelf.threads = 2;");
    let batches = fixture.run(&format!("{settings} {statement}")).unwrap();
    let mut shown = Vec::new();
    for batch in batches.iter().filter(|batch| batch.num_columns() == 2) {
        let text = |column: usize, row: usize| {
            batch
                .column(column)
                .as_string::<i32>()
                .value(row)
                .to_owned()
        };
        for row in 0..batch.num_rows() {
            shown.push((
                text(0, row),
                text(1, row).lines().map(str::to_owned).collect(),
            ));
        }
    }
    shown
}

/// The words of the line with an operator.
fn line_of<'a>(lines: &'a [String], operator: &str) -> Vec<&'a str> {
    let line = lines.iter().find(|line| line.contains(operator));
    let line = line.unwrap_or_else(|| panic!("no {operator} in {lines:#?}"));
    line.split_whitespace().collect()
}

#[test]
fn a_tree_fits_the_terminal_and_says_what_was_expected() {
    let fixture = with_sales();
    let shown = shown(&fixture, "tree", &format!("EXPLAIN {QUERY}"));
    let (what, lines) = &shown[0];
    assert_eq!(what, "plan");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 99),
        "{lines:#?}"
    );
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["expected"]
    );
    let sort = line_of(lines, "Sort");
    assert_eq!(sort[sort.len() - 1], "3", "{lines:#?}");
    let scan = line_of(lines, "DataSource");
    assert_eq!(scan[scan.len() - 2..], ["1.0", "k"], "{lines:#?}");
    let text = lines.join("\n");
    for part in [
        "StarPipeline",
        "scan: sales",
        "filter: day",
        "look-ups: inner shop = shop",
        "aggregates: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_tree_says_what_running_it_took() {
    let fixture = with_sales();
    let analyze = format!("EXPLAIN ANALYZE {QUERY}");
    let shown = shown(&fixture, "tree", &analyze);
    let lines = &shown[0].1;
    assert!(
        lines.iter().all(|line| line.chars().count() <= 99),
        "{lines:#?}"
    );
    let columns: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(columns[..3], ["expected", "rows", "time"], "{lines:#?}");
    let sort = line_of(lines, "Sort");
    assert!(
        sort.windows(2).any(|words| words == ["3", "3"]),
        "{lines:#?}"
    );
    assert!(shown.iter().any(|(what, _)| what == "memory"), "{shown:?}");
    // In the engine's own words where that is wanted.
    let verbose = self::shown(&fixture, "indent", &format!("EXPLAIN VERBOSE {QUERY}"));
    assert!(
        verbose.iter().any(|(what, _)| what == "physical_plan"),
        "{verbose:?}"
    );
    let indented = self::shown(&fixture, "indent", &analyze);
    assert_eq!(indented[0].0, "Plan with Metrics");
}

#[test]
fn verbose_says_what_the_rules_decided() {
    let fixture = with_sales();
    let three = "SELECT count(*) FROM sales s JOIN shops a ON s.shop = a.shop JOIN shops b ON s.day = b.shop";
    let kept = "SELECT shop, count(*) FROM shops LEFT JOIN sales USING (shop) WHERE sales.day > 3 GROUP BY shop, true";
    for (query, decision) in [
        (three, "the order of the text is the cheapest"),
        (kept, "keys that are literals make no groups"),
    ] {
        for explain in ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE VERBOSE"] {
            let shown = shown(&fixture, "tree", &format!("{explain} {query}"));
            let row = shown.iter().find(|(what, _)| what == "decisions");
            let Some((_, lines)) = row else {
                assert_eq!(explain, "EXPLAIN", "{shown:#?}");
                continue;
            };
            let is_short = |line: &String| line.chars().count() <= 99;
            assert!(lines.iter().all(is_short), "{lines:#?}");
            let text = lines.join(" ");
            assert!(text.contains(decision), "{explain} {query}: {text}");
        }
    }
}

#[test]
fn what_operators_spill_is_in_the_tree() {
    let fixture = Fixture::with_little_memory(2 << 20, 2);
    let sorted =
        "EXPLAIN ANALYZE SELECT sha256(value::text) AS s, value FROM range(200000) ORDER BY s";
    let shown = shown(&fixture, "tree", sorted);
    let lines = &shown[0].1;
    let columns: Vec<&str> = lines[0].split_whitespace().collect();
    assert!(columns.ends_with(&["held", "spilled"]), "{lines:#?}");
    assert!(line_of(lines, "Sort").ends_with(&["MB"]), "{lines:#?}");
}

#[test]
fn statements_without_rows_and_shared_parts_are_explained() {
    let fixture = with_sales();
    let create = "EXPLAIN CREATE TABLE more AS SELECT * FROM sales";
    let in_lines = shown(&fixture, "tree", create);
    assert_eq!(in_lines, shown(&fixture, "indent", create));
    assert!(
        in_lines[0].1.join("").contains("CreateMemoryTable"),
        "{in_lines:?}"
    );
    let shared = "EXPLAIN ANALYZE WITH s AS (SELECT shop, count(*) AS n FROM sales GROUP BY shop) \
         SELECT sum(a.n), max(b.n) FROM s a JOIN s b ON a.shop = b.shop + 1 AND a.n = b.n";
    let shared = shown(&fixture, "tree", shared);
    let text = shared[0].1.join("\n");
    assert_eq!(text.matches("Shared").count(), 2, "{text}");
    assert_eq!(text.matches("sales").count(), 1, "{text}");
    assert!(line_of(&shared[0].1, "StarPipeline").len() > 3, "{text}");
}

#[test]
fn tools_get_the_plan_as_json() {
    let fixture = with_sales();
    for explain in ["EXPLAIN", "EXPLAIN ANALYZE"] {
        let shown = shown(&fixture, "pgjson", &format!("{explain} {QUERY}"));
        let text = shown[0].1.join("\n");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let root = &read[0]["Plan"];
        assert_eq!(root["Plan Rows"], 3, "{text}");
        assert_eq!(
            root["Actual Rows"] == 3,
            explain.ends_with("ANALYZE"),
            "{text}"
        );
        assert!(
            root["Plans"]
                .as_array()
                .is_some_and(|plans| plans.len() == 1),
            "{text}"
        );
    }
}
