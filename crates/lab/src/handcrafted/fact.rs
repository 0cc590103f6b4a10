//! The fact table as the handcrafted queries read it: shuffled, striped over sockets, as columns or as rows of 128
//! bytes.

use std::ops::Range;

use arrow::array::{Array, Int32Array, RecordBatch, StringViewArray};
use hotshelf_datagen::Dataset;
use hotshelf_datagen::ssb::{SsbGenerator, SsbTable};
use hotshelf_tier::TierError;
use hotshelf_tier::region::{AnonymousOptions, Number, Region, numbers_mut};

use super::dimension::Day;

/// The paper's row: all fields, slightly padded.
pub const ROW_BYTES: usize = 128;
/// What a query reads of a row: every number is in its first cache line.
pub const ROW_LINE_BYTES: usize = 64;
const TEXTS_AT: usize = 56;
const TEXT_BYTES: [usize; 3] = [15, 1, 10];

/// A column of the narrowest whole width of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactColumn {
    Month,
    Day,
    Quantity,
    Discount,
    Customer,
    Supplier,
    Part,
    Price,
    Revenue,
    Cost,
}

impl FactColumn {
    pub const ALL: [Self; 10] = [
        Self::Month,
        Self::Day,
        Self::Quantity,
        Self::Discount,
        Self::Customer,
        Self::Supplier,
        Self::Part,
        Self::Price,
        Self::Revenue,
        Self::Cost,
    ];

    /// Bytes of a value.
    pub fn width(self) -> usize {
        match self {
            Self::Month | Self::Day | Self::Quantity | Self::Discount => 1,
            _ => 4,
        }
    }
}

/// A number of a row, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Field {
    Customer = 2,
    Part = 3,
    Supplier = 4,
    Date = 5,
    Quantity = 6,
    Price = 7,
    Discount = 9,
    Revenue = 10,
    Cost = 11,
}

/// The numbers of the benchmark's layout, in its order.
const NUMBERS: [&str; 14] = [
    "lo_orderkey",
    "lo_linenumber",
    "lo_custkey",
    "lo_partkey",
    "lo_suppkey",
    "lo_orderdate",
    "lo_quantity",
    "lo_extendedprice",
    "lo_ordtotalprice",
    "lo_discount",
    "lo_revenue",
    "lo_supplycost",
    "lo_tax",
    "lo_commitdate",
];
const TEXTS: [&str; 3] = ["lo_orderpriority", "lo_shippriority", "lo_shipmode"];

/// What one socket has of the fact table.
#[derive(Debug)]
pub struct Stripe {
    pub rows: usize,
    columns: Vec<Region>,
    row_bytes: Option<Region>,
}

/// How the fact table lies in memory.
#[derive(Debug, Clone, Copy)]
pub struct Layout<'a> {
    /// The node of each stripe's memory, or wherever the kernel puts it.
    pub nodes: &'a [Option<u32>],
    pub columns: bool,
    pub rows: bool,
}

/// The fact table.
#[derive(Debug)]
pub struct Fact {
    pub stripes: Vec<Stripe>,
}

impl Fact {
    /// Generates the rows and puts each in a place drawn at random.
    pub fn generate(generator: &SsbGenerator, layout: &Layout<'_>) -> Result<Self, TierError> {
        let rows = generator.row_count(SsbTable::Lineorder) as usize;
        let places = shuffled(rows);
        let per_stripe = rows.div_ceil(layout.nodes.len().max(1)).max(1);
        let mut stripes = Vec::new();
        for (idx, node) in layout.nodes.iter().enumerate() {
            let own = rows.saturating_sub(idx * per_stripe).min(per_stripe);
            stripes.push(Stripe::empty(own, *node, layout)?);
        }
        let mut place = places.iter().map(|place| *place as usize);
        let partitions = 0..generator.partition_count(SsbTable::Lineorder);
        for batch in partitions.flat_map(|idx| generator.partition(SsbTable::Lineorder, idx)) {
            let targets: Vec<(usize, usize)> = place
                .by_ref()
                .take(batch.num_rows())
                .map(|place| (place / per_stripe, place % per_stripe))
                .collect();
            fill(&mut stripes, &batch, &targets, layout);
        }
        Ok(Self { stripes })
    }
}

/// Every place once, in an order of no meaning.
fn shuffled(rows: usize) -> Vec<u32> {
    let mut places: Vec<u32> = (0..rows as u32).collect();
    fastrand::Rng::with_seed(12).shuffle(&mut places);
    places
}

impl Stripe {
    fn empty(rows: usize, node: Option<u32>, layout: &Layout<'_>) -> Result<Self, TierError> {
        let options = AnonymousOptions {
            node,
            ..AnonymousOptions::default()
        };
        let region = |bytes: usize| Region::anonymous(bytes.max(1), &options);
        let mut columns = Vec::new();
        if layout.columns {
            for column in FactColumn::ALL {
                columns.push(region(rows * column.width())?);
            }
        }
        let row_bytes = layout.rows.then(|| region(rows * ROW_BYTES)).transpose()?;
        Ok(Self {
            rows,
            columns,
            row_bytes,
        })
    }

    /// The bytes of some rows of a column.
    #[inline]
    pub fn column(&self, column: FactColumn, rows: &Range<usize>) -> &[u8] {
        let width = column.width();
        let bytes = self
            .columns
            .get(column as usize)
            .map_or(&[][..], Region::bytes);
        &bytes[rows.start * width..rows.end * width]
    }

