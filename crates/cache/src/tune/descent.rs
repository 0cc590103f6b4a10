//! Greedy over several choices per item: move parts of items from choice to choice, always the best move of an item, as
//! far as it gains.
//!
//! A term's time is the largest of several loads: of each shelf, and of processing. Where two are equally large, no
//! move of a single item gains anything although moves of several together would, so that a plain greedy stops there.
//! Here the largest is replaced by a smooth one (`smooth.rs`), `softness * ln(sum of exp(load / softness))`, whose
//! slopes at such a place lie between those on either side, and which becomes the largest as softness shrinks. Budgets
//! are kept by prices that rise while a shelf is too full and fall while it has room. Moves of single items say which
//! items are divided between which places; `leap.rs` then moves all divided ones together.
//!
//! The slopes are weights of each term's loads, and with any such weights and prices nothing saves more than a bound
//! (`clearing.rs`): the certificate comes with the solution.

use super::Solution;
use super::into_range;
use super::smooth::{ARGUMENT_COUNT_MAX, Arguments, Slopes, arguments, largest, shares, slopes};
use crate::model::{Choice, Item, Problem, SHELF_COUNT_MAX};

/// By phase: softness as a part of a term's time, and how often each item is looked at, at most.
const PHASES: [(f64, usize); 6] = [
    (0.4, 5),
    (0.12, 5),
    (0.04, 6),
    (0.012, 6),
    (0.004, 6),
    (0.0013, 6),
];

/// The phases of a problem that was solved before.
const PHASES_AGAIN: [(f64, usize); 3] = [(0.012, 2), (0.009, 2), (0.005, 2)];

/// A solution that may fall short by more than this part is taken up again, this many times at most: items in the
/// opposite order from nothing, prices less stiff, and softness shrinking slowly.
const GAP_DOUBTFUL: f64 = 0.008;
const ROUNDS_MAX: u32 = 4;
const STIFFNESS_FADE: f64 = 0.7;
const SLOW_SOFTNESS: f64 = 0.4;
const SLOW_FADE: f64 = 0.75;
const SLOW_PHASE_COUNT: i32 = 22;
const SLOW_SWEEPS: usize = 12;

/// How much a price rises when its shelf is overfull by the whole of its budget, as a multiple.
const STIFFNESS: f64 = 25.0;

/// From this softness on, all items that are divided move together after each sweep (`leap.rs`).
const LEAP_SOFTNESS_MAX: f64 = 0.05;

/// All items that are divided move together at most this often after a sweep.
const LEAPS_MAX: usize = 3;

/// The softness at which prices are found, and how often each item is looked at for that, at most. At kinks of what
/// budgets save, these prices lie between the slopes on either side.
const PRICE_SOFTNESS: f64 = 0.004;
const PRICE_SWEEPS: usize = 16;

/// A sweep that gains less than this part of what is saved so far ends its phase.
const SWEEP_GAIN_MIN: f64 = 1e-6;

/// A solution that may fall short by no more than this part is good enough.
pub(super) const GAP_MAX: f64 = 2e-3;

/// Where an earlier solution of nearly the same problem ended.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// Its proportions.
    pub x: &'a [f64],
    /// Its prices.
    pub prices: &'a [f64],
}

/// Solves a problem of the shared form.
pub fn descend(problem: &Problem, start: Option<Start<'_>>) -> Solution {
    let mut descent = Descent::new(problem, start);
    let mut best = Solution {
        x: vec![0.0; problem.choices.len()],
        total_s: descent.nothing_s,
        saved_s: 0.0,
        saved_s_max: f64::INFINITY,
        prices: vec![0.0; problem.shelves.len()],
        lateness: Vec::new(),
        curve: Vec::new(),
    };
    match start.is_some() {
        true => descent.go_through(&PHASES_AGAIN, &mut best),
        false => descent.go_through(&PHASES, &mut best),
    }
    // A caller with a start calls again, and the next solution continues where this round ended.
    let round_max = if start.is_some() { 0 } else { ROUNDS_MAX };
    for round in 1..=round_max {
        if best.gap() <= GAP_DOUBTFUL {
            break;
        }
        descent.round = round;
        descent.x.fill(0.0);
        descent.reload();
        let softness = |step| SLOW_SOFTNESS * SLOW_FADE.powi(step);
        let phases: Vec<(f64, usize)> = (0..SLOW_PHASE_COUNT)
            .map(|step| (softness(step), SLOW_SWEEPS))
            .collect();
        descent.go_through(&phases, &mut best);
    }
    match start.is_some() {
        true => best.prices = descent.prices(),
        false => refine_prices(problem, &mut best),
    }
    best
}

