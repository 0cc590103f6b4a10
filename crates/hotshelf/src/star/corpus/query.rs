//! Queries of the corpus over the tables of a [`World`].

use super::random::Random;
use super::world::{VALUES, World};

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
const COMPUTED: &[&str] = &[
    "f.v_int * (1 + f.v_tiny)",
    "f.v_big * f.v_int",
    "f.v_money * (1 - f.v_tiny) - f.v_int",
    "CASE WHEN f.v_int > 100 OR f.v_text = 'text 7' THEN f.v_money ELSE 0 END",
    "CASE WHEN f.v_text LIKE '%1' AND f.v_day < DATE '1994-06-01' THEN 1 ELSE 0 END",
    "f.v_money * f.v_money * f.v_money",
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
    "f.v_day < f.v_due",
    "f.v_day >= f.v_due",
    "f.v_int >= f.v_other AND f.v_int <> f.v_other",
    "f.v_int = f.v_other OR f.v_bool",
    "f.v_big > f.v_large",
    "f.v_unsigned <= f.v_unsigned_other",
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

/// A FROM clause.
struct Joins {
    from: String,
    /// Joins that are written as conditions.
    conditions: Vec<String>,
    /// The tables besides `f` whose columns can be used.
    attached: Vec<String>,
}

impl World {
    pub fn query(&self, random: &mut Random) -> String {
        let Joins {
            from,
            mut conditions,
            attached,
        } = self.joins(random);
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

    fn joins(&self, random: &mut Random) -> Joins {
        let mut joins = Joins {
            from: "f".to_owned(),
            conditions: Vec::new(),
            attached: Vec::new(),
        };
        for idx in 0..self.dimensions {
            if !random.one_in(4) {
                joins.add(random, idx);
            }
        }
        if random.one_in(3) && !joins.attached.is_empty() {
            // A snowflake: a table that a dimension refers to.
            let near = &joins.attached[random.below(joins.attached.len())];
            joins
                .from
                .push_str(&format!(" JOIN far ON {near}.b = far.k"));
            joins.attached.push("far".to_owned());
        }
        joins
    }
}

impl Joins {
    /// Joins a dimension in some way.
    fn add(&mut self, random: &mut Random, idx: usize) {
        let on = format!("f.k{idx} = d{idx}.k");
        let inner = match random.below(4) {
            0 => format!(" WHERE d{idx}.b < {}", random.below(30)),
            _ => String::new(),
        };
        match random.below(16) {
            0 | 1 => self.attach(idx, &format!(" LEFT JOIN d{idx} ON {on}")),
            2 => self.attach(idx, &format!(" RIGHT JOIN d{idx} ON {on}")),
            3 => self.from.push_str(&format!(" LEFT SEMI JOIN d{idx} ON {on}")),
            4 => self.from.push_str(&format!(" LEFT ANTI JOIN d{idx} ON {on}")),
            5 => self
                .conditions
                .push(format!("f.k{idx} IN (SELECT d{idx}.k FROM d{idx}{inner})")),
            6 => {
                let and = inner.replace(" WHERE", " AND");
                self.conditions
                    .push(format!("NOT EXISTS (SELECT 1 FROM d{idx} WHERE {on}{and})"));
            }
            7 => self.conditions.push(format!(
                "f.k{idx} NOT IN (SELECT d{idx}.k FROM d{idx}{inner})"
            )),
            8 => self.attach(
                idx,
                &format!(" JOIN d{idx} ON {on} AND d{idx}.b + f.v_tiny < 25"),
            ),
            // A build side that is a join itself.
            9 => self.attach(
                idx,
                &format!(
                    " JOIN (SELECT x.k, x.a, x.b, x.c, x.d, x.e FROM d{idx} x JOIN \
                     (SELECT DISTINCT b % 4 AS b FROM d{idx}) y ON x.b % 5 = y.b) d{idx} ON {on}"
                ),
            ),
            10 => self.attach(
                idx,
                &format!(
                    " JOIN (SELECT k, max(a) AS a, sum(b) AS b, min(c) AS c, min(d) AS d, max(e) AS e \
                     FROM d{idx} GROUP BY k) d{idx} ON {on}"
                ),
            ),
            _ => self.attach(idx, &format!(" JOIN d{idx} ON {on}")),
        }
    }

    /// Adds a join whose table's columns can be used.
    fn attach(&mut self, idx: usize, join: &str) {
        self.from.push_str(join);
        self.attached.push(format!("d{idx}"));
    }
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
            (1, _) => random.pick(COMPUTED).to_owned(),
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