    /// The bytes of some rows.
    #[inline]
    pub fn row_bytes(&self, rows: &Range<usize>) -> &[u8] {
        let bytes = self.row_bytes.as_ref().map_or(&[][..], Region::bytes);
        &bytes[rows.start * ROW_BYTES..rows.end * ROW_BYTES]
    }

    fn set<T: Number>(&mut self, column: FactColumn, row: usize, value: T) {
        let bytes = self.columns[column as usize].volatile_bytes_mut();
        let values = bytes.map(numbers_mut::<T>).unwrap_or_default();
        values[row] = value;
    }
}

/// Puts the rows of a batch into their stripes and rows.
fn fill(
    stripes: &mut [Stripe],
    batch: &RecordBatch,
    targets: &[(usize, usize)],
    layout: &Layout<'_>,
) {
    let numbers: Vec<&[i32]> = NUMBERS.iter().map(|name| integers(batch, name)).collect();
    if layout.columns {
        fill_columns(stripes, &numbers, targets);
    }
    if layout.rows {
        fill_rows(stripes, batch, &numbers, targets);
    }
}

fn fill_columns(stripes: &mut [Stripe], numbers: &[&[i32]], targets: &[(usize, usize)]) {
    let of = |field: Field| numbers[field as usize];
    for (value, (stripe, row)) in of(Field::Date).iter().zip(targets) {
        let day = Day::of_key(*value as u32);
        stripes[*stripe].set(FactColumn::Month, *row, day.month);
        stripes[*stripe].set(FactColumn::Day, *row, day.day);
    }
    let bytes = [
        (FactColumn::Quantity, Field::Quantity),
        (FactColumn::Discount, Field::Discount),
    ];
    for (column, field) in bytes {
        for (value, (stripe, row)) in of(field).iter().zip(targets) {
            stripes[*stripe].set(column, *row, *value as u8);
        }
    }
    let words = [
        (FactColumn::Customer, Field::Customer),
        (FactColumn::Supplier, Field::Supplier),
        (FactColumn::Part, Field::Part),
        (FactColumn::Price, Field::Price),
        (FactColumn::Revenue, Field::Revenue),
        (FactColumn::Cost, Field::Cost),
    ];
    for (column, field) in words {
        for (value, (stripe, row)) in of(field).iter().zip(targets) {
            stripes[*stripe].set(column, *row, *value as u32);
        }
    }
}

fn fill_rows(
    stripes: &mut [Stripe],
    batch: &RecordBatch,
    numbers: &[&[i32]],
    targets: &[(usize, usize)],
) {
    let texts = TEXTS.map(|name| batch.column_by_name(name));
    let texts = texts.map(|column| column?.as_any().downcast_ref::<StringViewArray>());
    for (idx, (stripe, row)) in targets.iter().enumerate() {
        let region = stripes[*stripe].row_bytes.as_mut();
        let bytes = region
            .and_then(Region::volatile_bytes_mut)
            .unwrap_or_default();
        let target = &mut bytes[row * ROW_BYTES..(row + 1) * ROW_BYTES];
        for (at, values) in numbers.iter().enumerate() {
            target[at * 4..at * 4 + 4].copy_from_slice(&values[idx].to_ne_bytes());
        }
        let mut at = TEXTS_AT;
        for (text, width) in texts.iter().zip(TEXT_BYTES) {
            let text = text.map_or("", |column| column.value(idx)).as_bytes();
            let len = text.len().min(width);
            target[at..at + len].copy_from_slice(&text[..len]);
            at += width;
        }
    }
}

fn integers<'a>(batch: &'a RecordBatch, name: &str) -> &'a [i32] {
    let column = batch.column_by_name(name).map(|column| column.as_any());
    let column = column.and_then(|any| any.downcast_ref::<Int32Array>());
    column.map_or(&[], |column| column.values())
}

#[cfg(test)]
mod tests {
    use hotshelf_tier::region::numbers;

    use super::*;

    #[test]
    fn both_formats_hold_every_generated_row_in_some_order() {
        let generator = SsbGenerator::new(0.002, 0).unwrap();
        let layout = Layout {
            nodes: &[None, None, None],
            columns: true,
            rows: true,
        };
        let fact = Fact::generate(&generator, &layout).unwrap();
        let rows: usize = fact.stripes.iter().map(|stripe| stripe.rows).sum();
        assert_eq!(rows as u64, generator.row_count(SsbTable::Lineorder));
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for stripe in &fact.stripes {
            let all = 0..stripe.rows;
            let months = stripe.column(FactColumn::Month, &all);
            let revenues = numbers::<u32>(stripe.column(FactColumn::Revenue, &all));
            for row in all.clone() {
                let fields = &numbers::<u32>(stripe.row_bytes(&all))[row * ROW_BYTES / 4..];
                let date = fields[Field::Date as usize];
                assert_eq!(Day::of_key(date).month, months[row]);
                assert_eq!(fields[Field::Revenue as usize], revenues[row]);
                found.push((date, revenues[row]));
            }
        }
        for idx in 0..generator.partition_count(SsbTable::Lineorder) {
            for batch in generator.partition(SsbTable::Lineorder, idx) {
                let dates = integers(&batch, "lo_orderdate").iter();
                let revenues = integers(&batch, "lo_revenue").iter();
                expected.extend(
                    dates
                        .zip(revenues)
                        .map(|(date, sum)| (*date as u32, *sum as u32)),
                );
            }
        }
        assert_ne!(found, expected);
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
