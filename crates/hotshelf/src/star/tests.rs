//! On and off give equal rows: hand-made cases, and random stars with NULLs, repeated keys and empty sides.

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;

use crate::{Database, Options, Session};

struct Bench {
    database: Database,
    session: Session,
}

impl Bench {
    fn new(statements: &[&str]) -> Self {
        let options = Options {
            budget_bytes: 64 << 20,
            threads: 2,
            ..Options::default()
        };
        let database = Database::temporary(options).unwrap();
        let session = database.session();
        let bench = Self { database, session };
        for statement in statements {
            bench.run(statement);
        }
        bench
    }

    fn run(&self, sql: &str) -> Vec<RecordBatch> {
        self.try_run(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn try_run(&self, sql: &str) -> crate::Result<Vec<RecordBatch>> {
        self.database
            .block_on(async { self.session.sql(sql).await?.collect().await })
    }

    fn switch(&self, star: &str) {
        self.run(&format!("SET hotshelf.star_pipelines = {star}"));
    }

    /// The rows in a fixed order, as text.
    fn rows(&self, sql: &str) -> Vec<String> {
        let text = pretty_format_batches(&self.run(sql)).unwrap().to_string();
        let mut rows: Vec<String> = text.lines().map(str::to_owned).collect();
        rows.sort();
        rows
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
        let plan = self.run(&format!("{how} {sql}"));
        pretty_format_batches(&plan).unwrap().to_string()
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
    bench.compare(sql);
    bench.compare("SELECT amount, name FROM sales JOIN twice ON sales.item = twice.id");
    bench.switch("on");
    let plan = bench.plan("EXPLAIN ANALYZE", sql);
    assert!(plan.contains("the key id@0 repeats"), "{plan}");
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

/// Random stars over tables with NULLs, repeated and missing keys, empty sides and several key types.
#[test]
fn random_stars_agree() {
    let mut random = Random(0x5eed);
    for _ in 0..4 {
        let types = ["INT", "BIGINT", "SMALLINT", "INT UNSIGNED", "DATE"];
        let chosen: Vec<&str> = (0..3).map(|_| types[random.below(types.len())]).collect();
        let mut statements = Vec::new();
        let keys: Vec<String> = chosen
            .iter()
            .enumerate()
            .map(|(idx, key_type)| {
                let range = 3 + random.below(60);
                let nulls = 2 + random.below(9);
                format!(
                    "CASE WHEN value % {nulls} = 1 THEN NULL ELSE {} END AS k{idx}",
                    key(&format!("value * 7 % {range}"), key_type)
                )
            })
            .collect();
        let rows = [0, 1, 50, 900][random.below(4)].max(random.below(1000));
        statements.push(format!(
            "CREATE TABLE f AS SELECT {}, value AS v, value % 4 AS g FROM generate_series(1, {rows}) AS s(value)",
            keys.join(", ")
        ));
        for (idx, key_type) in chosen.iter().enumerate() {
            let rows = [0, 1, 5, 40][random.below(4)];
            let repeat = 1 + random.below(6) / 5;
            statements.push(format!(
                "CREATE TABLE d{idx} AS SELECT CASE WHEN value = 2 THEN NULL ELSE {} END AS k,
                    CASE WHEN value % 6 = 0 THEN NULL ELSE concat('x', value % 3) END AS a, value AS b
                 FROM generate_series(1, {rows}) AS s(value)",
                key(&format!("value / {repeat}"), key_type)
            ));
        }
        let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
        let bench = Bench::new(&statements);
        for _ in 0..8 {
            bench.compare(&random.query());
        }
    }
}

fn key(expr: &str, key_type: &str) -> String {
    match key_type {
        "DATE" => format!("CAST(DATE '2020-01-01' + CAST({expr} AS INT) AS DATE)"),
        other => format!("CAST({expr} AS {other})"),
    }
}

/// A linear congruential generator: the same queries on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((self.0 >> 33) as usize) % end
    }

    fn query(&mut self) -> String {
        let joins = 1 + self.below(3);
        let kinds = [
            "JOIN",
            "JOIN",
            "JOIN",
            "LEFT JOIN",
            "LEFT SEMI JOIN",
            "LEFT ANTI JOIN",
        ];
        let mut from = "f".to_owned();
        let mut attached = Vec::new();
        for idx in 0..joins {
            let kind = kinds[self.below(kinds.len())];
            from.push_str(&format!(" {kind} d{idx} ON f.k{idx} = d{idx}.k"));
            if !kind.contains("SEMI") && !kind.contains("ANTI") {
                attached.push(idx);
            }
        }
        let mut conditions = vec!["true".to_owned()];
        for idx in &attached {
            match self.below(4) {
                0 => conditions.push(format!("d{idx}.b < {}", self.below(40))),
                1 => conditions.push(format!("d{idx}.b + f.v < {}", self.below(900))),
                _ => {}
            }
        }
        if self.below(3) == 0 {
            conditions.push(format!("f.v > {}", self.below(500)));
        }
        let filter = conditions.join(" AND ");
        let column = |random: &mut Self| match attached.as_slice() {
            [] => "f.g".to_owned(),
            some => format!(
                "d{}.{}",
                some[random.below(some.len())],
                ["a", "b", "k"][random.below(3)]
            ),
        };
        let (first, second) = (column(self), column(self));
        match self.below(4) {
            0 => format!("SELECT f.v, {first} AS x, {second} AS y FROM {from} WHERE {filter}"),
            1 => format!(
                "SELECT count(*), sum(f.v), avg(f.v), min({first}) FROM {from} WHERE {filter}"
            ),
            2 => format!(
                "SELECT {first} AS x, count(*), sum(f.v), max(f.g) FROM {from} WHERE {filter} GROUP BY 1"
            ),
            _ => format!(
                "SELECT {first} AS x, {second} AS y, count({second}), sum(f.v * 2) FROM {from} WHERE {filter} GROUP BY 1, 2"
            ),
        }
    }
}
