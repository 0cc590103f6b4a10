//! What a run found: counts, and a script for each finding.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use crate::answers::check::{Case, Check, Verdict, norec_statements, tlp_statements};
use crate::answers::known::KNOWN;
use crate::answers::query::Query;
use crate::answers::render;
use crate::answers::rows;
use crate::answers::schema::Dialect;

/// Rows of each side that a script shows.
const ROWS_SHOWN: usize = 8;

/// How often each kind of refusal occurred, and where first.
pub type Refusals = BTreeMap<String, (u64, String)>;

/// Counts of a run.
#[derive(Debug, Default)]
pub struct Summary {
    pub queries: u64,
    pub with_rows: u64,
    pub answered: u64,
    /// Queries whose operators spilled rows.
    pub spilled: u64,
    pub equal: u64,
    pub both_refuse: u64,
    pub only_they_refuse: Refusals,
    pub only_we_refuse: Refusals,
    pub known: BTreeMap<&'static str, u64>,
    pub by_check: BTreeMap<String, u64>,
    pub schemas: u64,
    pub changes: u64,
    /// What is wrong, each with its script.
    pub wrong: Vec<String>,
    pub seconds: f64,
}

impl Summary {
    /// Counts the verdict on the query `name`.
    pub fn count(&mut self, check: Check, verdict: &Verdict, name: &str) {
        self.queries += 1;
        *self.by_check.entry(check.to_string()).or_default() += 1;
        match verdict {
            Verdict::Equal { row_count } => {
                self.equal += 1;
                self.answered += 1;
                self.with_rows += u64::from(*row_count > 0);
            }
            Verdict::BothRefuse => self.both_refuse += 1,
            Verdict::OnlyWeRefuse(failure) => {
                note(&mut self.only_we_refuse, failure.summary(), name);
            }
            Verdict::OnlyTheyRefuse(message) => {
                let plain = message.chars().filter(|c| !c.is_ascii_digit());
                note(&mut self.only_they_refuse, plain.take(60).collect(), name);
            }
            Verdict::Wrong { found, .. } => {
                self.answered += 1;
                self.with_rows += u64::from(!found.is_empty());
            }
        }
    }

    /// Of the queries that were answered, how many had rows, in percent.
    pub fn percent_with_rows(&self) -> f64 {
        100.0 * self.with_rows as f64 / self.answered.max(1) as f64
    }

    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<28} {value}");
        };
        line("databases", self.schemas.to_string());
        line("changes to tables", self.changes.to_string());
        line("queries", self.queries.to_string());
        for (check, count) in &self.by_check {
            line(&format!("  checked by {check}"), count.to_string());
        }
        line(
            "with rows",
            format!("{:.1} % of {}", self.percent_with_rows(), self.answered),
        );
        line("spilled", self.spilled.to_string());
        line("equal", self.equal.to_string());
        line("both refuse", self.both_refuse.to_string());
        line(
            "only they refuse",
            total(&self.only_they_refuse).to_string(),
        );
        for (kind, (count, first)) in &self.only_they_refuse {
            line(&format!("  {count} ({first})"), kind.clone());
        }
        line("only we refuse", total(&self.only_we_refuse).to_string());
        for (kind, (count, first)) in &self.only_we_refuse {
            line(&format!("  {count} ({first})"), kind.clone());
        }
        for known in KNOWN {
            let count = self.known.get(known.name).copied().unwrap_or(0);
            line(
                &format!("known: {}", known.name),
                format!("{count} ({})", known.reason),
            );
        }
        line("wrong", self.wrong.len().to_string());
        for wrong in &self.wrong {
            line("", wrong.clone());
        }
        line("seconds", format!("{:.1}", self.seconds));
        text
    }

    pub fn json(&self) -> String {
        let json = json!({
            "databases": self.schemas,
            "changes": self.changes,
            "queries": self.queries,
            "by_check": self.by_check,
            "percent_with_rows": self.percent_with_rows(),
            "spilled": self.spilled,
            "equal": self.equal,
            "both_refuse": self.both_refuse,
            "only_they_refuse": self.only_they_refuse,
            "only_we_refuse": self.only_we_refuse,
            "known": self.known,
            "wrong": self.wrong,
            "seconds": self.seconds,
        });
        json.to_string()
    }
}