/// Finds a solution's prices again, more exactly than a solution that began at another needs them to be.
pub fn refine_prices(problem: &Problem, solution: &mut Solution) {
    let start = Start {
        x: &solution.x,
        prices: &solution.prices,
    };
    let mut descent = Descent::new(problem, Some(start));
    descent.phase(PRICE_SOFTNESS, PRICE_SWEEPS);
    solution.prices = descent.prices();
}

/// The part of a term that an item's reader sees.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub(super) term_idx: usize,
    pub(super) bytes: f64,
    /// Processing time per byte: no representation saves more.
    pub(super) processing_s: f64,
}

pub(super) struct Descent<'a> {
    pub(super) problem: &'a Problem,
    pub(super) x: Vec<f64>,
    /// By item: what is not kept anywhere.
    pub(super) rest: Vec<f64>,
    /// By term: the arguments of its maximum, in seconds.
    pub(super) arguments: Vec<Arguments>,
    /// By term: how much of its weighted time each argument decides.
    pub(super) shares: Vec<Arguments>,
    pub(super) slopes: Vec<Slopes>,
    /// By term, in seconds.
    pub(super) softness: Vec<f64>,
    pub(super) readers: Vec<Vec<Reader>>,
    /// How the present move of a whole item changes its readers' arguments; kept for its memory.
    pub(super) changes: Vec<(usize, Arguments)>,
    /// By term: which moves of a leap change its arguments, and how; kept for its memory.
    pub(super) entries: Vec<Vec<(usize, Arguments)>>,
    /// By choice: seconds of its shelf per stored byte.
    pub(super) there_s: Vec<f64>,
    /// By item: seconds of its home per stored byte.
    pub(super) home_s: Vec<f64>,
    pub(super) used_bytes: [f64; SHELF_COUNT_MAX],
    pub(super) prices: [f64; SHELF_COUNT_MAX],
    pub(super) stiffness: [f64; SHELF_COUNT_MAX],
    /// The weighted time when nothing is kept, in seconds, and the arguments of the terms then.
    pub(super) nothing_s: f64,
    /// What uses outside of terms take longer when nothing is kept than in their best place, in seconds.
    others_s: f64,
    pub(super) nothing: Vec<Arguments>,
    round: u32,
}

impl<'a> Descent<'a> {
    fn new(problem: &'a Problem, start: Option<Start<'_>>) -> Self {
        let mut readers = vec![Vec::new(); problem.items.len()];
        for (term_idx, term) in problem.terms.iter().enumerate() {
            for read in &term.reads {
                readers[read.item_idx].push(Reader {
                    term_idx,
                    bytes: read.bytes,
                    processing_s: 1.0 / term.processing_bandwidth,
                });
            }
        }
        let there_s = |choice: &Choice| {
            let item = &problem.items[choice.item_idx];
            choice.bytes / item.bytes * problem.shelves[choice.shelf].pace_s(item.request_bytes)
        };
        let home_s = |item: &Item| problem.shelves[item.home].pace_s(item.request_bytes);
        let mut x = vec![0.0; problem.choices.len()];
        if let Some(start) = start {
            x.copy_from_slice(start.x);
        }
        into_range(problem, &mut x);
        let mut descent = Self {
            problem,
            rest: Vec::new(),
            arguments: Vec::new(),
            shares: vec![[0.0; ARGUMENT_COUNT_MAX]; problem.terms.len()],
            slopes: vec![Slopes::default(); problem.terms.len()],
            changes: Vec::new(),
            entries: vec![Vec::new(); problem.terms.len()],
            softness: vec![0.0; problem.terms.len()],
            readers,
            there_s: problem.choices.iter().map(there_s).collect(),
            home_s: problem.items.iter().map(home_s).collect(),
            used_bytes: [0.0; SHELF_COUNT_MAX],
            prices: [0.0; SHELF_COUNT_MAX],
            stiffness: [0.0; SHELF_COUNT_MAX],
            nothing_s: 0.0,
            others_s: 0.0,
            nothing: Vec::new(),
            round: 0,
            x,
        };
        descent.nothing = descent.arguments_of(&vec![0.0; descent.x.len()]);
        let best_s = |item: &Item| {
            let choices = problem.choices[item.choices.clone()].iter();
            choices.map(|choice| choice.saved_s).fold(0.0, f64::max)
        };
        descent.others_s = problem.items.iter().map(best_s).sum();
        descent.nothing_s = descent.others_s + descent.of_terms_s(&descent.nothing);
        descent.reload();
        if let Some(start) = start {
            descent.prices[..start.prices.len()].copy_from_slice(start.prices);
        }
        descent
    }

