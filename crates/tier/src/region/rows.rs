//! Rows of words that are copied without writing their places twice.

/// Appends the given `rows` of `from`, of `STRIDE` words each.
///
/// # Panics
/// If one is not there.
pub fn extend_rows<const STRIDE: usize>(to: &mut Vec<u64>, from: &[[u64; STRIDE]], rows: &[u32]) {
    let start = to.len();
    let added = rows.len() * STRIDE;
    to.reserve(added);
    let places = to.spare_capacity_mut()[..added].chunks_exact_mut(STRIDE);
    for (place, &row) in places.zip(rows) {
        place.write_copy_of_slice(&from[row as usize]);
    }
    // SAFETY: The capacity is reserved, and all words up to there were written: each row fills its place, and there are
    // as many rows as places.
    unsafe { to.set_len(start + added) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_given_order_after_what_is_there() {
        let from = [[1, 2], [3, 4], [5, 6]];
        let mut to = vec![0];
        extend_rows(&mut to, &from, &[2, 0, 2]);
        extend_rows(&mut to, &from, &[]);
        assert_eq!(to, [0, 5, 6, 1, 2, 5, 6]);
    }

    #[test]
    #[should_panic(expected = "out of bounds")]
    fn a_row_that_is_not_there_is_not_copied() {
        extend_rows(&mut Vec::new(), &[[1], [2]], &[2]);
    }
}
