//! Kernels over whole columns that come from memory: several tested together, and sums of what remains.

use super::{Backend, Combine, Kind};

impl Backend {
    /// Tests several columns of one-byte codes of the same rows, each against its own `lo..=hi`: the bit of a row says
    /// whether all of its codes are inside. All columns are read together, 64 rows at a time, which keeps the
    /// processor's prefetching of each alive where they come from memory.
    ///
    /// # Panics
    /// When columns have different lengths, or `bitmap` has fewer than that `.div_ceil(64)` words.
    pub fn scan_columns<const N: usize>(
        self,
        columns: [&[u8]; N],
        bounds: [(u8, u8); N],
        bitmap: &mut [u64],
    ) {
        let rows = columns.first().map_or(0, |column| column.len());
        assert!(
            columns.iter().all(|column| column.len() == rows),
            "columns of different lengths"
        );
        let bitmap = &mut bitmap[..rows.div_ceil(64)];
        if bounds.iter().any(|(lo, hi)| lo > hi) {
            bitmap.fill(0);
            return;
        }
        let spans = bounds.map(|(lo, hi)| (lo, hi - lo));
        match self.0 {
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { avx512::scan_columns(columns, spans, bitmap) },
            _ => {
                bitmap.fill(u64::MAX);
                for (column, (lo, span)) in columns.into_iter().zip(spans) {
                    self.in_range(column, lo, span, Combine::And, bitmap);
                }
            }
        }
    }

    /// The sum of `values[i] * factors[i]` (modulo 2^64) over the rows whose bits are set. Every value is read.
    ///
    /// # Panics
    /// When there are not as many factors as values, or `bitmap` has fewer than `values.len().div_ceil(64)` words.
    pub fn sum_products(self, values: &[u32], factors: &[u8], bitmap: &[u64]) -> u64 {
        assert_eq!(values.len(), factors.len(), "a factor for each value");
        let bitmap = &bitmap[..values.len().div_ceil(64)];
        match self.0 {
            // SAFETY: a value of this kind is only made after the processor reported AVX-512 F and BW.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { avx512::sum_products(values, factors, bitmap) },
            _ => sum_products(values, factors, bitmap),
        }
    }
}

