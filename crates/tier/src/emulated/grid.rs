//! Bandwidth as a function of access size and thread count, interpolated between measured points.

/// Measured bandwidths at every pair of some access sizes and some thread counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    access_bytes: Vec<f64>,
    threads: Vec<f64>,
    /// One row per access size, one entry per thread count.
    bytes_per_s: Vec<Vec<f64>>,
}

impl Grid {
    /// The same bandwidth everywhere.
    pub fn constant(bytes_per_s: f64) -> Self {
        Self {
            access_bytes: vec![1.0],
            threads: vec![1.0],
            bytes_per_s: vec![vec![bytes_per_s]],
        }
    }

    /// A grid of `rows`: an access size and the bandwidth at each of `threads`. `None` if it is not rectangular,
    /// ascending and positive.
    pub fn new(threads: &[u32], rows: &[(u64, Vec<f64>)]) -> Option<Self> {
        let ascending = threads.is_sorted_by(|a, b| a < b) && rows.is_sorted_by(|a, b| a.0 < b.0);
        let mut values = rows.iter().flat_map(|(_, values)| values);
        let positive = values.all(|value| value.is_finite() && *value > 0.0);
        let filled = rows.iter().all(|(_, values)| values.len() == threads.len());
        let sound = ascending && positive && filled && !rows.is_empty() && !threads.is_empty();
        sound.then(|| Self {
            access_bytes: rows.iter().map(|(bytes, _)| *bytes as f64).collect(),
            threads: threads.iter().map(|count| f64::from(*count)).collect(),
            bytes_per_s: rows.iter().map(|(_, values)| values.clone()).collect(),
        })
    }

    /// The bandwidth, interpolated between neighbours on logarithmic axes; outside the grid, that of its edge.
    pub fn at(&self, access_bytes: u64, threads: u32) -> f64 {
        let (low, high, part) = neighbours(&self.access_bytes, access_bytes as f64);
        let along = |row: &Vec<f64>| {
            let (low, high, part) = neighbours(&self.threads, f64::from(threads));
            row[low] + (row[high] - row[low]) * part
        };
        let (below, above) = (
            along(&self.bytes_per_s[low]),
            along(&self.bytes_per_s[high]),
        );
        below + (above - below) * part
    }

    /// What some threads reach of the most that any count does with accesses of this size; 1 from that count on.
    pub fn part_of_peak(&self, access_bytes: u64, threads: u32) -> f64 {
        let at = |threads: &f64| self.at(access_bytes, *threads as u32);
        let best = self
            .threads
            .iter()
            .max_by(|a, b| at(a).total_cmp(&at(b)))
            .copied();
        let best = best.unwrap_or(1.0);
        match f64::from(threads) < best {
            true => self.at(access_bytes, threads) / at(&best),
            false => 1.0,
        }
    }

    /// The grid with one more row, for an access size above all others.
    pub(super) fn with_row(mut self, access_bytes: u64, value: &mut dyn FnMut(u32) -> f64) -> Self {
        if self
            .access_bytes
            .last()
            .is_some_and(|last| *last < access_bytes as f64)
        {
            self.access_bytes.push(access_bytes as f64);
            let row = self.threads.iter().map(|threads| value(*threads as u32));
            self.bytes_per_s.push(row.collect());
        }
        self
    }

    /// The grid with one more thread count, interpolated: rows to come may bend there.
    pub(super) fn with_threads(mut self, threads: u32) -> Self {
        let at = self
            .threads
            .partition_point(|count| *count < f64::from(threads));
        if self.threads.get(at) != Some(&f64::from(threads)) {
            let column: Vec<f64> = self
                .access_bytes
                .iter()
                .map(|access_bytes| self.at(*access_bytes as u64, threads))
                .collect();
            self.threads.insert(at, f64::from(threads));
            for (row, value) in self.bytes_per_s.iter_mut().zip(column) {
                row.insert(at, value);
            }
        }
        self
    }

    /// Whether it is the same everywhere.
    pub fn is_constant(&self) -> bool {
        self.access_bytes.len() == 1 && self.threads.len() == 1
    }

    /// The largest bandwidth in it.
    pub fn peak(&self) -> f64 {
        let values = self.bytes_per_s.iter().flatten();
        values.copied().fold(0.0, f64::max)
    }
}

/// The positions around `value`, and how far it lies between them.
fn neighbours(axis: &[f64], value: f64) -> (usize, usize, f64) {
    let above = axis.partition_point(|at| *at < value);
    if above == 0 || above == axis.len() {
        let edge = above.min(axis.len() - 1);
        return (edge, edge, 0.0);
    }
    let (low, high) = (axis[above - 1].log2(), axis[above].log2());
    (above - 1, above, (value.log2() - low) / (high - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_the_grid_are_exact_and_others_lie_between() {
        let rows = [(64, vec![1.0, 4.0]), (256, vec![3.0, 8.0])];
        let grid = Grid::new(&[1, 4], &rows).unwrap();
        assert_eq!((grid.at(64, 1), grid.at(256, 4)), (1.0, 8.0));
        assert_eq!((grid.at(128, 1), grid.at(64, 2)), (2.0, 2.5));
        assert_eq!((grid.at(1, 1), grid.at(1 << 40, 99)), (1.0, 8.0));
        assert_eq!((grid.peak(), Grid::constant(5.0).at(77, 7)), (8.0, 5.0));
    }

    #[test]
    fn threads_need_all_of_the_device_from_the_best_count_on() {
        let grid = Grid::new(&[1, 4, 8], &[(64, vec![2.0, 8.0, 4.0])]).unwrap();
        let needs = [1, 4, 8, 99].map(|threads| grid.part_of_peak(64, threads));
        assert_eq!(needs, [0.25, 1.0, 1.0, 1.0]);
        assert_eq!(Grid::constant(5.0).part_of_peak(64, 1), 1.0);
    }

    #[test]
    fn a_further_row_lies_above_all_others() {
        let grid = Grid::new(&[1, 4], &[(64, vec![2.0, 8.0])]).unwrap();
        let grid = grid.with_row(256, &mut |threads| f64::from(threads) * 10.0);
        assert_eq!(
            (grid.at(64, 4), grid.at(256, 4), grid.at(999, 1)),
            (8.0, 40.0, 10.0)
        );
        assert_eq!(grid.clone().with_row(128, &mut |_| 1.0), grid);
    }

    #[test]
    fn a_further_thread_count_changes_nothing() {
        let grid = Grid::new(&[1, 4], &[(64, vec![2.0, 8.0]), (128, vec![4.0, 6.0])]).unwrap();
        let more = grid.clone().with_threads(2);
        assert_eq!((more.at(64, 2), more.at(128, 2)), (5.0, 5.0));
        assert_eq!((more.at(64, 1), more.at(128, 4)), (2.0, 6.0));
        assert_eq!(more.clone().with_threads(2), more);
    }

    #[test]
    fn ragged_unordered_and_empty_grids_are_refused() {
        assert_eq!(Grid::new(&[1, 4], &[(64, vec![1.0])]), None);
        assert_eq!(Grid::new(&[4, 1], &[(64, vec![1.0, 1.0])]), None);
        assert_eq!(Grid::new(&[1], &[(64, vec![0.0])]), None);
        assert_eq!(Grid::new(&[1], &[]), None);
    }
}
