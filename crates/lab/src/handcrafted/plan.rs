//! A query bound to the dimensions of one socket: its look-ups, its groups, and the sums of a thread.

use hotshelf_datagen::ssb::SsbTable;

use super::dash::DashError;
use super::dimension::{Chosen, Dimensions, NONE};
use super::lookup::{Kind, LookUp};
use super::queries::{Answer, StarQuery};

/// A query with its look-ups.
#[derive(Debug)]
pub struct Plan {
    pub query: &'static StarQuery,
    pub joins: Vec<PlannedJoin>,
    pub group_count: usize,
    /// The days that count, where the fact table's own bounds are tested first.
    pub days: Option<Days>,
}

#[derive(Debug)]
pub struct PlannedJoin {
    pub table: SsbTable,
    pub look_up: LookUp,
    pub groups: Vec<String>,
    pub records: usize,
}

/// Days by their two bytes.
#[derive(Debug)]
pub struct Days {
    pub months: (u8, u8),
    pub days: (u8, u8),
    /// Whether every day within both bounds counts.
    pub exact: bool,
    /// The code of each day.
    pub codes: Vec<u8>,
}

impl Plan {
    /// # Errors
    /// Those of the look-ups.
    pub fn new(
        query: &'static StarQuery,
        dimensions: &Dimensions,
        kind: Kind,
    ) -> Result<Self, DashError> {
        let mut joins = Vec::new();
        let (mut group_count, mut days) = (1, None);
        for join in query.joins {
            let dimension = dimensions.get(join.table);
            let chosen = dimension.choose(join);
            if query.bounds.is_some() {
                days = Some(Days::new(&chosen, &dimension.keys));
            }
            group_count *= chosen.groups.len().max(1);
            joins.push(PlannedJoin {
                table: join.table,
                look_up: LookUp::build(kind, &chosen)?,
                records: chosen.keys.len(),
                groups: chosen.groups,
            });
        }
        Ok(Self {
            query,
            joins,
            group_count,
            days,
        })
    }

    /// The answer from the sums of all threads.
    pub fn answer(&self, sums: &Sums) -> Answer {
        let mut answer = Answer::new();
        for (group, (sum, count)) in sums.sums.iter().zip(&sums.counts).enumerate() {
            if *count == 0 {
                continue;
            }
            let mut codes = vec![0; self.joins.len()];
            let mut rest = group;
            for (code, join) in codes.iter_mut().zip(&self.joins).rev() {
                *code = rest % join.groups.len();
                rest /= join.groups.len();
            }
            let value = |join: &usize| self.joins[*join].groups[codes[*join]].clone();
            answer.push((self.query.output.iter().map(value).collect(), *sum));
        }
        answer.sort();
        answer
    }
}

impl Days {
    fn new(chosen: &Chosen, all: &[u32]) -> Self {
        let mut codes = vec![NONE; chosen.key_max as usize + 1];
        for (key, code) in chosen.keys.iter().zip(&chosen.codes) {
            codes[*key as usize] = *code;
        }
        let bounds = |part: fn(u32) -> u32| {
            let parts = || chosen.keys.iter().map(|key| part(*key) as u8);
            (parts().min().unwrap_or(1), parts().max().unwrap_or(0))
        };
        let (months, days) = (bounds(|key| key / 31), bounds(|key| key % 31));
        let inside = |key: &&u32| {
            let (month, day) = ((**key / 31) as u8, (**key % 31) as u8);
            (months.0..=months.1).contains(&month) && (days.0..=days.1).contains(&day)
        };
        let exact = all.iter().filter(inside).count() == chosen.keys.len();
        Self {
            months,
            days,
            exact,
            codes,
        }
    }
}

/// Sums and counts by group.
#[derive(Debug, Clone)]
pub struct Sums {
    sums: Vec<i64>,
    counts: Vec<u64>,
}

impl Sums {
    pub fn new(group_count: usize) -> Self {
        Self {
            sums: vec![0; group_count],
            counts: vec![0; group_count],
        }
    }

    #[inline]
    pub fn add(&mut self, group: u32, value: i64) {
        self.sums[group as usize] += value;
        self.counts[group as usize] += 1;
    }

    /// A sum of many rows.
    pub fn add_many(&mut self, group: u32, sum: i64, count: u64) {
        self.sums[group as usize] += sum;
        self.counts[group as usize] += count;
    }

    pub fn merge(mut self, other: &Self) -> Self {
        let sums = self.sums.iter_mut().zip(&other.sums);
        sums.for_each(|(sum, other)| *sum += other);
        let counts = self.counts.iter_mut().zip(&other.counts);
        counts.for_each(|(count, other)| *count += other);
        self
    }
}
