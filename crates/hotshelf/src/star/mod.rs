//! Star pipelines: scan, filter, look up in small build sides and aggregate in one operator.
//!
//! `rule` finds star-shaped parts of a physical plan, `shape` says what such a part means: `matching` which joins are
//! look-ups, `forecast` which build sides are small enough, `again` which of them may run twice, `narrow` which
//! columns are needed. `exec` is the operator, `prepare` sees to the build sides, `side` runs them
//! or finds look-ups that were made of the same (`recipe`), `lookup` maps keys to build rows,
//! `worker` takes row groups through filters and look-ups (`select`, with the tests of `condition` and sets of rows
//! of `row_set`, on columns decoded by `chunk` and `encoded`), `payload` gathers the survivors' columns, `decimal`
//! computes with them in 64 bits, `aggregate` and `groups` aggregate them. The replaced plan is kept and runs instead
//! where the data turns out not to be a star (duplicate build keys, too many groups to number).

mod accumulate;
mod again;
mod aggregate;
mod chunk;
mod condition;
#[cfg(test)]
mod corpus;
mod decimal;
mod declined;
mod encoded;
mod exec;
mod forecast;
mod groups;
mod keys;
mod lookup;
mod matching;
mod narrow;
mod payload;
mod prepare;
mod recipe;
mod row_set;
mod rule;
mod select;
mod shape;
mod side;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use exec::with_fallback;
pub(crate) use rule::FuseStarPipelines;
