//! Pictures as SVG: [`Figure`]s of lines and bars, and the heat maps of a probe.

mod figure;
pub mod heat_map;

pub use figure::{Figure, Panel, Series};