    /// Computes all that follows from `x`.
    pub(super) fn reload(&mut self) {
        let (problem, x) = (self.problem, &self.x);
        let rest = |item: &Item| {
            let kept: f64 = x[item.choices.clone()].iter().sum();
            (1.0 - kept).max(0.0)
        };
        self.rest = problem.items.iter().map(rest).collect();
        self.arguments = self.arguments_of(&self.x);
        for shelf in 0..problem.shelves.len() {
            self.used_bytes[shelf] = problem.kept_on(shelf, x);
        }
    }

    fn arguments_of(&self, x: &[f64]) -> Vec<Arguments> {
        let loss = self.problem.overlap_loss;
        let arguments = |term| arguments(&self.problem.load(term, x), loss);
        self.problem.terms.iter().map(arguments).collect()
    }

    /// Descends at one softness after the other, until the best is good enough.
    fn go_through(&mut self, phases: &[(f64, usize)], best: &mut Solution) {
        for (softness, sweep_count) in phases {
            self.phase(*softness, *sweep_count);
            if *softness <= LEAP_SOFTNESS_MAX {
                self.settle(best);
            }
            if best.gap() <= GAP_MAX {
                return;
            }
        }
    }

    /// Descends at one softness.
    fn phase(&mut self, softness: f64, sweep_count: usize) {
        self.soften(softness);
        if self.prices == [0.0; SHELF_COUNT_MAX] {
            self.clear_prices();
        }
        let saved_s = self.nothing_s - self.now_s();
        for _ in 0..sweep_count {
            self.stiffen();
            let mut gained_s = 0.0;
            for position in 0..self.problem.items.len() {
                gained_s += self.improve(self.in_turn(position));
            }
            if softness <= LEAP_SOFTNESS_MAX {
                gained_s += self.leaps(SWEEP_GAIN_MIN * saved_s);
            }
            self.reprice();
            if gained_s <= SWEEP_GAIN_MIN * saved_s {
                return;
            }
        }
    }

    /// The weighted time of the present proportions, in seconds.
    pub(super) fn now_s(&self) -> f64 {
        let others = self.problem.choices.iter().zip(&self.x);
        let saved_s: f64 = others.map(|(choice, x)| choice.saved_s * x).sum();
        self.of_terms_s(&self.arguments) + self.others_s - saved_s
    }

    fn of_terms_s(&self, arguments: &[Arguments]) -> f64 {
        let terms = self.problem.terms.iter().zip(arguments);
        terms
            .map(|(term, arguments)| term.weight * largest(arguments))
            .sum()
    }

    /// Moves all divided items together as often as it gains. Returns about how much.
    fn leaps(&mut self, enough_s: f64) -> f64 {
        let leap_max = if self.round == 0 { LEAPS_MAX } else { 1 };
        let mut gained_s = 0.0;
        for _ in 0..leap_max {
            let gain_s = self.leap();
            gained_s += gain_s;
            if gain_s <= enough_s {
                break;
            }
            self.reprice();
        }
        gained_s
    }

    /// By shelf.
    fn prices(&self) -> Vec<f64> {
        self.prices[..self.problem.shelves.len()].to_vec()
    }

    /// Prices follow the use of their shelves.
    fn reprice(&mut self) {
        for shelf in 0..self.problem.shelves.len() {
            self.prices[shelf] = self.price_now(shelf, 0.0);
        }
    }

    /// The item whose turn it is: in the order of their numbers, every other round backwards.
    fn in_turn(&self, position: usize) -> usize {
        match self.round.is_multiple_of(2) {
            true => position,
            false => self.problem.items.len() - 1 - position,
        }
    }

