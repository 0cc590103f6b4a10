//! The loops that touch memory. Reads return a sum of what they read, so that nothing can be optimised away and the sum
//! can be checked.

use std::ops::Range;
use std::sync::Arc;

use crate::axes::PersistInstruction;
use crate::persist::{FlushInstruction, LINE_BYTES, StreamWidth, fence, flush_lines, stream_lines};
use crate::region::{Region, Window};

const WORD_BYTES: usize = size_of::<u64>();
/// What is written, again and again: small enough to stay in the nearest cache.
const SOURCE_BYTES: usize = 4096;

/// Memory that several measuring threads use at once.
///
/// Invariant: between two calls of [`Span::exclusive`], no byte is written by one thread while any other accesses it.
/// The runner keeps it: readers stay in the front part, which is not written during a run, and the writers' pieces do
/// not overlap.
#[derive(Debug)]
pub(super) struct Span {
    window: Window,
}

impl Span {
    /// Takes over a region, if it is writable.
    pub(super) fn new(region: Region) -> Option<Arc<Self>> {
        region.writable().then(|| {
            Arc::new(Self {
                window: region.into_window(),
            })
        })
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.window.range().len()
    }

    /// The bytes, for one thread alone; `None` while other threads have the span.
    pub(super) fn exclusive(self: &mut Arc<Self>) -> Option<&mut [u8]> {
        Arc::get_mut(self)?.window.bytes_mut()
    }

    /// Sum of the words of `range`.
    ///
    /// # Panics
    /// If the range is not inside the span or not made of whole words.
    pub(super) fn sum(&self, range: Range<usize>) -> u64 {
        assert!(range.start.is_multiple_of(WORD_BYTES) && range.len().is_multiple_of(WORD_BYTES));
        let start = self
            .window
            .mapping()
            .pointer(&range)
            .cast::<u64>()
            .cast_const();
        // SAFETY: `pointer` checked that the range is mapped, it is aligned because the mapping starts at a page, and
        // by the invariant no thread writes it now.
        let words = unsafe { std::slice::from_raw_parts(start, range.len() / WORD_BYTES) };
        sum_words(words)
    }

    /// The word at `offset`.
    ///
    /// # Panics
    /// If it is not inside the span or not aligned.
    pub(super) fn word(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(WORD_BYTES));
        let at = self
            .window
            .mapping()
            .pointer(&(offset..offset + WORD_BYTES));
        // SAFETY: Mapped, aligned, and by the invariant no thread writes it now.
        unsafe { at.cast::<u64>().read() }
    }

    /// Writes whole lines the given way. By the invariant, no other thread may access the range meanwhile.
    ///
    /// # Panics
    /// If the range is not inside the span or not made of whole lines.
    pub(super) fn write(
        &self,
        range: Range<usize>,
        source: &WriteSource,
        persist: PersistInstruction,
    ) {
        assert!(range.start.is_multiple_of(LINE_BYTES) && range.len().is_multiple_of(LINE_BYTES));
        let start = self.window.mapping().pointer(&range);
        for at in (0..range.len()).step_by(SOURCE_BYTES) {
            let len_bytes = SOURCE_BYTES.min(range.len() - at);
            let target = start.wrapping_add(at);
            if persist == PersistInstruction::NonTemporal && source.stream != StreamWidth::None {
                // SAFETY: The piece lies in the range, which is mapped and writable (the constructor checked) and used
                // by this thread alone; source and target are whole lines and different memory; the width was detected.
                unsafe { stream_lines(source.bytes.0.as_ptr(), target, len_bytes, source.stream) };
                continue;
            }
            // SAFETY: As above.
            unsafe { target.copy_from_nonoverlapping(source.bytes.0.as_ptr(), len_bytes) };
        }
        if let (PersistInstruction::Flush, Some(flush)) = (persist, source.flush) {
            // SAFETY: The range is mapped, and the instruction was detected.
            unsafe { flush_lines(start, range.len(), flush) };
        }
        if persist != PersistInstruction::None {
            fence();
        }
    }
}

