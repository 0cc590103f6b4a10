//! Tests of the generated tables against the specification: row counts, domains, integrity, formulas, selectivities.

mod selectivity;

use std::collections::HashSet;

use arrow::array::{AsArray, BooleanArray, Int32Array, RecordBatch, StringViewArray};
use arrow::compute::concat_batches;
use arrow::datatypes::Int32Type;
use tpchgen::distribution::Distributions;
use tpchgen::generators::{LineItemGenerator, OrderGenerator};
use tpchgen::text::TextPool;

use super::*;

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

fn generator(scale: f64) -> SsbGenerator {
    SsbGenerator::new(scale, 0).unwrap()
}

fn whole(generator: &SsbGenerator, table: SsbTable) -> RecordBatch {
    let batches: Vec<_> = (0..generator.partition_count(table))
        .flat_map(|idx| generator.partition(table, idx))
        .collect();
    concat_batches(&generator.schema(table), &batches).unwrap()
}

fn ints<'a>(batch: &'a RecordBatch, column: &str) -> &'a Int32Array {
    batch
        .column_by_name(column)
        .unwrap()
        .as_primitive::<Int32Type>()
}

fn texts<'a>(batch: &'a RecordBatch, column: &str) -> &'a StringViewArray {
    batch.column_by_name(column).unwrap().as_string_view()
}

fn flags<'a>(batch: &'a RecordBatch, column: &str) -> &'a BooleanArray {
    batch.column_by_name(column).unwrap().as_boolean()
}

fn distinct<'a>(batch: &'a RecordBatch, column: &str) -> HashSet<&'a str> {
    texts(batch, column).iter().flatten().collect()
}

/// Asserts that all integers from `low` to `high` occur in a column, and no others.
fn assert_int_domain(batch: &RecordBatch, column: &str, low: i32, high: i32) {
    let mut values: Vec<i32> = ints(batch, column).values().to_vec();
    values.sort_unstable();
    values.dedup();
    assert!(values.into_iter().eq(low..=high), "{column}");
}

#[test]
fn row_counts_follow_the_scale() {
    let counts = |scale| {
        let generator = generator(scale);
        SsbTable::ALL.map(|table| generator.row_count(table))
    };
    assert_eq!(counts(0.01), [60_175, 300, 20, 2_000, 2_556]);
    assert_eq!(counts(1.0), [6_001_215, 30_000, 2_000, 200_000, 2_556]);
    let part_rows = |scale| generator(scale).row_count(SsbTable::Part);
    let scales = [0.5, 2.0, 3.0, 4.0, 8.0, 10.0, 100.0, 300.0];
    let expected = [1, 4, 4, 6, 8, 8, 14, 18].map(|hundreds| hundreds * 100_000);
    assert_eq!(scales.map(part_rows), expected);
}

#[test]
fn partitions_hold_the_rows_announced_in_batches_near_the_target() {
    for scale in [0.001, 0.05] {
        let generator = generator(scale);
        for table in SsbTable::ALL {
            let row_counts: Vec<u64> = (0..generator.partition_count(table))
                .flat_map(|idx| generator.partition(table, idx))
                .map(|batch| batch.num_rows() as u64)
                .collect();
            assert_eq!(
                row_counts.iter().sum::<u64>(),
                generator.row_count(table),
                "{table}"
            );
            assert!(
                row_counts
                    .iter()
                    .all(|rows| *rows < BATCH_ROWS + BATCH_ROWS / 32)
            );
            let beyond = generator
                .partition(table, generator.partition_count(table))
                .count();
            assert_eq!(beyond, 0);
        }
    }
}

#[test]
fn a_batch_equals_the_same_rows_of_a_larger_batch() {
    let spec = generator(0.01).lineorder_spec();
    let all = lineorder::batch(&spec, 0..1_000);
    let mut offset = 0;
    for orders in [0..1, 1..8, 8..400, 400..1_000] {
        let some = lineorder::batch(&spec, orders);
        assert_eq!(all.slice(offset, some.num_rows()), some);
        offset += some.num_rows();
    }
    assert_eq!(offset, all.num_rows());
    for table in [
        SsbTable::Customer,
        SsbTable::Supplier,
        SsbTable::Part,
        SsbTable::Date,
    ] {
        let all = dimension_batch(table, 7, 0..300);
        for first in [0, 1, 17, 299] {
            let some = dimension_batch(table, 7, first..300);
            assert_eq!(
                all.slice(first as usize, 300 - first as usize),
                some,
                "{table}"
            );
        }
    }
}

