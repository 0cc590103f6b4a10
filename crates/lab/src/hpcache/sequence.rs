//! Sequences of queries over the Star Schema Benchmark: the HPCache paper's (§7.2) and six other mixes.

use std::fmt;
use std::str::FromStr;

use crate::simulate::{Mix, paper_sequence};
use hotshelf_cli::benchmark::Query;
use hotshelf_datagen::random::Random;
use hotshelf_datagen::ssb::queries;

/// A kind of sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sequence {
    /// 30 queries from QC, Q2.1, Q2.2 and Q2.3 in runs of random length.
    Paper,
    /// A mix of the simulator, with the benchmark's queries. Uniform: any of them and QC. Skewed: two thirds Q2.1.
    /// Alternating: two templates with columns of their own in growing runs (Figure 8). Big-scan: Q2.x and QC, every
    /// fifth query a scan of all numbers of the table. Two tenants with templates of their own take turns. Growing:
    /// templates that read more and more columns.
    Mix(Mix),
}

/// Queries of each mix, about as many as the paper's sequence has.
const QUERY_COUNT: usize = 30;

/// The longest run of equal queries in a drawn sequence of the paper's kind.
const RUN_LENGTH_MAX: u64 = 5;

/// Queries that the benchmark does not have.
const OTHERS: [Query; 9] = [
    ("QC", include_str!("../../queries/hpcache/QC.sql")),
    ("scan", include_str!("../../queries/hpcache/scan.sql")),
    ("A", include_str!("../../queries/hpcache/A.sql")),
    ("B", include_str!("../../queries/hpcache/B.sql")),
    ("G1", include_str!("../../queries/hpcache/G1.sql")),
    ("G2", include_str!("../../queries/hpcache/G2.sql")),
    ("G3", include_str!("../../queries/hpcache/G3.sql")),
    ("G4", include_str!("../../queries/hpcache/G4.sql")),
    ("G5", include_str!("../../queries/hpcache/G5.sql")),
];

impl Sequence {
    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Paper).chain(Mix::ALL.into_iter().map(Self::Mix))
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Mix(mix) => mix.name(),
        }
    }

    /// What tells the draws of one kind from those of another.
    fn number(self) -> u64 {
        match self {
            Self::Paper => 0,
            Self::Mix(mix) => 1 + mix as u64,
        }
    }

    /// The queries in order. Seed 0 of the paper's sequence is the one that it describes, as far as it does; others
    /// draw templates and lengths of runs. The other kinds draw from the seed where they draw at all.
    pub fn queries(self, seed: u64) -> Vec<Query> {
        self.names(seed).into_iter().filter_map(query).collect()
    }

    fn names(self, seed: u64) -> Vec<&'static str> {
        const SSB: [&str; 14] = [
            "Q1.1", "Q1.2", "Q1.3", "Q2.1", "Q2.2", "Q2.3", "Q3.1", "Q3.2", "Q3.3", "Q3.4", "Q4.1",
            "Q4.2", "Q4.3", "QC",
        ];
        const PAPER: [&str; 4] = ["QC", "Q2.1", "Q2.2", "Q2.3"];
        let mut draw = Random::new(seed ^ self.number() << 32);
        let positions = 0..QUERY_COUNT;
        match self {
            Self::Paper if seed == 0 => {
                let sequence = paper_sequence();
                sequence.queries.iter().map(|query| query.name).collect()
            }
            Self::Paper => {
                let mut names = Vec::new();
                while names.len() < QUERY_COUNT {
                    let name = draw.of(&PAPER);
                    let length = 1 + draw.below(RUN_LENGTH_MAX) as usize;
                    names.extend(std::iter::repeat_n(name, length));
                }
                names.truncate(QUERY_COUNT);
                names
            }
            Self::Mix(Mix::Uniform) => positions.map(|_| draw.of(&SSB)).collect(),
            Self::Mix(Mix::Skewed) => positions
                .map(|_| match draw.below(3) {
                    0 => draw.of(&SSB),
                    _ => "Q2.1",
                })
                .collect(),
            Self::Mix(Mix::Alternating) => {
                let runs = [3, 1, 2, 2, 3, 3, 4, 4, 5, 5].iter().enumerate();
                runs.flat_map(|(idx, length)| vec![["A", "B"][idx % 2]; *length])
                    .collect()
            }
            Self::Mix(Mix::BigScan) => positions
                .map(|position| match position % 5 {
                    4 => "scan",
                    _ => draw.of(&PAPER),
                })
                .collect(),
            Self::Mix(Mix::TwoTenants) => positions
                .map(|position| match position % 2 {
                    0 => draw.of(&["Q1.1", "Q1.2", "Q1.3"]),
                    _ => draw.of(&["Q3.1", "Q4.1", "QC"]),
                })
                .collect(),
            Self::Mix(Mix::Growing) => positions
                .map(|position| ["G1", "G2", "G3", "G4", "G5"][position * 5 / QUERY_COUNT])
                .collect(),
        }
    }
}

/// A query of the benchmark or of these experiments by its name.
pub fn query(name: &str) -> Option<Query> {
    let known = queries().iter().chain(&OTHERS);
    known.copied().find(|(known, _)| *known == name)
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A sequence that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no sequence '{name}'")]
pub struct UnknownSequence {
    /// What was written.
    pub name: String,
}

impl FromStr for Sequence {
    type Err = UnknownSequence;

    fn from_str(name: &str) -> Result<Self, UnknownSequence> {
        let found = Self::all().find(|kind| kind.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownSequence {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sequence: Sequence, seed: u64) -> Vec<&'static str> {
        let queries = sequence.queries(seed);
        queries.iter().map(|query| query.0).collect()
    }

    #[test]
    fn every_name_has_a_query_and_every_sequence_about_thirty() {
        for sequence in Sequence::all() {
            for seed in 0..5 {
                let count = sequence.names(seed).len();
                assert_eq!(sequence.queries(seed).len(), count, "{sequence}");
                assert!((30..=32).contains(&count), "{sequence}: {count}");
            }
            assert_eq!(sequence.name().parse(), Ok(sequence));
        }
        assert!("nothing".parse::<Sequence>().is_err());
    }

    #[test]
    fn seeds_repeat_and_differ() {
        let paper = Sequence::Paper;
        assert_eq!(names(paper, 3), names(paper, 3));
        assert_ne!(names(paper, 3), names(paper, 4));
        // The paper about its own sequence: 1-5 share their columns, 6 is the first QC, 11-15 share theirs.
        let told = names(paper, 0);
        assert!(
            told[..5]
                .iter()
                .chain(&told[10..15])
                .all(|name| *name != "QC")
        );
        assert_eq!(told[5], "QC");
    }

    #[test]
    fn mixes_are_what_they_are_called() {
        let skewed = names(Sequence::Mix(Mix::Skewed), 0);
        let often = skewed.iter().filter(|name| **name == "Q2.1").count();
        assert!((15..=27).contains(&often), "{skewed:?}");
        let scans = names(Sequence::Mix(Mix::BigScan), 0);
        assert_eq!(scans.iter().filter(|name| **name == "scan").count(), 6);
        let growing = names(Sequence::Mix(Mix::Growing), 0);
        assert!(growing.is_sorted());
    }
}
