//! What EXPLAIN VERBOSE says about the decisions of single rules.

use super::*;

/// What EXPLAIN VERBOSE says about the rules' decisions on a query. Statements before the query are run.
fn decisions(fixture: &Fixture, settings: &str, query: &str) -> String {
    let shown = shown(
        fixture,
        "tree",
        &format!("{settings} EXPLAIN VERBOSE {query}"),
    );
    let row = shown.iter().find(|(what, _)| what == "decisions");
    let lines = row.map(|(_, lines)| lines.as_slice()).unwrap_or_default();
    assert!(
        lines.iter().all(|line| line.chars().count() <= 99),
        "{lines:#?}"
    );
    lines.join(" ")
}

#[test]
fn verbose_says_which_operators_are_hotshelf_s_and_why() {
    let fixture = with_sales();
    let joins = "SET hotshelf.star_pipelines = off;";
    let always = "SET hotshelf.operators = always;";
    for (settings, query, decision) in [
        (
            "",
            "SELECT id, price FROM sales ORDER BY price",
            "sort by [price@",
        ),
        (
            "",
            "SELECT day, price, count(*) FROM sales GROUP BY day, price",
            "so that equal keys meet",
        ),
        (
            joins,
            "SELECT a.id FROM sales a JOIN shops b ON a.day = b.shop",
            "Hotshelf's, as it is as quick with such keys and can spill its left side, of about",
        ),
        (
            always,
            "SELECT a.id FROM sales a JOIN shops b ON a.day < b.shop",
            "join of all pairs of rows: Hotshelf's, as hotshelf.operators is always",
        ),
        (
            "",
            "SELECT row_number() OVER () FROM sales",
            "row_number() over all rows: they are numbered as they come",
        ),
        (
            "",
            "SELECT sum(price) OVER (PARTITION BY shop) FROM sales",
            "window functions over whole partitions: Hotshelf's",
        ),
    ] {
        let said = decisions(&fixture, settings, query);
        assert_eq!(said.matches(decision).count(), 1, "{query}: {said}");
        let plain = shown(&fixture, "tree", &format!("{settings} EXPLAIN {query}"));
        assert!(
            plain.iter().all(|(what, _)| what != "decisions"),
            "{plain:#?}"
        );
    }
}

#[test]
fn verbose_says_which_filters_pass_joins() {
    let fixture = with_sales();
    fixture
        .run("CREATE TABLE visits AS SELECT value % 500 AS spot FROM range(2000)")
        .unwrap();
    let joins = "SET hotshelf.star_pipelines = off;";
    for (settings, query, decision) in [
        (
            joins,
            "SELECT * FROM (SELECT a.id, b.region FROM sales a LEFT JOIN shops b ON a.shop = b.shop) x \
             JOIN visits c ON x.id = c.spot WHERE c.spot % 100 = 7",
            "what is learned of id while the query runs passes the",
        ),
        (
            "",
            "SELECT id FROM sales WHERE abs(price) = 3",
            "is tested above the scan of sales",
        ),
        (
            "",
            "SELECT id FROM sales WHERE price NOT IN (1, 2, 5, 6) OR price NOT IN (3, 4, 7, 8)",
            "the lists that sales.price is compared with are not merged",
        ),
        (
            "",
            "SELECT a.id, l.region FROM sales a \
             LEFT JOIN LATERAL (SELECT region, shop FROM shops WHERE shops.shop < a.day) AS l ON l.shop = a.price",
            "whose keys are equal where both are NULL",
        ),
        (
            "",
            "SELECT count(*) FROM sales s LEFT JOIN shops a ON s.shop = a.shop JOIN shops b ON s.day = b.shop \
             WHERE coalesce(a.region, 'x') <> b.region",
            "left joins are not moved among the other joins, as CASE WHEN a.region IS NOT NULL",
        ),
    ] {
        let said = decisions(&fixture, settings, query);
        assert!(said.contains(decision), "{query}: {said}");
    }
}

