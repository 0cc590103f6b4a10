//! The Star Schema Benchmark: tables, generator, queries.
//!
//! P. O'Neil, E. O'Neil, X. Chen: *Star Schema Benchmark*, revision 3, 2009. Where the text leaves something open
//! (price formulas, seasons, holidays, week numbers), the benchmark's own `dbgen` decides. Row counts at scale factor
//! SF:
//!
//! | table | rows |
//! |---|---|
//! | lineorder | the lines of 1 500 000 x SF orders, 1 to 7 each: about 6 000 000 x SF |
//! | customer | 30 000 x SF |
//! | supplier | 2 000 x SF |
//! | part | 200 000 x floor(1 + log2 SF); 200 000 x SF below scale 1, where the logarithm is negative |
//! | date | 2 556, from 1992-01-01 on |
//!
//! Keys, quantities and money are `Int32` (whole cents; no amount exceeds 80 million), dates are `yyyymmdd` integers,
//! texts are `Utf8View`, the one-bit flags of date are `Boolean`, nothing is nullable.
//!
//! Lineorder takes its order keys, line numbers, quantities, discounts, taxes, dates, priorities and ship modes from
//! TPC-H's random streams, so that with seed 0 they equal those of `lineitem` and `orders` at the same scale.

mod customer;
mod date;
mod lineorder;
mod part;
mod place;
mod queries;
mod schema;
mod streams;
mod supplier;

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

pub use queries::queries;

use crate::dataset::{BATCH_ROWS, BatchIter, Dataset, Query, batch_ranges, partition_count};
use crate::error::GenerateError;

/// Orders behind one lineorder partition: about 262 144 rows.
const PARTITION_ORDERS: u64 = 65_536;
/// Orders behind one lineorder batch: about [`BATCH_ROWS`] rows.
const BATCH_ORDERS: u64 = PARTITION_ORDERS / 4;
/// Rows of one partition of a dimension table.
const PARTITION_ROWS: u64 = 4 * BATCH_ROWS;

/// A table of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SsbTable {
    /// The fact table: one row per line of an order.
    Lineorder,
    /// Who ordered.
    Customer,
    /// Who delivered.
    Supplier,
    /// What was ordered.
    Part,
    /// Days of seven years.
    Date,
}

impl SsbTable {
    /// All tables, the fact table first.
    pub const ALL: [SsbTable; 5] = [
        SsbTable::Lineorder,
        SsbTable::Customer,
        SsbTable::Supplier,
        SsbTable::Part,
        SsbTable::Date,
    ];

    /// The table's name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            SsbTable::Lineorder => "lineorder",
            SsbTable::Customer => "customer",
            SsbTable::Supplier => "supplier",
            SsbTable::Part => "part",
            SsbTable::Date => "date",
        }
    }
}

impl fmt::Display for SsbTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SsbTable {
    type Err = GenerateError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|table| table.name() == name)
            .ok_or_else(|| GenerateError::UnknownTable {
                benchmark: "SSB",
                name: name.to_owned(),
                known: Self::ALL.map(SsbTable::name).to_vec(),
            })
    }
}

/// Generates the benchmark's tables at one scale from one seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SsbGenerator {
    scale: f64,
    seed: u64,
}

impl SsbGenerator {
    /// Smallest scale at which every table has at least two rows.
    pub const SCALE_MIN: f64 = 0.001;
    /// Largest scale whose order keys fit 32 bits (specification, LINEORDER layout).
    pub const SCALE_MAX: f64 = 300.0;

    /// A generator for `scale` (1.0 is about 6 million lineorder rows). Seed 0 gives TPC-H's own streams; any other
    /// seed gives other rows of the same distributions.
    ///
    /// # Errors
    /// [`GenerateError::Scale`] unless the scale lies from [`Self::SCALE_MIN`] to [`Self::SCALE_MAX`].
    pub fn new(scale: f64, seed: u64) -> Result<Self, GenerateError> {
        if !(Self::SCALE_MIN..=Self::SCALE_MAX).contains(&scale) {
            return Err(GenerateError::Scale {
                benchmark: "SSB",
                scale,
                min: Self::SCALE_MIN,
                max: Self::SCALE_MAX,
            });
        }
        Ok(Self { scale, seed })
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn order_count(&self) -> u64 {
        self.scaled(1_500_000)
    }

    fn dimension_rows(&self, table: SsbTable) -> u64 {
        match table {
            SsbTable::Lineorder => 0,
            SsbTable::Customer => self.scaled(30_000),
            SsbTable::Supplier => self.scaled(2_000),
            SsbTable::Part if self.scale < 1.0 => self.scaled(200_000),
            SsbTable::Part => 200_000 * (1.0 + self.scale.log2()).floor() as u64,
            SsbTable::Date => date::DAY_COUNT as u64,
        }
    }

    fn scaled(&self, base: u64) -> u64 {
        (base as f64 * self.scale).round() as u64
    }

    fn lineorder_spec(&self) -> lineorder::Spec {
        lineorder::Spec {
            seed: self.seed,
            customer_count: self.dimension_rows(SsbTable::Customer) as i32,
            supplier_count: self.dimension_rows(SsbTable::Supplier) as i32,
            part_count: self.dimension_rows(SsbTable::Part) as i32,
        }
    }
}

impl Dataset for SsbGenerator {
    type Table = SsbTable;

    fn benchmark(&self) -> &'static str {
        "SSB"
    }

    fn tables(&self) -> &'static [SsbTable] {
        &SsbTable::ALL
    }

    fn queries(&self) -> &'static [Query] {
        queries()
    }

    fn scale(&self) -> f64 {
        self.scale
    }

    fn schema(&self, table: SsbTable) -> SchemaRef {
        schema::schema(table)
    }

    fn row_count(&self, table: SsbTable) -> u64 {
        match table {
            SsbTable::Lineorder => lineorder::row_count(self.seed, 0..self.order_count()),
            _ => self.dimension_rows(table),
        }
    }

    fn partition_count(&self, table: SsbTable) -> usize {
        match table {
            SsbTable::Lineorder => partition_count(self.order_count(), PARTITION_ORDERS),
            _ => partition_count(self.dimension_rows(table), PARTITION_ROWS),
        }
    }

    fn partition(&self, table: SsbTable, partition_idx: usize) -> BatchIter {
        if table == SsbTable::Lineorder {
            let spec = self.lineorder_spec();
            let ranges = batch_ranges(
                self.order_count(),
                PARTITION_ORDERS,
                BATCH_ORDERS,
                partition_idx,
            );
            return Box::new(ranges.map(move |orders| lineorder::batch(&spec, orders)));
        }
        let (seed, row_count) = (self.seed, self.dimension_rows(table));
        let ranges = batch_ranges(row_count, PARTITION_ROWS, BATCH_ROWS, partition_idx);
        Box::new(ranges.map(move |rows| dimension_batch(table, seed, rows)))
    }
}

fn dimension_batch(table: SsbTable, seed: u64, rows: std::ops::Range<u64>) -> RecordBatch {
    match table {
        SsbTable::Lineorder => RecordBatch::new_empty(schema::schema(table)),
        SsbTable::Customer => customer::batch(seed, rows),
        SsbTable::Supplier => supplier::batch(seed, rows),
        SsbTable::Part => part::batch(seed, rows),
        SsbTable::Date => date::batch(rows),
    }
}
