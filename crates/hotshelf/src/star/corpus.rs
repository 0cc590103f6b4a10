//! A generated corpus of star queries: with the rule on and off they give equal rows.
//!
//! A few run with the tests. `HOTSHELF_STAR_QUERIES=2000 cargo test -p hotshelf random_stars -- --nocapture` runs
//! more and counts what was covered; `HOTSHELF_STAR_SEED` begins elsewhere.

use super::tests::{Bench, Table};
use crate::Options;

const QUERIES: usize = 150;
const QUERIES_PER_WORLD: usize = 15;

#[test]
fn random_stars_agree() {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let count = number("HOTSHELF_STAR_QUERIES").unwrap_or(QUERIES as u64) as usize;
    let mut random = Random(number("HOTSHELF_STAR_SEED").unwrap_or(0x5eed));
    let mut seen = Seen::default();
    while seen.queries < count {
        let world = World::new(&mut random);
        let bench = world.bench(&mut random);
        for _ in 0..QUERIES_PER_WORLD.min(count - seen.queries) {
            let sql = world.query(&mut random);
            seen.count(&bench, &sql);
        }
    }
    println!("{seen}");
    assert!(seen.stars * 2 > seen.queries, "too few stars: {seen}");
    assert!(seen.empty * 3 < seen.queries * 2, "too few rows: {seen}");
    let failed = seen.fail_both_ways + seen.fail_off_only;
    assert!(failed * 20 <= seen.queries, "too many failures: {seen}");
}

/// Whether two printed results hold the same values. Sums of floating-point numbers depend on the order of their
/// rows, which threads decide: they may differ in the last digits.
fn same_tables(found: &Table, expected: &Table) -> bool {
    let rows = found.rows.iter().zip(&expected.rows);
    found.rows.len() == expected.rows.len()
        && rows
            .clone()
            .all(|(found_row, expected_row)| same_row(found_row, expected_row, &found.is_floating))
}

fn same_row(found: &str, expected: &str, is_floating: &[bool]) -> bool {
    let is_border = |row: &str| row.starts_with('+');
    let cells = |row: &str| -> Vec<String> {
        let inner = row.trim_matches('|').split('|');
        inner.map(|cell| cell.trim().to_owned()).collect()
    };
    let same_number = |found: &str, expected: &str| {
        matches!((found.parse::<f64>(), expected.parse::<f64>()), (Ok(a), Ok(b))
            if (a - b).abs() <= 1e-14 * a.abs())
    };
    let (found_cells, expected_cells) = (cells(found), cells(expected));
    (is_border(found) && is_border(expected))
        || (found_cells.len() == expected_cells.len()
            && found_cells.iter().zip(&expected_cells).enumerate().all(
                |(column, (found, expected))| {
                    let is_floating = is_floating.get(column) == Some(&true);
                    found == expected || (is_floating && same_number(found, expected))
                },
            ))
}

/// What the corpus covered.
#[derive(Default)]
struct Seen {
    queries: usize,
    stars: usize,
    fallbacks: usize,
    declined: usize,
    empty: usize,
    fail_both_ways: usize,
    fail_off_only: usize,
    by_kind: std::collections::BTreeMap<&'static str, usize>,
}

impl Seen {
    fn count(&mut self, bench: &Bench, sql: &str) {
        self.queries += 1;
        bench.switch("off");
        let expected = bench.try_table(sql);
        bench.switch("on");
        let found = bench.try_table(sql);
        let plan = bench.try_plan("EXPLAIN", sql).unwrap_or_default();
        match (expected, found) {
            (Ok(expected), Ok(found)) => {
                let same = same_tables(&found, &expected);
                let (found, expected) = (found.rows, expected.rows);
                assert!(same, "{sql}\n{plan}\n{found:#?}\n{expected:#?}");
                // Header and rules of the printed table.
                self.empty += usize::from(expected.len() <= 4);
            }
            (Ok(_), Err(error)) => panic!("fails with the rule on: {error}\n{sql}\n{plan}"),
            (Err(_), Err(_)) => self.fail_both_ways += 1,
            (Err(_), Ok(_)) => self.fail_off_only += 1,
        }
        if plan.contains("StarPipelineExec") {
            self.stars += 1;
            let ran = bench.try_plan("EXPLAIN ANALYZE", sql).unwrap_or_default();
            self.fallbacks += usize::from(ran.contains("ran the original plan"));
            for kind in KINDS {
                let found = plan.contains(kind) || ran.contains(kind);
                *self.by_kind.entry(kind).or_default() += usize::from(found);
            }
        } else {
            self.declined += 1;
        }
    }
}

