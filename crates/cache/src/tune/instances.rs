//! Random problems on three shelves, for laws and for measuring.

use crate::key::{ColumnId, mix};
use crate::model::{Choice, ItemClass, ItemId, Problem, Representation, Shelf, Term, TermRead};

/// A random number generator that needs no crate.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(mix(seed) >> 8)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly spread over orders of magnitude.
    pub(crate) fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }
}

/// How large a random problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceSize {
    /// Columns, each with this many representations.
    pub column_count: usize,
    /// 1 to 3.
    pub representation_count: usize,
    /// Index blocks and metadata: two of three are blocks.
    pub other_count: usize,
    /// Pipelines.
    pub term_count: usize,
}

/// A problem on memory, local disk and remote storage, the same for the same seed. One column in four is stored on the
/// disk, everything else remotely.
pub fn random_instance(seed: u64, size: InstanceSize) -> Problem {
    let mut draw = Draw::new(seed);
    let disk_bandwidth = draw.between(5e8, 3e9);
    let shelves = vec![
        Shelf::unbounded(draw.between(1e10, 1e11)),
        Shelf {
            latency_s: 1e-4,
            in_flight: 32.0,
            ..Shelf::unbounded(disk_bandwidth)
        },
        Shelf {
            latency_s: 0.025,
            in_flight: draw.between(8.0, 64.0),
            ..Shelf::unbounded(draw.between(5e7, 5e8))
        },
    ];
    let mut problem = Problem::empty(shelves);
    problem.overlap_loss = [0.0, 0.1, 0.3][seed as usize % 3];
    for number in 0..size.column_count {
        add_column(&mut draw, &mut problem, number, size, disk_bandwidth);
    }
    for query_idx in 0..size.term_count {
        let term = random_term(&mut draw, &problem, query_idx, disk_bandwidth);
        problem.terms.push(term);
    }
    let nothing = vec![0.0; problem.choices.len()];
    let of_terms_s = problem.total_s(&nothing);
    for number in 0..size.other_count {
        let share_s = of_terms_s / size.other_count as f64;
        add_other(&mut draw, &mut problem, number, share_s);
    }
    let all_bytes: f64 = problem.items.iter().map(|item| item.bytes).sum();
    problem.shelves[0].budget_bytes = all_bytes * draw.between(0.02, 0.3);
    problem.shelves[1].budget_bytes = all_bytes * draw.between(0.1, 0.6);
    problem
}

fn add_column(
    draw: &mut Draw,
    problem: &mut Problem,
    number: usize,
    size: InstanceSize,
    disk_bandwidth: f64,
) {
    let bytes = draw.magnitude(1e7, 4e9);
    let home = if draw.below(4) == 0 { 1 } else { 2 };
    let decoding_s = draw.between(0.02, 0.3) / disk_bandwidth;
    let written = [
        (Representation::Stored, 1.0, 0.0),
        (
            Representation::Transcoded,
            draw.between(0.6, 1.3),
            decoding_s * draw.between(0.3, 0.8),
        ),
        (Representation::Decoded, draw.between(1.2, 5.0), decoding_s),
    ];
    let mut choices = Vec::new();
    for shelf in 0..=home.min(1) {
        for (representation, ratio, saved_s) in &written[..size.representation_count] {
            if shelf < home || *representation != Representation::Stored {
                choices.push(Choice {
                    representation: *representation,
                    processing_saved_s: *saved_s,
                    ..Choice::stored(shelf, ratio * bytes)
                });
            }
        }
    }
    problem.add(
        ItemId::column(ColumnId(number as u32)),
        bytes,
        home,
        &choices,
    );
}

fn random_term(draw: &mut Draw, problem: &Problem, query_idx: usize, disk_bandwidth: f64) -> Term {
    let mut reads: Vec<TermRead> = Vec::new();
    for _ in 0..1 + draw.below(6) {
        let item_idx = draw.below(problem.items.len());
        let share = match draw.below(2) {
            0 => 1.0,
            _ => draw.between(0.2, 1.0),
        };
        if reads.iter().all(|read| read.item_idx != item_idx) {
            reads.push(TermRead {
                item_idx,
                bytes: share * problem.items[item_idx].bytes,
            });
        }
    }
    Term {
        weight: draw.magnitude(0.01, 2.0),
        reads,
        processing_bandwidth: disk_bandwidth * draw.magnitude(0.2, 12.0),
        query_idx,
        template: query_idx as u64,
        pipeline: 0,
    }
}

/// An index block or metadata: its uses cost a random read from where it is.
fn add_other(draw: &mut Draw, problem: &mut Problem, number: usize, share_s: f64) {
    let class = match number % 3 {
        2 => ItemClass::Metadata,
        _ => ItemClass::IndexBlock,
    };
    let bytes = draw.magnitude(1.0, 6.4e7);
    let remote_s = share_s * draw.magnitude(1e-3, 1.0);
    let disk_s = remote_s * draw.between(0.004, 0.05);
    let parse_s = draw.between(0.0, 0.5) * disk_s;
    let choices = [
        Choice {
            saved_s: remote_s - parse_s,
            ..Choice::stored(0, bytes)
        },
        Choice {
            saved_s: remote_s,
            representation: Representation::Decoded,
            ..Choice::stored(0, bytes * draw.between(1.5, 3.0))
        },
        Choice {
            saved_s: remote_s - disk_s - parse_s,
            ..Choice::stored(1, bytes)
        },
    ];
    let id = ItemId {
        class,
        number: number as u64,
    };
    problem.add(id, bytes, 2, &choices);
}
