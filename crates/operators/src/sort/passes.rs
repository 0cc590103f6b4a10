//! Pure: which runs are merged together when one merge cannot read them all.

/// Sizes of groups of consecutive runs: merging each group to one run leaves at most `fan_in` runs, or as few as one
/// pass can make. As few rows as possible are merged: groups of one stay as they are.
pub(super) fn groups(run_count: usize, fan_in: usize) -> Vec<usize> {
    let fan_in = fan_in.max(2);
    let mut groups = Vec::new();
    let mut remaining = run_count;
    while remaining > 0 {
        let excess = (groups.len() + remaining).saturating_sub(fan_in);
        let group = match excess {
            0 => 1,
            _ => fan_in.min(excess + 1).min(remaining),
        };
        groups.push(group);
        remaining -= group;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_end_with_few_enough_runs_and_merge_no_more_than_needed() {
        for run_count in 1..200 {
            for fan_in in 2..20 {
                let sizes = groups(run_count, fan_in);
                assert_eq!(sizes.iter().sum::<usize>(), run_count);
                assert!(sizes.iter().all(|&size| (1..=fan_in).contains(&size)));
                let fewest = run_count.div_ceil(fan_in).max(fan_in.min(run_count));
                assert!(sizes.len() <= fewest, "{run_count} by {fan_in}: {sizes:?}");
            }
        }
        assert_eq!(groups(5, 4), [2, 1, 1, 1]);
        assert_eq!(groups(10, 4), [4, 4, 1, 1]);
    }
}
