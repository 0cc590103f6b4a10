//! Greedy over several choices per item: move parts of items from choice to choice, always the best move of an item, as
//! far as it gains.
//!
//! A term's time is the largest of several loads: of each shelf, and of processing. Where two are equally large, no move
//! of a single item gains anything although moves of several together would, so that a plain greedy stops there. Here the
//! largest is replaced by a smooth one, `softness * ln(sum of exp(load / softness))`, whose slopes at such a place
//! lie between those on either side, and which becomes the largest as softness shrinks. Budgets are kept by prices that
//! rise while a shelf is too full and fall while it has room.
//!
//! The slopes are weights of each term's loads, and with any such weights and prices nothing saves more than
//! [`Descent::bound`] says (`clearing.rs`): the certificate comes with the solution.

use super::Solution;
use super::exact::into_range;
use crate::model::{Choice, Item, Problem, SHELF_COUNT_MAX, TermLoad};

/// By phase: softness as a part of a term's time, and how often each item is looked at, at most.
const PHASES: [(f64, usize); 5] = [(0.4, 16), (0.12, 24), (0.04, 32), (0.012, 40), (0.004, 48)];

/// A solution that may fall short by more than this part is taken up again, this many times at most: items in the
/// opposite order, and prices less stiff.
const GAP_DOUBTFUL: f64 = 0.008;
const ROUNDS_MAX: u32 = 8;
const STIFFNESS_FADE: f64 = 0.7;

/// How much a price rises when its shelf is overfull by the whole of its budget, as a multiple.
const STIFFNESS: f64 = 2.0;

/// A sweep that gains less than this part of what is saved so far ends its phase.
const SWEEP_GAIN_MIN: f64 = 1e-5;

/// A solution that may fall short by no more than this part is good enough.
const GAP_MAX: f64 = 2e-3;

/// Evaluations of a slope when looking for the end of a move.
const SEARCH_STEPS: usize = 5;

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
    let mut first_phase = if start.is_some() { 2 } else { 0 };
    let mut best = Solution::new(problem, vec![0.0; problem.choices.len()]);
    best.saved_s_max = f64::INFINITY;
    if start.is_some() {
        descent.soften(PHASES[PHASES.len() - 1].0);
        descent.settle(&mut best);
    }
    // Whoever has a start comes again: what one round leaves, the next solution goes on with.
    let round_count = if start.is_some() { 1 } else { ROUNDS_MAX };
    for round in 0..round_count {
        descent.round = round;
        for (softness, sweep_count) in &PHASES[first_phase..] {
            descent.phase(*softness, *sweep_count);
            descent.settle(&mut best);
            if best.gap() <= GAP_MAX {
                return best;
            }
        }
        if best.gap() <= GAP_DOUBTFUL {
            return best;
        }
        first_phase = 0;
    }
    best
}

/// The part of a term that an item's reader sees.
#[derive(Clone, Copy)]
struct Reader {
    term_idx: usize,
    bytes: f64,
    /// Processing time per byte: no representation saves more.
    processing_s: f64,
}

/// What a unit of a shelf's or of the processors' time costs, in weighted seconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Slopes {
    pub(super) shelf: [f64; SHELF_COUNT_MAX],
    pub(super) processing: f64,
}

/// A part of an item on its way from one choice to another; `None` is home.
#[derive(Clone, Copy)]
struct Move {
    item_idx: usize,
    from: Option<usize>,
    to: Option<usize>,
    /// Weighted seconds gained by moving all of the item at the present rate, prices included.
    rate: f64,
}

