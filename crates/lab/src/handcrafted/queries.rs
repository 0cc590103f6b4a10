//! The 13 queries of the Star Schema Benchmark as conditions on dimensions and on the fact table.

use hotshelf_datagen::ssb::SsbTable;

/// A query: the joins in the order in which they are made, and what is summed.
#[derive(Debug)]
pub struct StarQuery {
    pub name: &'static str,
    /// The joins, those that keep fewest rows first.
    pub joins: &'static [Join],
    /// Bounds of quantity and discount.
    pub bounds: Option<Bounds>,
    pub measure: Measure,
    /// Which joins' groups the answer has, in its order of columns.
    pub output: &'static [usize],
}

#[derive(Debug)]
pub struct Bounds {
    pub quantity: (u8, u8),
    pub discount: (u8, u8),
}

/// What is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Extended price times discount.
    Discounted,
    Revenue,
    /// Revenue less supply cost.
    Profit,
}

impl Measure {
    /// The answer's column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discounted | Self::Revenue => "revenue",
            Self::Profit => "profit",
        }
    }
}

/// Rows of a dimension that count, and the column that the answer groups by.
#[derive(Debug)]
pub struct Join {
    pub table: SsbTable,
    pub tests: &'static [(&'static str, Test)],
    pub group: Option<&'static str>,
}

/// A condition on a column, whose values are compared as texts.
#[derive(Debug)]
pub enum Test {
    OneOf(&'static [&'static str]),
    Between(&'static str, &'static str),
}

impl Test {
    pub fn holds(&self, value: &str) -> bool {
        match self {
            Self::OneOf(values) => values.contains(&value),
            Self::Between(first, last) => (*first..=*last).contains(&value),
        }
    }
}

use Test::{Between, OneOf};

type Tests = &'static [(&'static str, Test)];

const fn date(tests: Tests, group: Option<&'static str>) -> Join {
    Join {
        table: SsbTable::Date,
        tests,
        group,
    }
}

const fn customer(tests: Tests, group: Option<&'static str>) -> Join {
    Join {
        table: SsbTable::Customer,
        tests,
        group,
    }
}

const fn supplier(tests: Tests, group: Option<&'static str>) -> Join {
    Join {
        table: SsbTable::Supplier,
        tests,
        group,
    }
}

const fn part(tests: Tests, group: Option<&'static str>) -> Join {
    Join {
        table: SsbTable::Part,
        tests,
        group,
    }
}

const fn flight1(name: &'static str, joins: &'static [Join], bounds: Bounds) -> StarQuery {
    StarQuery {
        name,
        joins,
        bounds: Some(bounds),
        measure: Measure::Discounted,
        output: &[],
    }
}

const fn flight2(name: &'static str, joins: &'static [Join]) -> StarQuery {
    StarQuery {
        name,
        joins,
        bounds: None,
        measure: Measure::Revenue,
        output: &[2, 0],
    }
}

const fn flight3(name: &'static str, joins: &'static [Join]) -> StarQuery {
    StarQuery {
        name,
        joins,
        bounds: None,
        measure: Measure::Revenue,
        output: &[0, 1, 2],
    }
}

const fn flight4(
    name: &'static str,
    joins: &'static [Join],
    output: &'static [usize],
) -> StarQuery {
    StarQuery {
        name,
        joins,
        bounds: None,
        measure: Measure::Profit,
        output,
    }
}

const YEAR: Option<&str> = Some("d_year");
const BOTH_KINGDOM_CITIES: Test = OneOf(&["UNITED KI1", "UNITED KI5"]);
const TO_1997: Tests = &[("d_year", Between("1992", "1997"))];
const LAST_YEARS: Tests = &[("d_year", OneOf(&["1997", "1998"]))];
const FIRST_MAKERS: Tests = &[("p_mfgr", OneOf(&["MFGR#1", "MFGR#2"]))];

