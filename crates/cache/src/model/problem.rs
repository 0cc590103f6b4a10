//! The model of the time of pipelines and other uses under a placement, and what it needs.

use super::item::{Choice, Item, ItemGroup, ItemId};
use super::shelf::{SHELF_COUNT_MAX, Shelf};
use super::window::TemplateTerm;
use crate::key::{ColumnId, Map};
use std::collections::{BTreeMap, HashMap};

/// Another model of a term's time than the product's own, for experiments that compare models.
#[derive(Debug, Clone, Copy)]
pub struct TermTime {
    /// The model's name. Models of one name are the same.
    pub name: &'static str,
    /// The predicted time of a term in seconds, given the proportions.
    pub seconds: fn(&Problem, &Term, &[f64]) -> f64,
}

impl PartialEq for TermTime {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// An item read by a term.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TermRead {
    /// Its index in [`Problem::items`].
    pub item_idx: usize,
    /// Stored bytes read of it, at most its size.
    pub bytes: f64,
}

/// One pipeline of the window.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// How much its time matters.
    pub weight: f64,
    /// What it reads; no item twice.
    pub reads: Vec<TermRead>,
    /// Its own throughput over stored bytes, in bytes per second; may be infinite.
    pub processing_bandwidth: f64,
    /// Which query it is part of: pipelines of one query run one after the other.
    pub query_idx: usize,
    /// Fingerprint of the query's plan without literals.
    pub template: u64,
    /// Number of the pipeline in its query.
    pub pipeline: u32,
}

impl Term {
    /// Stored bytes it reads.
    pub fn bytes(&self) -> f64 {
        self.reads.iter().map(|read| read.bytes).sum()
    }

    /// Processing time that a choice saves this term per stored byte: no more than there is.
    pub fn processing_saved_s(&self, choice: &Choice) -> f64 {
        choice
            .processing_saved_s
            .min(1.0 / self.processing_bandwidth)
    }
}

/// What a term asks of each shelf and of the processors, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TermLoad {
    /// Time of each shelf; the first is memory.
    pub shelf_s: [f64; SHELF_COUNT_MAX],
    /// Time of processing.
    pub processing_s: f64,
}

impl TermLoad {
    /// The time of the slowest shelf below memory.
    pub fn reading_s(&self) -> f64 {
        self.shelf_s[1..].iter().copied().fold(0.0, f64::max)
    }

    /// The term's time: shelves and processors work side by side except for the part of the shorter that is not hidden.
    pub fn time_s(&self, overlap_loss: f64) -> f64 {
        let reading_s = self.reading_s();
        let by_reading_s = reading_s + overlap_loss * self.processing_s;
        let by_processing_s = self.processing_s + overlap_loss * reading_s;
        by_reading_s.max(by_processing_s).max(self.shelf_s[0])
    }
}

/// The optimisation problem of HPCache §4.2 on any number of shelves: which part `x` of each item to keep on which
/// shelf and in which representation so that the weighted time of all terms and other uses is least and no budget is
/// exceeded. What is not kept anywhere is read from home.
///
/// `x` has a proportion per choice, and those of an item add up to at most 1. With memory, one storage and one
/// representation each item has one choice, so that `x` is the proportion of each item in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The items, each of positive size.
    pub items: Vec<Item>,
    /// The ways to keep them, item by item.
    pub choices: Vec<Choice>,
    /// The pipelines.
    pub terms: Vec<Term>,
    /// The machine, fastest shelf first.
    pub shelves: Vec<Shelf>,
    /// Another model of the terms' times than [`Term`]s usually have.
    pub term_time: Option<TermTime>,
    /// The part of the shorter of reading and processing that is not hidden behind the longer, 0 to 1.
    pub overlap_loss: f64,
    /// The seconds in which what is weighted here happened: weights divided by it are rates.
    pub span_s: f64,
}

/// Bytes that a request for a column brings: neighbouring segments are read together.
const COLUMN_REQUEST_BYTES: f64 = 4.0 * 1024.0 * 1024.0;

impl Problem {
    /// A problem without items.
    ///
    /// # Panics
    /// With fewer than two or more than [`SHELF_COUNT_MAX`] shelves.
    pub fn empty(shelves: Vec<Shelf>) -> Self {
        assert!(
            (2..=SHELF_COUNT_MAX).contains(&shelves.len()),
            "a problem has 2 to {SHELF_COUNT_MAX} shelves, not {}",
            shelves.len()
        );
        Self {
            items: Vec::new(),
            choices: Vec::new(),
            terms: Vec::new(),
            shelves,
            term_time: None,
            overlap_loss: 0.0,
            span_s: 1.0,
        }
    }