/// What to look for in plans.
const KINDS: &[&str] = &[
    "inner ",
    "semi ",
    "anti ",
    "left ",
    " dense",
    " bitmap",
    " hash ",
    "one group",
    "groups numbered",
    "groups hashed",
    "(whole)",
    "(partial)",
];

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} queries: equal rows on and off in all; {} with a star pipeline ({} of them ran the original plan), \
             {} without, {} with no rows, {} fail both ways, {} only with the rule off; in plans:",
            self.queries,
            self.stars,
            self.fallbacks,
            self.declined,
            self.empty,
            self.fail_both_ways,
            self.fail_off_only
        )?;
        for (kind, count) in &self.by_kind {
            write!(f, " {}={count}", kind.trim())?;
        }
        Ok(())
    }
}

/// Key types, as expressions of a small integer.
const KEYS: &[&str] = &[
    "CAST({} AS TINYINT)",
    "CAST({} AS SMALLINT)",
    "CAST({} AS INT)",
    "CAST({} AS BIGINT)",
    "CAST({} AS TINYINT UNSIGNED)",
    "CAST({} AS SMALLINT UNSIGNED)",
    "CAST({} AS INT UNSIGNED)",
    "CAST({} AS BIGINT UNSIGNED)",
    "CAST({} AS BIGINT) * 1000000007",
    "CAST({} AS BIGINT) - 50",
    "CAST({} AS BIGINT) * 92233720368547758 - 4611686018427387904",
    "CAST(DATE '2020-01-01' + CAST({} AS INT) AS DATE)",
    "arrow_cast(DATE '2020-01-01' + CAST({} AS INT), 'Date64')",
    "arrow_cast(CAST({} AS BIGINT) * 86400000000000, 'Timestamp(Nanosecond, None)')",
    "arrow_cast(CAST({} AS BIGINT) * 86400, 'Timestamp(Second, None)')",
    "arrow_cast(CAST({} * 60 AS INT), 'Time32(Second)')",
    "arrow_cast(CAST({} AS BIGINT) * 60000000, 'Time64(Microsecond)')",
    // Not looked up: these joins stay with DataFusion.
    "concat('key ', {})",
    "CAST({} AS DECIMAL(9, 0))",
    "CAST({} AS DOUBLE)",
];
const LOOKED_UP: usize = 17;

/// Columns of the table that is scanned, besides its keys: all types, all with NULLs.
const VALUES: &[(&str, &str)] = &[
    ("v_int", "CAST(value * 37 % 1001 - 500 AS INT)"),
    (
        "v_big",
        "CASE WHEN value % 50 = 0 THEN 9223372036854775807 - value ELSE value * 1000003 END",
    ),
    ("v_tiny", "CAST(value % 7 - 3 AS TINYINT)"),
    ("v_unsigned", "CAST(value * 31 % 5000 AS INT UNSIGNED)"),
    (
        "v_double",
        "CASE WHEN value % 97 = 0 THEN 'NaN'::DOUBLE ELSE CAST(value % 4001 - 2000 AS DOUBLE) / 8 END",
    ),
    ("v_real", "CAST(value % 301 AS REAL) / 4"),
    (
        "v_money",
        "CAST(value * 7919 % 1000003 AS DECIMAL(12, 2)) / 100",
    ),
    (
        "v_wide",
        "CAST(value AS DECIMAL(38, 4)) * 1000000000000000000000000000",
    ),
    ("v_text", "concat('text ', value % 23)"),
    (
        "v_long",
        "concat('a longer text that is not inlined ', value % 11, repeat('x', value % 40))",
    ),
    ("v_code", "concat('code ', value % 5)"),
    ("v_bytes", "arrow_cast(concat('b', value % 9), 'Binary')"),
    (
        "v_day",
        "CAST(DATE '1992-01-01' + CAST(value * 13 % 2500 AS INT) AS DATE)",
    ),
    (
        "v_time",
        "arrow_cast(978307200000000 + value % 300 * 3600000000, 'Timestamp(Microsecond, None)')",
    ),
    ("v_bool", "value % 3 = 0"),
];

