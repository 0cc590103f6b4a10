//! Alternating runs of contenders.

use std::hint::black_box;
use std::time::Instant;

use hotshelf_elf::Result;
use hotshelf_elf::keys::CodeTable;

use super::Figure;

/// Answers a list of queries; the checksum of the answers must be everyone's.
pub(super) type Contender<'a> = (&'a str, &'a dyn Fn() -> Result<u64>);

/// Runs all contenders in turn, shows queries per second.
pub(super) fn compare(
    case: &str,
    query_count: usize,
    round_count: usize,
    contenders: &[Contender<'_>],
    show: &mut dyn FnMut(Figure),
) -> Result<()> {
    let mut seconds = vec![Vec::new(); contenders.len()];
    let mut sums = vec![0; contenders.len()];
    for _ in 0..round_count.max(1) {
        for ((_, answer), (seconds, sum)) in
            contenders.iter().zip(seconds.iter_mut().zip(&mut sums))
        {
            let start = Instant::now();
            *sum = black_box(answer()?);
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    assert!(
        sums.iter().all(|sum| *sum == sums[0]),
        "{case}: contenders disagree: {sums:?}"
    );
    let medians: Vec<f64> = seconds.into_iter().map(median).collect();
    for ((contender, _), seconds) in contenders.iter().zip(&medians) {
        show(Figure {
            case: case.to_owned(),
            contender: (*contender).to_owned(),
            value: query_count as f64 / seconds,
            unit: "queries/s",
            ratio: Some(medians[0] / seconds),
        });
    }
    Ok(())
}

/// The middle of some values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A checksum of TIDs.
pub(super) fn checksum(tids: &[u32]) -> u64 {
    tids.iter().map(|&tid| u64::from(tid) + 1).sum()
}

/// The largest code of every column: finding one looks at all rows.
pub(super) fn maxima(table: &CodeTable) -> Vec<u32> {
    table.columns().iter().map(|column| column.max()).collect()
}
