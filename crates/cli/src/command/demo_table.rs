//! The demo's table: one line per query, two columns per setting.

use crate::benchmark::policies::SettingRun;
use crate::benchmark::{Measurement, Query};

/// The last pass under each setting, and sums over it and over all passes.
pub fn table(queries: &[Query], runs: &[SettingRun]) -> Vec<String> {
    let mut rows = vec![head(runs)];
    for (idx, (name, _)) in queries.iter().enumerate() {
        let measured = runs.iter().filter_map(|run| run.last_pass().get(idx));
        let cells = measured.map(|run| (run.seconds, run.bytes_storage));
        rows.push(row(name, cells));
    }
    let last_pass = runs.iter().map(|run| sum(run.last_pass().iter()));
    rows.push(row("last pass", last_pass));
    let all_passes = runs.iter().map(|run| sum(run.passes.iter().flatten()));
    rows.push(row("all passes", all_passes));
    align(&rows, &[1, 1 + queries.len()])
}

fn head(runs: &[SettingRun]) -> Vec<String> {
    let labels = runs.iter().map(|run| &run.setting.label);
    let columns = labels.flat_map(|label| [format!("{label}: s"), "MB read".to_owned()]);
    std::iter::once("query".to_owned()).chain(columns).collect()
}

fn row(name: &str, cells: impl Iterator<Item = (f64, u64)>) -> Vec<String> {
    let cells = cells.flat_map(|(seconds, bytes_storage)| {
        let megabytes = bytes_storage as f64 / 1e6;
        [format!("{seconds:.3}"), format!("{megabytes:.1}")]
    });
    std::iter::once(name.to_owned()).chain(cells).collect()
}

fn sum<'a>(measurements: impl Iterator<Item = &'a Measurement>) -> (f64, u64) {
    measurements.fold((0.0, 0), |(seconds, bytes), run| {
        (seconds + run.seconds, bytes + run.bytes_storage)
    })
}

/// The first column to the left, the others to the right; a rule before each row of `rules`.
fn align(rows: &[Vec<String>], rules: &[usize]) -> Vec<String> {
    let column_count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..column_count).map(width).collect();
    let mut lines = Vec::with_capacity(rows.len() + rules.len());
    for (idx, row) in rows.iter().enumerate() {
        if rules.contains(&idx) {
            lines.push("-".repeat(widths.iter().sum::<usize>() + 2 * column_count.max(1) - 2));
        }
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        lines.push(cells.collect::<Vec<_>>().join("  "));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::policies::Setting;
    use hotshelf::PolicyKind;

    #[test]
    fn the_table_shows_the_last_pass_and_sums() {
        let measurement = |seconds, bytes_storage| Measurement {
            seconds,
            bytes_storage,
            ..Measurement::default()
        };
        let run = SettingRun {
            setting: Setting {
                label: "lru".into(),
                policy: PolicyKind::Lru,
                budget_bytes: 1,
            },
            passes: vec![
                vec![measurement(2.0, 9_000_000), measurement(3.0, 1_000_000)],
                vec![measurement(1.0, 0), measurement(0.5, 1_500_000)],
            ],
        };
        let expected = [
            "query       lru: s  MB read",
            "---------------------------",
            "Q1           1.000      0.0",
            "Q2           0.500      1.5",
            "---------------------------",
            "last pass    1.500      1.5",
            "all passes   6.500     11.5",
        ];
        assert_eq!(table(&[("Q1", ""), ("Q2", "")], &[run]), expected);
    }
}
