//! The two layouts of an Elf: `linear`, the papers' array of lists, and `packed`, sorted packed
//! rows under a small head.

pub mod linear;
pub mod packed;
