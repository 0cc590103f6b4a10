//! Sequences of the Star Schema Benchmark and of TPC-H, scale factor 10: which columns each query reads, with the size
//! that they have when encoded, and about how fast two cores process them.

use super::{Trace, TraceQuery};
use crate::policy::mix;
use hotshelf_cache::ColumnId;

/// A benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Benchmark {
    /// Star Schema Benchmark: 13 queries over the columns of `lineorder`.
    Ssb,
    /// TPC-H: 14 queries that read `lineitem` or `orders`.
    TpcH,
}

/// In which order queries come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// One after the other, again and again.
    InTurn,
    /// Any, equally likely.
    Random,
    /// Two thirds are one of the first three.
    Skewed,
    /// Each several times before the next.
    Runs,
    /// Random, and every fifth reads every column.
    Scans,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 5] = [
        Self::InTurn,
        Self::Random,
        Self::Skewed,
        Self::Runs,
        Self::Scans,
    ];
}

/// Name, bytes per row, millions of rows.
type Column = (&'static str, f64, u64);

const LINEORDER: [Column; 13] = [
    ("orderkey", 4.0, 60),
    ("custkey", 3.0, 60),
    ("partkey", 3.0, 60),
    ("suppkey", 2.5, 60),
    ("orderdate", 2.0, 60),
    ("quantity", 1.0, 60),
    ("extendedprice", 3.5, 60),
    ("ordtotalprice", 4.0, 60),
    ("discount", 0.5, 60),
    ("revenue", 3.5, 60),
    ("supplycost", 2.5, 60),
    ("tax", 0.5, 60),
    ("commitdate", 2.0, 60),
];

/// Name, throughput in GB/s, columns by number.
type Query = (&'static str, f64, &'static [u32]);

const SSB: [Query; 13] = [
    ("Q1.1", 6.0, &[4, 8, 5, 6]),
    ("Q1.2", 6.5, &[4, 8, 5, 6]),
    ("Q1.3", 7.0, &[4, 8, 5, 6]),
    ("Q2.1", 4.2, &[2, 3, 4, 9]),
    ("Q2.2", 4.4, &[2, 3, 4, 9]),
    ("Q2.3", 4.6, &[2, 3, 4, 9]),
    ("Q3.1", 2.6, &[1, 3, 4, 9]),
    ("Q3.2", 3.4, &[1, 3, 4, 9]),
    ("Q3.3", 3.8, &[1, 3, 4, 9]),
    ("Q3.4", 3.8, &[1, 3, 4, 9]),
    ("Q4.1", 2.4, &[1, 2, 3, 4, 9, 10]),
    ("Q4.2", 2.8, &[1, 2, 3, 4, 9, 10]),
    ("Q4.3", 3.2, &[1, 2, 3, 4, 9, 10]),
];

const TPC_H_COLUMNS: [Column; 24] = [
    ("l_orderkey", 3.0, 60),
    ("l_partkey", 3.0, 60),
    ("l_suppkey", 2.5, 60),
    ("l_quantity", 1.0, 60),
    ("l_extendedprice", 3.0, 60),
    ("l_discount", 0.5, 60),
    ("l_tax", 0.5, 60),
    ("l_returnflag", 0.3, 60),
    ("l_linestatus", 0.2, 60),
    ("l_shipdate", 1.5, 60),
    ("l_commitdate", 1.5, 60),
    ("l_receiptdate", 1.5, 60),
    ("l_shipinstruct", 0.3, 60),
    ("l_shipmode", 0.4, 60),
    ("l_comment", 15.0, 60),
    ("o_orderkey", 1.0, 15),
    ("o_custkey", 3.0, 15),
    ("o_orderdate", 1.5, 15),
    ("o_orderpriority", 0.4, 15),
    ("o_totalprice", 4.0, 15),
    ("o_comment", 25.0, 15),
    ("ps_partkey", 1.0, 8),
    ("ps_suppkey", 2.0, 8),
    ("ps_supplycost", 2.5, 8),
];

const TPC_H: [Query; 14] = [
    ("1", 0.7, &[3, 4, 5, 6, 7, 8, 9]),
    ("3", 1.6, &[0, 4, 5, 9, 15, 16, 17]),
    ("4", 1.5, &[0, 10, 11, 15, 17, 18]),
    ("5", 1.4, &[0, 2, 4, 5, 15, 16, 17]),
    ("6", 5.0, &[3, 4, 5, 9]),
    ("7", 1.4, &[0, 2, 4, 5, 9, 15, 16]),
    ("9", 0.9, &[0, 1, 2, 3, 4, 5, 15, 17, 21, 22, 23]),
    ("10", 1.5, &[0, 4, 5, 7, 15, 16, 17]),
    ("12", 2.0, &[0, 9, 10, 11, 13, 15, 18]),
    ("13", 0.8, &[15, 16, 20]),
    ("14", 3.5, &[1, 4, 5, 9]),
    ("18", 0.9, &[0, 3, 15, 16, 17, 19]),
    ("19", 1.8, &[1, 3, 4, 5, 12, 13]),
    ("21", 0.8, &[0, 2, 10, 11, 15]),
];

const QUERY_COUNT: u64 = 60;

/// Larger than in reality: simulations are faster so.
const SEGMENT_BYTES: u64 = 4_000_000;

/// A sequence of a benchmark's queries.
pub fn benchmark_trace(benchmark: Benchmark, order: Order) -> Trace {
    let (columns, queries): (&[Column], &[Query]) = match benchmark {
        Benchmark::Ssb => (&LINEORDER, &SSB),
        Benchmark::TpcH => (&TPC_H_COLUMNS, &TPC_H),
    };
    let sizes = columns.iter().zip(0..).map(|((_, bytes, rows), column)| {
        let size = bytes * 1e6 * *rows as f64;
        (ColumnId(column), size as u64)
    });
    let everything = (0..columns.len() as u32).map(ColumnId);
    let picked = (0..QUERY_COUNT).map(|number| match pick(order, number, queries.len() as u64) {
        Some(idx) => query(&queries[idx]),
        None => TraceQuery {
            items: Vec::new(),
            name: "scan of all",
            columns: everything.clone().collect(),
            processing_bandwidth: 2e9,
            priority: 1.0,
        },
    });
    Trace {
        items: Vec::new(),
        queries: picked.collect(),
        columns: sizes.collect(),
        segment_bytes: SEGMENT_BYTES,
    }
}

/// The number of a query; nothing for the scan of everything.
fn pick(order: Order, number: u64, count: u64) -> Option<usize> {
    let chance = mix(number.wrapping_mul(7919) ^ order as u64);
    let picked = match order {
        Order::InTurn => number % count,
        Order::Random => chance % count,
        Order::Skewed if chance % 3 < 2 => (chance >> 8) % 3,
        Order::Skewed => (chance >> 8) % count,
        Order::Runs => (number / 5) % count,
        Order::Scans if number % 5 == 4 => return None,
        Order::Scans => chance % count,
    };
    Some(picked as usize)
}

fn query((name, gigabytes_per_s, columns): &Query) -> TraceQuery {
    TraceQuery {
        items: Vec::new(),
        name,
        columns: columns.iter().copied().map(ColumnId).collect(),
        processing_bandwidth: gigabytes_per_s * 1e9,
        priority: 1.0,
    }
}