    /// Puts a window's terms and the columns that exist together. Columns are stored on the last shelf. Terms lose
    /// columns that exist no more.
    pub fn new(
        terms: &[TemplateTerm],
        sizes: &BTreeMap<ColumnId, u64>,
        shelves: Vec<Shelf>,
    ) -> Self {
        let mut problem = Self::empty(shelves);
        let mut item_idxs: Map<ColumnId, usize> = Map::default();
        let mut query_idxs: Map<u64, usize> = Map::default();
        for term in terms {
            let mut reads: Vec<TermRead> = Vec::new();
            for (column, bytes) in &term.columns {
                let size = sizes.get(column).copied().unwrap_or(0) as f64;
                let bytes = bytes.min(size);
                if bytes <= 0.0 {
                    continue;
                }
                let item_idx = *item_idxs
                    .entry(*column)
                    .or_insert_with(|| problem.add_column(*column, size));
                match reads.iter_mut().find(|known| known.item_idx == item_idx) {
                    Some(known) => known.bytes = size.min(known.bytes + bytes),
                    None => reads.push(TermRead { item_idx, bytes }),
                }
            }
            let next_idx = query_idxs.len();
            if !reads.is_empty() {
                problem.terms.push(Term {
                    weight: term.weight,
                    reads,
                    processing_bandwidth: term.processing_bandwidth,
                    query_idx: *query_idxs.entry(term.template).or_insert(next_idx),
                    template: term.template,
                    pipeline: term.pipeline,
                });
            }
        }
        problem
    }

    /// Adds an item of positive size with its choices. Returns its index.
    pub fn add(&mut self, id: ItemId, bytes: f64, home: usize, choices: &[Choice]) -> usize {
        let item_idx = self.items.len();
        let first_idx = self.choices.len();
        self.choices.extend(choices.iter().map(|choice| Choice {
            item_idx,
            ..*choice
        }));
        self.items.push(Item {
            id,
            bytes,
            home,
            request_bytes: COLUMN_REQUEST_BYTES,
            choices: first_idx..self.choices.len(),
        });
        item_idx
    }

    /// Adds a column that is stored on the last shelf and may be kept on any other. Returns its index.
    pub fn add_column(&mut self, column: ColumnId, bytes: f64) -> usize {
        let home = self.shelves.len() - 1;
        let choices: Vec<Choice> = (0..home)
            .map(|shelf| Choice::stored(shelf, bytes))
            .collect();
        self.add(ItemId::column(column), bytes, home, &choices)
    }

    /// Adds a group of items that no term reads. Returns its index.
    pub fn add_group(&mut self, group: &ItemGroup) -> Option<usize> {
        let first = group.members.first()?;
        let bytes = group.bytes();
        let home = first.home.min(self.shelves.len() - 1);
        let choice = |shelf| Choice {
            saved_s: group.saved_s_per_s(shelf) * self.span_s,
            ..Choice::stored(shelf, bytes)
        };
        let choices: Vec<Choice> = (0..home).map(choice).collect();
        Some(self.add(first.id, bytes, home, &choices))
    }

    /// Proportions of an earlier problem, as far as its choices are still there.
    pub(crate) fn carried(&self, last: &Self, x: &[f64]) -> Vec<f64> {
        let key = |problem: &Self, choice: &Choice| {
            let id = problem.items[choice.item_idx].id;
            (id, choice.shelf, choice.representation)
        };
        let known: HashMap<_, f64> = last
            .choices
            .iter()
            .zip(x)
            .map(|(choice, x)| (key(last, choice), *x))
            .collect();
        let choices = self.choices.iter();
        choices
            .map(|choice| known.get(&key(self, choice)).copied().unwrap_or(0.0))
            .collect()
    }

    /// The same with another budget of memory.
    pub fn with_budget(&self, budget_bytes: f64) -> Self {
        let mut problem = self.clone();
        problem.shelves[0].budget_bytes = budget_bytes;
        problem
    }

    /// Bytes that may be kept in memory.
    pub fn budget_bytes(&self) -> f64 {
        self.shelves[0].budget_bytes
    }

    /// Bytes per second of the last shelf.
    pub fn storage_bandwidth(&self) -> f64 {
        self.shelves[self.shelves.len() - 1].bandwidth
    }

    /// Bytes per second of the first shelf.
    pub fn memory_bandwidth(&self) -> f64 {
        self.shelves[0].bandwidth
    }

    /// Whether each item has one choice, its stored bytes in memory, and one shelf without latency lies below. Then a
    /// term's time depends on one number, its bytes in memory.
    pub fn is_two_shelves(&self) -> bool {
        let is_plain = |choice: &Choice| {
            choice.shelf == 0
                && choice.representation == Default::default()
                && choice.processing_saved_s == 0.0
        };
        self.shelves.len() == 2
            && self.shelves[1].latency_s <= 0.0
            && self.choices.len() == self.items.len()
            && self.items.iter().all(|item| item.choices.len() == 1)
            && self.choices.iter().all(is_plain)
    }

