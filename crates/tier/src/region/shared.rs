//! Words that several threads load and store at once, in memory that others allocate.

use std::sync::atomic::AtomicU64;

/// The words as atomic ones, for as long as they are borrowed.
pub fn shared_words(words: &mut [u64]) -> &[AtomicU64] {
    let start = words.as_mut_ptr().cast::<AtomicU64>();
    let len = words.len();
    const { assert!(align_of::<AtomicU64>() == align_of::<u64>()) };
    // SAFETY: The words are borrowed exclusively for as long as the answer lives, which is then the only access to
    // them. `AtomicU64` has the size and the bits of `u64`, and its alignment, which was checked.
    unsafe { std::slice::from_raw_parts(start, len) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn what_threads_store_is_in_the_words_afterwards() {
        let mut words = vec![0; 1000];
        let shared = shared_words(&mut words);
        std::thread::scope(|scope| {
            for first in 0..4 {
                let mine = shared.iter().enumerate().skip(first).step_by(4);
                scope.spawn(|| mine.for_each(|(idx, word)| word.store(idx as u64, Relaxed)));
            }
        });
        assert!(words.iter().copied().eq(0..1000));
        assert!(shared_words(&mut []).is_empty());
    }
}
