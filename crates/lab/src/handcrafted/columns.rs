//! The queries over columns, a chunk of rows after the other.

use std::ops::Range;

use hotshelf_datagen::ssb::SsbTable;
use hotshelf_tier::region::numbers;
use hotshelf_tier::simd::{Backend, prefetch};

use super::dimension::NONE;
use super::fact::{FactColumn, Stripe};
use super::lookup::{CHUNK_ROWS, LookUp, Rows};
use super::pace::Pace;
use super::plan::{Days, Plan, Sums};
use super::queries::{Bounds, Measure};

/// Rows whose bounds are tested together: their bytes fit the first cache.
const SCAN_ROWS: usize = 4096;
const LINE_BYTES: usize = 64;
/// Where one line of prices in this many has a row that is left, all lines are read.
const DENSE_PARTS: usize = 5;

/// Runs a query over some rows of a stripe.
pub fn run(plan: &Plan, stripe: &Stripe, rows: Range<usize>, pace: &mut Pace) -> Sums {
    match (&plan.query.bounds, &plan.days) {
        (Some(bounds), Some(days)) => scan(plan, bounds, days, stripe, rows, pace),
        _ => join(plan, stripe, rows, pace),
    }
}

/// Flight 1: bounds of bytes by vector instructions. Prices are read where a row is left, or all of them where rows are
/// left in a large part of the lines.
fn scan(
    plan: &Plan,
    bounds: &Bounds,
    days: &Days,
    stripe: &Stripe,
    rows: Range<usize>,
    pace: &mut Pace,
) -> Sums {
    let mut sums = Sums::new(plan.group_count);
    let scan = Scan {
        backend: Backend::detect(),
        bounds,
        days,
        stripe,
    };
    let starts = rows.clone().step_by(SCAN_ROWS);
    let mut chunks = starts.map(|start| start..(start + SCAN_ROWS).min(rows.end));
    // Boxes change places without their rows being moved.
    let mut found = [Box::new(Found::new()), Box::new(Found::new())];
    let mut before: Option<Range<usize>> = None;
    for chunk in chunks.by_ref() {
        pace.read_ahead(scan.bytes(chunk.len()));
        found.swap(0, 1);
        let lines = scan.ask_for_prices(&chunk, &scan.test(&chunk), &mut found[0]);
        // A grain has four lines; those of one are rarely all asked for.
        pace.read_lines(lines, lines, chunk.len() * 4);
        let is_dense = days.exact && lines * DENSE_PARTS > (chunk.len() * 4).div_ceil(LINE_BYTES);
        // The lines of this chunk are on their way while those of the one before are summed.
        if let Some(before) = before.replace(chunk) {
            scan.sum(&before, &found[1], &mut sums);
        }
        if is_dense {
            break;
        }
    }
    if let Some(last) = before {
        scan.sum(&last, &found[0], &mut sums);
    }
    for chunk in chunks {
        pace.read_ahead(scan.bytes(chunk.len()) + chunk.len() * 4);
        scan.sum_all(&chunk, &scan.test(&chunk), &mut sums);
    }
    pace.finish();
    sums
}

/// A bit for each row of a chunk.
type Bitmap = [u64; SCAN_ROWS / 64];

struct Scan<'a> {
    backend: Backend,
    bounds: &'a Bounds,
    days: &'a Days,
    stripe: &'a Stripe,
}

impl Scan<'_> {
    fn needs_days(&self) -> bool {
        self.days.days != (0, 30) || !self.days.exact
    }

    /// Bytes that are always read.
    fn bytes(&self, rows: usize) -> usize {
        rows * if self.needs_days() { 4 } else { 3 }
    }

    /// Tests every column of all rows: no branch, and no line of a column is left out.
    fn test(&self, chunk: &Range<usize>) -> Bitmap {
        let column = |column| self.stripe.column(column, chunk);
        let months = (column(FactColumn::Month), self.days.months);
        let discounts = (column(FactColumn::Discount), self.bounds.discount);
        let quantities = (column(FactColumn::Quantity), self.bounds.quantity);
        let mut bitmap = [0; SCAN_ROWS / 64];
        let three = [months, discounts, quantities];
        match self.needs_days() {
            true => {
                let days = (column(FactColumn::Day), self.days.days);
                self.scan([three[0], three[1], three[2], days], &mut bitmap);
            }
            false => self.scan(three, &mut bitmap),
        }
        bitmap
    }

    fn scan<const N: usize>(&self, columns: [(&[u8], (u8, u8)); N], bitmap: &mut Bitmap) {
        let (bytes, bounds) = (
            columns.map(|(bytes, _)| bytes),
            columns.map(|(_, bounds)| bounds),
        );
        self.backend.scan_columns(bytes, bounds, bitmap);
    }

    /// Notes the rows that are left, fetches their prices, and says in how many lines these lie.
    fn ask_for_prices(&self, chunk: &Range<usize>, bitmap: &Bitmap, found: &mut Found) -> usize {
        const LINE_ROWS: u16 = (LINE_BYTES / 4) as u16;
        found.fill(self.backend, bitmap);
        let prices = numbers::<u32>(self.stripe.column(FactColumn::Price, chunk));
        let (mut lines, mut last) = (0, u16::MAX);
        for row in found.rows() {
            prefetch(prices, usize::from(*row));
            lines += usize::from(row / LINE_ROWS != last);
            last = row / LINE_ROWS;
        }
        lines
    }

    /// Sums the rows of a bitmap, and reads the prices of all. Days must be exact.
    fn sum_all(&self, chunk: &Range<usize>, bitmap: &Bitmap, sums: &mut Sums) {
        let prices = numbers::<u32>(self.stripe.column(FactColumn::Price, chunk));
        let discounts = self.stripe.column(FactColumn::Discount, chunk);
        let sum = self.backend.sum_products(prices, discounts, bitmap);
        let rows: u32 = bitmap.iter().map(|word| word.count_ones()).sum();
        sums.add_many(0, sum.cast_signed(), u64::from(rows));
    }

    fn sum(&self, chunk: &Range<usize>, found: &Found, sums: &mut Sums) {
        let prices = numbers::<u32>(self.stripe.column(FactColumn::Price, chunk));
        let discounts = self.stripe.column(FactColumn::Discount, chunk);
        let product = |row: usize| i64::from(prices[row]) * i64::from(discounts[row]);
        let rows = found.rows().iter().map(|row| usize::from(*row));
        if self.days.exact {
            let sum = rows.map(product).sum();
            return sums.add_many(0, sum, found.len as u64);
        }
        let months = self.stripe.column(FactColumn::Month, chunk);
        let days = self.stripe.column(FactColumn::Day, chunk);
        for row in rows {
            let code = usize::from(months[row]) * 31 + usize::from(days[row]);
            if self.days.codes.get(code).is_some_and(|code| *code != NONE) {
                sums.add(0, product(row));
            }
        }
    }
}

