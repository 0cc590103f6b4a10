//! On and off give equal rows: hand-made cases. `corpus` has generated ones.

use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use futures::StreamExt;

use crate::{Database, Options, Session};

pub(super) struct Bench {
    database: Database,
    session: Session,
}

/// A printed result.
pub(super) struct Table {
    /// Its rows in a fixed order, as text.
    pub rows: Vec<String>,
    /// Whether a column holds floating-point numbers.
    pub is_floating: Vec<bool>,
}

impl Bench {
    fn new(statements: &[&str]) -> Self {
        let options = Options {
            budget_bytes: 64 << 20,
            threads: 2,
            ..Options::default()
        };
        Self::with(options, statements)
    }

    pub fn with(options: Options, statements: &[&str]) -> Self {
        let database = Database::temporary(options).unwrap();
        let session = database.session();
        let bench = Self { database, session };
        for statement in statements {
            bench.run(statement);
        }
        bench
    }

    pub fn run(&self, sql: &str) -> Vec<RecordBatch> {
        self.try_run(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn try_run(&self, sql: &str) -> crate::Result<Vec<RecordBatch>> {
        self.database
            .block_on(async { self.session.sql(sql).await?.collect().await })
    }

    pub fn switch(&self, star: &str) {
        self.run(&format!("SET hotshelf.star_pipelines = {star}"));
    }

    /// The rows in a fixed order, as text.
    fn rows(&self, sql: &str) -> Vec<String> {
        self.try_rows(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn try_rows(&self, sql: &str) -> crate::Result<Vec<String>> {
        Ok(self.try_table(sql)?.rows)
    }

    pub fn try_table(&self, sql: &str) -> crate::Result<Table> {
        let batches = self.try_run(sql)?;
        let text = pretty_format_batches(&batches)?.to_string();
        let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
        rows.sort();
        let schema = batches.first().map(RecordBatch::schema);
        let fields = schema.iter().flat_map(|schema| schema.fields());
        Ok(Table {
            rows,
            is_floating: fields
                .map(|field| field.data_type().is_floating())
                .collect(),
        })
    }

    /// Runs a query both ways; returns the plan with the rule on.
    fn compare(&self, sql: &str) -> String {
        self.switch("off");
        let expected = self.rows(sql);
        self.switch("on");
        let plan = self.plan("EXPLAIN", sql);
        assert_eq!(self.rows(sql), expected, "{sql}\n{plan}");
        plan
    }

    fn plan(&self, how: &str, sql: &str) -> String {
        self.try_plan(how, sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub fn try_plan(&self, how: &str, sql: &str) -> crate::Result<String> {
        let plan = self.try_run(&format!("{how} {sql}"))?;
        Ok(pretty_format_batches(&plan).unwrap().to_string())
    }
}

fn shop() -> Bench {
    Bench::new(&[
        "CREATE TABLE sales AS SELECT
            CASE WHEN value % 11 = 0 THEN NULL ELSE CAST(value % 13 AS INT) END AS item,
            CASE WHEN value % 7 = 0 THEN NULL ELSE value % 5 END AS shop,
            CAST(DATE '2024-01-01' + CAST(value % 40 AS INT) AS DATE) AS day,
            value * 3 - 1000 AS amount,
            CAST(value AS DOUBLE) / 8 AS weight
         FROM generate_series(1, 3000) AS s(value)",
        "CREATE TABLE items AS SELECT CAST(value AS INT) AS id, concat('kind ', value % 3) AS kind,
            CASE WHEN value = 4 THEN NULL ELSE value * 10 END AS price
         FROM generate_series(0, 9) AS s(value)",
        "CREATE TABLE shops AS SELECT value AS id, concat('city ', value) AS city
         FROM generate_series(0, 3) AS s(value)",
        "CREATE TABLE days AS SELECT CAST(DATE '2024-01-01' + CAST(value AS INT) AS DATE) AS day,
            value / 7 AS week FROM generate_series(0, 29) AS s(value)",
        "CREATE TABLE twice AS SELECT * FROM (VALUES (1, 'a'), (1, 'b'), (2, 'c'), (3, NULL)) AS t(id, name)",
    ])
}

const STAR: &str = "FROM sales, items, shops, days
    WHERE sales.item = items.id AND sales.shop = shops.id AND sales.day = days.day";

#[test]
fn stars_with_groups_run_as_one_operator_and_agree() {
    let bench = shop();
    for select in [
        "SELECT week, kind, sum(amount), count(*), count(price), min(weight), max(amount), avg(weight)",
        "SELECT week, kind, sum(amount * price), avg(amount), sum(amount) FILTER (WHERE price > 30)",
        "SELECT kind, price, count(*) AS n, max(city)",
    ] {
        let keys = &select["SELECT ".len()..]
            .split(',')
            .take(2)
            .collect::<Vec<_>>()
            .join(",");
        let plan = bench.compare(&format!("{select} {STAR} GROUP BY {keys}"));
        assert!(plan.contains("StarPipelineExec"), "{plan}");
        assert!(!plan.contains("HashJoinExec"), "{plan}");
        assert!(plan.contains("(partial)"), "{plan}");
    }
}

#[test]
fn stars_without_groups_agree_even_when_nothing_survives() {
    let bench = shop();
    for filter in [
        "",
        "AND price > 5",
        "AND price > 5000",
        "AND amount > 1000000",
        "AND city = 'city 2'",
    ] {
        let plan = bench.compare(&format!(
            "SELECT sum(amount), count(*), avg(weight) {STAR} {filter}"
        ));
        assert!(plan.contains("StarPipelineExec"), "{plan}");
    }
}

#[test]
fn rows_of_a_star_agree() {
    let bench = shop();
    for sql in [
        format!("SELECT amount, city, week + 1, price {STAR} AND amount < 2000"),
        format!("SELECT amount, city {STAR} AND amount + price < 500"),
        format!("SELECT item, sum(amount), count(*) {STAR} GROUP BY item"),
        format!("SELECT amount % 10, kind, sum(price) {STAR} GROUP BY amount % 10, kind"),
        format!("SELECT kind, count(DISTINCT amount) {STAR} GROUP BY kind"),
    ] {
        let plan = bench.compare(&sql);
        assert!(plan.contains("StarPipelineExec"), "{plan}");
    }
}

#[test]
fn outer_semi_and_anti_joins_agree() {
    let bench = shop();
    for sql in [
        "SELECT amount, kind FROM sales LEFT JOIN items ON sales.item = items.id",
        "SELECT kind, count(*), sum(price) FROM sales LEFT JOIN items ON sales.item = items.id GROUP BY kind",
        "SELECT price, count(*), sum(amount) FROM sales LEFT JOIN items ON sales.item = items.id GROUP BY price",
        "SELECT amount FROM sales WHERE item IN (SELECT id FROM items WHERE price > 20)",
        "SELECT amount FROM sales WHERE EXISTS (SELECT 1 FROM twice WHERE twice.id = sales.item)",
        "SELECT count(*) FROM sales WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.id = sales.item)",
        "SELECT kind, count(*) FROM sales LEFT JOIN items ON sales.item = items.id JOIN shops ON shop = shops.id
            WHERE kind IS NULL OR kind <> 'kind 1' GROUP BY kind",
    ] {
        bench.compare(sql);
    }
}

#[test]
fn repeated_build_keys_run_the_original_plan() {
    let bench = shop();
    let sql = "SELECT name, sum(amount), count(*) FROM sales JOIN twice ON sales.item = twice.id GROUP BY name";
    bench.switch("on");
    let plan = bench.plan("EXPLAIN ANALYZE", sql);
    assert!(plan.contains("the key id@0 repeats"), "{plan}");
    let plan = bench.plan("EXPLAIN ANALYZE", sql);
    assert!(!plan.contains("look-ups"), "not tried again: {plan}");
    bench.compare(sql);
    bench.compare("SELECT amount, name FROM sales JOIN twice ON sales.item = twice.id");
}

#[test]
fn explain_analyze_names_the_look_ups() {
    let bench = shop();
    bench.switch("on");
    let plan = bench.plan(
        "EXPLAIN ANALYZE",
        &format!("SELECT kind, sum(amount) {STAR} GROUP BY kind"),
    );
    assert!(plan.contains("item dense 10 keys kept"), "{plan}");
    assert!(
        plan.contains("shop bitmap") || plan.contains("shop dense"),
        "{plan}"
    );
}

#[test]
fn aggregates_of_a_scan_alone_agree() {
    let bench = shop();
    for sql in [
        "SELECT sum(amount * 2), count(*), avg(weight) FROM sales WHERE shop = 3",
        "SELECT count(*), sum(amount), max(day) FROM sales WHERE amount > 1000000",
        "SELECT sum(amount) FILTER (WHERE item > 3), count(item) FROM sales WHERE amount + item > 5",
        "SELECT shop, item, sum(amount), avg(weight), count(*) FROM sales WHERE day < DATE '2024-01-20' GROUP BY 1, 2",
        "SELECT amount % 7, min(weight), count(*) FROM sales GROUP BY amount % 7",
        "SELECT DISTINCT shop FROM sales",
        "SELECT kind, shop, sum(amount) FROM sales JOIN items ON item = id GROUP BY kind, shop",
    ] {
        let plan = bench.compare(sql);
        assert!(plan.contains("StarPipelineExec"), "{plan}");
    }
}

#[test]
fn what_a_filter_keeps_out_is_not_computed() {
    let bench = shop();
    let sql = "SELECT shop, sum(x), avg(x) FROM (SELECT shop, 100 / item AS x FROM sales WHERE item <> 0) t
        WHERE x > 2 GROUP BY shop";
    let plan = bench.compare(sql);
    assert!(plan.contains("StarPipelineExec"), "{plan}");
}

#[test]
fn random_functions_stay_where_they_are() {
    let bench = shop();
    bench.switch("on");
    let sql = "SELECT sum(x), count(x) FROM (SELECT random() AS x FROM sales) t";
    let plan = bench.plan("EXPLAIN", sql);
    assert!(plan.contains("differs from call to call"), "{plan}");
}

#[test]
fn groups_beyond_the_memory_are_merged_or_spilled() {
    for threads in [1, 2] {
        let options = Options {
            budget_bytes: 1 << 20,
            operator_bytes_min: 6 << 20,
            threads,
            ..Options::default()
        };
        let table = "CREATE TABLE t AS SELECT value * 7 % 60013 AS k, value AS v \
                     FROM generate_series(1, 40000) AS s(value)";
        let bench = Bench::with(options, &[table, "INSERT INTO t SELECT * FROM t"]);
        bench.run(
            "SET datafusion.execution.skip_partial_aggregation_probe_rows_threshold = 100000000",
        );
        let plan =
            bench.compare("SELECT k, count(*), sum(v), min(v), max(v), avg(v) FROM t GROUP BY k");
        assert!(plan.contains("groups hashed"), "{plan}");
    }
}

#[test]
fn only_build_sides_whose_rows_are_taken_have_to_fit() {
    let options = Options {
        budget_bytes: 1 << 20,
        operator_bytes_min: 1 << 20,
        ..Options::default()
    };
    let tables = [
        "CREATE TABLE sold AS SELECT value * 7 % 40000 AS item, value AS amount FROM range(330000)",
        "CREATE TABLE items AS SELECT value AS id, value % 10 AS kind FROM range(40000)",
        "CREATE TABLE kinds AS SELECT value AS id, value % 2 AS half FROM range(10)",
        "SET hotshelf.join_order = off",
    ];
    let bench = Bench::with(options, &tables);
    let joined =
        "FROM sold JOIN items ON item = items.id JOIN kinds ON kind = kinds.id WHERE half = 1";
    let plan = bench.compare(&format!("SELECT count(*), sum(amount) {joined}"));
    assert!(plan.contains("StarPipelineExec"), "{plan}");
    let plan = bench.compare(&format!("SELECT kind, sum(amount) {joined} GROUP BY kind"));
    assert!(
        plan.contains("would take too much of 1048576 bytes"),
        "{plan}"
    );
}

#[test]
fn explain_says_what_is_looked_up_and_what_is_not() {
    let bench = shop();
    bench.switch("on");
    let plan = bench.plan(
        "EXPLAIN",
        &format!("SELECT kind, sum(amount) {STAR} GROUP BY kind"),
    );
    assert!(
        plan.contains("inner item = id@0: dense, about 10 keys, keeps 100.000 %"),
        "{plan}"
    );
    assert!(!plan.contains("star_pipelines"), "{plan}");
    for (sql, reason) in [
        (
            "SELECT city FROM sales FULL JOIN shops ON shop = id",
            "Full joins are not looked up",
        ),
        (
            "SELECT stddev(amount) FROM sales",
            "stddev(sales.amount) stays with DataFusion",
        ),
        (
            "SELECT name FROM sales JOIN twice ON amount + 1 = twice.id",
            "is not a column of the scanned table",
        ),
    ] {
        let plan = bench.plan("EXPLAIN", sql);
        assert!(plan.contains("star_pipelines"), "{plan}");
        assert!(plan.contains(reason), "{plan}");
    }
}

#[test]
fn a_join_with_several_keys_looks_up_the_one_that_does_not_repeat() {
    let bench = shop();
    let sql = "SELECT kind, count(*), sum(amount) FROM sales JOIN items ON sales.item = items.id \
               AND sales.amount = items.price GROUP BY kind";
    let plan = bench.compare(sql);
    assert!(plan.contains("StarPipelineExec"), "{plan}");
    let shops = "CREATE TABLE visits AS SELECT CAST(value % 10 AS INT) AS id, value % 4 AS shop \
                 FROM generate_series(1, 40) AS s(value)";
    bench.run(shops);
    let sql = "SELECT count(*) FROM sales JOIN visits ON sales.item = visits.id AND sales.shop = visits.shop";
    assert!(bench.compare(sql).contains("a join has more than one key"));
}

#[test]
fn a_snowflake_is_joined_on_its_build_side() {
    let bench = shop();
    // Few rows are joined in any order otherwise.
    bench.run("SET hotshelf.join_order = off");
    bench.run(
        "CREATE TABLE kinds AS SELECT concat('kind ', value) AS kind, CAST(value AS INT) AS id \
         FROM generate_series(0, 3) AS s(value)",
    );
    bench.run(
        "CREATE TABLE places AS SELECT value AS id, CAST(value % 2 AS INT) AS kind_id \
         FROM generate_series(0, 3) AS s(value)",
    );
    for (select, filter) in [
        ("city, kinds.kind, sum(amount), count(*)", "kinds.id = 1"),
        (
            "city, kinds.kind, sum(amount), count(*)",
            "amount > kinds.id * 100",
        ),
        (
            "city, kinds.kind, max(places.kind_id), count(*)",
            "kinds.id > 7",
        ),
    ] {
        let plan = bench.compare(&format!(
            "SELECT {select} FROM sales, shops, places, kinds WHERE sales.shop = shops.id AND sales.shop = places.id
             AND places.kind_id = kinds.id AND {filter} GROUP BY city, kinds.kind"
        ));
        assert!(!plan.contains("star_pipelines"), "{plan}");
    }
    // Repeated keys further out are found when the build side is built.
    let sql = "SELECT name, sum(amount) FROM sales, places, twice \
         WHERE shop = places.id AND places.kind_id = twice.id GROUP BY name";
    assert!(bench.compare(sql).contains("StarPipelineExec"));
}

#[test]
fn groups_that_come_in_runs_agree() {
    let bench = shop();
    bench.run("SET datafusion.execution.batch_size = 100");
    for key in [
        "amount / 30",
        "amount / 30, shop",
        "day, item",
        "amount, shop",
        "weight * 0, item",
    ] {
        let sql = format!("SELECT {key}, sum(amount), count(*) FROM sales GROUP BY {key}");
        assert!(bench.compare(&sql).contains("StarPipelineExec"));
    }
}

/// The sales of `shop()` in files of their own: as many row groups.
fn many_row_groups(count: usize) -> Bench {
    let bench = shop();
    bench.run("SET hotshelf.merge_files = off");
    bench.run("CREATE TABLE parts AS SELECT * FROM sales");
    for _ in 1..count {
        bench.run("INSERT INTO parts SELECT * FROM sales");
    }
    bench
}

#[test]
fn pipelines_shows_what_ran() {
    let bench = many_row_groups(3);
    bench.switch("on");
    bench.run("SELECT kind, sum(amount) FROM parts JOIN items ON item = id WHERE amount > 0 GROUP BY kind");
    let rows = bench.rows(
        "SELECT operator, workers, row_groups, rows_in, finished, decoded_bytes > 0, p_bw_encoded > 0
         FROM pipelines() WHERE table_name = 'parts'",
    );
    let found = rows
        .iter()
        .any(|row| row.split_whitespace().collect::<String>() == "|star|2|3|9000|true|true|true|");
    assert!(found, "{rows:?}");
}

#[test]
fn runs_carry_the_number_and_the_template_of_their_query() {
    let bench = shop();
    for switch in ["off", "on"] {
        bench.switch(switch);
        for sql in [
            "SELECT sum(amount) FROM sales WHERE shop < 3",
            "SELECT sum(amount) FROM sales WHERE shop < 4",
            "SELECT max(weight) FROM sales WHERE shop < 4",
        ] {
            bench.run(sql);
        }
    }
    let rows = bench.rows(
        "SELECT count(DISTINCT query), count(DISTINCT template), min(query) > 0 FROM pipelines()
         WHERE table_name = 'sales'",
    );
    let found = rows
        .iter()
        .any(|row| row.split_whitespace().collect::<String>() == "|6|2|true|");
    assert!(found, "{rows:?}");
}

#[test]
fn a_star_returns_to_its_caller_after_every_row_group() {
    let bench = many_row_groups(12);
    bench.run("SET hotshelf.threads = 1");
    bench.switch("on");
    let sql = "SELECT kind, sum(amount) FROM parts JOIN items ON item = id GROUP BY kind";
    bench.run(sql);
    let polls = bench.database.block_on(async {
        let frame = bench.session.context().sql(sql).await.unwrap();
        let mut batches = frame.execute_stream().await.unwrap();
        let mut polls = 0;
        while let Some(batch) = std::future::poll_fn(|context| {
            polls += 1;
            batches.poll_next_unpin(context)
        })
        .await
        {
            batch.unwrap();
        }
        polls
    });
    assert!(polls > 12, "{polls} polls");
}

#[test]
fn a_cancelled_star_takes_no_more_row_groups() {
    let bench = many_row_groups(24);
    bench.switch("on");
    // Slow enough that the query cannot end before it is cancelled, and on a busy machine it may hardly begin: then
    // once more, with more time.
    let sql =
        "SELECT kind, sum(amount), sum(weight) FROM parts JOIN items ON item = id GROUP BY kind";
    let told = "SELECT count(*) FROM pipelines() WHERE table_name = 'parts' AND operator = 'star' \
                AND NOT finished AND row_groups < 24";
    let stopped = [300, 900, 2_700].into_iter().any(|patience_ms| {
        bench.run("SET hotshelf.storage_bandwidth = '30KB/s'");
        let cancelled = bench.database.block_on(async {
            let patience = Duration::from_millis(patience_ms);
            let run = async { bench.session.sql(sql).await.unwrap().collect().await };
            tokio::time::timeout(patience, run).await
        });
        assert!(cancelled.is_err(), "the query ended too soon");
        bench.run("SET hotshelf.storage_bandwidth = 'none'");
        (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            bench.rows(told).iter().any(|row| row.contains("| 1 "))
        })
    });
    assert!(stopped, "{:?}", bench.rows("SELECT * FROM pipelines()"));
}
