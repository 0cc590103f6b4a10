//! How good a greedy solution is: an upper bound on what any placement can save.
//!
//! Savings are concave in the proportions, so for any supergradient `g` at the solution `x` and any price
//! `lambda >= 0` per byte, no placement within the budget saves more than
//! `saved(x) - g x + lambda * budget + sum of max(0, g_c - lambda * s_c)`.
//! At a kink a term's slope may be chosen anywhere between the slopes on either side; the choice below raises the
//! columns that were raised for that term to the price, which makes the bound nearly tight.

use super::greedy::PartialPlacement;

pub(super) struct Bound {
    pub(super) saved_s_max: f64,
    pub(super) saved_s_per_byte: f64,
}

pub(super) fn bound(state: &PartialPlacement<'_>) -> Bound {
    let problem = state.problem;
    let mut gains = state.gains.clone();
    let price = price(state);
    for term_idx in 0..problem.terms.len() {
        let steeper = state.slope_below(term_idx);
        if steeper > state.slopes[term_idx] {
            let room = steeper - state.slopes[term_idx];
            steepen(state, term_idx, room, price, &mut gains);
        }
    }
    let zeros = vec![0.0; state.x.len()];
    let saved_s = problem.total_s(&zeros) - problem.total_s(&state.x);
    let taken: f64 = gains.iter().zip(&state.x).map(|(gain, x)| gain * x).sum();
    let columns = problem.items.iter().zip(&gains);
    let rents = columns.map(|(column, gain)| (gain - price * column.bytes).max(0.0));
    Bound {
        saved_s_max: saved_s - taken + price * problem.budget_bytes() + rents.sum::<f64>(),
        saved_s_per_byte: price,
    }
}

/// What the last byte saved: the best rate that is still available.
fn price(state: &PartialPlacement<'_>) -> f64 {
    let budget_is_spent = state.remaining_bytes <= 1e-6 * state.problem.budget_bytes();
    let columns = state.problem.items.iter().zip(&state.gains).zip(&state.x);
    let open = columns.filter(|(_, x)| **x < 1.0);
    let densities = open.map(|((column, gain), _)| gain / column.bytes);
    match budget_is_spent {
        true => densities.fold(0.0, f64::max),
        false => 0.0,
    }
}

/// Raises the slope of a term at its kink as long as that lowers the bound: while the columns it raises beyond the
/// price weigh less than the bytes it has cached.
fn steepen(
    state: &PartialPlacement<'_>,
    term_idx: usize,
    room: f64,
    price: f64,
    gains: &mut [f64],
) {
    let columns = &state.problem.terms[term_idx].reads;
    let mut limits: Vec<(f64, f64)> = columns
        .iter()
        .map(|column| {
            let worth = price * state.problem.items[column.item_idx].bytes;
            let limit = (worth - gains[column.item_idx]) / column.bytes;
            (limit.max(0.0), column.bytes)
        })
        .collect();
    limits.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut beyond_bytes = 0.0;
    let mut slope = room;
    for (limit, bytes) in limits {
        beyond_bytes += bytes;
        if beyond_bytes >= state.cached[term_idx] {
            slope = limit.min(room);
            break;
        }
    }
    for column in columns {
        gains[column.item_idx] += slope * column.bytes;
    }
}