#[test]
fn verbose_says_what_is_done_about_keys_and_groups() {
    let fixture = with_sales();
    for (query, decision) in [
        (
            "SELECT sum((SELECT max(shop) FROM shops WHERE shops.shop = sales.shop)) FROM sales",
            "are computed for the rows before these are grouped",
        ),
        (
            "SELECT CAST(shop AS INT) AS i, shop, count(*) FROM sales GROUP BY CAST(shop AS INT), shop",
            "the group key CAST(sales.shop AS Int32) is computed below under a name of its own",
        ),
        (
            "SELECT shop, count(*) FROM (SELECT DISTINCT s.id, k.shop FROM sales s \
             JOIN (SELECT DISTINCT shop FROM shops) k ON true) x GROUP BY shop, id",
            "together are the key of their groups",
        ),
        (
            "SELECT count(DISTINCT shop), count(DISTINCT day) FROM sales WHERE shop = 3 AND day = 3",
            "distinct values are counted and not taken from the statistics",
        ),
        (
            "SELECT count(id) OVER (ORDER BY id) AS c, dense_rank() OVER (PARTITION BY id ORDER BY day) AS d, id \
             FROM sales ORDER BY 1, 3, 2 LIMIT 100",
            "the limit of 100 rows is also kept above the sort by [",
        ),
        (
            "SELECT a.id, b.region FROM sales a JOIN shops b ON a.shop = b.shop \
             WHERE a.id IN (SELECT id FROM sales GROUP BY id HAVING sum(price) > 5)",
            "the keys of a semi-join are taken for few",
        ),
        (
            "SELECT a.id FROM sales a JOIN shops b ON a.shop = b.shop WHERE b.region = 'region 3' \
             AND a.price < (SELECT avg(price) FROM sales u WHERE u.shop = b.shop)",
            "of a filtered table of 1000 rows, at most a quarter of 100000 rows to group",
        ),
        (
            "SELECT a.id FROM sales a WHERE a.day = 3 AND a.price < (SELECT avg(price) FROM sales u \
             WHERE u.shop = a.shop)",
            "of a filtered table of 100000 rows, more than a quarter of 100000 rows to group",
        ),
    ] {
        let said = decisions(&fixture, "", query);
        assert!(said.contains(decision), "{query}: {said}");
    }
}

#[test]
fn verbose_says_why_joins_windows_and_distinct_values_are_written_otherwise() {
    let fixture = with_sales();
    let always = "SET hotshelf.operators = always;";
    let shares = "SELECT cume_dist() OVER (PARTITION BY shop ORDER BY id) FROM sales";
    for (settings, query, decision) in [
        (
            "",
            "SELECT a.id FROM sales a LEFT JOIN shops b ON a.shop = b.shop WHERE b.shop IS NULL",
            "left join on a.shop = b.shop: no row with a match passes b.shop IS NULL",
        ),
        (
            "",
            "SELECT a.id FROM sales a LEFT JOIN shops b ON a.day = b.shop JOIN sales u ON u.id = b.shop",
            "left join on a.day = b.shop: a join above compares b.shop, which is NULL in rows without a match",
        ),
        (
            always,
            "SELECT shop, count(DISTINCT day), sum(DISTINCT price) FROM sales GROUP BY shop",
            "computed apart, as hotshelf.operators is always",
        ),
        (
            "",
            "SELECT count(DISTINCT day), count(DISTINCT price) FROM sales",
            "computed together, as their values take about",
        ),
        (
            always,
            shares,
            "computed of numbers and counts of rows; hotshelf.operators is always",
        ),
        (
            "",
            shares,
            "left to the engine; its rows are expected to fit",
        ),
    ] {
        let said = decisions(&fixture, settings, query);
        assert_eq!(said.matches(decision).count(), 1, "{query}: {said}");
    }
}