/// Rows of a chunk in their order.
struct Found {
    rows: [u16; SCAN_ROWS],
    len: usize,
}

impl Found {
    fn new() -> Self {
        Self {
            rows: [0; SCAN_ROWS],
            len: 0,
        }
    }

    fn rows(&self) -> &[u16] {
        &self.rows[..self.len]
    }

    /// The set bits of a bitmap.
    fn fill(&mut self, backend: Backend, bitmap: &Bitmap) {
        self.len = backend.list_bits(bitmap, &mut self.rows);
    }
}

/// Flights 2 to 4: one look-up after the other, then the sums.
fn join(plan: &Plan, stripe: &Stripe, rows: Range<usize>, pace: &mut Pace) -> Sums {
    let mut sums = Sums::new(plan.group_count);
    let mut kept = Rows::new();
    for start in rows.clone().step_by(CHUNK_ROWS) {
        let chunk = start..(start + CHUNK_ROWS).min(rows.end);
        kept.restart(chunk.len());
        for (idx, join) in plan.joins.iter().enumerate() {
            let width = if join.table == SsbTable::Date { 2 } else { 4 };
            match idx {
                0 => pace.read_ahead(chunk.len() * width),
                _ => pace.read_some(&kept, chunk.len(), width),
            }
            let mut touched = 0;
            let radix = join.groups.len() as u32;
            match join.table {
                SsbTable::Date => {
                    let months = stripe.column(FactColumn::Month, &chunk);
                    let days = stripe.column(FactColumn::Day, &chunk);
                    let key = |row: usize| u32::from(months[row]) * 31 + u32::from(days[row]);
                    join.look_up.keep(&mut kept, radix, &mut touched, key);
                }
                table => {
                    let keys = numbers::<u32>(stripe.column(key_column(table), &chunk));
                    join.look_up
                        .keep(&mut kept, radix, &mut touched, |row| keys[row]);
                }
            }
            pace.look_up(touched, look_up_bytes(&join.look_up));
        }
        let measures = if plan.query.measure == Measure::Profit {
            2
        } else {
            1
        };
        (0..measures).for_each(|_| pace.read_some(&kept, chunk.len(), 4));
        add(plan.query.measure, stripe, &chunk, &kept, &mut sums);
    }
    pace.finish();
    sums
}

/// What one step of a look-up reads.
pub fn look_up_bytes(look_up: &LookUp) -> usize {
    match look_up {
        LookUp::Dash(_) => super::dash::BUCKET_BYTES,
        _ => LINE_BYTES,
    }
}

fn key_column(table: SsbTable) -> FactColumn {
    match table {
        SsbTable::Customer => FactColumn::Customer,
        SsbTable::Supplier => FactColumn::Supplier,
        _ => FactColumn::Part,
    }
}

fn add(measure: Measure, stripe: &Stripe, chunk: &Range<usize>, kept: &Rows, sums: &mut Sums) {
    let revenues = numbers::<u32>(stripe.column(FactColumn::Revenue, chunk));
    match measure {
        Measure::Profit => {
            let costs = numbers::<u32>(stripe.column(FactColumn::Cost, chunk));
            for (row, group) in kept.iter() {
                sums.add(group, i64::from(revenues[row]) - i64::from(costs[row]));
            }
        }
        _ => {
            for (row, group) in kept.iter() {
                sums.add(group, i64::from(revenues[row]));
            }
        }
    }
}
