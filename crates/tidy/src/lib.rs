//! Tests that read the checkout and keep it in order: which crate depends on which, import circles, lengths, words,
//! links and `unsafe`. There is no code here for others to use; see `tests/it`.
#![forbid(unsafe_code)]