#[test]
fn another_seed_gives_other_rows_and_the_same_seed_the_same() {
    for table in SsbTable::ALL {
        let [zero, one, again] =
            [0, 1, 1].map(|seed| whole(&SsbGenerator::new(0.001, seed).unwrap(), table));
        assert_eq!(one, again, "{table}");
        assert_eq!(zero != one, table != SsbTable::Date, "{table}");
    }
}

#[test]
fn lineorder_shares_its_columns_with_tpch() {
    let words = Distributions::static_default();
    let pool = TextPool::new(1 << 16, words);
    let lines =
        LineItemGenerator::new_with_distributions_and_text_pool(0.01, 1, 1, words, &pool).iter();
    let mut orders =
        OrderGenerator::new_with_distributions_and_text_pool(0.01, 1, 1, words, &pool).iter();
    let batch = whole(&generator(0.01), SsbTable::Lineorder);
    let int = |column, row| ints(&batch, column).value(row);
    let date_key = |date: String| date.replace('-', "").parse::<i32>().unwrap();
    let mut order = orders.next().unwrap();
    let mut row_count = 0;
    for (row, line) in lines.enumerate() {
        if order.o_orderkey != line.l_orderkey {
            order = orders.next().unwrap();
        }
        assert_eq!(i64::from(int("lo_orderkey", row)), line.l_orderkey);
        assert_eq!(int("lo_linenumber", row), line.l_linenumber);
        assert_eq!(i64::from(int("lo_quantity", row)), line.l_quantity);
        assert_eq!(
            i64::from(int("lo_discount", row)),
            line.l_discount.into_inner()
        );
        assert_eq!(i64::from(int("lo_tax", row)), line.l_tax.into_inner());
        assert_eq!(
            int("lo_commitdate", row),
            date_key(line.l_commitdate.to_string())
        );
        assert_eq!(
            int("lo_orderdate", row),
            date_key(order.o_orderdate.to_string())
        );
        assert_eq!(texts(&batch, "lo_shipmode").value(row), line.l_shipmode);
        assert_eq!(
            texts(&batch, "lo_orderpriority").value(row),
            order.o_orderpriority
        );
        // Below scale 1 parts scale as in TPC-H, so part keys and prices agree as well.
        assert_eq!(i64::from(int("lo_partkey", row)), line.l_partkey);
        assert_eq!(
            i64::from(int("lo_extendedprice", row)),
            line.l_extendedprice.into_inner()
        );
        assert_eq!(
            i64::from(int("lo_ordtotalprice", row)),
            order.o_totalprice.into_inner()
        );
        row_count += 1;
    }
    assert_eq!(row_count, batch.num_rows());
    assert!(orders.next().is_none());
}

#[test]
fn money_follows_the_formulas() {
    let batch = whole(&generator(0.01), SsbTable::Lineorder);
    let int = |column, row| i64::from(ints(&batch, column).value(row));
    let mut row = 0;
    while row < batch.num_rows() {
        let order_key = int("lo_orderkey", row);
        let line_count = (row..batch.num_rows())
            .take_while(|line| int("lo_orderkey", *line) == order_key)
            .count();
        let mut total_price = 0;
        for line in row..row + line_count {
            let part = int("lo_partkey", line);
            let price = 90_000 + part / 10 % 20_001 + part % 1_000 * 100;
            let extended_price = int("lo_quantity", line) * price;
            let revenue = extended_price * (100 - int("lo_discount", line)) / 100;
            assert_eq!(int("lo_extendedprice", line), extended_price);
            assert_eq!(int("lo_revenue", line), revenue);
            assert_eq!(int("lo_supplycost", line), price * 6 / 10);
            assert_eq!(int("lo_linenumber", line), (line - row + 1) as i64);
            total_price += revenue * (100 + int("lo_tax", line)) / 100;
        }
        for line in row..row + line_count {
            assert_eq!(int("lo_ordtotalprice", line), total_price);
        }
        row += line_count;
    }
}