/// The kinds of a table's values by what can be done with them.
const NUMBERS: &[&str] = &[
    "f.v_int",
    "f.v_big",
    "f.v_tiny",
    "f.v_unsigned",
    "f.v_double",
    "f.v_real",
    "f.v_money",
    "f.v_wide",
];
const GROUPS: &[&str] = &[
    "f.v_tiny",
    "f.v_text",
    "f.v_code",
    "f.v_bytes",
    "f.v_bool",
    "f.v_day",
    "f.v_time",
    "f.v_money",
    "f.v_double",
    "f.v_long",
    "f.v_int % 5",
    "upper(f.v_text)",
    "date_part('year', f.v_day)",
    "f.v_int > 0",
    "CASE WHEN f.v_money > 500 THEN 'dear' WHEN f.v_money > 50 THEN 'fair' END",
    "f.id",
];
const FILTERS: &[&str] = &[
    "f.v_int > 100",
    "f.v_int BETWEEN -100 AND 250",
    "f.v_text LIKE 'text 1%'",
    "f.v_text IN ('text 3', 'text 17')",
    "f.v_money < 2500.50",
    "f.v_double >= -3.5",
    "f.v_bool",
    "NOT f.v_bool",
    "f.v_day >= DATE '1994-06-01'",
    "f.v_tiny IS NULL",
    "f.v_tiny IS NOT NULL",
    "f.v_int + f.v_tiny < 77",
    "f.v_int * 2 > f.v_tiny OR f.v_bool",
    "f.v_code <> 'code 2'",
    "f.v_time < TIMESTAMP '2001-01-05T00:00:00'",
    "f.v_big > 0",
    "f.id > 100000",
    "f.v_unsigned < 900 AND f.v_money IS NOT NULL",
    "abs(f.v_tiny) = 2",
    "f.v_tiny <> 0 AND f.v_int / f.v_tiny > 10",
];
const DIMENSION_FILTERS: &[&str] = &[
    "{}.b < 20",
    "{}.a = 'name 1'",
    "{}.a IS NULL",
    "{}.b IS NOT NULL",
    "{}.c > 3.5",
    "{}.d < DATE '2000-02-01'",
    "{}.b > 1000",
    "{}.a LIKE '%2' OR {}.b % 2 = 0",
    "{}.b + f.v_int > 30",
    "coalesce({}.a, 'none') <> 'name 0'",
];
const DIMENSION_GROUPS: &[&str] = &[
    "{}.a",
    "{}.b",
    "{}.c",
    "{}.d",
    "{}.k",
    "{}.e",
    "upper({}.a)",
    "{}.b % 3",
    "date_part('month', {}.d)",
    "CASE WHEN {}.b > 3 THEN {}.a END",
];

/// A scanned table `f` with dimensions `d0`, `d1`, … and `far`, to which dimensions refer.
struct World {
    statements: Vec<String>,
    dimensions: usize,
}

