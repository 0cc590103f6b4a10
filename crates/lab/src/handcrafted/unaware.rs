//! A program that takes slow memory for ordinary memory: one operator after the other over all rows, tables, positions,
//! hash tables and groups on the device, cache lines at random places, threads anywhere.
//!
//! It stands for the in-memory database of the paper's section 6.1, whose data and intermediate results were moved to
//! persistent memory as they were.

use std::ops::Range;

use hotshelf_datagen::ssb::SsbTable;
use hotshelf_tier::probe::{Operation, Pattern};
use hotshelf_tier::region::numbers;

use super::dimension::NONE;
use super::fact::{FactColumn, Stripe};
use super::lookup::{FastMap, LookUp};
use super::pace::Pace;
use super::plan::{Plan, Sums};
use super::queries::Measure;

const LINE_BYTES: usize = 64;
/// Accesses are waited for together in batches as large as an out-of-order processor would have under way often.
const BATCH: usize = 1024;

/// Runs a query over some rows of a stripe. All look-ups must be hash tables.
pub fn run(plan: &Plan, stripe: &Stripe, rows: Range<usize>, pace: &mut Pace) -> Sums {
    let mut operator = Operator {
        stripe,
        pace,
        positions: Vec::new(),
        groups: Vec::new(),
    };
    operator.select(plan, rows);
    for join in &plan.joins {
        let LookUp::Hash(map) = &join.look_up else {
            continue;
        };
        operator.join(join.table, map, join.groups.len() as u32);
    }
    let sums = operator.group(plan);
    pace.finish();
    sums
}

struct Operator<'a> {
    stripe: &'a Stripe,
    pace: &'a mut Pace,
    /// Rows that are left, and their groups so far: the intermediate result.
    positions: Vec<u32>,
    groups: Vec<u32>,
}

impl Operator<'_> {
    /// All rows, or those within the bounds.
    fn select(&mut self, plan: &Plan, rows: Range<usize>) {
        let all = 0..self.stripe.rows;
        let quantities = self.stripe.column(FactColumn::Quantity, &all);
        let discounts = self.stripe.column(FactColumn::Discount, &all);
        for start in rows.clone().step_by(BATCH) {
            let batch = start..(start + BATCH).min(rows.end);
            let before = self.positions.len();
            match &plan.query.bounds {
                None => self.positions.extend(batch.clone().map(|row| row as u32)),
                Some(bounds) => {
                    self.pace.read_ahead(batch.len() * 2);
                    let within = |row: &usize| {
                        (bounds.quantity.0..=bounds.quantity.1).contains(&quantities[*row])
                            && (bounds.discount.0..=bounds.discount.1).contains(&discounts[*row])
                    };
                    self.positions
                        .extend(batch.filter(within).map(|row| row as u32));
                }
            }
            self.wrote(self.positions.len() - before);
        }
        self.groups = vec![0; self.positions.len()];
    }

    /// Positions and groups went to the device.
    fn wrote(&mut self, count: usize) {
        let lines = (count * 8).div_ceil(LINE_BYTES) as u32;
        self.pace
            .wait(Operation::Write, Pattern::Sequential, lines, LINE_BYTES);
    }

    /// Positions and groups came from the device, and a column's values at these positions.
    fn read(&mut self, count: usize, lines: usize) {
        self.pace.read_ahead(count * 8);
        self.pace.bytes += (lines * LINE_BYTES) as u64;
        self.pace
            .wait(Operation::Read, Pattern::Random, lines as u32, LINE_BYTES);
    }

    fn join(&mut self, table: SsbTable, map: &FastMap<u8>, radix: u32) {
        let all = 0..self.stripe.rows;
        let months = self.stripe.column(FactColumn::Month, &all);
        let days = self.stripe.column(FactColumn::Day, &all);
        let keys = numbers::<u32>(self.stripe.column(
            match table {
                SsbTable::Customer => FactColumn::Customer,
                SsbTable::Supplier => FactColumn::Supplier,
                _ => FactColumn::Part,
            },
            &all,
        ));
        let key = |row: usize| match table {
            SsbTable::Date => u32::from(months[row]) * 31 + u32::from(days[row]),
            _ => keys[row],
        };
        let (positions, groups) = (
            std::mem::take(&mut self.positions),
            std::mem::take(&mut self.groups),
        );
        for (positions, groups) in positions.chunks(BATCH).zip(groups.chunks(BATCH)) {
            self.read(positions.len(), lines(positions, 16));
            self.pace.look_up(2 * positions.len() as u32, LINE_BYTES);
            let before = self.positions.len();
            for (row, group) in positions.iter().zip(groups) {
                let code = map.get(&key(*row as usize)).copied().unwrap_or(NONE);
                if code != NONE {
                    self.positions.push(*row);
                    self.groups.push(group * radix + u32::from(code));
                }
            }
            self.wrote(self.positions.len() - before);
        }
    }

    fn group(&mut self, plan: &Plan) -> Sums {
        let all = 0..self.stripe.rows;
        let of = |column| numbers::<u32>(self.stripe.column(column, &all));
        let (revenues, costs) = (of(FactColumn::Revenue), of(FactColumn::Cost));
        let prices = of(FactColumn::Price);
        let discounts = self.stripe.column(FactColumn::Discount, &all);
        let mut table: FastMap<(i64, u64)> = FastMap::default();
        let (positions, groups) = (
            std::mem::take(&mut self.positions),
            std::mem::take(&mut self.groups),
        );
        for (positions, groups) in positions.chunks(BATCH).zip(groups.chunks(BATCH)) {
            let columns = if plan.query.measure == Measure::Revenue {
                1
            } else {
                2
            };
            self.read(positions.len(), columns * lines(positions, 16));
            // Each row reads and writes its group.
            self.pace.look_up(positions.len() as u32, LINE_BYTES);
            let count = positions.len() as u32;
            self.pace.write_cached(count, LINE_BYTES);
            for (row, group) in positions.iter().zip(groups) {
                let row = *row as usize;
                let entry = table.entry(*group).or_default();
                entry.0 += match plan.query.measure {
                    Measure::Discounted => i64::from(prices[row]) * i64::from(discounts[row]),
                    Measure::Revenue => i64::from(revenues[row]),
                    Measure::Profit => i64::from(revenues[row]) - i64::from(costs[row]),
                };
                entry.1 += 1;
            }
        }
        let mut sums = Sums::new(plan.group_count);
        for (group, (sum, count)) in table {
            sums.add_many(group, sum, count);
        }
        sums
    }
}

/// Cache lines of this many rows that have one of the positions.
fn lines(positions: &[u32], line_rows: u32) -> usize {
    let mut last = u32::MAX;
    let mut count = 0;
    for position in positions {
        let line = position / line_rows;
        count += usize::from(line != last);
        last = line;
    }
    count
}