#[test]
fn lineorder_stays_in_its_domains() {
    let batch = whole(&generator(0.01), SsbTable::Lineorder);
    assert_int_domain(&batch, "lo_linenumber", 1, 7);
    assert_int_domain(&batch, "lo_quantity", 1, 50);
    assert_int_domain(&batch, "lo_discount", 0, 10);
    assert_int_domain(&batch, "lo_tax", 0, 8);
    assert_int_domain(&batch, "lo_suppkey", 1, 20);
    assert_int_domain(&batch, "lo_partkey", 1, 2_000);
    let customers: HashSet<i32> = ints(&batch, "lo_custkey")
        .values()
        .iter()
        .copied()
        .collect();
    assert_eq!(customers, (1..=300).filter(|key| key % 3 != 0).collect());
    let keys = ints(&batch, "lo_orderkey").values();
    assert!(keys.is_sorted());
    assert!(
        keys.iter().all(|key| key % 32 < 8),
        "first 8 of each 32 keys are used"
    );
    assert_eq!(distinct(&batch, "lo_shippriority"), HashSet::from(["0"]));
    let priorities = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
    assert_eq!(
        distinct(&batch, "lo_orderpriority"),
        HashSet::from(priorities)
    );
    let modes = ["REG AIR", "AIR", "RAIL", "TRUCK", "MAIL", "FOB", "SHIP"];
    assert_eq!(distinct(&batch, "lo_shipmode"), HashSet::from(modes));
}

#[test]
fn dates_of_lineorder_are_days_of_the_calendar() {
    let batch = whole(&generator(0.05), SsbTable::Lineorder);
    let days: HashSet<i32> = date::keys().iter().copied().collect();
    let orders = ints(&batch, "lo_orderdate").values();
    let commits = ints(&batch, "lo_commitdate").values();
    assert!(orders.iter().chain(commits).all(|day| days.contains(day)));
    assert_eq!(orders.iter().min(), Some(&19_920_101));
    assert_eq!(orders.iter().max(), Some(&19_980_802));
    assert_eq!(commits.iter().max(), Some(&19_981_031));
    assert!(
        orders
            .iter()
            .zip(commits)
            .all(|(order, commit)| order < commit)
    );
}

#[test]
fn customers_and_suppliers_stay_in_their_domains() {
    let generator = generator(1.0);
    for (table, prefix, name) in [
        (SsbTable::Customer, "c", "Customer"),
        (SsbTable::Supplier, "s", "Supplier"),
    ] {
        let batch = whole(&generator, table);
        let column = |suffix: &str| texts(&batch, &format!("{prefix}_{suffix}"));
        let key_column = format!(
            "{prefix}_{}key",
            if prefix == "c" { "cust" } else { "supp" }
        );
        let row_count = batch.num_rows() as i32;
        assert!(
            ints(&batch, &key_column)
                .values()
                .iter()
                .copied()
                .eq(1..=row_count)
        );
        for row in 0..batch.num_rows() {
            let (nation, city) = (column("nation").value(row), column("city").value(row));
            assert_eq!(column("name").value(row), format!("{name}#{:09}", row + 1));
            assert!(REGIONS.contains(&column("region").value(row)));
            let (city_prefix, digit) = city.split_at(9);
            assert!(nation.starts_with(city_prefix.trim_end()) && city.len() == 10);
            assert!(digit.parse::<u8>().is_ok());
            let phone: Vec<_> = column("phone")
                .value(row)
                .split('-')
                .map(str::len)
                .collect();
            assert_eq!(phone, [2, 3, 3, 4]);
            assert!((6..=24).contains(&column("address").value(row).len()));
        }
        assert_eq!(distinct(&batch, &format!("{prefix}_nation")).len(), 25);
        assert_eq!(distinct(&batch, &format!("{prefix}_city")).len(), 250);
    }
    let customers = whole(&generator, SsbTable::Customer);
    let segments = [
        "AUTOMOBILE",
        "BUILDING",
        "FURNITURE",
        "HOUSEHOLD",
        "MACHINERY",
    ];
    assert_eq!(
        distinct(&customers, "c_mktsegment"),
        HashSet::from(segments)
    );
}