impl World {
    fn new(random: &mut Random) -> Self {
        let dimensions = 1 + random.below(4);
        let mut statements = Vec::new();
        let mut keys = Vec::new();
        let mut dimension_statements = Vec::new();
        for idx in 0..dimensions {
            let key_type = if random.one_in(12) {
                KEYS[LOOKED_UP + random.below(KEYS.len() - LOOKED_UP)]
            } else {
                KEYS[random.below(LOOKED_UP)]
            };
            keys.push(format!("{} AS k{idx}", fact_key(random, key_type)));
            // Now and then keys of another integer type: the planner puts a cast into the join.
            let build_type = match key_type {
                "CAST({} AS SMALLINT)" if random.one_in(3) => "CAST({} AS BIGINT)",
                "CAST({} AS BIGINT)" if random.one_in(4) => "CAST({} AS INT)",
                other => other,
            };
            dimension_statements.push(dimension(random, &format!("d{idx}"), build_type));
        }
        let values: Vec<String> = VALUES
            .iter()
            .map(|(name, expr)| {
                let nulls = [3, 11, 40, 1_000_000][random.below(4)];
                let value = format!(
                    "CASE WHEN (value + {}) % {nulls} = 0 THEN NULL ELSE {expr} END",
                    name.len()
                );
                match *name {
                    "v_code" => format!("arrow_cast({value}, 'Dictionary(Int32, Utf8)') AS v_code"),
                    _ => format!("{value} AS {name}"),
                }
            })
            .collect();
        let columns = format!("value AS id, {}, {}", keys.join(", "), values.join(", "));
        let rows = [0, 1, 60, 900, 3000][random.below(5)];
        let files = 1 + random.below(3);
        statements.push(format!(
            "CREATE TABLE f AS SELECT {columns} FROM generate_series(1, {rows}) AS s(value)"
        ));
        for file in 1..files {
            let start = file * 5000;
            statements.push(format!(
                "INSERT INTO f SELECT {columns} FROM generate_series({start}, {}) AS s(value)",
                start + rows
            ));
        }
        statements.extend(dimension_statements);
        statements.push(dimension(random, "far", "{}"));
        Self {
            statements,
            dimensions,
        }
    }

    fn bench(&self, random: &mut Random) -> Bench {
        let statements: Vec<&str> = self.statements.iter().map(String::as_str).collect();
        let bench = Bench::with(
            Options {
                budget_bytes: [2 << 20, 64 << 20][random.below(2)],
                threads: 1 + random.below(3),
                ..Options::default()
            },
            &statements,
        );
        if random.one_in(3) {
            bench.run("SET datafusion.execution.batch_size = 77");
        }
        if random.one_in(3) {
            bench.run(
                "SET datafusion.execution.skip_partial_aggregation_probe_rows_threshold = 100",
            );
        }
        bench
    }

    fn query(&self, random: &mut Random) -> String {
        let (from, conditions, attached) = self.joins(random);
        let mut conditions = conditions;
        for _ in 0..random.below(3) {
            conditions.push(random.pick(FILTERS).to_owned());
        }
        for name in &attached {
            if random.one_in(3) {
                conditions.push(random.pick(DIMENSION_FILTERS).replace("{}", name));
            }
        }
        let filter = if conditions.is_empty() {
            "true".to_owned()
        } else {
            conditions.join(" AND ")
        };
        let source = format!("FROM {from} WHERE {filter}");
        match random.below(10) {
            0 => rows_query(random, &attached, &source),
            1 | 2 => format!("SELECT {} {source}", aggregates(random, &attached)),
            3 => repeated(random, &attached, &source),
            _ => grouped(random, &attached, &source),
        }
    }

