//! What EXPLAIN shows people and tools.

mod decisions;

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
    let three = "SELECT count(*) FROM shops a JOIN (shops b JOIN sales s ON s.day = b.shop) ON s.shop = a.shop";
    let kept = "SELECT shop, count(*) FROM shops LEFT JOIN sales USING (shop) WHERE sales.day > 3 GROUP BY shop, true";
    let cast = "SELECT count(*) FROM sales s JOIN shops a ON s.shop = a.shop JOIN shops b \
        ON s.day = CAST(substr(b.region, 8) AS BIGINT)";
    for (query, decision) in [
        (three, "the order of the text is the cheapest"),
        (
            cast,
            "joined in the order of the text, as CAST(substr(b.region, Int64(8)) AS Int64) may fail for rows",
        ),
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
fn verbose_says_why_parts_are_computed_once_or_not() {
    let fixture = with_sales();
    let sums = "WITH s AS (SELECT shop, sum(price) AS v FROM sales GROUP BY shop)";
    let random = "WITH s AS (SELECT shop, max(random()) AS v FROM sales GROUP BY shop)";
    let joined = "WITH s AS (SELECT day, region FROM sales JOIN shops USING (shop) WHERE day < 3)";
    let pairs = "SELECT count(*) FROM s a JOIN s b ON a.v < b.v";
    for (query, decision) in [
        (
            format!("{sums} {pairs}"),
            "part 1 is computed once for its 2 uses, which saves reading about 1.6 MB again and keeps about",
        ),
        (
            format!("{random} {pairs}"),
            "computed for each of its 2 uses, as it may give other rows each time",
        ),
        (
            format!(
                "{joined} SELECT count(*) FROM s a, s b WHERE a.day < b.day AND a.region < b.region"
            ),
            "computed for each of its 2 uses, as its joins are expected to pass on",
        ),
        (
            format!("{sums} SELECT a.shop, b.shop FROM s a JOIN s b ON a.v = b.v WHERE a.shop = 5"),
            "the 2 uses of s are not one shared part: filters, columns or joins of only some",
        ),
    ] {
        let shown = shown(&fixture, "tree", &format!("EXPLAIN VERBOSE {query}"));
        let row = shown.iter().find(|(what, _)| what == "decisions");
        let text = row.map(|(_, lines)| lines.join(" ")).unwrap_or_default();
        assert!(text.contains(decision), "{query}: {shown:#?}");
    }
}

#[test]
fn verbose_says_why_joins_groups_and_sorts_are_planned_otherwise() {
    let fixture = with_sales();
    fixture
        .run("CREATE TABLE visits AS SELECT value % 500 AS spot FROM range(2000)")
        .unwrap();
    let divided = "SET datafusion.optimizer.hash_join_single_partition_threshold = 0; \
                   SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0;";
    for (settings, query, decision) in [
        (
            "",
            "SELECT price, spot FROM sales JOIN visits ON day = spot WHERE id IN (5, 70, 900, 1234)",
            "is kept in memory, as the order of joins expects about",
        ),
        (
            divided,
            "SELECT a.price, b.day FROM sales a JOIN sales b ON a.id = b.id",
            "all workers build its left side together",
        ),
        (
            "SET hotshelf.operators = always;",
            "SELECT * FROM sales ORDER BY price LIMIT 3",
            "the sort for the first 3 of about 100000 rows of sales reads price alone",
        ),
        (
            "",
            "SELECT shop, day, sum(price) FROM sales GROUP BY ROLLUP (shop, day)",
            "rows are grouped by all keys (shop, day) once, and those groups into the 3 sets",
        ),
        (
            "",
            "SELECT id, (SELECT max(shop) FROM shops WHERE shops.shop < sales.day) FROM sales",
            "a subquery is computed once for each combination of sales.day",
        ),
    ] {
        let verbose = format!("{settings} EXPLAIN VERBOSE {query}");
        let shown = shown(&fixture, "tree", &verbose);
        let row = shown.iter().find(|(what, _)| what == "decisions");
        let text = row.map(|(_, lines)| lines.join(" ")).unwrap_or_default();
        assert_eq!(text.matches(decision).count(), 1, "{query}: {shown:#?}");
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

/// The one document of a statement.
fn document(fixture: &Fixture, format: &str, statement: &str) -> serde_json::Value {
    let shown = shown(fixture, format, statement);
    assert_eq!(shown.len(), 1, "{statement}: {shown:#?}");
    serde_json::from_str(&shown[0].1.join("\n")).unwrap()
}

#[test]
fn tools_get_the_plan_as_one_json_document() {
    let fixture = with_sales();
    for (format, explain, runs) in [
        ("pgjson", "EXPLAIN", false),
        ("json", "EXPLAIN ANALYZE", true),
        ("json", "EXPLAIN VERBOSE", false),
        ("tree", "EXPLAIN FORMAT JSON", false),
        ("indent", "EXPLAIN FORMAT pgjson", false),
        ("tree", "EXPLAIN VERBOSE FORMAT json", false),
        ("tree", "EXPLAIN ANALYZE FORMAT JSON", true),
        ("tree", "EXPLAIN ANALYZE VERBOSE FORMAT JSON", true),
        ("tree", "EXPLAIN (FORMAT JSON)", false),
        ("indent", "EXPLAIN (ANALYZE, VERBOSE, FORMAT 'json')", true),
    ] {
        let document = document(&fixture, format, &format!("{explain} {QUERY}"));
        let root = &document[0]["Plan"];
        assert!(root["Node Type"].is_string(), "{explain}: {document:#}");
        assert_eq!(root["Plan Rows"], 3, "{explain}: {document:#}");
        assert_eq!(root["Actual Rows"] == 3, runs, "{explain}: {document:#}");
        let inputs = root["Plans"].as_array().map(Vec::len);
        assert_eq!(inputs, Some(1), "{explain}: {document:#}");
        let memory = &document[0]["Memory"];
        assert_eq!(memory.is_array(), runs, "{explain}: {document:#}");
        let text = root.to_string();
        for counter in ["Compute Time", "Peak Memory"] {
            assert_eq!(text.contains(counter), runs, "{explain}: {document:#}");
        }
    }
}

#[test]
fn json_has_the_decisions_and_what_was_read() {
    let fixture = with_sales();
    let query = "WITH s AS (SELECT shop, sum(price) AS v FROM sales GROUP BY shop)
                 SELECT count(*) FROM s a JOIN s b ON a.v < b.v";
    for explain in ["EXPLAIN FORMAT JSON", "EXPLAIN ANALYZE FORMAT JSON"] {
        let document = document(&fixture, "tree", &format!("{explain} {query}"));
        let decisions = document[0]["Decisions"].as_array().unwrap();
        let is_shared = |line: &serde_json::Value| {
            line.as_str()
                .is_some_and(|line| line.starts_with("part 1 is computed once"))
        };
        assert!(decisions.iter().any(is_shared), "{document:#}");
        let text = document.to_string();
        let is_counted = ["Bytes from Storage", "Bytes from Memory"]
            .iter()
            .any(|name| text.contains(name));
        assert_eq!(is_counted, explain.contains("ANALYZE"), "{document:#}");
    }
}

#[test]
fn an_unknown_format_is_refused_with_the_known_ones() {
    let fixture = with_sales();
    for statement in [
        "EXPLAIN FORMAT jsn SELECT 1",
        "EXPLAIN (FORMAT jsn) SELECT 1",
        "SET datafusion.explain.format = 'jsn'",
    ] {
        let error = fixture.run(statement).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid EXPLAIN format 'jsn': expected tree, indent, json, pgjson or graphviz; 'json' is similar",
            "{statement}"
        );
    }
    fixture
        .run("EXPLAIN (SELECT 1) UNION ALL SELECT 2")
        .unwrap();
    fixture.run("EXPLAIN (COSTS off) SELECT 2").unwrap();
}
