//! Star pipelines: scan, filter, look up in small build sides and aggregate in one operator (the role that
//! the compiled, pipelined engine plays in the HPCache paper).
//!
//! `rule` finds star-shaped parts of a physical plan, `shape` says what such a part means, `again` which
//! build sides may run twice, `exec` is the
//! operator, `prepare` runs the build sides, `lookup` maps keys to build rows, `worker` takes row groups
//! through filters and look-ups (`select`, on columns decoded by `chunk`), `payload` gathers the survivors' columns,
//! `decimal` computes with them in 64 bits, `aggregate` and `groups` aggregate them. The replaced plan is kept and
//! runs instead where the data turns out not to be a star (duplicate build keys, too many groups to number).

mod accumulate;
mod again;
mod aggregate;
mod chunk;
#[cfg(test)]
mod corpus;
mod decimal;
mod exec;
mod groups;
mod keys;
mod lookup;
mod payload;
mod prepare;
mod rule;
mod select;
mod shape;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use exec::with_fallback;
pub(crate) use rule::FuseStarPipelines;
