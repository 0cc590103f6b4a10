//! Filter factors of the 13 queries (specification, table 2).
//!
//! Dimension predicates are checked on dimensions of scale 10, where the shares are steady; predicates on lineorder
//! itself and on dates on its rows. The specification takes dates as uniform over seven years, but orders end on
//! 1998-08-02, after 2 406 days: a year before 1998 has 365 of those, not one in seven.

use super::*;

fn share(batch: &RecordBatch, holds: impl Fn(usize) -> bool) -> f64 {
    let row_count = batch.num_rows();
    (0..row_count).filter(|row| holds(*row)).count() as f64 / row_count as f64
}

fn assert_near(what: &str, actual: f64, expected: f64, tolerance: f64) {
    let error = (actual / expected - 1.0).abs();
    assert!(error < tolerance, "{what}: {actual} instead of {expected}");
}

#[test]
fn shares_of_the_dimensions_are_as_specified() {
    let generator = generator(10.0);
    for (table, prefix) in [(SsbTable::Customer, "c"), (SsbTable::Supplier, "s")] {
        let batch = whole(&generator, table);
        let is = |column: &str, value: &str| {
            let texts = texts(&batch, &format!("{prefix}_{column}"));
            share(&batch, |row| texts.value(row) == value)
        };
        for region in ["AMERICA", "ASIA", "EUROPE"] {
            assert_near(region, is("region", region), 1.0 / 5.0, 0.05);
        }
        assert_near("nation", is("nation", "UNITED STATES"), 1.0 / 25.0, 0.1);
        let cities = is("city", "UNITED KI1") + is("city", "UNITED KI5");
        assert_near("two cities", cities, 2.0 / 250.0, 0.25);
    }
    let batch = dimension_batch(SsbTable::Part, 0, 0..200_000);
    let is = |column: &str, value: &str| {
        let texts = texts(&batch, column);
        share(&batch, |row| texts.value(row) == value)
    };
    assert_near(
        "mfgr",
        is("p_mfgr", "MFGR#1") + is("p_mfgr", "MFGR#2"),
        0.4,
        0.02,
    );
    assert_near("category", is("p_category", "MFGR#12"), 1.0 / 25.0, 0.05);
    assert_near("category", is("p_category", "MFGR#14"), 1.0 / 25.0, 0.05);
    let brands = texts(&batch, "p_brand1");
    let eight = share(&batch, |row| {
        ("MFGR#2221"..="MFGR#2228").contains(&brands.value(row))
    });
    assert_near("eight brands", eight, 8.0 / 1_000.0, 0.1);
    assert_near("brand", is("p_brand1", "MFGR#2239"), 1.0 / 1_000.0, 0.25);
}

#[test]
fn shares_of_lineorder_are_as_specified() {
    let batch = whole(&generator(0.1), SsbTable::Lineorder);
    let column = |name| ints(&batch, name).values();
    let (days, discounts) = (column("lo_orderdate"), column("lo_discount"));
    let quantities = column("lo_quantity");
    let day_share =
        |of: std::ops::RangeInclusive<i32>| share(&batch, |row| of.contains(&days[row]));
    let day = 1.0 / 2_406.0;
    assert_near(
        "1993",
        day_share(19_930_101..=19_931_231),
        365.0 * day,
        0.02,
    );
    assert_near(
        "1992 to 1997",
        day_share(19_920_101..=19_971_231),
        2_192.0 * day,
        0.01,
    );
    assert_near(
        "Dec1997",
        day_share(19_971_201..=19_971_231),
        31.0 * day,
        0.1,
    );
    assert_near(
        "1997, 1998",
        day_share(19_970_101..=19_981_231),
        579.0 * day,
        0.02,
    );

    // The specification's 1/7, 1/84 and 1/364 for the date, 3/11 for the discount, and the share of quantities.
    let q1 = share(&batch, |row| {
        days[row] / 10_000 == 1993 && (1..=3).contains(&discounts[row]) && quantities[row] < 25
    });
    assert_near("Q1.1", q1, 365.0 * day * 3.0 / 11.0 * 24.0 / 50.0, 0.05);
    let q2 = share(&batch, |row| {
        days[row] / 100 == 199_401
            && (4..=6).contains(&discounts[row])
            && (26..=35).contains(&quantities[row])
    });
    assert_near("Q1.2", q2, 31.0 * day * 3.0 / 11.0 * 10.0 / 50.0, 0.15);
    let q3 = share(&batch, |row| {
        (19_940_204..=19_940_210).contains(&days[row])
            && (5..=7).contains(&discounts[row])
            && (26..=35).contains(&quantities[row])
    });
    assert_near("Q1.3", q3, 7.0 * day * 3.0 / 11.0 * 10.0 / 50.0, 0.3);
}

#[test]
fn keys_of_lineorder_are_uniform_so_that_factors_multiply() {
    let batch = whole(&generator(0.1), SsbTable::Lineorder);
    let rows_per_supplier = batch.num_rows() / 200;
    let mut counts = [0_usize; 200];
    for key in ints(&batch, "lo_suppkey").values() {
        counts[*key as usize - 1] += 1;
    }
    let low = rows_per_supplier * 9 / 10;
    assert!(
        counts
            .iter()
            .all(|count| (low..low * 5 / 4).contains(count))
    );
}
