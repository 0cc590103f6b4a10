//! What an Elf of uniform, independent columns must look like: a size oracle.
//!
//! With `c` codes per column and `n` rows, the cells of the first `k` columns hold Poisson many rows with
//! mean `n / c^k`. A cell with two or more rows is a DimensionList, one with a single row a MonoList. (Full
//! duplicates are neglected: the formula wants `c^dimensions` far above `n`.)

/// Expected contents of one level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LevelEstimate {
    /// DimensionLists.
    pub lists: f64,
    /// Entries of those lists.
    pub entries: f64,
    /// Entries that lead to MonoLists.
    pub monos: f64,
}

/// Expected contents of an Elf over uniform columns.
#[derive(Debug, Clone, PartialEq)]
pub struct UniformEstimate {
    /// One estimate per level, the first level first.
    pub levels: Vec<LevelEstimate>,
    codes: f64,
}

impl UniformEstimate {
    /// The estimate for `row_count` rows of `dimension_count` columns with `code_count` codes each.
    pub fn new(row_count: u64, dimension_count: usize, code_count: u32) -> Self {
        let (rows, codes) = (row_count as f64, f64::from(code_count));
        let occupied = |level: usize| {
            let cells = codes.powi(level as i32);
            -cells * (-rows / cells).exp_m1()
        };
        let single = |level: usize| rows * (-rows / codes.powi(level as i32)).exp();
        let lists = |level: usize| {
            if level == 0 {
                1.0
            } else {
                occupied(level) - single(level)
            }
        };
        let levels = (0..dimension_count)
            .map(|level| {
                let cut_off_before = if level == 0 { 0.0 } else { single(level) };
                let entries = occupied(level + 1) - cut_off_before;
                let deeper = if level + 1 == dimension_count {
                    0.0
                } else {
                    lists(level + 1)
                };
                LevelEstimate {
                    lists: lists(level),
                    entries,
                    monos: entries - deeper,
                }
            })
            .collect();
        Self { levels, codes }
    }

    /// All DimensionLists.
    #[cfg(test)]
    pub fn lists(&self) -> f64 {
        self.levels.iter().map(|level| level.lists).sum()
    }

    /// Bytes of the array with links of `link_words` words.
    pub fn size_bytes(&self, link_words: usize) -> f64 {
        let entry = (1 + link_words) as f64 * 4.0;
        let mut bytes = self.codes * link_words as f64 * 4.0;
        for (level, estimate) in self.levels.iter().enumerate() {
            if level > 0 {
                bytes += estimate.entries * entry;
            }
            // The remaining codes and one TID.
            bytes += estimate.monos * (self.levels.len() - level) as f64 * 4.0;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 M rows of 10 columns with 100 codes: lists and entries per level, and the papers' about 4 GiB.
    #[test]
    fn the_papers_data_set_has_its_published_size() {
        let estimate = UniformEstimate::new(100_000_000, 10, 100);
        let expected: [(f64, f64); 7] = [
            (1.0, 100.0),
            (100.0, 10_000.0),
            (10_000.0, 1_000_000.0),
            (1_000_000.0, 63_212_056.0),
            (26_424_112.0, 62_713_718.0),
            (496_679.0, 990_017.0),
            (5_000.0, 9_950.0),
        ];
        for (level, (lists, entries)) in expected.into_iter().enumerate() {
            let found = estimate.levels[level];
            assert!(
                (found.lists - lists).abs() <= lists * 1e-3,
                "lists of level {level}: {found:?}"
            );
            assert!(
                (found.entries - entries).abs() <= entries * 1e-3,
                "entries of level {level}"
            );
        }
        let gib = estimate.size_bytes(2) / f64::from(1 << 30);
        assert!((3.78..3.82).contains(&gib), "{gib} GiB");
        // With 101 values per column the papers' caches of 2^20 and 2^22 lists are 3.8 % and 15.2 %.
        let lists = UniformEstimate::new(100_000_000, 10, 101).lists();
        assert!((f64::from(1 << 20) / lists - 0.038).abs() < 0.0005);
        assert!((f64::from(1 << 22) / lists - 0.152).abs() < 0.0005);
    }
}
