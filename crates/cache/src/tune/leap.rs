//! The second half of [`super::descent`]: all divided items move at once, by Newton's method.
//!
//! Moves of single items take many sweeps to agree where items share terms and budgets. But once it is known which
//! items are divided between which places, the smooth time is a smooth function of a few parts, and its second
//! derivative says how far to move all of them. Moves end where a part is used up or where moving on would lose.

use super::descent::Descent;
use super::moves::{Move, settled};
use super::smooth::{ARGUMENT_COUNT_MAX, Arguments, moved, shares};
use crate::model::SHELF_COUNT_MAX;

/// With more parts than this, only single items are moved.
const PARTS_MAX: usize = 200;

/// Less of an item than this counts as nothing.
const PART_MIN: f64 = 1e-7;

/// A part whose second derivative is less than this much of its own, once the others have moved, stays.
const PIVOT_MIN: f64 = 1e-9;

/// Added to second derivatives, as a part of them, so that items that are read alike do not play against each other.
const RIDGE: f64 = 1e-7;

/// Second derivatives are those of a maximum that is softer by this factor: they see kinks that are near.
const BEND_SOFTNESS: f64 = 2.0;

/// How often parts are found again without those that are at their ends, at most.
const ROUNDS_MAX: usize = 4;

/// About how far a move goes if nothing bends its rate.
const REACH: f64 = 0.2;

/// Evaluations of the slope along a leap, and the part of the first slope that is as good as none.
const STEPS_MAX: usize = 5;
const SLOPE_ENOUGH: f64 = 0.1;

/// A term's arguments by moves that change them.
type Entry = (usize, Arguments);

/// The moves of a leap and how they meet.
struct Leap {
    moves: Vec<Move>,
    /// By term: which moves change its arguments, and how.
    entries: Vec<Vec<Entry>>,
    /// By move and shelf.
    bytes: Vec<[f64; SHELF_COUNT_MAX]>,
    /// By move: what saves seconds outside of terms.
    saved_s: Vec<f64>,
}

/// A direction: parts by move, and what they change.
struct Direction {
    parts: Vec<f64>,
    /// By term.
    changes: Vec<(usize, Arguments)>,
    bytes: [f64; SHELF_COUNT_MAX],
    saved_s: f64,
}