/// A verdict in a few words.
pub fn outcome(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Equal { row_count } => format!("equal, {row_count} rows"),
        Verdict::BothRefuse => "both refuse".into(),
        Verdict::OnlyWeRefuse(failure) => format!("only we refuse: {}", failure.message),
        Verdict::OnlyTheyRefuse(message) => format!("only they refuse: {message}"),
        Verdict::Wrong { found, expected } => {
            format!("wrong: {} rows, expected {}", found.len(), expected.len())
        }
    }
}

/// Counts a refusal.
pub fn note(refusals: &mut Refusals, kind: String, name: &str) {
    refusals
        .entry(kind)
        .or_insert_with(|| (0, name.to_owned()))
        .0 += 1;
}

fn total(refusals: &Refusals) -> u64 {
    refusals.values().map(|(count, _)| count).sum()
}

/// The case as SQL that runs by itself, with what it gave and what it should have given.
pub fn script(name: &str, case: &Case, verdict: &Verdict) -> String {
    let mut text = format!(
        "-- {name}, found by the check '{}'\n{}",
        case.check, case.world
    );
    for table in &case.world.tables {
        let _ = writeln!(text, "{};", render::create_table(table, Dialect::Hotshelf));
        for insert in render::inserts(table, Dialect::Hotshelf) {
            let _ = writeln!(text, "{insert};");
        }
        for index in render::create_indexes(table) {
            let _ = writeln!(text, "{index};");
        }
    }
    for set in case.settings.statements() {
        let _ = writeln!(text, "{set};");
    }
    queries(&mut text, case);
    answers(&mut text, verdict);
    text
}

/// The statements that a case runs, without the tables.
pub fn statements_of(case: &Case) -> String {
    let mut text = String::new();
    queries(&mut text, case);
    text
}

fn queries(text: &mut String, case: &Case) {
    let ours = |query: &Query| render::query(query, Dialect::Hotshelf);
    let _ = writeln!(text, "\n{};", ours(&case.query));
    match case.check {
        Check::Duckdb => {
            let theirs = render::query(&case.query, Dialect::Duckdb);
            if theirs != ours(&case.query) {
                let _ = writeln!(text, "-- DuckDB: {theirs};");
            }
        }
        Check::Settings => {
            for statement in case.then.iter().cloned().chain(case.other.statements()) {
                let _ = writeln!(text, "{statement};");
            }
            let _ = writeln!(text, "{};", ours(&case.query));
        }
        Check::Tlp => {
            for part in tlp_statements(case) {
                let _ = writeln!(text, "{};", ours(&part));
            }
        }
        Check::Norec => {
            for side in norec_statements(case) {
                let _ = writeln!(text, "{};", ours(&side));
            }
        }
    }
}

fn answers(text: &mut String, verdict: &Verdict) {
    match verdict {
        Verdict::Wrong { found, expected } => {
            let (only_found, only_expected) = rows::difference(found, expected, ROWS_SHOWN);
            let _ = writeln!(
                text,
                "\n-- {} rows, expected {}",
                found.len(),
                expected.len()
            );
            if only_found.is_empty() && only_expected.is_empty() {
                let _ = writeln!(
                    text,
                    "-- the same rows in another order, found and expected:"
                );
                for row in found.iter().chain(expected).take(2 * ROWS_SHOWN) {
                    let _ = writeln!(text, "-- {}", rows::text(row));
                }
            }
            for row in only_found {
                let _ = writeln!(text, "-- found only:    {row}");
            }
            for row in only_expected {
                let _ = writeln!(text, "-- expected only: {row}");
            }
        }
        Verdict::OnlyWeRefuse(failure) => {
            for line in failure.message.lines().take(20) {
                let _ = writeln!(text, "-- {:?}: {line}", failure.kind);
            }
        }
        _ => {}
    }
}
