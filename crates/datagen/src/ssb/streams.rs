//! Random streams: one per column, each started at a row by a logarithmic jump.
//!
//! The generator is TPC-H's (multiplicative, modulus 2^31 - 1), taken from `tpchgen`. A column's stream is named by the
//! seed TPC-H gives it; the user's seed moves every stream elsewhere on the same cycle. A cycle has 2^31 - 2 values, so
//! above scale 200 the seven draws per order of a lineorder column start to repeat, as they do in TPC-H.

use tpchgen::random::RandomBoundedInt;

use crate::random::splitmix;

const CYCLE: u64 = 2_147_483_646;

/// The stream seed of a column: TPC-H's own with `user_seed` 0.
pub(super) fn stream_seed(column_seed: i64, user_seed: u64) -> i64 {
    if user_seed == 0 {
        return column_seed;
    }
    let mixed = splitmix(splitmix(user_seed) ^ column_seed as u64);
    (mixed % CYCLE) as i64 + 1
}

/// Integers from `low` to `high`, both included, `draws_per_row` reserved for each row, positioned at `first_row`.
pub(super) fn int_stream(
    column_seed: i64,
    user_seed: u64,
    (low, high): (i32, i32),
    draws_per_row: i32,
    first_row: u64,
) -> RandomBoundedInt {
    let seed = stream_seed(column_seed, user_seed);
    let mut stream = RandomBoundedInt::new_with_seeds_per_row(seed, low, high, draws_per_row);
    stream.advance_rows(first_row as i64);
    stream
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_started_at_a_row_continues_the_stream_from_the_start() {
        for user_seed in [0, 1, u64::MAX] {
            let mut whole = int_stream(209_208_115, user_seed, (1, 50), 7, 0);
            for row in 0..200 {
                let mut jumped = int_stream(209_208_115, user_seed, (1, 50), 7, row);
                for _ in 0..row % 8 {
                    assert_eq!(whole.next_value(), jumped.next_value());
                }
                whole.row_finished();
            }
        }
    }

    #[test]
    fn stream_seeds_stay_on_the_cycle_and_differ_between_columns_and_users() {
        let mut seeds: Vec<i64> = (0..100)
            .flat_map(|user| [17, 18, 2_147_483_646].map(|column| stream_seed(column, user)))
            .collect();
        assert!(seeds.iter().all(|seed| (1..=CYCLE as i64).contains(seed)));
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 300);
    }
}