/// What is written, and with what.
#[derive(Debug)]
pub(super) struct WriteSource {
    bytes: Box<SourceBytes>,
    stream: StreamWidth,
    flush: Option<FlushInstruction>,
}

#[derive(Debug)]
#[repr(align(64))]
struct SourceBytes([u8; SOURCE_BYTES]);

impl WriteSource {
    pub(super) fn new() -> Self {
        let mut bytes = [0; SOURCE_BYTES];
        bytes
            .iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = Self::byte_at(at));
        Self {
            bytes: Box::new(SourceBytes(bytes)),
            stream: StreamWidth::detect(),
            flush: FlushInstruction::detect(),
        }
    }

    /// The byte written at this distance from the start of a piece.
    pub(super) fn byte_at(distance: usize) -> u8 {
        (distance % SOURCE_BYTES) as u8 ^ (distance % SOURCE_BYTES / 256) as u8 ^ 0xa5
    }
}

/// Wrapping sum by the widest vectors of this CPU.
fn sum_words(words: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: The CPU has the feature.
            return unsafe { x86::sum_avx512(words) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: The CPU has the feature.
            return unsafe { x86::sum_avx2(words) };
        }
    }
    sum_generic(words)
}

/// Sums in independent lanes, for CPUs whose vectors are not known here.
fn sum_generic(words: &[u64]) -> u64 {
    const LANES: usize = 32;
    let (blocks, rest) = words.as_chunks::<LANES>();
    let mut lanes = [0u64; LANES];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes
        .iter()
        .chain(rest)
        .fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Loads written out: left to itself, the compiler turns long sums into gathers across blocks, at a tenth of the speed.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_storeu_si256,
        _mm512_add_epi64, _mm512_loadu_si512, _mm512_reduce_add_epi64, _mm512_setzero_si512,
    };

    /// # Safety
    /// The CPU has AVX-512F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn sum_avx512(words: &[u64]) -> u64 {
        let (blocks, rest) = words.as_chunks::<32>();
        let mut lanes = [_mm512_setzero_si512(); 4];
        for block in blocks {
            for (lane, words) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
                // SAFETY: Eight words are as many bytes as are loaded, and the load needs no alignment.
                let words = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
                *lane = _mm512_add_epi64(*lane, words);
            }
        }
        let rest = super::sum_generic(rest);
        lanes.iter().fold(rest, |sum, lane| {
            sum.wrapping_add(_mm512_reduce_add_epi64(*lane) as u64)
        })
    }

    /// # Safety
    /// The CPU has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn sum_avx2(words: &[u64]) -> u64 {
        let (blocks, rest) = words.as_chunks::<32>();
        let mut lanes = [_mm256_setzero_si256(); 8];
        for block in blocks {
            for (lane, words) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
                // SAFETY: Four words are as many bytes as are loaded, and the load needs no alignment.
                let words = unsafe { _mm256_loadu_si256(words.as_ptr().cast::<__m256i>()) };
                *lane = _mm256_add_epi64(*lane, words);
            }
        }
        let mut sums = [0u64; 32];
        for (lane, sums) in lanes.iter().zip(sums.as_chunks_mut::<4>().0) {
            // SAFETY: Four words are as many bytes as are stored, and the store needs no alignment.
            unsafe { _mm256_storeu_si256(sums.as_mut_ptr().cast::<__m256i>(), *lane) };
        }
        super::sum_generic(rest).wrapping_add(super::sum_generic(&sums))
    }
}

/// Fills the words of `bytes` with their own numbers, so that the sum of any range is known.
pub(super) fn fill(bytes: &mut [u8]) {
    for (word_idx, word) in bytes.as_chunks_mut::<WORD_BYTES>().0.iter_mut().enumerate() {
        *word = (word_idx as u64).to_ne_bytes();
    }
}

