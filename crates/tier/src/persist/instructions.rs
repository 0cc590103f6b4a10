//! The machine instructions behind persistence, chosen at run time: cache-line write-back, non-temporal copy, fence.

use std::ptr;

/// Bytes of a cache line: the unit of flushing.
pub const LINE_BYTES: usize = 64;

/// How a cache line is written back to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlushInstruction {
    /// x86-64 `clwb`: writes back and may keep the line.
    Clwb,
    /// x86-64 `clflushopt`: writes back and drops the line.
    ClflushOpt,
    /// x86-64 `clflush`: the same, one line after the other.
    Clflush,
    /// AArch64 `dc cvap`: cleans to the point of persistence.
    DcCvap,
}

impl FlushInstruction {
    /// The best one this CPU has, or `None` if user programs cannot flush.
    pub fn detect() -> Option<Self> {
        arch::detect_flush()
    }

    /// All that this CPU has, best first.
    pub fn available() -> Vec<Self> {
        let all = [Self::Clwb, Self::ClflushOpt, Self::Clflush, Self::DcCvap];
        all.into_iter().filter(|one| arch::has(*one)).collect()
    }
}

/// How wide a non-temporal store is.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamWidth {
    /// No such instruction: ordinary stores and flushes instead.
    None,
    /// 16 bytes.
    Sse2,
    /// 32 bytes.
    Avx,
    /// 64 bytes: a whole line at once.
    Avx512,
}

impl StreamWidth {
    pub(crate) fn detect() -> Self {
        arch::detect_stream()
    }
}

/// Writes back every line that `start..start + len_bytes` touches. Durable only after [`fence`].
///
/// # Safety
/// 1. The range is mapped.
/// 2. The CPU has `instruction`.
pub(crate) unsafe fn flush_lines(
    start: *const u8,
    len_bytes: usize,
    instruction: FlushInstruction,
) {
    let mut line = start.map_addr(|address| address & !(LINE_BYTES - 1));
    let end = start.wrapping_add(len_bytes);
    while line < end {
        // SAFETY: The line holds at least one byte of a mapped range, and the CPU has the instruction (both are the
        // caller's obligations).
        unsafe { arch::flush_line(line, instruction) };
        line = line.wrapping_add(LINE_BYTES);
    }
}

/// Copies whole lines, bypassing the cache, and orders them before everything that follows.
///
/// # Safety
/// 1. `source..source + len_bytes` is readable and `target..target + len_bytes` writable; they do not overlap.
/// 2. `target` and `len_bytes` are multiples of [`LINE_BYTES`].
/// 3. The CPU has stores of `width`, which is not [`StreamWidth::None`].
pub(crate) unsafe fn stream_lines(
    source: *const u8,
    target: *mut u8,
    len_bytes: usize,
    width: StreamWidth,
) {
    debug_assert!(target.addr().is_multiple_of(LINE_BYTES) && len_bytes.is_multiple_of(LINE_BYTES));
    // SAFETY: The caller's obligations are those of the callee.
    unsafe { arch::stream_lines(source, target, len_bytes, width) };
    // Non-temporal stores are outside the memory model until fenced; fencing here keeps that inside this function.
    fence();
}

/// Orders flushes and non-temporal stores before everything that follows, and waits until the flushed lines are in the
/// persistence domain.
pub(crate) fn fence() {
    arch::fence();
}