    fn soften(&mut self, softness: f64) {
        for term_idx in 0..self.arguments.len() {
            let time_s = largest(&self.arguments[term_idx]);
            self.softness[term_idx] = (softness * time_s).max(f64::MIN_POSITIVE);
            self.weigh(term_idx);
        }
    }

    /// Computes what follows from a term's arguments.
    pub(super) fn weigh(&mut self, term_idx: usize) {
        let shares = self.shares_of(term_idx, &self.arguments[term_idx]);
        self.slopes[term_idx] = slopes(&shares, self.problem.overlap_loss);
        self.shares[term_idx] = shares;
    }

    /// How many arguments the maximum of a term has.
    pub(super) fn argument_count(&self) -> usize {
        2 * self.problem.shelves.len() - 1
    }

    /// How much of a term's weighted time each argument would decide.
    pub(super) fn shares_of(&self, term_idx: usize, arguments: &Arguments) -> Arguments {
        let weight = self.problem.terms[term_idx].weight;
        let count = self.argument_count();
        shares(arguments, count, weight, self.softness[term_idx])
    }

    /// Sets how fast prices follow the use of shelves.
    fn stiffen(&mut self) {
        let stiffness = STIFFNESS * STIFFNESS_FADE.powf(f64::from(self.round));
        let highest = self.prices.iter().copied().fold(0.0, f64::max);
        for (shelf_idx, shelf) in self.problem.shelves.iter().enumerate() {
            let price = self.prices[shelf_idx].max(0.01 * highest);
            self.stiffness[shelf_idx] = match shelf.budget_bytes.is_finite() {
                true => stiffness * price / shelf.budget_bytes.max(1.0),
                false => 0.0,
            };
        }
    }

    /// The price of a shelf when this many bytes more are used of it.
    pub(super) fn price_now(&self, shelf: usize, more_bytes: f64) -> f64 {
        let budget_bytes = self.problem.shelves[shelf].budget_bytes;
        if !budget_bytes.is_finite() {
            return 0.0;
        }
        let over_bytes = self.used_bytes[shelf] + more_bytes - budget_bytes;
        (self.prices[shelf] + self.stiffness[shelf] * over_bytes).max(0.0)
    }

    /// What all readers of an item together pay for a unit of its time on each shelf and in processing.
    pub(super) fn sight(&self, item_idx: usize) -> Slopes {
        let mut sight = Slopes::default();
        for reader in &self.readers[item_idx] {
            let slopes = &self.slopes[reader.term_idx];
            for (sum, slope) in sight.shelf.iter_mut().zip(&slopes.shelf) {
                *sum += reader.bytes * slope;
            }
            sight.processing += reader.bytes * slopes.processing;
        }
        sight
    }

    /// Weighted seconds gained by keeping all of an item as a choice says instead of at home.
    pub(super) fn gain(&self, choice_idx: usize, sight: &Slopes) -> f64 {
        let choice = &self.problem.choices[choice_idx];
        let home = self.problem.items[choice.item_idx].home;
        let shelves_s = sight.shelf[home] * self.home_s[choice.item_idx]
            - sight.shelf[choice.shelf] * self.there_s[choice_idx];
        choice.saved_s + shelves_s + self.processing_gain(choice, sight)
    }

    fn processing_gain(&self, choice: &Choice, sight: &Slopes) -> f64 {
        let readers = &self.readers[choice.item_idx];
        let all_have_it = readers
            .iter()
            .all(|reader| choice.processing_saved_s <= reader.processing_s);
        if all_have_it {
            return sight.processing * choice.processing_saved_s;
        }
        let of_reader = |reader: &Reader| {
            let saved_s = choice.processing_saved_s.min(reader.processing_s);
            reader.bytes * self.slopes[reader.term_idx].processing * saved_s
        };
        readers.iter().map(of_reader).sum()
    }

    /// By choice.
    pub(super) fn gains(&self) -> Vec<f64> {
        let mut gains = vec![0.0; self.x.len()];
        for (item_idx, item) in self.problem.items.iter().enumerate() {
            let sight = self.sight(item_idx);
            for choice_idx in item.choices.clone() {
                gains[choice_idx] = self.gain(choice_idx, &sight);
            }
        }
        gains
    }
}