    /// The FROM clause, conditions that belong to it, and the names of tables whose columns can be used.
    fn joins(&self, random: &mut Random) -> (String, Vec<String>, Vec<String>) {
        let mut from = "f".to_owned();
        let mut conditions = Vec::new();
        let mut attached = Vec::new();
        for idx in 0..self.dimensions {
            if random.one_in(4) {
                continue;
            }
            let (on, name) = (format!("f.k{idx} = d{idx}.k"), format!("d{idx}"));
            let inner = match random.below(4) {
                0 => format!(" WHERE d{idx}.b < {}", random.below(30)),
                _ => String::new(),
            };
            match random.below(16) {
                0 | 1 => {
                    from.push_str(&format!(" LEFT JOIN d{idx} ON {on}"));
                    attached.push(name);
                }
                2 => {
                    from.push_str(&format!(" RIGHT JOIN d{idx} ON {on}"));
                    attached.push(name);
                }
                3 => from.push_str(&format!(" LEFT SEMI JOIN d{idx} ON {on}")),
                4 => from.push_str(&format!(" LEFT ANTI JOIN d{idx} ON {on}")),
                5 => conditions.push(format!("f.k{idx} IN (SELECT d{idx}.k FROM d{idx}{inner})")),
                6 => {
                    let and = inner.replace(" WHERE", " AND");
                    conditions.push(format!("NOT EXISTS (SELECT 1 FROM d{idx} WHERE {on}{and})"));
                }
                7 => conditions.push(format!(
                    "f.k{idx} NOT IN (SELECT d{idx}.k FROM d{idx}{inner})"
                )),
                8 => {
                    from.push_str(&format!(
                        " JOIN d{idx} ON {on} AND d{idx}.b + f.v_tiny < 25"
                    ));
                    attached.push(name);
                }
                9 => {
                    // A build side that is a join itself.
                    from.push_str(&format!(
                        " JOIN (SELECT x.k, x.a, x.b, x.c, x.d, x.e FROM d{idx} x JOIN \
                         (SELECT DISTINCT b % 4 AS b FROM d{idx}) y ON x.b % 5 = y.b) d{idx} ON {on}"
                    ));
                    attached.push(name);
                }
                10 => {
                    from.push_str(&format!(
                        " JOIN (SELECT k, max(a) AS a, sum(b) AS b, min(c) AS c, min(d) AS d, max(e) AS e \
                         FROM d{idx} GROUP BY k) d{idx} ON {on}"
                    ));
                    attached.push(name);
                }
                _ => {
                    from.push_str(&format!(" JOIN d{idx} ON {on}"));
                    attached.push(name);
                }
            }
        }
        if random.one_in(3) && !attached.is_empty() {
            // A snowflake: a table that a dimension refers to.
            let near = attached[random.below(attached.len())].clone();
            from.push_str(&format!(" JOIN far ON {near}.b = far.k"));
            attached.push("far".to_owned());
        }
        (from, conditions, attached)
    }
}

/// A key column of the scanned table: even, skewed, constant or all NULL, and NULL now and then.
fn fact_key(random: &mut Random, key_type: &str) -> String {
    let range = 3 + random.below(80);
    let number = match random.below(8) {
        0 => format!("CASE WHEN value % 10 < 8 THEN 3 ELSE value % {range} END"),
        1 => "5".to_owned(),
        _ => format!("value * 7 % {range}"),
    };
    let nulls = match random.below(10) {
        0 => 1,
        1..=3 => 1_000_000,
        _ => 2 + random.below(12),
    };
    let key = key_type.replace("{}", &number);
    format!("CASE WHEN (value + 1) % {nulls} = 0 THEN NULL ELSE {key} END")
}

fn dimension(random: &mut Random, name: &str, key_type: &str) -> String {
    let rows = [0, 1, 5, 40, 40, 90][random.below(6)];
    let repeat = if random.one_in(6) { 2 } else { 1 };
    let nulls = [4, 1_000_000][random.below(2)];
    let key = key_type.replace("{}", &format!("(value / {repeat})"));
    format!(
        "CREATE TABLE {name} AS SELECT CASE WHEN (value + 2) % {nulls} = 0 THEN NULL ELSE {key} END AS k,
            CASE WHEN value % 6 = 0 THEN NULL ELSE concat('name ', value % 4) END AS a,
            CASE WHEN value % 9 = 0 THEN NULL ELSE value END AS b,
            CAST(value AS DECIMAL(9, 2)) / 4 AS c,
            CAST(DATE '2000-01-01' + CAST(value AS INT) AS DATE) AS d,
            CAST(value % 5 AS DOUBLE) / 2 AS e
         FROM generate_series(1, {rows}) AS s(value)"
    )
}

fn column(random: &mut Random, attached: &[String]) -> String {
    if attached.is_empty() || random.one_in(3) {
        return match random.below(6) {
            0 => "f.id".to_owned(),
            _ => format!("f.{}", VALUES[random.below(VALUES.len())].0),
        };
    }
    let name = &attached[random.below(attached.len())];
    format!("{name}.{}", ["a", "b", "c", "d", "e", "k"][random.below(6)])
}