pub(super) struct Descent<'a> {
    pub(super) problem: &'a Problem,
    pub(super) x: Vec<f64>,
    /// By item: what is not kept anywhere.
    rest: Vec<f64>,
    loads: Vec<TermLoad>,
    pub(super) slopes: Vec<Slopes>,
    /// By term, in seconds.
    softness: Vec<f64>,
    readers: Vec<Vec<Reader>>,
    /// By choice: seconds of its shelf per stored byte.
    there_s: Vec<f64>,
    /// By item: seconds of its home per stored byte.
    home_s: Vec<f64>,
    used_bytes: [f64; SHELF_COUNT_MAX],
    pub(super) prices: [f64; SHELF_COUNT_MAX],
    stiffness: [f64; SHELF_COUNT_MAX],
    /// The weighted time when nothing is kept, in seconds.
    pub(super) nothing_s: f64,
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
        let nothing_s = problem.total_s(&vec![0.0; x.len()]);
        let mut descent = Self {
            problem,
            rest: Vec::new(),
            loads: Vec::new(),
            slopes: vec![Slopes::default(); problem.terms.len()],
            softness: vec![0.0; problem.terms.len()],
            readers,
            there_s: problem.choices.iter().map(there_s).collect(),
            home_s: problem.items.iter().map(home_s).collect(),
            used_bytes: [0.0; SHELF_COUNT_MAX],
            prices: [0.0; SHELF_COUNT_MAX],
            stiffness: [0.0; SHELF_COUNT_MAX],
            nothing_s,
            round: 0,
            x,
        };
        descent.reload();
        if let Some(start) = start {
            descent.prices[..start.prices.len()].copy_from_slice(start.prices);
        }
        descent
    }

    /// Computes all that follows from `x`.
    fn reload(&mut self) {
        let (problem, x) = (self.problem, &self.x);
        let rest = |item: &Item| {
            let kept: f64 = x[item.choices.clone()].iter().sum();
            (1.0 - kept).max(0.0)
        };
        self.rest = problem.items.iter().map(rest).collect();
        self.loads = problem
            .terms
            .iter()
            .map(|term| problem.load(term, x))
            .collect();
        for shelf in 0..problem.shelves.len() {
            self.used_bytes[shelf] = problem.kept_on(shelf, x);
        }
    }

    /// Descends at one softness.
    fn phase(&mut self, softness: f64, sweep_count: usize) {
        self.soften(softness);
        if self.prices == [0.0; SHELF_COUNT_MAX] {
            self.clear_prices(true);
        }
        let saved_s = self.nothing_s - self.problem.total_s(&self.x);
        for _ in 0..sweep_count {
            self.stiffen();
            let mut gained_s = 0.0;
            for position in 0..self.problem.items.len() {
                gained_s += self.improve(self.in_turn(position));
            }
            for shelf in 0..self.problem.shelves.len() {
                self.prices[shelf] = self.price_now(shelf, 0.0);
            }
            if gained_s <= SWEEP_GAIN_MIN * saved_s {
                return;
            }
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
        let loss = self.problem.overlap_loss;
        for term_idx in 0..self.loads.len() {
            let time_s = self.loads[term_idx].time_s(loss);
            self.softness[term_idx] = (softness * time_s).max(f64::MIN_POSITIVE);
            self.slopes[term_idx] = self.slopes_of(term_idx, &self.loads[term_idx]);
        }
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

    /// The price of a shelf when so many bytes more are used of it.
    fn price_now(&self, shelf: usize, more_bytes: f64) -> f64 {
        let budget_bytes = self.problem.shelves[shelf].budget_bytes;
        if !budget_bytes.is_finite() {
            return 0.0;
        }
        let over_bytes = self.used_bytes[shelf] + more_bytes - budget_bytes;
        (self.prices[shelf] + self.stiffness[shelf] * over_bytes).max(0.0)
    }

    /// The weights of a term's loads: how much of its time each decides.
    fn slopes_of(&self, term_idx: usize, load: &TermLoad) -> Slopes {
        let term = &self.problem.terms[term_idx];
        let loss = self.problem.overlap_loss;
        let shelf_count = self.problem.shelves.len();
        let softness = self.softness[term_idx];
        let time_s = load.time_s(loss);
        let part = |argument_s: f64| {
            let behind = (argument_s - time_s) / softness;
            if behind < -25.0 { 0.0 } else { behind.exp() }
        };
        let of_memory = part(load.shelf_s[0]);
        let mut slopes = Slopes::default();
        let mut sum = of_memory;
        slopes.shelf[0] = of_memory;
        for shelf in 1..shelf_count {
            let reading_s = load.shelf_s[shelf];
            let by_reading = part(reading_s + loss * load.processing_s);
            let by_processing = part(load.processing_s + loss * reading_s);
            slopes.shelf[shelf] = by_reading + loss * by_processing;
            slopes.processing += by_processing + loss * by_reading;
            sum += by_reading + by_processing;
        }
        let scale = term.weight / sum;
        slopes.shelf.iter_mut().for_each(|slope| *slope *= scale);
        slopes.processing *= scale;
        slopes
    }

    /// What all readers of an item together pay for a unit of its time on each shelf and in processing.
    fn sight(&self, item_idx: usize) -> Slopes {
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
    fn gain(&self, choice_idx: usize, sight: &Slopes) -> f64 {
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

    /// Makes the best move of an item. Returns about what it gained.
    fn improve(&mut self, item_idx: usize) -> f64 {
        let Some(best) = self.best_move(item_idx) else {
            return 0.0;
        };
        let there_is = match best.from {
            Some(choice_idx) => self.x[choice_idx],
            None => self.rest[item_idx],
        };
        let part = self.search(&best, there_is);
        self.apply(&best, part);
        0.5 * part * best.rate
    }

    fn best_move(&self, item_idx: usize) -> Option<Move> {
        let home = (None, 0.0);
        let (mut worst, mut best) = (home, home);
        if self.rest[item_idx] <= 0.0 {
            worst.1 = f64::INFINITY;
        }
        let sight = self.sight(item_idx);
        for choice_idx in self.problem.items[item_idx].choices.clone() {
            let choice = &self.problem.choices[choice_idx];
            let net =
                self.gain(choice_idx, &sight) - self.price_now(choice.shelf, 0.0) * choice.bytes;
            if net > best.1 {
                best = (Some(choice_idx), net);
            }
            if self.x[choice_idx] > 0.0 && net < worst.1 {
                worst = (Some(choice_idx), net);
            }
        }
        let rate = best.1 - worst.1;
        (best.0 != worst.0 && rate > 1e-12 * self.nothing_s).then_some(Move {
            item_idx,
            from: worst.0,
            to: best.0,
            rate,
        })
    }

    /// How a move of a whole item changes a reader's loads.
    fn change(&self, step: &Move, reader: &Reader) -> TermLoad {
        let mut change = TermLoad::default();
        for (end, sign) in [(step.from, -1.0), (step.to, 1.0)] {
            let bytes = sign * reader.bytes;
            match end {
                Some(choice_idx) => {
                    let choice = &self.problem.choices[choice_idx];
                    change.shelf_s[choice.shelf] += bytes * self.there_s[choice_idx];
                    let saved_s = choice.processing_saved_s.min(reader.processing_s);
                    change.processing_s -= bytes * saved_s;
                }
                None => {
                    let home = self.problem.items[step.item_idx].home;
                    change.shelf_s[home] += bytes * self.home_s[step.item_idx];
                }
            }
        }
        change
    }

    /// The part of an item to move: up to `part_max`, or where moving more would lose.
    fn search(&self, step: &Move, part_max: f64) -> f64 {
        let changes: Vec<(usize, TermLoad)> = self.readers[step.item_idx]
            .iter()
            .map(|reader| (reader.term_idx, self.change(step, reader)))
            .collect();
        let (mut low, mut high) = (0.0, part_max);
        let mut low_rate = step.rate;
        let mut high_rate = self.rate_after(step, &changes, high);
        if high_rate >= 0.0 {
            return part_max;
        }
        for _ in 0..SEARCH_STEPS {
            let guess = low + (high - low) * (low_rate / (low_rate - high_rate)).clamp(0.1, 0.9);
            let rate = self.rate_after(step, &changes, guess);
            match rate >= 0.0 {
                true => (low, low_rate) = (guess, rate),
                false => (high, high_rate) = (guess, rate),
            }
        }
        low
    }

    /// What moving on would gain after a part has moved.
    fn rate_after(&self, step: &Move, changes: &[(usize, TermLoad)], part: f64) -> f64 {
        let mut rate = 0.0;
        for (term_idx, change) in changes {
            let load = moved(&self.loads[*term_idx], change, part);
            let slopes = self.slopes_of(*term_idx, &load);
            rate -= slopes.processing * change.processing_s;
            for (slope, change_s) in slopes.shelf.iter().zip(&change.shelf_s) {
                rate -= slope * change_s;
            }
        }
        for (end, sign) in [(step.from, -1.0), (step.to, 1.0)] {
            if let Some(choice_idx) = end {
                let choice = &self.problem.choices[choice_idx];
                let more_bytes = self.more_bytes(step, choice.shelf, part);
                let price = self.price_now(choice.shelf, more_bytes);
                rate += sign * (choice.saved_s - price * choice.bytes);
            }
        }
        rate
    }

    /// How many bytes more a shelf holds after a part has moved.
    fn more_bytes(&self, step: &Move, shelf: usize, part: f64) -> f64 {
        let ends = [(step.from, -1.0), (step.to, 1.0)];
        let bytes = ends.iter().map(|(end, sign)| {
            let choice = end.map(|choice_idx| &self.problem.choices[choice_idx]);
            let there = choice.filter(|choice| choice.shelf == shelf);
            sign * part * there.map_or(0.0, |choice| choice.bytes)
        });
        bytes.sum()
    }

    fn apply(&mut self, step: &Move, part: f64) {
        if part <= 0.0 {
            return;
        }
        for reader_idx in 0..self.readers[step.item_idx].len() {
            let reader = self.readers[step.item_idx][reader_idx];
            let change = self.change(step, &reader);
            let load = moved(&self.loads[reader.term_idx], &change, part);
            self.loads[reader.term_idx] = load;
            self.slopes[reader.term_idx] = self.slopes_of(reader.term_idx, &load);
        }
        for (end, sign) in [(step.from, -1.0), (step.to, 1.0)] {
            match end {
                Some(choice_idx) => {
                    let choice = &self.problem.choices[choice_idx];
                    self.used_bytes[choice.shelf] += sign * part * choice.bytes;
                    self.x[choice_idx] = settled(self.x[choice_idx] + sign * part);
                }
                None => self.rest[step.item_idx] = settled(self.rest[step.item_idx] + sign * part),
            }
        }
    }

    /// Notes what is reached, within the budgets and with nothing left empty, and how good it is.
    fn settle(&mut self, best: &mut Solution) {
        self.clear_prices(false);
        best.saved_s_max = best.saved_s_max.min(self.bound());
        let prices = self.prices;
        into_range(self.problem, &mut self.x);
        self.reload();
        self.fill();
        let solution = Solution::new(self.problem, self.x.clone());
        let saved_s_max = best.saved_s_max.max(solution.saved_s);
        if solution.saved_s >= best.saved_s {
            *best = solution;
        }
        best.saved_s_max = saved_s_max;
        best.prices = prices[..self.problem.shelves.len()].to_vec();
        best.curve = vec![(0.0, 0.0), (self.used_bytes[0], best.saved_s)];
    }

    /// Moves items to where there is room, if that gains.
    fn fill(&mut self) {
        for item_idx in 0..self.problem.items.len() {
            for choice_idx in self.problem.items[item_idx].choices.clone() {
                let choice = &self.problem.choices[choice_idx];
                let budget_bytes = self.problem.shelves[choice.shelf].budget_bytes;
                let room_bytes = budget_bytes - self.used_bytes[choice.shelf];
                let is_worth_it = room_bytes > 1e-6 * budget_bytes && self.rest[item_idx] > 0.0;
                if is_worth_it && self.gain(choice_idx, &self.sight(item_idx)) > 0.0 {
                    let part = self.rest[item_idx].min(room_bytes / choice.bytes);
                    let step = Move {
                        item_idx,
                        from: None,
                        to: Some(choice_idx),
                        rate: 0.0,
                    };
                    self.apply(&step, part);
                }
            }
        }
    }
}

/// A load after a part of a change.
fn moved(load: &TermLoad, change: &TermLoad, part: f64) -> TermLoad {
    let mut load = *load;
    for (load_s, change_s) in load.shelf_s.iter_mut().zip(&change.shelf_s) {
        *load_s = (*load_s + part * change_s).max(0.0);
    }
    load.processing_s = (load.processing_s + part * change.processing_s).max(0.0);
    load
}

/// A proportion without the dust of rounding.
fn settled(x: f64) -> f64 {
    if x < 1e-12 { 0.0 } else { x.min(1.0) }
}