    /// What a term asks of shelves and processors under proportions `x`.
    pub fn load(&self, term: &Term, x: &[f64]) -> TermLoad {
        let mut stored_bytes = [0.0; SHELF_COUNT_MAX];
        let mut gone_bytes = [0.0; SHELF_COUNT_MAX];
        let mut kept_bytes = [0.0; SHELF_COUNT_MAX];
        let mut load = TermLoad::default();
        let mut spared_s = 0.0;
        for read in &term.reads {
            let item = &self.items[read.item_idx];
            stored_bytes[item.home] += read.bytes;
            let mut rest = read.bytes;
            for choice_idx in item.choices.clone() {
                let choice = &self.choices[choice_idx];
                let part_bytes = read.bytes * x[choice_idx];
                let there_bytes = part_bytes * (choice.bytes / item.bytes);
                let request_s = self.shelves[choice.shelf].request_s_per_byte(item.request_bytes);
                gone_bytes[item.home] += part_bytes;
                rest -= part_bytes;
                kept_bytes[choice.shelf] += there_bytes;
                load.shelf_s[choice.shelf] += there_bytes * request_s;
                spared_s += part_bytes * term.processing_saved_s(choice);
            }
            let request_s = self.shelves[item.home].request_s_per_byte(item.request_bytes);
            load.shelf_s[item.home] += rest.max(0.0) * request_s;
        }
        for (shelf_idx, shelf) in self.shelves.iter().enumerate() {
            let missing_bytes = (stored_bytes[shelf_idx] - gone_bytes[shelf_idx]).max(0.0);
            load.shelf_s[shelf_idx] += (missing_bytes + kept_bytes[shelf_idx]) / shelf.bandwidth;
        }
        load.processing_s = (term.bytes() / term.processing_bandwidth - spared_s).max(0.0);
        load
    }

    /// The predicted time of a term, in seconds, under proportions `x`: all bytes of a shelf pass through one
    /// device, and shelves work side by side.
    pub fn term_s(&self, term: &Term, x: &[f64]) -> f64 {
        match self.term_time {
            None => self.load(term, x).time_s(self.overlap_loss),
            Some(other) => (other.seconds)(self, term, x),
        }
    }

    /// The weighted time of all terms, and of other uses what they take longer than in their best place, in seconds.
    pub fn total_s(&self, x: &[f64]) -> f64 {
        let weighted = |term: &Term| term.weight * self.term_s(term, x);
        let of_terms: f64 = self.terms.iter().map(weighted).sum();
        let of_item = |item: &Item| {
            let choices = || {
                item.choices
                    .clone()
                    .map(|idx| (self.choices[idx].saved_s, x[idx]))
            };
            let best_s = choices().map(|(saved_s, _)| saved_s).fold(0.0, f64::max);
            best_s - choices().map(|(saved_s, x)| saved_s * x).sum::<f64>()
        };
        of_terms + self.items.iter().map(of_item).sum::<f64>()
    }

    /// The time of each query, in seconds: the sum of its pipelines.
    pub fn query_s(&self, x: &[f64]) -> Vec<f64> {
        let query_count = self.terms.iter().map(|term| term.query_idx + 1).max();
        let mut times_s = vec![0.0; query_count.unwrap_or(0)];
        for term in &self.terms {
            times_s[term.query_idx] += self.term_s(term, x);
        }
        times_s
    }