impl Descent<'_> {
    /// Moves all divided items at once. Returns about what it gained.
    pub(super) fn leap(&mut self) -> f64 {
        let mut leap = self.prepare();
        let gained_s = self.leap_along(&leap);
        self.entries = std::mem::take(&mut leap.entries);
        gained_s
    }

    fn leap_along(&mut self, leap: &Leap) -> f64 {
        let count = leap.moves.len();
        if count == 0 || count > PARTS_MAX {
            return 0.0;
        }
        let rates = self.rates(leap);
        let mut bends = self.bends(leap);
        for (move_idx, rate) in rates.iter().enumerate() {
            bends[move_idx * (count + 1)] += rate.abs() / REACH;
        }
        let parts = self.newton(&leap.moves, &rates, &bends);
        let direction = self.direction(leap, parts);
        let slope = self.slope(&direction, 0.0);
        if slope.is_nan() || slope <= 0.0 {
            return 0.0;
        }
        let part = self.far(&direction, slope);
        self.follow(&leap.moves, &direction, part);
        0.5 * part * slope
    }

    /// From the place where most of an item is to each other place where some of it is.
    fn prepare(&mut self) -> Leap {
        let mut entries = std::mem::take(&mut self.entries);
        entries.iter_mut().for_each(Vec::clear);
        let mut leap = Leap {
            moves: Vec::new(),
            entries,
            bytes: Vec::new(),
            saved_s: Vec::new(),
        };
        for item_idx in 0..self.problem.items.len() {
            if self.readers[item_idx].is_empty() {
                continue;
            }
            let choices = self.problem.items[item_idx].choices.clone();
            let places = || std::iter::once(None).chain(choices.clone().map(Some));
            let part = |place| self.part(item_idx, place);
            let Some(from) = places().max_by(|a, b| part(*a).total_cmp(&part(*b))) else {
                continue;
            };
            for to in places().filter(|to| *to != from && part(*to) > PART_MIN) {
                let rate = 0.0;
                self.add(
                    Move {
                        item_idx,
                        from,
                        to,
                        rate,
                    },
                    &mut leap,
                );
            }
        }
        leap
    }

    /// The part of an item that is in a place.
    fn part(&self, item_idx: usize, place: Option<usize>) -> f64 {
        place.map_or(self.rest[item_idx], |choice_idx| self.x[choice_idx])
    }

    fn add(&self, step: Move, leap: &mut Leap) {
        let move_idx = leap.moves.len();
        for reader in &self.readers[step.item_idx] {
            let change = self.change(&step, reader);
            leap.entries[reader.term_idx].push((move_idx, change));
        }
        let mut bytes = [0.0; SHELF_COUNT_MAX];
        let mut saved_s = 0.0;
        for (end, sign) in [(step.from, -1.0), (step.to, 1.0)] {
            if let Some(choice_idx) = end {
                let choice = &self.problem.choices[choice_idx];
                bytes[choice.shelf] += sign * choice.bytes;
                saved_s += sign * choice.saved_s;
            }
        }
        leap.moves.push(step);
        leap.bytes.push(bytes);
        leap.saved_s.push(saved_s);
    }

    /// What each move gains at first.
    fn rates(&self, leap: &Leap) -> Vec<f64> {
        let mut rates = leap.saved_s.clone();
        for (rate, bytes) in rates.iter_mut().zip(&leap.bytes) {
            for (shelf, bytes) in bytes.iter().enumerate().filter(|(_, bytes)| **bytes != 0.0) {
                *rate -= self.price_now(shelf, 0.0) * bytes;
            }
        }
        for (shares, entries) in self.shares.iter().zip(&leap.entries) {
            for (move_idx, change) in entries {
                rates[*move_idx] -= dot(shares, change);
            }
        }
        rates
    }

    /// By how much each move makes each other gain less: the lower half of a symmetric matrix, row by row.
    fn bends(&self, leap: &Leap) -> Vec<f64> {
        let count = leap.moves.len();
        let mut bends = vec![0.0; count * count];
        for (term_idx, entries) in leap.entries.iter().enumerate() {
            let softness = BEND_SOFTNESS * self.softness[term_idx];
            let weight = self.problem.terms[term_idx].weight;
            let shares = &shares(
                &self.arguments[term_idx],
                self.argument_count(),
                weight,
                softness,
            );
            let weight: f64 = shares.iter().sum();
            let largest = shares.iter().copied().fold(0.0, f64::max);
            if weight - largest <= 1e-12 * weight {
                continue;
            }
            let per_softness = 1.0 / softness;
            for (row_idx, (row, change)) in entries.iter().enumerate() {
                let mean = dot(shares, change) / weight;
                let pull: Arguments =
                    std::array::from_fn(|idx| per_softness * shares[idx] * (change[idx] - mean));
                for (column, other) in &entries[..=row_idx] {
                    bends[row * count + column] += dot(&pull, other);
                }
            }
        }
        for shelf in 0..self.problem.shelves.len() {
            if self.price_now(shelf, 0.0) <= 0.0 {
                continue;
            }
            for row in 0..count {
                let pull = self.stiffness[shelf] * leap.bytes[row][shelf];
                for column in 0..=row {
                    bends[row * count + column] += pull * leap.bytes[column][shelf];
                }
            }
        }
        bends
    }

    /// The parts to move: where a move empties a place, the others are found again without it.
    fn newton(&self, moves: &[Move], rates: &[f64], bends: &[f64]) -> Vec<f64> {
        let count = moves.len();
        let mut parts = vec![0.0; count];
        let mut free: Vec<usize> = (0..count).collect();
        let bend = |a: usize, b: usize| bends[a.max(b) * count + a.min(b)];
        for _ in 0..ROUNDS_MAX {
            let is_free = |idx: &usize| free.binary_search(idx).is_ok();
            let fixed: Vec<usize> = (0..count).filter(|idx| !is_free(idx)).collect();
            let size = free.len();
            let mut matrix = vec![0.0; size * size];
            for (row, a) in free.iter().enumerate() {
                for (column, b) in free[..=row].iter().enumerate() {
                    matrix[row * size + column] = bend(*a, *b);
                }
            }
            let pulled = |idx: &usize| {
                let pulls = fixed.iter().map(|other| bend(*idx, *other) * parts[*other]);
                rates[*idx] - pulls.sum::<f64>()
            };
            let mut unknowns: Vec<f64> = free.iter().map(pulled).collect();
            solve(&mut matrix, &mut unknowns, size);
            for (idx, unknown) in free.iter().zip(&unknowns) {
                parts[*idx] = *unknown;
            }
            let wanted = parts.clone();
            self.limit(moves, &mut parts);
            free.retain(|idx| parts[*idx] == wanted[*idx]);
            if free.len() == size || free.is_empty() {
                break;
            }
        }
        parts
    }

    /// Shortens moves so that no place gives more than it has.
    fn limit(&self, moves: &[Move], parts: &mut [f64]) {
        let mut first = 0;
        while first < moves.len() {
            let item_idx = moves[first].item_idx;
            let of_item = moves[first..]
                .iter()
                .take_while(|step| step.item_idx == item_idx);
            let end = first + of_item.count();
            let mut comes = 0.0;
            for (part, step) in parts[first..end].iter_mut().zip(&moves[first..end]) {
                *part = part.max(-self.part(item_idx, step.to));
                comes += *part;
            }
            let there_is = self.part(item_idx, moves[first].from);
            if comes > there_is {
                let gone: f64 = parts[first..end].iter().filter(|part| **part < 0.0).sum();
                let scale = (there_is - gone) / (comes - gone);
                let growing = parts[first..end].iter_mut().filter(|part| **part > 0.0);
                growing.for_each(|part| *part *= scale);
            }
            first = end;
        }
    }

    fn direction(&self, leap: &Leap, parts: Vec<f64>) -> Direction {
        let mut direction = Direction {
            changes: Vec::new(),
            bytes: [0.0; SHELF_COUNT_MAX],
            saved_s: 0.0,
            parts,
        };
        for (term_idx, entries) in leap.entries.iter().enumerate() {
            if entries.is_empty() {
                continue;
            }
            let mut change = [0.0; ARGUMENT_COUNT_MAX];
            for (move_idx, of_move) in entries {
                change = moved(&change, of_move, direction.parts[*move_idx]);
            }
            direction.changes.push((term_idx, change));
        }
        for (move_idx, part) in direction.parts.iter().enumerate() {
            direction.saved_s += part * leap.saved_s[move_idx];
            for (sum, bytes) in direction.bytes.iter_mut().zip(&leap.bytes[move_idx]) {
                *sum += part * bytes;
            }
        }
        direction
    }

    /// What going on gains after a part of the way.
    fn slope(&self, direction: &Direction, part: f64) -> f64 {
        let mut slope = direction.saved_s;
        for (term_idx, change) in &direction.changes {
            let arguments = moved(&self.arguments[*term_idx], change, part);
            slope -= dot(&self.shares_of(*term_idx, &arguments), change);
        }
        for (shelf, bytes) in direction.bytes.iter().enumerate() {
            if *bytes != 0.0 {
                slope -= self.price_now(shelf, part * bytes) * bytes;
            }
        }
        slope
    }

    /// How much of the way to go.
    fn far(&self, direction: &Direction, first_slope: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        let mut low_slope = first_slope;
        let mut high_slope = self.slope(direction, high);
        if high_slope >= -SLOPE_ENOUGH * first_slope {
            return 1.0;
        }
        for _ in 0..STEPS_MAX {
            let share = (low_slope / (low_slope - high_slope)).clamp(0.1, 0.9);
            let at = low + (high - low) * share;
            let slope = self.slope(direction, at);
            if slope.abs() <= SLOPE_ENOUGH * first_slope {
                return at;
            }
            match slope >= 0.0 {
                true => (low, low_slope) = (at, slope),
                false => (high, high_slope) = (at, slope),
            }
        }
        low
    }

    fn follow(&mut self, moves: &[Move], direction: &Direction, part: f64) {
        for (term_idx, change) in &direction.changes {
            let arguments = &mut self.arguments[*term_idx];
            *arguments = moved(arguments, change, part);
            self.weigh(*term_idx);
        }
        for (step, of_move) in moves.iter().zip(&direction.parts) {
            for (end, sign) in [(step.from, -1.0), (step.to, 1.0)] {
                let place = match end {
                    Some(choice_idx) => &mut self.x[choice_idx],
                    None => &mut self.rest[step.item_idx],
                };
                *place = settled(*place + sign * part * of_move);
            }
        }
        for (used, bytes) in self.used_bytes.iter_mut().zip(&direction.bytes) {
            *used += part * bytes;
        }
    }
}

