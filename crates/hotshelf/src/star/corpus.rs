//! A generated corpus of star queries: with the rule on and off they give equal rows, and a second time, with the
//! look-ups that the first made.
//!
//! A few run with the tests. `HOTSHELF_STAR_QUERIES=2000 cargo test -p hotshelf random_stars -- --nocapture` runs
//! more and counts what was covered; `HOTSHELF_STAR_SEED` begins elsewhere.

mod query;
mod random;
mod world;

use super::tests::{Bench, Table};
use random::Random;
use world::World;

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
    let reused = seen.by_kind.get(" reused,").copied();
    assert!(
        reused.unwrap_or(0) * 4 > seen.stars,
        "too few reused: {seen}"
    );
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
        let again = bench.try_table(sql);
        let plan = bench.try_plan("EXPLAIN", sql).unwrap_or_default();
        match (expected, found) {
            (Ok(expected), Ok(found)) => {
                let same = same_tables(&found, &expected);
                let again = again.unwrap_or_else(|error| panic!("{sql}: {error}"));
                let same = same && same_tables(&again, &expected);
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
    " reused,",
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
