//! Dimension tables as keys and coded columns, and what a query makes of one: a code for each key that counts.

use std::collections::BTreeSet;

use arrow::array::{Array, Int32Array, RecordBatch, StringViewArray};
use hotshelf_datagen::Dataset;
use hotshelf_datagen::ssb::{SsbGenerator, SsbTable};

use super::queries::{Join, QUERIES};

/// The code of keys that do not count.
pub const NONE: u8 = u8::MAX;

/// Days of a month and months of a year as parts of a day's code.
const DAYS: u32 = 31;
const MONTHS: u32 = 12;
const FIRST_YEAR: u32 = 1992;

/// A date by its month (from January 1992 on) and its day (from 0 on), one byte each: what the columns hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Day {
    pub month: u8,
    pub day: u8,
}

impl Day {
    /// Of a `yyyymmdd` number.
    pub fn of_key(key: u32) -> Self {
        let (year, month, day) = (key / 10_000, key / 100 % 100, key % 100);
        Self {
            month: ((year.wrapping_sub(FIRST_YEAR)) * MONTHS + month.wrapping_sub(1)) as u8,
            day: day.wrapping_sub(1) as u8,
        }
    }

    /// Its number among all possible days.
    #[inline]
    pub fn code(self) -> u32 {
        u32::from(self.month) * DAYS + u32::from(self.day)
    }
}

/// The columns that some query tests or groups by.
#[derive(Debug, Clone)]
pub struct Dimension {
    pub table: SsbTable,
    /// The keys; of dates the codes of the days.
    pub keys: Vec<u32>,
    columns: Vec<Column>,
}

/// A column by codes in the order of its values.
#[derive(Debug, Clone)]
struct Column {
    name: &'static str,
    values: Vec<String>,
    codes: Vec<u16>,
}

/// The rows of a dimension that count in a query.
#[derive(Debug, Clone)]
pub struct Chosen {
    pub keys: Vec<u32>,
    /// The group of each, all zero without groups.
    pub codes: Vec<u8>,
    /// The groups' values; one without a name if there are no groups.
    pub groups: Vec<String>,
    /// The largest key of the whole dimension.
    pub key_max: u32,
}

impl Dimension {
    pub fn generate(generator: &SsbGenerator, table: SsbTable) -> Self {
        let partitions = 0..generator.partition_count(table);
        let batches: Vec<RecordBatch> = partitions
            .flat_map(|idx| generator.partition(table, idx))
            .collect();
        let mut keys = Vec::new();
        for batch in &batches {
            let column = batch.column(0).as_any().downcast_ref::<Int32Array>();
            let own = column
                .iter()
                .flat_map(|column| column.values().iter().copied());
            keys.extend(own.map(|key| match table {
                SsbTable::Date => Day::of_key(key as u32).code(),
                _ => key as u32,
            }));
        }
        let joins = QUERIES.iter().flat_map(|query| query.joins);
        let own = joins.filter(|join| join.table == table);
        let names: BTreeSet<&'static str> = own
            .flat_map(|join| join.tests.iter().map(|(name, _)| *name).chain(join.group))
            .collect();
        let columns = names
            .into_iter()
            .map(|name| Column::new(name, &batches))
            .collect();
        Self {
            table,
            keys,
            columns,
        }
    }

    fn column(&self, name: &str) -> &Column {
        let found = self.columns.iter().find(|column| column.name == name);
        found.expect("every column that a query names was read")
    }

    /// The rows that count in a join.
    pub fn choose(&self, join: &Join) -> Chosen {
        let mut passes = vec![true; self.keys.len()];
        for (name, test) in join.tests {
            let column = self.column(name);
            let holds: Vec<bool> = column
                .values
                .iter()
                .map(|value| test.holds(value))
                .collect();
            for (passes, code) in passes.iter_mut().zip(&column.codes) {
                *passes &= holds[usize::from(*code)];
            }
        }
        let rows = || (0..self.keys.len()).filter(|row| passes[*row]);
        let keys = rows().map(|row| self.keys[row]).collect();
        let key_max = self.keys.iter().copied().max().unwrap_or(0);
        let Some(group) = join.group else {
            let codes = vec![0; rows().count()];
            return Chosen {
                keys,
                codes,
                groups: vec![String::new()],
                key_max,
            };
        };
        let column = self.column(group);
        let mut present = vec![false; column.values.len()];
        rows().for_each(|row| present[usize::from(column.codes[row])] = true);
        let mut narrow = vec![NONE; column.values.len()];
        let mut groups = Vec::new();
        for code in (0..present.len()).filter(|code| present[*code]) {
            narrow[code] = u8::try_from(groups.len()).unwrap_or(NONE);
            groups.push(column.values[code].clone());
        }
        assert!(
            groups.len() < usize::from(NONE),
            "the benchmark's groups fit a byte"
        );
        let codes = rows()
            .map(|row| narrow[usize::from(column.codes[row])])
            .collect();
        Chosen {
            keys,
            codes,
            groups,
            key_max,
        }
    }
}

impl Column {
    fn new(name: &'static str, batches: &[RecordBatch]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for batch in batches {
            let column = batch.column_by_name(name).map(|column| column.as_any());
            if let Some(numbers) = column.and_then(|any| any.downcast_ref::<Int32Array>()) {
                texts.extend(numbers.values().iter().map(ToString::to_string));
            } else if let Some(words) = column.and_then(|any| any.downcast_ref::<StringViewArray>())
            {
                texts.extend(words.iter().map(|word| word.unwrap_or_default().to_owned()));
            }
        }
        let values: Vec<String> = texts
            .iter()
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let code = |text: &String| values.binary_search(text).unwrap_or(0) as u16;
        let codes = texts.iter().map(code).collect();
        Self {
            name,
            values,
            codes,
        }
    }
}

/// The four dimensions.
#[derive(Debug, Clone)]
pub struct Dimensions(Vec<Dimension>);

impl Dimensions {
    pub fn generate(generator: &SsbGenerator) -> Self {
        let tables = SsbTable::ALL
            .into_iter()
            .filter(|table| *table != SsbTable::Lineorder);
        Self(
            tables
                .map(|table| Dimension::generate(generator, table))
                .collect(),
        )
    }

    pub fn get(&self, table: SsbTable) -> &Dimension {
        let found = self.0.iter().find(|dimension| dimension.table == table);
        found.expect("all four were made")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_codes_in_their_order() {
        let day = Day::of_key(19_940_205);
        assert_eq!((day.month, day.day), (25, 4));
        assert_eq!(day.code(), 25 * 31 + 4);
        assert!(Day::of_key(19_920_131).code() < Day::of_key(19_920_201).code());
    }

    #[test]
    fn a_join_keeps_the_rows_that_pass_and_numbers_their_groups() {
        let generator = SsbGenerator::new(0.01, 0).unwrap();
        let dimensions = Dimensions::generate(&generator);
        let q32 = &QUERIES[7].joins[0];
        let chosen = dimensions.get(SsbTable::Customer).choose(q32);
        assert!(
            chosen
                .groups
                .iter()
                .all(|city| city.starts_with("UNITED ST"))
        );
        assert_eq!(chosen.keys.len(), chosen.codes.len());
        assert!(
            chosen
                .codes
                .iter()
                .all(|code| usize::from(*code) < chosen.groups.len())
        );
        let years = dimensions.get(SsbTable::Date).choose(&QUERIES[3].joins[2]);
        assert_eq!(years.groups.len(), 7);
        assert_eq!(years.keys.len(), 2556);
    }
}