/// Copies with ordinary stores.
///
/// # Safety
/// `target..target + bytes.len()` is writable and does not overlap `bytes`.
pub(crate) unsafe fn store(target: *mut u8, bytes: &[u8]) {
    // SAFETY: The caller's obligation.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid_count, __m128i, __m256i, __m512i, _mm_clflush, _mm_loadu_si128, _mm_sfence,
        _mm_stream_si128, _mm256_loadu_si256, _mm256_stream_si256, _mm512_loadu_si512,
        _mm512_stream_si512,
    };

    use super::{FlushInstruction, StreamWidth};

    const CLFLUSHOPT_BIT: u32 = 1 << 23;
    const CLWB_BIT: u32 = 1 << 24;

    pub(super) fn has(instruction: FlushInstruction) -> bool {
        // The standard library's feature detection does not know these two; leaf 7 exists on every CPU that has them.
        let leaf_max = __cpuid_count(0, 0).eax;
        let features = match leaf_max >= 7 {
            true => __cpuid_count(7, 0).ebx,
            false => 0,
        };
        match instruction {
            FlushInstruction::Clwb => features & CLWB_BIT != 0,
            FlushInstruction::ClflushOpt => features & CLFLUSHOPT_BIT != 0,
            FlushInstruction::Clflush => true,
            FlushInstruction::DcCvap => false,
        }
    }

    pub(super) fn detect_flush() -> Option<FlushInstruction> {
        FlushInstruction::available().first().copied()
    }

    pub(super) fn detect_stream() -> StreamWidth {
        if is_x86_feature_detected!("avx512f") {
            StreamWidth::Avx512
        } else if is_x86_feature_detected!("avx") {
            StreamWidth::Avx
        } else {
            StreamWidth::Sse2
        }
    }

    /// # Safety
    /// 1. `line` is mapped.
    /// 2. The CPU has `instruction`.
    pub(super) unsafe fn flush_line(line: *const u8, instruction: FlushInstruction) {
        match instruction {
            // SAFETY: The line is mapped and the CPU has the instruction. It changes no byte; it is not marked as
            // leaving memory alone, so that the compiler keeps all earlier stores before it.
            FlushInstruction::Clwb => unsafe {
                asm!("clwb [{line}]", line = in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: As above.
            FlushInstruction::ClflushOpt => unsafe {
                asm!("clflushopt [{line}]", line = in(reg) line, options(nostack, preserves_flags));
            },
            // SAFETY: The line is mapped, and every x86-64 CPU has the instruction.
            FlushInstruction::Clflush | FlushInstruction::DcCvap => unsafe { _mm_clflush(line) },
        }
    }

    /// # Safety
    /// As `super::stream_lines`, without the fence: the caller must fence before another thread reads.
    pub(super) unsafe fn stream_lines(
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
        width: StreamWidth,
    ) {
        let stream: unsafe fn(*const u8, *mut u8, usize) = match width {
            StreamWidth::Avx512 => stream_avx512,
            StreamWidth::Avx => stream_avx,
            StreamWidth::Sse2 | StreamWidth::None => stream_sse2,
        };
        // SAFETY: Ranges, alignment and CPU features are the caller's obligations.
        unsafe { stream(source, target, len_bytes) };
    }

    /// # Safety
    /// 1. Both ranges are valid for the access and `target` is 64-byte aligned, `len_bytes` a multiple of 64.
    /// 2. The CPU has AVX-512F.
    #[target_feature(enable = "avx512f")]
    unsafe fn stream_avx512(source: *const u8, target: *mut u8, len_bytes: usize) {
        for at in (0..len_bytes).step_by(64) {
            let (from, to) = (source.wrapping_add(at), target.wrapping_add(at));
            // SAFETY: `at + 64 <= len_bytes`, so that the load stays inside the source; it needs no alignment.
            let line = unsafe { _mm512_loadu_si512(from.cast::<__m512i>()) };
            // SAFETY: As above for the target, which is aligned.
            unsafe { _mm512_stream_si512(to.cast::<__m512i>(), line) };
        }
    }

    /// # Safety
    /// 1. Both ranges are valid for the access and `target` is 64-byte aligned, `len_bytes` a multiple of 64.
    /// 2. The CPU has AVX.
    #[target_feature(enable = "avx")]
    unsafe fn stream_avx(source: *const u8, target: *mut u8, len_bytes: usize) {
        for at in (0..len_bytes).step_by(32) {
            let (from, to) = (source.wrapping_add(at), target.wrapping_add(at));
            // SAFETY: `at + 32 <= len_bytes`, so that the load stays inside the source; it needs no alignment.
            let half = unsafe { _mm256_loadu_si256(from.cast::<__m256i>()) };
            // SAFETY: As above for the target, which is aligned.
            unsafe { _mm256_stream_si256(to.cast::<__m256i>(), half) };
        }
    }

    /// # Safety
    /// Both ranges are valid for the access and `target` is 64-byte aligned, `len_bytes` a multiple of 64.
    unsafe fn stream_sse2(source: *const u8, target: *mut u8, len_bytes: usize) {
        for at in (0..len_bytes).step_by(16) {
            let (from, to) = (source.wrapping_add(at), target.wrapping_add(at));
            // SAFETY: `at + 16 <= len_bytes`, so that the load stays inside the source; it needs no alignment.
            let quarter = unsafe { _mm_loadu_si128(from.cast::<__m128i>()) };
            // SAFETY: As above for the target, which is aligned.
            unsafe { _mm_stream_si128(to.cast::<__m128i>(), quarter) };
        }
    }

    pub(super) fn fence() {
        // SAFETY: Every x86-64 CPU has SSE, and a fence touches no memory.
        unsafe { _mm_sfence() };
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use std::arch::asm;

    use super::{FlushInstruction, StreamWidth};

    /// `HWCAP_DCPOP`: the kernel lets user programs run `dc cvap`.
    const DCPOP_BIT: u64 = 1 << 16;

    pub(super) fn has(instruction: FlushInstruction) -> bool {
        // SAFETY: The call reads the process's auxiliary vector and has no other effect.
        let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP) };
        instruction == FlushInstruction::DcCvap && capabilities & DCPOP_BIT != 0
    }

    pub(super) fn detect_flush() -> Option<FlushInstruction> {
        FlushInstruction::available().first().copied()
    }

    pub(super) fn detect_stream() -> StreamWidth {
        StreamWidth::None
    }

    /// # Safety
    /// 1. `line` is mapped.
    /// 2. The CPU has `dc cvap`.
    pub(super) unsafe fn flush_line(line: *const u8, _instruction: FlushInstruction) {
        // SAFETY: The line is mapped and the CPU has the instruction, written by its encoding because assemblers need a
        // newer architecture for its name. It changes no byte.
        unsafe {
            asm!("sys #3, c7, c12, #1, {line}", line = in(reg) line, options(nostack, preserves_flags));
        }
    }

    /// # Safety
    /// Both ranges are valid for the access and do not overlap.
    pub(super) unsafe fn stream_lines(
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
        _width: StreamWidth,
    ) {
        // SAFETY: The caller's obligations are those of the copy.
        unsafe { target.copy_from_nonoverlapping(source, len_bytes) };
    }

    pub(super) fn fence() {
        // SAFETY: A barrier touches no memory.
        unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    use std::sync::atomic::{Ordering, fence as atomic_fence};

    use super::{FlushInstruction, StreamWidth};

    pub(super) fn has(_instruction: FlushInstruction) -> bool {
        false
    }

    pub(super) fn detect_flush() -> Option<FlushInstruction> {
        None
    }

    pub(super) fn detect_stream() -> StreamWidth {
        StreamWidth::None
    }

    /// # Safety
    /// None: it does nothing, and it cannot be called because no instruction is available.
    pub(super) unsafe fn flush_line(_line: *const u8, _instruction: FlushInstruction) {}

    /// # Safety
    /// Both ranges are valid for the access and do not overlap.
    pub(super) unsafe fn stream_lines(
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
        _width: StreamWidth,
    ) {
        // SAFETY: The caller's obligations are those of the copy.
        unsafe { target.copy_from_nonoverlapping(source, len_bytes) };
    }

    pub(super) fn fence() {
        atomic_fence(Ordering::SeqCst);
    }
}