#[test]
fn parts_nest_manufacturer_category_and_brand() {
    let batch = whole(&generator(0.5), SsbTable::Part);
    for row in 0..batch.num_rows() {
        let text = |column| texts(&batch, column).value(row);
        assert!(text("p_category").starts_with(text("p_mfgr")));
        assert_eq!(text("p_category").len(), 7);
        let brand = text("p_brand1").strip_prefix(text("p_category")).unwrap();
        assert!((1..=40).contains(&brand.parse::<u8>().unwrap()) && !brand.starts_with('0'));
        let (first, second) = text("p_name").split_once(' ').unwrap();
        assert!(first != second && text("p_color") != first && text("p_color") != second);
        assert!(text("p_name").len() <= 22 && text("p_color").len() <= 11);
    }
    let cardinality = |column| distinct(&batch, column).len();
    assert_eq!(cardinality("p_mfgr"), 5);
    assert_eq!(cardinality("p_category"), 25);
    assert_eq!(cardinality("p_brand1"), 1_000);
    assert_eq!(
        cardinality("p_color"),
        Distributions::static_default().part_colors().size()
    );
    assert_eq!(cardinality("p_type"), 150);
    assert_eq!(cardinality("p_container"), 40);
    assert_int_domain(&batch, "p_size", 1, 50);
}

#[test]
fn date_columns_describe_the_same_day() {
    let batch = whole(&generator(0.01), SsbTable::Date);
    assert_eq!(batch.num_rows(), 2_556);
    for row in 0..batch.num_rows() {
        let int = |column| ints(&batch, column).value(row);
        let text = |column| texts(&batch, column).value(row);
        let (year, month, day) = (
            int("d_year"),
            int("d_monthnuminyear"),
            int("d_daynuminmonth"),
        );
        assert_eq!(int("d_datekey"), year * 10_000 + month * 100 + day);
        assert_eq!(int("d_yearmonthnum"), year * 100 + month);
        assert_eq!(
            text("d_yearmonth"),
            format!("{}{year}", &text("d_month")[..3])
        );
        assert_eq!(text("d_date"), format!("{} {day}, {year}", text("d_month")));
        assert_eq!(int("d_weeknuminyear"), int("d_daynuminyear") / 7 + 1);
        let weekend = ["Saturday", "Sunday"].contains(&text("d_dayofweek"));
        assert_eq!(flags(&batch, "d_weekdayfl").value(row), !weekend);
        let last_in_week = int("d_daynuminweek") == 7;
        assert_eq!(flags(&batch, "d_lastdayinweekfl").value(row), last_in_week);
    }
    assert_int_domain(&batch, "d_year", 1992, 1998);
    assert_int_domain(&batch, "d_daynuminweek", 1, 7);
    assert_int_domain(&batch, "d_daynuminyear", 1, 366);
    assert_int_domain(&batch, "d_weeknuminyear", 1, 53);
    assert_eq!(flags(&batch, "d_holidayfl").true_count(), 70);
    assert_eq!(flags(&batch, "d_lastdayinmonthfl").true_count(), 7 * 12 - 1);
    let seasons = ["Christmas", "Fall", "Spring", "Summer", "Winter"];
    assert_eq!(distinct(&batch, "d_sellingseason"), HashSet::from(seasons));
    assert_eq!(distinct(&batch, "d_yearmonth").len(), 84);
}

#[test]
fn names_and_scales_are_checked() {
    for table in SsbTable::ALL {
        assert_eq!(table.to_string().parse::<SsbTable>().unwrap(), table);
    }
    let message = "lineitem".parse::<SsbTable>().unwrap_err().to_string();
    assert!(message.contains("lineorder, customer"), "{message}");
    for scale in [0.0, -1.0, 0.0005, 301.0, f64::NAN, f64::INFINITY] {
        assert!(SsbGenerator::new(scale, 0).is_err());
    }
}

#[test]
fn there_are_thirteen_queries_in_four_flights() {
    let names: Vec<_> = queries().iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), 13);
    assert!(names.is_sorted());
    for (name, sql) in queries() {
        assert!(
            sql.contains("\"date\""),
            "{name} quotes the table whose name is a keyword"
        );
    }
}
