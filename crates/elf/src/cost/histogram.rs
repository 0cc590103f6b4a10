//! How the codes of one column are distributed.

use hotshelf_tier::Corruption;

use crate::codec::{Reader, Writer};
use crate::keys::{CodeColumn, Restriction};

/// Most counters of a histogram.
const BUCKET_COUNT_MAX: u32 = 1024;

/// Rows looked at, evenly spread; more would not change an estimate noticeably.
const SAMPLE_ROWS: usize = 1 << 20;

/// Equally wide buckets of codes; exact per code when the column has at most 1024 codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    shift: u32,
    counts: Vec<u32>,
    total: u64,
}

/// Makes the histogram of a column that comes in parts.
#[derive(Debug, Clone)]
pub(crate) struct HistogramBuilder {
    histogram: Histogram,
    /// One row in as many is looked at.
    step: usize,
}

impl HistogramBuilder {
    /// For this many rows with codes up to `code_max`.
    pub fn new(code_max: u32, row_count: usize) -> Self {
        let code_bits = 32 - code_max.leading_zeros();
        let shift = code_bits.saturating_sub(BUCKET_COUNT_MAX.ilog2());
        Self {
            histogram: Histogram {
                shift,
                counts: vec![0; (code_max >> shift) as usize + 1],
                total: 0,
            },
            step: row_count.div_ceil(SAMPLE_ROWS).max(1),
        }
    }

    /// Adds the rows from this number on.
    pub fn add(&mut self, column: &CodeColumn, first: usize) {
        let Histogram {
            shift,
            counts,
            total,
        } = &mut self.histogram;
        let skipped = first.next_multiple_of(self.step) - first;
        for row in (skipped..column.len()).step_by(self.step) {
            counts[(column.get(row) >> *shift) as usize] += 1;
            *total += 1;
        }
    }

    /// The histogram of all rows.
    pub fn finish(self) -> Histogram {
        self.histogram
    }
}

impl Histogram {
    /// The histogram of a column, from an even sample of its rows.
    pub fn from_column(column: &CodeColumn) -> Self {
        let mut builder = HistogramBuilder::new(column.max(), column.len());
        builder.add(column, 0);
        builder.finish()
    }

    /// The share of rows, 0 to 1, that a restriction accepts.
    pub fn selectivity(&self, restriction: &Restriction) -> f64 {
        let accepted = match restriction {
            Restriction::Any => return 1.0,
            Restriction::Range { lo, hi } => self.rows(*lo, *hi),
            Restriction::Set(set) => set.ranges().iter().map(|&(lo, hi)| self.rows(lo, hi)).sum(),
        };
        if self.total == 0 {
            0.0
        } else {
            (accepted / self.total as f64).min(1.0)
        }
    }

    /// Sampled rows with codes from `lo` to `hi`, buckets cut in proportion.
    fn rows(&self, lo: u32, hi: u32) -> f64 {
        let width = (1u64 << self.shift) as f64;
        let last = (self.counts.len() as u64) << self.shift;
        let (lo, end) = (u64::from(lo), (u64::from(hi) + 1).min(last));
        if lo >= end {
            return 0.0;
        }
        let (first_bucket, last_bucket) = (
            (lo >> self.shift) as usize,
            ((end - 1) >> self.shift) as usize,
        );
        let mut rows: f64 = self.counts[first_bucket..=last_bucket]
            .iter()
            .map(|&count| f64::from(count))
            .sum();
        let cut_before = lo - ((first_bucket as u64) << self.shift);
        let cut_after = ((last_bucket as u64 + 1) << self.shift) - end;
        rows -= f64::from(self.counts[first_bucket]) * cut_before as f64 / width;
        rows -= f64::from(self.counts[last_bucket]) * cut_after as f64 / width;
        rows.max(0.0)
    }

    pub(crate) fn write(&self, out: &mut Writer) {
        out.u32(self.shift);
        out.u64(self.total);
        out.u32(self.counts.len() as u32);
        out.u32s(&self.counts);
    }

    pub(crate) fn read(input: &mut Reader<'_>) -> Result<Self, Corruption> {
        let shift = input.u32("histogram shift")?;
        let total = input.u64("histogram total")?;
        let count = input.u32("histogram size")?;
        if shift > 31 || !(1..=BUCKET_COUNT_MAX).contains(&count) {
            return Err(input.corrupt("histogram", "at most 1024 counters", count));
        }
        let counts = input.u32s(count as usize, "histogram counters")?;
        Ok(Self {
            shift,
            counts,
            total,
        })
    }
}
