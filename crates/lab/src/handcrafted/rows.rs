//! The queries over rows of 128 bytes, as the paper stores them.

use std::ops::Range;

use hotshelf_datagen::ssb::SsbTable;

use super::columns::look_up_bytes;
use super::dimension::Day;
use super::fact::{Field, ROW_BYTES, ROW_LINE_BYTES, Stripe};
use super::lookup::{CHUNK_ROWS, Rows};
use super::pace::Pace;
use super::plan::{Plan, Sums};
use super::queries::Measure;
use hotshelf_tier::region::numbers;

const ROW_NUMBERS: usize = ROW_BYTES / 4;
/// Rows of a block: small enough to stay in the second cache between the joins.
const BLOCK_ROWS: usize = 512;

/// Runs a query over some rows of a stripe.
pub fn run(plan: &Plan, stripe: &Stripe, rows: Range<usize>, pace: &mut Pace) -> Sums {
    let mut sums = Sums::new(plan.group_count);
    let mut kept = Rows::new();
    for start in rows.clone().step_by(BLOCK_ROWS) {
        let block = start..(start + BLOCK_ROWS).min(rows.end);
        pace.read_ahead(block.len() * ROW_LINE_BYTES);
        run_block(plan, stripe.row_bytes(&block), &mut kept, &mut sums, pace);
    }
    pace.finish();
    sums
}

/// Runs a query over the bytes of at most a chunk of rows.
pub fn run_block(plan: &Plan, bytes: &[u8], kept: &mut Rows, sums: &mut Sums, pace: &mut Pace) {
    let fields = numbers::<u32>(bytes);
    let field = |row: usize, field: Field| fields[row * ROW_NUMBERS + field as usize];
    let len = (fields.len() / ROW_NUMBERS).min(CHUNK_ROWS);
    match &plan.query.bounds {
        None => kept.restart(len),
        Some(bounds) => {
            let within =
                |value: u32, (lo, hi): (u8, u8)| (u32::from(lo)..=u32::from(hi)).contains(&value);
            kept.restart_with((0..len).filter(|row| {
                within(field(*row, Field::Discount), bounds.discount)
                    && within(field(*row, Field::Quantity), bounds.quantity)
            }));
        }
    }
    for join in &plan.joins {
        let (mut touched, radix) = (0, join.groups.len() as u32);
        let key = key_field(join.table);
        match join.table {
            SsbTable::Date => join.look_up.keep(kept, radix, &mut touched, |row| {
                Day::of_key(field(row, key)).code()
            }),
            _ => join
                .look_up
                .keep(kept, radix, &mut touched, |row| field(row, key)),
        }
        pace.look_up(touched, look_up_bytes(&join.look_up));
    }
    for (row, group) in kept.iter() {
        let value = |of: Field| i64::from(field(row, of));
        sums.add(
            group,
            match plan.query.measure {
                Measure::Discounted => value(Field::Price) * value(Field::Discount),
                Measure::Revenue => value(Field::Revenue),
                Measure::Profit => value(Field::Revenue) - value(Field::Cost),
            },
        );
    }
}

fn key_field(table: SsbTable) -> Field {
    match table {
        SsbTable::Customer => Field::Customer,
        SsbTable::Supplier => Field::Supplier,
        SsbTable::Part => Field::Part,
        SsbTable::Date | SsbTable::Lineorder => Field::Date,
    }
}
