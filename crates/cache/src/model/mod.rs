//! From what pipelines did to what caching would have bought them (HPCache §4).
//!
//! [`LookBackWindow`] turns [`Observation`]s of pipeline runs into weighted [`Term`]s; a [`Problem`] puts the terms
//! of a moment together with the columns' sizes and the machine's bandwidths, and predicts the time of any
//! placement. [`crate::tune`] minimises that time. Everything here is pure: no clocks, no threads.

mod observation;
mod problem;
mod window;

pub use observation::{Observation, RunningPipeline};
pub use problem::{ModelForm, Problem, ProblemColumn, Term, TermColumn, Tiers};
pub use window::{LookBackWindow, Smoothing, TemplateTerm, WindowOptions};
