//! Slow memory that this machine does not have: a model of latency, bandwidth and grain, to develop and compare with.
//!
//! [`DeviceModel`] holds published figures; [`Device`] turns requests into ends,
//! purely; [`EmulatedTier`] makes real threads wait for them, and [`simulate`] runs any number of threads in simulated
//! time. A [`Clock`] waits for models of others. Everything that comes out of here is labelled *emulated*.

mod clock;
mod device;
mod grid;
mod model;
mod recorded;
mod simulate;
mod tier;

#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use device::{Device, Reach, Request};
pub use grid::Grid;
pub use model::{DEVICE_NAMES, DeviceModel, DirectionModel, FarModel};
pub use recorded::recorded_rows;
pub use simulate::{Simulated, simulate};
pub use tier::{Batch, EmulatedTier, Pending, SelfTestLine};
