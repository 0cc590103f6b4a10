//! TPC-H through `tpchgen`: eight tables, 22 queries.
//!
//! Rows are those of the benchmark's own `dbgen` (there is no seed); types are those of `tpchgen-arrow`: 64-bit keys,
//! `Decimal128(15, 2)` money, `Date32`, `Utf8View`.

mod queries;

use std::fmt;
use std::str::FromStr;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

pub use queries::queries;

use crate::dataset::{BATCH_ROWS, BatchIter, Dataset, Query};
use crate::error::GenerateError;

/// Rows of one partition, about.
const PARTITION_ROWS: i64 = 4 * BATCH_ROWS as i64;
/// Suppliers of a part, and lines of an order on average.
const ROWS_PER_PARENT: i64 = 4;

/// A table of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum TpchTable {
    Lineitem,
    Orders,
    Partsupp,
    Part,
    Customer,
    Supplier,
    Nation,
    Region,
}

impl TpchTable {
    /// All tables, the largest first.
    pub const ALL: [TpchTable; 8] = [
        TpchTable::Lineitem,
        TpchTable::Orders,
        TpchTable::Partsupp,
        TpchTable::Part,
        TpchTable::Customer,
        TpchTable::Supplier,
        TpchTable::Nation,
        TpchTable::Region,
    ];

    /// The table's name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            TpchTable::Lineitem => "lineitem",
            TpchTable::Orders => "orders",
            TpchTable::Partsupp => "partsupp",
            TpchTable::Part => "part",
            TpchTable::Customer => "customer",
            TpchTable::Supplier => "supplier",
            TpchTable::Nation => "nation",
            TpchTable::Region => "region",
        }
    }
}

impl fmt::Display for TpchTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TpchTable {
    type Err = GenerateError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|table| table.name() == name)
            .ok_or_else(|| GenerateError::UnknownTable {
                benchmark: "TPC-H",
                name: name.to_owned(),
                known: Self::ALL.map(TpchTable::name).to_vec(),
            })
    }
}

/// Generates the benchmark's tables at one scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TpchGenerator {
    scale: f64,
}

impl TpchGenerator {
    /// Smallest scale at which every table has rows.
    pub const SCALE_MIN: f64 = 0.001;
    /// Largest scale offered: ten terabytes.
    pub const SCALE_MAX: f64 = 10_000.0;

    /// A generator for `scale` (1.0 is 6 001 215 lineitem rows).
    ///
    /// # Errors
    /// [`GenerateError::Scale`] unless the scale lies from [`Self::SCALE_MIN`] to [`Self::SCALE_MAX`].
    pub fn new(scale: f64) -> Result<Self, GenerateError> {
        if !(Self::SCALE_MIN..=Self::SCALE_MAX).contains(&scale) {
            return Err(GenerateError::Scale {
                benchmark: "TPC-H",
                scale,
                min: Self::SCALE_MIN,
                max: Self::SCALE_MAX,
            });
        }
        Ok(Self { scale })
    }

    fn lineitem_rows(&self) -> u64 {
        let mut line_count = OrderGenerator::create_line_count_random();
        (0..OrderGenerator::calculate_row_count(self.scale, 1, 1))
            .map(|_| line_count.next_value() as u64)
            .sum()
    }

    /// Parts `tpchgen` is asked to cut a table into: it cuts at whole orders and parts.
    fn part_count(&self, table: TpchTable) -> i32 {
        let scale = self.scale;
        let row_count = match table {
            TpchTable::Lineitem => {
                OrderGenerator::calculate_row_count(scale, 1, 1) * ROWS_PER_PARENT
            }
            TpchTable::Orders => OrderGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Partsupp => {
                PartGenerator::calculate_row_count(scale, 1, 1) * ROWS_PER_PARENT
            }
            TpchTable::Part => PartGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Customer => CustomerGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Supplier => SupplierGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Nation | TpchTable::Region => 1,
        };
        (row_count as u64).div_ceil(PARTITION_ROWS as u64).max(1) as i32
    }
}

impl Dataset for TpchGenerator {
    type Table = TpchTable;

