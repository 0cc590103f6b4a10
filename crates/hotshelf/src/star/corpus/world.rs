//! The tables of the corpus: one that is scanned and its dimensions, with random types, NULLs and repeated keys.

use super::random::Random;
use crate::Options;
use crate::star::tests::Bench;

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
pub(super) const VALUES: &[(&str, &str)] = &[
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
    ("v_other", "CAST(value * 3 % 301 - 100 AS INT)"),
    ("v_large", "value * 999983 - value % 3 * 5000000"),
    (
        "v_unsigned_other",
        "CAST(value * 17 % 6000 AS INT UNSIGNED)",
    ),
    (
        "v_due",
        "CAST(DATE '1993-01-01' + CAST(value * 17 % 2000 AS INT) AS DATE)",
    ),
];

/// A scanned table `f` with dimensions `d0`, `d1`, … and `far`, to which dimensions refer.
pub(super) struct World {
    statements: Vec<String>,
    /// How many `d0`, `d1`, … there are.
    pub dimensions: usize,
}

impl World {
    pub fn new(random: &mut Random) -> Self {
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

    pub fn bench(&self, random: &mut Random) -> Bench {
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