/// All queries, in order.
pub static QUERIES: [StarQuery; 13] = [
    flight1(
        "Q1.1",
        &[date(&[("d_year", OneOf(&["1993"]))], None)],
        Bounds {
            quantity: (0, 24),
            discount: (1, 3),
        },
    ),
    flight1(
        "Q1.2",
        &[date(&[("d_yearmonthnum", OneOf(&["199401"]))], None)],
        Bounds {
            quantity: (26, 35),
            discount: (4, 6),
        },
    ),
    flight1(
        "Q1.3",
        &[date(
            &[
                ("d_weeknuminyear", OneOf(&["6"])),
                ("d_year", OneOf(&["1994"])),
            ],
            None,
        )],
        Bounds {
            quantity: (26, 35),
            discount: (5, 7),
        },
    ),
    flight2(
        "Q2.1",
        &[
            part(&[("p_category", OneOf(&["MFGR#12"]))], Some("p_brand1")),
            supplier(&[("s_region", OneOf(&["AMERICA"]))], None),
            date(&[], YEAR),
        ],
    ),
    flight2(
        "Q2.2",
        &[
            part(
                &[("p_brand1", Between("MFGR#2221", "MFGR#2228"))],
                Some("p_brand1"),
            ),
            supplier(&[("s_region", OneOf(&["ASIA"]))], None),
            date(&[], YEAR),
        ],
    ),
    flight2(
        "Q2.3",
        &[
            part(&[("p_brand1", OneOf(&["MFGR#2239"]))], Some("p_brand1")),
            supplier(&[("s_region", OneOf(&["EUROPE"]))], None),
            date(&[], YEAR),
        ],
    ),
    flight3(
        "Q3.1",
        &[
            customer(&[("c_region", OneOf(&["ASIA"]))], Some("c_nation")),
            supplier(&[("s_region", OneOf(&["ASIA"]))], Some("s_nation")),
            date(TO_1997, YEAR),
        ],
    ),
    flight3(
        "Q3.2",
        &[
            customer(&[("c_nation", OneOf(&["UNITED STATES"]))], Some("c_city")),
            supplier(&[("s_nation", OneOf(&["UNITED STATES"]))], Some("s_city")),
            date(TO_1997, YEAR),
        ],
    ),
    flight3(
        "Q3.3",
        &[
            customer(&[("c_city", BOTH_KINGDOM_CITIES)], Some("c_city")),
            supplier(&[("s_city", BOTH_KINGDOM_CITIES)], Some("s_city")),
            date(TO_1997, YEAR),
        ],
    ),
    flight3(
        "Q3.4",
        &[
            customer(&[("c_city", BOTH_KINGDOM_CITIES)], Some("c_city")),
            supplier(&[("s_city", BOTH_KINGDOM_CITIES)], Some("s_city")),
            date(&[("d_yearmonth", OneOf(&["Dec1997"]))], YEAR),
        ],
    ),
    flight4(
        "Q4.1",
        &[
            customer(&[("c_region", OneOf(&["AMERICA"]))], Some("c_nation")),
            supplier(&[("s_region", OneOf(&["AMERICA"]))], None),
            part(FIRST_MAKERS, None),
            date(&[], YEAR),
        ],
        &[3, 0],
    ),
    flight4(
        "Q4.2",
        &[
            customer(&[("c_region", OneOf(&["AMERICA"]))], None),
            supplier(&[("s_region", OneOf(&["AMERICA"]))], Some("s_nation")),
            date(LAST_YEARS, YEAR),
            part(FIRST_MAKERS, Some("p_category")),
        ],
        &[2, 1, 3],
    ),
    flight4(
        "Q4.3",
        &[
            supplier(&[("s_nation", OneOf(&["UNITED STATES"]))], Some("s_city")),
            part(&[("p_category", OneOf(&["MFGR#14"]))], Some("p_brand1")),
            customer(&[("c_region", OneOf(&["AMERICA"]))], None),
            date(LAST_YEARS, YEAR),
        ],
        &[3, 0, 1],
    ),
];

/// Rows of an answer without their order: the groups' values in the answer's order of columns, and the sum.
pub type Answer = Vec<(Vec<String>, i64)>;