/// What [`Span::sum`] gives for `count` ranges of `len_bytes` whose first word numbers add up to `first_sum`.
pub(super) fn expected_sum(first_sum: u64, count: u64, len_bytes: usize) -> u64 {
    let words = (len_bytes / WORD_BYTES) as u64;
    let within = words.wrapping_mul(words.wrapping_sub(1)) / 2;
    first_sum
        .wrapping_mul(words)
        .wrapping_add(count.wrapping_mul(within))
}

/// Links the pieces of `bytes` into one closed chain in random order: each piece begins with the offset of the next.
pub(super) fn link(bytes: &mut [u8], piece_bytes: usize, base: usize) {
    let mut order: Vec<u32> = (0..(bytes.len() / piece_bytes) as u32).collect();
    let mut random = 1u64;
    // Sattolo's algorithm gives a permutation of one cycle.
    for at in (1..order.len()).rev() {
        random = next_random(random);
        order.swap(at, (random >> 16) as usize % at);
    }
    for (piece_idx, next) in order.iter().enumerate() {
        let at = piece_idx * piece_bytes;
        let offset = (base + *next as usize * piece_bytes) as u64;
        bytes[at..at + WORD_BYTES].copy_from_slice(&offset.to_ne_bytes());
    }
}

/// A linear congruential step: one multiplication, so that choosing a place does not cost more than going there.
pub(super) fn next_random(state: u64) -> u64 {
    state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::AnonymousOptions;

    fn span(len_bytes: usize) -> Arc<Span> {
        Span::new(Region::anonymous(len_bytes, &AnonymousOptions::default()).unwrap()).unwrap()
    }

    #[test]
    fn sums_of_filled_ranges_are_as_predicted() {
        let mut span = span(1 << 16);
        fill(span.exclusive().unwrap());
        for (start, len) in [(0, 64), (8, 8), (4096, 1000), (64, 32_768)] {
            let expected = expected_sum(start as u64 / 8, 1, len);
            assert_eq!(span.sum(start..start + len), expected, "{len} at {start}");
        }
        let words: Vec<u64> = (0..1000).map(|i| i * i).collect();
        for len in [0, 1, 31, 32, 33, 64, 999, 1000] {
            assert_eq!(
                sum_words(&words[..len]),
                words[..len].iter().sum::<u64>(),
                "{len}"
            );
            assert_eq!(
                sum_generic(&words[..len]),
                words[..len].iter().sum::<u64>(),
                "{len}"
            );
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: The CPU has the feature.
                let sum = unsafe { x86::sum_avx2(&words[..len]) };
                assert_eq!(sum, words[..len].iter().sum::<u64>(), "{len}");
            }
        }
    }

    #[test]
    fn every_way_of_writing_writes_the_source() {
        let mut span = span(1 << 16);
        let source = WriteSource::new();
        for persist in [
            PersistInstruction::NonTemporal,
            PersistInstruction::Flush,
            PersistInstruction::None,
        ] {
            span.exclusive().unwrap().fill(0);
            span.write(128..128 + 10_240, &source, persist);
            let bytes = span.exclusive().unwrap();
            assert!(
                (0..10_240).all(|at| bytes[128 + at] == WriteSource::byte_at(at)),
                "{persist:?}"
            );
            assert_eq!((bytes[127], bytes[128 + 10_240]), (0, 0));
        }
    }

    #[test]
    fn a_chain_visits_every_piece_once() {
        for (len, piece) in [(64, 64), (128, 64), (64 * 100, 64), (256 * 33, 256)] {
            let mut span = span(8192 + 64 * 100 + 256 * 33);
            link(
                &mut span.exclusive().unwrap()[4096..4096 + len],
                piece,
                4096,
            );
            let (mut at, mut steps) = (4096, 0);
            loop {
                at = span.word(at) as usize;
                steps += 1;
                if at == 4096 {
                    break;
                }
            }
            assert_eq!(steps, len / piece);
        }
    }
}
