//! For tests of rules: the plan before and after one, where it first changes it, in the planner's own order.

use arrow::array::AsArray;

use crate::{Database, Options};

/// Tables of the tests: `t` has 200 rows for each of the 100 keys of `s`.
const TABLES: [&str; 2] = [
    "CREATE TABLE t AS SELECT value % 100 AS k, value AS n, value % 7 AS v, 'text ' || (value % 5) AS w
        FROM generate_series(1, 20000) AS g(value)",
    "CREATE TABLE s AS SELECT value AS k, 'name ' || value AS name, value % 10 AS x
        FROM generate_series(0, 99) AS g(value)",
];

/// The texts of a plan.
#[derive(Debug)]
pub(super) struct BeforeAfter {
    rule: &'static str,
    /// Nothing where the rule leaves the plan as it is.
    texts: Option<[String; 2]>,
}

/// What a rule of this name makes of the plan of a query. Statements before the query are run.
pub(super) fn before_after(rule: &'static str, statements: &[&str]) -> BeforeAfter {
    let options = Options {
        budget_bytes: 64 << 20,
        threads: 2,
        ..Options::default()
    };
    let database = Database::temporary(options).unwrap();
    let session = database.session();
    let run = |sql: &str| {
        let answer = async { session.sql(sql).await?.collect().await };
        let rows = database.block_on(answer);
        rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
    };
    let (query, settings) = statements.split_last().unwrap();
    TABLES.iter().chain(settings).for_each(|sql| drop(run(sql)));
    let mut before = String::new();
    for batch in run(&format!("EXPLAIN VERBOSE {query}")) {
        let [kinds, plans] = [0, 1].map(|column| batch.column(column).as_string::<i32>());
        for (kind, plan) in kinds.iter().flatten().zip(plans.iter().flatten()) {
            if plan == "SAME TEXT AS ABOVE" || kind.contains("_with_") {
                continue;
            }
            if kind
                .strip_suffix(rule)
                .is_some_and(|kind| kind.ends_with(" after "))
            {
                let texts = [before.as_str(), plan].map(without_machine);
                return BeforeAfter {
                    rule,
                    texts: Some(texts),
                };
            }
            before = plan.to_owned();
        }
    }
    BeforeAfter { rule, texts: None }
}

impl BeforeAfter {
    /// Compares both texts, which may be indented.
    pub fn is(self, before: &str, after: &str) {
        let rule = self.rule;
        let texts = self
            .texts
            .unwrap_or_else(|| panic!("{rule} leaves the plan"));
        assert_eq!(texts[0], unindented(before), "before {rule}");
        assert_eq!(texts[1], unindented(after), "after {rule}");
    }

    /// The rule leaves the plan as it is.
    pub fn is_the_same(&self) {
        assert_eq!(self.texts, None, "{}", self.rule);
    }
}

/// The lines of a plan without what depends on the machine: what it reads files by, and how long it would take.
fn without_machine(plan: &str) -> String {
    let lines = plan.trim_end().lines();
    let lines = lines.map(|line| line.split(", io=").next().unwrap_or(line));
    lines.map(without_figures).collect::<Vec<_>>().join("\n")
}

/// A scan's way to its rows without the figures that it was chosen by.
fn without_figures(line: &str) -> String {
    let cut = line.split_once(", access=").and_then(|(start, way)| {
        let (name, figures) = way.split_once(" (")?;
        let (_, end) = figures.split_once(')')?;
        Some(format!("{start}, access={name}{end}"))
    });
    cut.unwrap_or_else(|| line.to_owned())
}

/// The lines of a text without what all of them are indented by.
fn unindented(text: &str) -> String {
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let indent = lines().map(|line| line.len() - line.trim_start().len());
    let indent = indent.min().unwrap_or(0);
    lines()
        .map(|line| &line[indent..])
        .collect::<Vec<_>>()
        .join("\n")
}