    fn benchmark(&self) -> &'static str {
        "TPC-H"
    }

    fn tables(&self) -> &'static [TpchTable] {
        &TpchTable::ALL
    }

    fn queries(&self) -> &'static [Query] {
        queries()
    }

    fn scale(&self) -> f64 {
        self.scale
    }

    fn schema(&self, table: TpchTable) -> SchemaRef {
        match table {
            TpchTable::Lineitem => LineItemArrow::schema_ref(),
            TpchTable::Orders => OrderArrow::schema_ref(),
            TpchTable::Partsupp => PartSuppArrow::schema_ref(),
            TpchTable::Part => PartArrow::schema_ref(),
            TpchTable::Customer => CustomerArrow::schema_ref(),
            TpchTable::Supplier => SupplierArrow::schema_ref(),
            TpchTable::Nation => NationArrow::schema_ref(),
            TpchTable::Region => RegionArrow::schema_ref(),
        }
    }

    fn row_count(&self, table: TpchTable) -> u64 {
        let scale = self.scale;
        let row_count = match table {
            TpchTable::Lineitem => return self.lineitem_rows(),
            TpchTable::Orders => OrderGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Partsupp => {
                PartGenerator::calculate_row_count(scale, 1, 1) * ROWS_PER_PARENT
            }
            TpchTable::Part => PartGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Customer => CustomerGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Supplier => SupplierGenerator::calculate_row_count(scale, 1, 1),
            TpchTable::Nation => 25,
            TpchTable::Region => 5,
        };
        row_count as u64
    }

    fn partition_count(&self, table: TpchTable) -> usize {
        self.part_count(table) as usize
    }

    fn partition(&self, table: TpchTable, partition_idx: usize) -> BatchIter {
        let part_count = self.part_count(table);
        if partition_idx >= part_count as usize {
            return Box::new(std::iter::empty());
        }
        let (scale, part) = (self.scale, partition_idx as i32 + 1);
        let batch_rows = BATCH_ROWS as usize;
        match table {
            TpchTable::Lineitem => {
                let rows = LineItemGenerator::new(scale, part, part_count);
                batches(LineItemArrow::new(rows).with_batch_size(batch_rows))
            }
            TpchTable::Orders => {
                let rows = OrderGenerator::new(scale, part, part_count);
                batches(OrderArrow::new(rows).with_batch_size(batch_rows))
            }
            TpchTable::Partsupp => {
                let rows = PartSuppGenerator::new(scale, part, part_count);
                batches(PartSuppArrow::new(rows).with_batch_size(batch_rows))
            }
            TpchTable::Part => {
                let rows = PartGenerator::new(scale, part, part_count);
                batches(PartArrow::new(rows).with_batch_size(batch_rows))
            }
            TpchTable::Customer => {
                let rows = CustomerGenerator::new(scale, part, part_count);
                batches(CustomerArrow::new(rows).with_batch_size(batch_rows))
            }
            TpchTable::Supplier => {
                let rows = SupplierGenerator::new(scale, part, part_count);
                batches(SupplierArrow::new(rows).with_batch_size(batch_rows))
            }
            TpchTable::Nation => batches(NationArrow::new(NationGenerator::new(
                scale, part, part_count,
            ))),
            TpchTable::Region => batches(RegionArrow::new(RegionGenerator::new(
                scale, part, part_count,
            ))),
        }
    }
}

fn batches<R>(reader: R) -> BatchIter
where
    R: RecordBatchReader + Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
{
    Box::new(reader.map(|batch| batch.expect("generated columns follow the schema")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_hold_as_many_rows_as_announced() {
        let generator = TpchGenerator::new(0.01).unwrap();
        for table in TpchTable::ALL {
            let schema = generator.schema(table);
            let row_count: usize = (0..generator.partition_count(table))
                .flat_map(|idx| generator.partition(table, idx))
                .inspect(|batch| assert_eq!(batch.schema(), schema))
                .map(|batch| batch.num_rows())
                .sum();
            assert_eq!(row_count as u64, generator.row_count(table), "{table}");
        }
    }

    #[test]
    fn row_counts_are_those_of_the_specification() {
        let generator = TpchGenerator::new(1.0).unwrap();
        let row_counts = TpchTable::ALL.map(|table| generator.row_count(table));
        let expected = [
            6_001_215, 1_500_000, 800_000, 200_000, 150_000, 10_000, 25, 5,
        ];
        assert_eq!(row_counts, expected);
    }

    #[test]
    fn there_are_twenty_two_queries_with_all_parameters_filled_in() {
        assert_eq!(queries().len(), 22);
        for (idx, (name, sql)) in queries().iter().enumerate() {
            assert_eq!(*name, format!("Q{:02}", idx + 1));
            assert!(!sql.contains(':') && !sql.contains(';'), "{name}");
        }
    }

    #[test]
    fn names_and_scales_are_checked() {
        for table in TpchTable::ALL {
            assert_eq!(table.name().parse::<TpchTable>().unwrap(), table);
        }
        let message = "line".parse::<TpchTable>().unwrap_err().to_string();
        assert!(message.contains("lineitem, orders"), "{message}");
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(TpchGenerator::new(scale).is_err());
        }
    }
}