fn dot(a: &Arguments, b: &Arguments) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The scalar product of the shorter and the beginning of the longer, in several sums side by side.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let count = a.len().min(b.len());
    let (a, a_rest) = a[..count].as_chunks::<8>();
    let (b, b_rest) = b[..count].as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}

/// Solves a symmetric system, given by its lower half, in place (Cholesky). Unknowns that it does not determine are 0.
fn solve(matrix: &mut [f64], unknowns: &mut [f64], count: usize) {
    for row in 0..count {
        let (above, rest) = matrix.split_at_mut(row * count);
        let this = &mut rest[..=row];
        let own = this[row] * (1.0 + RIDGE);
        let mut pivot = own;
        for column in 0..row {
            let other = &above[column * count..=column * count + column];
            let products = product(&this[..column], other);
            this[column] = (this[column] - products) * other[column];
            pivot -= this[column] * this[column];
        }
        if own > 0.0 && pivot > PIVOT_MIN * own {
            // The diagonal holds reciprocals.
            this[row] = 1.0 / pivot.sqrt();
        } else {
            this[..=row].fill(0.0);
        }
    }
    for row in 0..count {
        let this = &matrix[row * count..=row * count + row];
        let products = product(&this[..row], unknowns);
        unknowns[row] = (unknowns[row] - products) * this[row];
    }
    for row in (0..count).rev() {
        unknowns[row] *= matrix[row * count + row];
        let (earlier, later) = unknowns.split_at_mut(row);
        for (unknown, factor) in earlier.iter_mut().zip(&matrix[row * count..]) {
            *unknown -= factor * later[0];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symmetric_system_is_solved_even_if_it_says_the_same_twice_and_what_it_leaves_open_stays() {
        // The third row is the sum of the first two, the fourth says nothing.
        let rows = [
            [4.0, 2.0, 6.0, 0.0],
            [2.0, 3.0, 5.0, 0.0],
            [6.0, 5.0, 11.0, 0.0],
            [0.0; 4],
        ];
        let right = [10.0, 8.0, 18.0, 7.0];
        let mut matrix = rows.concat();
        let mut unknowns = right.to_vec();
        solve(&mut matrix, &mut unknowns, 4);
        for (row, right) in rows.iter().zip(right).take(3) {
            let left: f64 = row.iter().zip(&unknowns).map(|(a, b)| a * b).sum();
            assert!((left - right).abs() < 1e-4, "{unknowns:?}");
        }
        assert_eq!(unknowns[3], 0.0);
    }
}
