//! How fast several contenders answer the same queries, in turn.

use std::time::Instant;

use hotshelf_elf::Result;

use super::contender::Contender;
use super::shelf::Accesses;
use super::workload::Queries;

/// What is compared: a contender for each thread.
pub struct Entry<'a> {
    /// `linear` or `packed`.
    pub layout: &'static str,
    /// What is in DRAM.
    pub variant: String,
    /// What the rest lies on.
    pub shelf: &'static str,
    /// Its name in a figure's legend.
    pub series: String,
    /// Its place on a figure's horizontal axis, if that is not time.
    pub x: Option<f64>,
    /// Bytes of the whole index.
    pub index_bytes: u64,
    /// One for each thread.
    pub threads: Vec<Box<dyn Contender + 'a>>,
}

/// A measured contender.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The figure, as `--figure` names it.
    pub figure: String,
    /// `linear` or `packed`.
    pub layout: &'static str,
    /// What is in DRAM.
    pub variant: String,
    /// What the rest lies on.
    pub shelf: &'static str,
    /// What is asked.
    pub query: String,
    /// The skew.
    pub theta: f64,
    /// Threads that ask.
    pub threads: usize,
    /// Its name in the legend.
    pub series: String,
    /// Its place on the horizontal axis.
    pub x: Option<f64>,
    /// The median over rounds.
    pub queries_per_s: f64,
    /// Bytes of DRAM that hold parts of the index, or say where they are.
    pub dram_bytes: u64,
    /// Bytes of the whole index.
    pub index_bytes: u64,
    /// Accesses to the shelf for each query.
    pub slow_accesses_per_query: f64,
}

impl Row {
    /// Whether the shelf is not a real one.
    pub fn is_emulated(&self) -> bool {
        self.shelf.starts_with("emulated")
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The figure.
    pub figure: &'a str,
    /// The name of the queries.
    pub query: &'a str,
    /// The skew.
    pub theta: f64,
    /// Dimensions of the table.
    pub dimension_count: usize,
}

/// One part of the queries for each thread.
pub fn split(queries: &Queries, dimension_count: usize, thread_count: usize) -> Vec<Queries> {
    let part = queries.count(dimension_count).div_ceil(thread_count).max(1);
    match queries {
        Queries::Keys(keys) => {
            let parts = keys.chunks(part * dimension_count);
            parts.map(|keys| Queries::Keys(keys.to_vec())).collect()
        }
        Queries::Boxes(boxes) => {
            let parts = boxes.chunks(part);
            parts.map(|boxes| Queries::Boxes(boxes.to_vec())).collect()
        }
    }
}

/// One round of one contender.
struct Round {
    seconds: f64,
    sum: u64,
    accesses: u64,
}

impl Entry<'_> {
    fn total(&self) -> Accesses {
        let mut total = Accesses::default();
        for thread in &self.threads {
            total += thread.accesses();
        }
        total
    }

    fn answer(&mut self, parts: &[Queries]) -> Result<Round> {
        let before = self.total();
        let start = Instant::now();
        let sum = match (&mut self.threads[..], parts) {
            ([one], [queries]) => one.answer(queries)?,
            (threads, parts) => std::thread::scope(|scope| {
                let asked = threads.iter_mut().zip(parts);
                let running: Vec<_> = asked
                    .map(|(thread, queries)| scope.spawn(move || thread.answer(queries)))
                    .collect();
                let sums = running.into_iter().map(|thread| {
                    let joined = thread.join();
                    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                });
                sums.sum::<Result<u64>>()
            })?,
        };
        let seconds = start.elapsed().as_secs_f64();
        let after = self.total();
        assert_eq!(after.failures, 0, "{}: reads failed", self.variant);
        Ok(Round {
            seconds,
            sum,
            accesses: after.grains - before.grains,
        })
    }

    fn warm(&mut self, queries: &Queries, dimension_count: usize) -> Result<()> {
        let parts = split(queries, dimension_count, self.threads.len());
        self.threads
            .iter_mut()
            .for_each(|thread| thread.set_waiting(false));
        self.answer(&parts)?;
        self.threads
            .iter_mut()
            .for_each(|thread| thread.set_waiting(true));
        Ok(())
    }

    fn row(&self, case: &Case<'_>, query_count: usize, rounds: &mut [Round]) -> Row {
        rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let accesses: u64 = rounds.iter().map(|round| round.accesses).sum();
        let dram = self.threads.first().map(|thread| thread.dram_bytes());
        Row {
            figure: case.figure.to_owned(),
            layout: self.layout,
            variant: self.variant.clone(),
            shelf: self.shelf,
            query: case.query.to_owned(),
            theta: case.theta,
            threads: self.threads.len(),
            series: self.series.clone(),
            x: self.x,
            queries_per_s: query_count as f64 / rounds[rounds.len() / 2].seconds,
            dram_bytes: dram.unwrap_or_default(),
            index_bytes: self.index_bytes,
            slow_accesses_per_query: accesses as f64 / (rounds.len() * query_count) as f64,
        }
    }
}

/// Warms all entries up, without waiting for shelves, then asks them the queries of each round in turn.
///
/// # Errors
/// Those of the queries.
///
/// # Panics
/// When two entries answer differently, or reads of a device fail.
pub fn compare(
    case: &Case<'_>,
    entries: &mut [Entry<'_>],
    warm_up: &Queries,
    rounds: &[Queries],
) -> Result<Vec<Row>> {
    for entry in entries.iter_mut() {
        entry.warm(warm_up, case.dimension_count)?;
    }
    let mut measured: Vec<Vec<Round>> = entries.iter().map(|_| Vec::new()).collect();
    for (number, queries) in rounds.iter().enumerate() {
        let mut expected = None;
        for turn in 0..entries.len() {
            // Another one begins each time.
            let at = (turn + number) % entries.len();
            let entry = &mut entries[at];
            let parts = split(queries, case.dimension_count, entry.threads.len());
            let round = entry.answer(&parts)?;
            let expected = *expected.get_or_insert(round.sum);
            assert_eq!(round.sum, expected, "{} answers differently", entry.variant);
            measured[at].push(round);
        }
    }
    let query_count = rounds
        .first()
        .map_or(0, |one| one.count(case.dimension_count));
    let rows = entries.iter().zip(&mut measured);
    Ok(rows
        .map(|(entry, rounds)| entry.row(case, query_count, rounds))
        .collect())
}

/// Asks cold entries more and more queries; a row for each stretch, with the queries up to its end as its place on the
/// horizontal axis (as a power of ten).
///
/// # Errors
/// Those of the queries.
///
/// # Panics
/// Those of [`compare`].
pub fn over_time(
    case: &Case<'_>,
    entries: &mut [Entry<'_>],
    stretches: &[Queries],
) -> Result<Vec<Row>> {
    let (mut rows, mut total) = (Vec::new(), 0);
    for queries in stretches {
        let count = queries.count(case.dimension_count);
        total += count;
        let mut expected = None;
        for entry in entries.iter_mut() {
            let parts = split(queries, case.dimension_count, entry.threads.len());
            let round = entry.answer(&parts)?;
            let expected = *expected.get_or_insert(round.sum);
            assert_eq!(round.sum, expected, "{} answers differently", entry.variant);
            entry.x = Some((total as f64).log10());
            rows.push(entry.row(case, count, &mut [round]));
        }
    }
    Ok(rows)
}
