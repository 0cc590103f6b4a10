//! Selective caching: an Elf on a slow shelf, with parts of it in DRAM (HardBD 2020, DAPD 2022).
//!
//! | file | what |
//! |---|---|
//! | `shelf`, `device` | DRAM, an *emulated* device, a real one: what an access costs |
//! | `cpu_cache` | what the CPU's cache of the papers' machine would have |
//! | `policy`, `chain` | which items a dynamic cache keeps |
//! | `list_cache`, `statics`, `linear` | lists of `linear` in DRAM, as in the papers |
//! | `packed`, `observed`, `swizzled` | blocks of `packed` in DRAM, by a table or by references that lead to them |
//! | `filter` | a filter in DRAM that answers misses |
//! | `subjects` | a B+-tree and a radix tree, cached by the same policies |
//! | `variant`, `workload` | what is compared, and by which queries |
//! | `contender`, `block_contender`, `measure` | a variant that answers queries, and how fast several do |
//! | `recovery` | copies, and having an index back after a restart |
//! | `bench`, `figures`, `beyond`, `drawing`, `command` | the papers' figures and others, as rows and as SVG |

pub mod bench;
pub mod beyond;
pub mod block_contender;
mod chain;
pub mod command;
pub mod contender;
pub mod cpu_cache;
pub mod device;
mod drawing;
pub mod figures;
pub mod filter;
pub mod linear;
pub mod list_cache;
pub mod measure;
mod observed;
pub mod packed;
pub mod policy;
mod recovery;
pub mod shelf;
pub mod statics;
mod subjects;
pub mod swizzled;
#[cfg(test)]
mod tests;
pub mod variant;
pub mod workload;
