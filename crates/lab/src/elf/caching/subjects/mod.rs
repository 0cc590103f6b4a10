//! Other indexes over the same codes, cached by the same policies: a B+-tree and an adaptive radix tree. The papers
//! name them as future work.
//!
//! | file | what |
//! |---|---|
//! | `subject` | what an index has to say, and its variants |
//! | `nodes` | where nodes come from: the shelf, copies, a dynamic cache |
//! | `key` | rows' codes as words and as bytes, in key order |
//! | `bplus`, `bplus_search` | a B+-tree over words |
//! | `art`, `art_search` | an adaptive radix tree over bytes |
//! | `figure` | both beside the Elf |

mod art;
mod art_search;
mod bplus;
mod bplus_search;
pub mod figure;
mod key;
mod nodes;
mod subject;
#[cfg(test)]
mod tests;