fn sum_products(values: &[u32], factors: &[u8], bitmap: &[u64]) -> u64 {
    let is_set = |row: usize| bitmap[row / 64] >> (row % 64) & 1;
    let rows = values.iter().zip(factors).enumerate();
    let products = rows.map(|(row, (value, factor))| {
        u64::from(*value).wrapping_mul(u64::from(*factor)) * is_set(row)
    });
    products.fold(0, u64::wrapping_add)
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::super::generic::range_word;

    /// Which rows have all their bytes inside: each column's distance from its range's beginning is at most its span.
    /// There is a word for every 64 rows begun.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub fn scan_columns<const N: usize>(
        columns: [&[u8]; N],
        bounds: [(u8, u8); N],
        bitmap: &mut [u64],
    ) {
        let blocks = columns.map(|column| column.as_chunks::<64>());
        let full = blocks
            .iter()
            .map(|(blocks, _)| blocks.len())
            .min()
            .unwrap_or(0);
        let los = bounds.map(|(lo, _)| _mm512_set1_epi8(lo.cast_signed()));
        let spans = bounds.map(|(_, span)| _mm512_set1_epi8(span.cast_signed()));
        let (whole, rest) = bitmap.split_at_mut(full.min(bitmap.len()));
        for (row, word) in whole.iter_mut().enumerate() {
            *word = u64::MAX;
            for column in 0..N {
                let codes = &blocks[column].0[row];
                // SAFETY: `codes` is 64 readable bytes and the load has no alignment requirement.
                let codes = unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) };
                *word &= _mm512_cmple_epu8_mask(_mm512_sub_epi8(codes, los[column]), spans[column]);
            }
        }
        if let Some(word) = rest.first_mut() {
            let inside = blocks.iter().zip(bounds).map(|((_, codes), (lo, span))| {
                range_word(codes, |code: u8| code.wrapping_sub(lo) <= span)
            });
            *word = inside.fold(u64::MAX, |all, own| all & own);
        }
    }

    /// Eight products at a time: there is a word of the bitmap for every 64 rows begun.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub fn sum_products(values: &[u32], factors: &[u8], bitmap: &[u64]) -> u64 {
        let (values, last_values) = values.as_chunks::<64>();
        let (factors, last_factors) = factors.as_chunks::<64>();
        let mut sums = [_mm512_setzero_si512(); 4];
        for ((values, factors), word) in values.iter().zip(factors).zip(bitmap) {
            let (values, factors) = (values.as_chunks::<8>().0, factors.as_chunks::<8>().0);
            for (i, (values, factors)) in values.iter().zip(factors).enumerate() {
                // SAFETY: `values` is 32 readable bytes and the load has no alignment requirement.
                let values = unsafe { _mm256_loadu_si256(values.as_ptr().cast()) };
                let factors = _mm_cvtsi64_si128(i64::from_ne_bytes(*factors));
                let products = _mm512_maskz_mul_epu32(
                    (word >> (8 * i)) as u8,
                    _mm512_cvtepu32_epi64(values),
                    _mm512_cvtepu8_epi64(factors),
                );
                sums[i % 4] = _mm512_add_epi64(sums[i % 4], products);
            }
        }
        let halves = [
            _mm512_add_epi64(sums[0], sums[1]),
            _mm512_add_epi64(sums[2], sums[3]),
        ];
        let sum = _mm512_reduce_add_epi64(_mm512_add_epi64(halves[0], halves[1]));
        let rest = &bitmap[values.len().min(bitmap.len())..];
        let rest = super::sum_products(last_values, last_factors, rest);
        sum.cast_unsigned().wrapping_add(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn every_backend_scans_columns_together_like_a_loop(
            rows in proptest::collection::vec(any::<[u8; 3]>(), 0..300),
            bounds in any::<[(u8, u8); 3]>(),
        ) {
            let columns = [0, 1, 2].map(|at| rows.iter().map(|row| row[at]).collect::<Vec<u8>>());
            let columns = [0, 1, 2].map(|at| columns[at].as_slice());
            for backend in Backend::available() {
                let mut bitmap = vec![u64::MAX; rows.len().div_ceil(64)];
                backend.scan_columns(columns, bounds, &mut bitmap);
                for i in 0..bitmap.len() * 64 {
                    let inside = |row: &[u8; 3]| {
                        row.iter().zip(bounds).all(|(value, (lo, hi))| (lo..=hi).contains(value))
                    };
                    let expected = rows.get(i).is_some_and(inside);
                    prop_assert_eq!(bitmap[i / 64] >> (i % 64) & 1 == 1, expected, "{}", backend.name());
                }
            }
        }

        #[test]
        fn every_backend_sums_products_like_a_loop(
            rows in proptest::collection::vec(any::<(u32, u8, bool)>(), 0..300),
        ) {
            let values: Vec<u32> = rows.iter().map(|row| row.0).collect();
            let factors: Vec<u8> = rows.iter().map(|row| row.1).collect();
            // Bits beyond the rows count for nothing.
            let mut bitmap = vec![u64::MAX; rows.len().div_ceil(64)];
            let mut expected = 0;
            for (i, (value, factor, is_set)) in rows.iter().enumerate() {
                bitmap[i / 64] &= !(u64::from(!is_set) << (i % 64));
                expected += u64::from(*value) * u64::from(*factor) * u64::from(*is_set);
            }
            for backend in Backend::available() {
                prop_assert_eq!(backend.sum_products(&values, &factors, &bitmap), expected, "{}", backend.name());
            }
        }
    }
}