fn rows_query(random: &mut Random, attached: &[String], source: &str) -> String {
    let mut columns = Vec::new();
    for idx in 0..1 + random.below(4) {
        columns.push(format!("{} AS x{idx}", column(random, attached)));
    }
    columns.push("f.v_int + coalesce(f.v_tiny, 1) AS y".to_owned());
    let order = if random.one_in(4) {
        let all: Vec<String> = (1..=columns.len()).map(|idx| idx.to_string()).collect();
        format!(" ORDER BY {} LIMIT {}", all.join(", "), random.below(50))
    } else {
        String::new()
    };
    format!("SELECT {} {source}{order}", columns.join(", "))
}

fn aggregates(random: &mut Random, attached: &[String]) -> String {
    let count = 1 + random.below(5);
    let each = |random: &mut Random| {
        let number = match (random.below(4), attached) {
            (0, [name, ..]) => format!("{name}.{}", ["b", "c", "e"][random.below(3)]),
            (1, _) => "f.v_int * (1 + f.v_tiny)".to_owned(),
            _ => random.pick(NUMBERS).to_owned(),
        };
        let any = column(random, attached);
        // Which of NaN and a number is the greater depends on the order of rows, in DataFusion's own plans too.
        let ordered = match any.as_str() {
            "f.v_double" => "nullif(f.v_double, 'NaN'::DOUBLE)",
            other => other,
        };
        let call = match random.below(9) {
            0 => "count(*)".to_owned(),
            1 => format!("count({any})"),
            2 | 3 => format!("sum({number})"),
            4 => format!("avg({number})"),
            5 => format!("min({ordered})"),
            6 => format!("max({ordered})"),
            7 if random.one_in(2) => format!("count(DISTINCT {any})"),
            7 => "bool_or(f.v_bool)".to_owned(),
            _ => "sum(f.v_money * (1 - f.v_tiny))".to_owned(),
        };
        if random.one_in(6) {
            format!("{call} FILTER (WHERE {})", random.pick(FILTERS))
        } else {
            call
        }
    };
    let calls: Vec<String> = (0..count)
        .map(|idx| format!("{} AS s{idx}", each(random)))
        .collect();
    calls.join(", ")
}

fn group_keys(random: &mut Random, attached: &[String]) -> Vec<String> {
    (0..1 + random.below(3))
        .map(|_| {
            if attached.is_empty() || random.one_in(3) {
                return random.pick(GROUPS).to_owned();
            }
            let name = &attached[random.below(attached.len())];
            random.pick(DIMENSION_GROUPS).replace("{}", name)
        })
        .collect()
}

fn grouped(random: &mut Random, attached: &[String], source: &str) -> String {
    let keys = group_keys(random, attached);
    let numbers: Vec<String> = (1..=keys.len()).map(|idx| idx.to_string()).collect();
    let named: Vec<String> = keys
        .iter()
        .enumerate()
        .map(|(idx, key)| format!("{key} AS g{idx}"))
        .collect();
    let (named, numbers) = (named.join(", "), numbers.join(", "));
    if random.one_in(8) {
        return format!("SELECT DISTINCT {named} {source}");
    }
    let having = match random.below(6) {
        0 => " HAVING count(*) > 2",
        _ => "",
    };
    let calls = aggregates(random, attached);
    format!("SELECT {named}, {calls} {source} GROUP BY {numbers}{having}")
}

/// An expression that several aggregates read: computed once, and only for rows that pass the filter.
fn repeated(random: &mut Random, attached: &[String], source: &str) -> String {
    let key = group_keys(random, attached).swap_remove(0);
    format!(
        "SELECT g, sum(x), max(x), count(y), min(y) FILTER (WHERE x > 3), sum(x * y) FROM (
            SELECT {key} AS g, f.v_int / f.v_tiny AS x, f.v_unsigned + f.v_int AS y {source} AND f.v_tiny <> 0) t
         WHERE x IS NOT NULL GROUP BY g"
    )
}

/// A linear congruential generator: the same queries on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}
