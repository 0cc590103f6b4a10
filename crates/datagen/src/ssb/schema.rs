//! Arrow types of the five tables, column by column as in the specification's layouts.
//!
//! Keys, quantities and money are `Int32`: the specification keeps keys within 32 bits up to scale 300, and no amount
//! exceeds 80 million cents. Prices are whole cents, dates are `yyyymmdd` integers, texts are `Utf8View`, the one-bit
//! flags of `date` are `Boolean`. `lo_shippriority` is a text of length one by specification.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::DataType::{self, Boolean, Int32, Utf8View};
use arrow::datatypes::{Field, Schema, SchemaRef};

use super::SsbTable;

type Columns = &'static [(&'static str, DataType)];

static LINEORDER: Columns = &[
    ("lo_orderkey", Int32),
    ("lo_linenumber", Int32),
    ("lo_custkey", Int32),
    ("lo_partkey", Int32),
    ("lo_suppkey", Int32),
    ("lo_orderdate", Int32),
    ("lo_orderpriority", Utf8View),
    ("lo_shippriority", Utf8View),
    ("lo_quantity", Int32),
    ("lo_extendedprice", Int32),
    ("lo_ordtotalprice", Int32),
    ("lo_discount", Int32),
    ("lo_revenue", Int32),
    ("lo_supplycost", Int32),
    ("lo_tax", Int32),
    ("lo_commitdate", Int32),
    ("lo_shipmode", Utf8View),
];

static CUSTOMER: Columns = &[
    ("c_custkey", Int32),
    ("c_name", Utf8View),
    ("c_address", Utf8View),
    ("c_city", Utf8View),
    ("c_nation", Utf8View),
    ("c_region", Utf8View),
    ("c_phone", Utf8View),
    ("c_mktsegment", Utf8View),
];

static SUPPLIER: Columns = &[
    ("s_suppkey", Int32),
    ("s_name", Utf8View),
    ("s_address", Utf8View),
    ("s_city", Utf8View),
    ("s_nation", Utf8View),
    ("s_region", Utf8View),
    ("s_phone", Utf8View),
];

static PART: Columns = &[
    ("p_partkey", Int32),
    ("p_name", Utf8View),
    ("p_mfgr", Utf8View),
    ("p_category", Utf8View),
    ("p_brand1", Utf8View),
    ("p_color", Utf8View),
    ("p_type", Utf8View),
    ("p_size", Int32),
    ("p_container", Utf8View),
];

static DATE: Columns = &[
    ("d_datekey", Int32),
    ("d_date", Utf8View),
    ("d_dayofweek", Utf8View),
    ("d_month", Utf8View),
    ("d_year", Int32),
    ("d_yearmonthnum", Int32),
    ("d_yearmonth", Utf8View),
    ("d_daynuminweek", Int32),
    ("d_daynuminmonth", Int32),
    ("d_daynuminyear", Int32),
    ("d_monthnuminyear", Int32),
    ("d_weeknuminyear", Int32),
    ("d_sellingseason", Utf8View),
    ("d_lastdayinweekfl", Boolean),
    ("d_lastdayinmonthfl", Boolean),
    ("d_holidayfl", Boolean),
    ("d_weekdayfl", Boolean),
];

static SCHEMAS: LazyLock<[SchemaRef; 5]> =
    LazyLock::new(|| [LINEORDER, CUSTOMER, SUPPLIER, PART, DATE].map(build));

fn build(columns: Columns) -> SchemaRef {
    let fields = columns
        .iter()
        .map(|(name, data_type)| Field::new(*name, data_type.clone(), false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The columns of `table`.
pub(super) fn schema(table: SsbTable) -> SchemaRef {
    Arc::clone(&SCHEMAS[table as usize])
}

/// A batch of `table` from its columns, which the caller built in schema order and of equal length.
pub(super) fn record_batch(table: SsbTable, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(schema(table), columns).expect("generated columns follow the schema")
}
