//! How an Elf lies in memory and in files: [`packed`], sorted packed rows under a small head.

pub mod packed;