    /// Whether any input differs from another problem's by more than a part of it. Weights are compared relative
    /// to their sum: only proportions between them matter.
    pub fn differs(&self, other: &Self, part: f64) -> bool {
        let moved = |a: f64, b: f64| a != b && (a - b).abs() > part * a.abs().max(b.abs());
        let total = |problem: &Self| problem.terms.iter().map(|t| t.weight).sum::<f64>();
        let (ours, theirs) = (
            total(self).max(f64::MIN_POSITIVE),
            total(other).max(f64::MIN_POSITIVE),
        );
        let shelf_moved = |(a, b): (&Shelf, &Shelf)| {
            moved(a.bandwidth, b.bandwidth)
                || moved(a.budget_bytes, b.budget_bytes)
                || moved(a.latency_s / a.in_flight, b.latency_s / b.in_flight)
        };
        let item_moved = |(a, b): (&Item, &Item)| {
            (a.id, a.home, &a.choices) != (b.id, b.home, &b.choices)
                || moved(a.bytes, b.bytes)
                || moved(a.request_bytes, b.request_bytes)
        };
        let choice_moved = |(a, b): (&Choice, &Choice)| {
            (a.shelf, a.representation) != (b.shelf, b.representation)
                || moved(a.bytes, b.bytes)
                || moved(a.processing_saved_s, b.processing_saved_s)
                || moved(a.saved_s / ours, b.saved_s / theirs)
        };
        let term_moved = |(a, b): (&Term, &Term)| {
            (a.template, a.pipeline) != (b.template, b.pipeline)
                || moved(a.weight / ours, b.weight / theirs)
                || moved(a.processing_bandwidth, b.processing_bandwidth)
                || a.reads.len() != b.reads.len()
                || a.reads
                    .iter()
                    .zip(&b.reads)
                    .any(|(a, b)| a.item_idx != b.item_idx || moved(a.bytes, b.bytes))
        };
        self.term_time != other.term_time
            || (self.overlap_loss - other.overlap_loss).abs() > part
            || self.shelves.len() != other.shelves.len()
            || self.items.len() != other.items.len()
            || self.choices.len() != other.choices.len()
            || self.terms.len() != other.terms.len()
            || self.shelves.iter().zip(&other.shelves).any(shelf_moved)
            || self.items.iter().zip(&other.items).any(item_moved)
            || self.choices.iter().zip(&other.choices).any(choice_moved)
            || self.terms.iter().zip(&other.terms).any(term_moved)
    }

    /// Bytes that proportions `x` keep in memory.
    pub fn kept_bytes(&self, x: &[f64]) -> f64 {
        self.kept_on(0, x)
    }

    /// Bytes that proportions `x` keep on a shelf.
    pub fn kept_on(&self, shelf: usize, x: &[f64]) -> f64 {
        let there = self
            .choices
            .iter()
            .zip(x)
            .filter(|(choice, _)| choice.shelf == shelf);
        there.map(|(choice, x)| choice.bytes * x).sum()
    }

    /// The proportions with everything in memory as it is stored.
    pub fn all_in_memory(&self) -> Vec<f64> {
        let in_memory = |choice: &Choice| {
            let is_there = choice.shelf == 0 && choice.representation == Default::default();
            f64::from(u8::from(is_there))
        };
        self.choices.iter().map(in_memory).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Tiers;

    /// 96 GB in four columns of 24 GB, 28 GB/s storage, 116 GB/s memory.
    fn four_columns(processing_bandwidth: f64) -> Problem {
        let columns = (0..4).map(|column| (ColumnId(column), 24e9)).collect();
        let term = TemplateTerm {
            template: 1,
            pipeline: 0,
            weight: 1.0,
            columns,
            processing_bandwidth,
            run_s: None,
        };
        let sizes = (0..4)
            .map(|column| (ColumnId(column), 24_000_000_000))
            .collect();
        let tiers = Tiers {
            storage_bandwidth: 28e9,
            memory_bandwidth: 116e9,
        };
        Problem::new(&[term], &sizes, tiers.shelves(80e9))
    }

    #[test]
    fn equation_1_turns_flat_where_storage_meets_processing() {
        let problem = four_columns(80e9);
        let s = |x: f64| problem.total_s(&[x; 4]);
        assert!((s(0.0) - 96.0 / 28.0).abs() < 1e-9);
        assert!((s(0.5) - 48.0 / 28.0).abs() < 1e-9);
        let flat_from = 1.0 - 28.0 / 80.0;
        assert!((s(flat_from) - 96.0 / 80.0).abs() < 1e-9);
        assert_eq!(s(1.0), s(0.8));
        assert!((problem.total_s(&[1.0, 1.0, 1.0, 0.0]) - 96.0 / 80.0).abs() < 1e-9);
    }

    #[test]
    fn another_model_gives_other_times() {
        let mut problem = four_columns(80e9);
        problem.term_time = Some(TermTime {
            name: "seven seconds",
            seconds: |_, _, _| 7.0,
        });
        assert_eq!(problem.total_s(&[1.0; 4]), 7.0);
        assert!(problem.differs(&four_columns(80e9), 0.02));
    }

    #[test]
    fn columns_that_are_gone_leave_the_model() {
        let mut problem = four_columns(80e9);
        assert_eq!(problem.terms[0].bytes(), 96e9);
        let term = TemplateTerm {
            template: 1,
            pipeline: 0,
            weight: 1.0,
            columns: vec![(ColumnId(9), 10.0), (ColumnId(8), 10.0)],
            processing_bandwidth: 1.0,
            run_s: None,
        };
        let sizes = [(ColumnId(8), 4)].into_iter().collect();
        problem = Problem::new(&[term], &sizes, problem.shelves);
        assert_eq!(problem.items.len(), 1);
        assert_eq!(problem.terms[0].bytes(), 4.0);
        assert_eq!(problem.query_s(&[0.0]).len(), 1);
    }
}
