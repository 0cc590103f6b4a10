//! Other engines over the same data, for `benchmarks/rivals.py`.

pub mod plain_vortex;
