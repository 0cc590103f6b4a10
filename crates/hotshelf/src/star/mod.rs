//! Star pipelines: scan, filter, look up in small build sides and aggregate in one operator.
//!
//! `rule` finds star-shaped parts of a physical plan, `shape` says what such a part means: `join_sides` which joins are
//! look-ups, with which `matching`, `forecast` which build sides are small enough, `again` which of them may run twice,
//! `narrow` which columns are needed. `exec` is the operator, `prepare` sees to the build sides, `side` runs them or
//! finds look-ups that were made of the same (`recipe`), `lookup` maps keys to build rows, `key_set` is of keys alone,
//! `worker` takes row groups through filters and look-ups (`select`, with the tests of `condition`, the `hints` that
//! joins above give (`in_keys`), and sets of rows of `row_set`, on columns decoded by `chunk` and `encoded`, or on
//! their `runs`; `validity` says which rows are NULL). `payload` reads the columns that survivors need (`stored`),
//! `rows` is a batch
//! of them: `arithmetic` computes with it in `words` of 64 bits (`decimal` does within other expressions), `aggregate`
//! groups it by numbers of `groups` or `number`, `slots` says where their keys are in look-ups, `tally` adds
//! it up, and `accumulate` has these `tallies` and DataFusion's accumulators. The replaced plan is kept and runs
//! instead where the data turns out not to be a star (duplicate build keys, too many groups to number).

mod accumulate;
mod again;
mod aggregate;
mod arithmetic;
mod chunk;
mod column_pair;
mod condition;
#[cfg(test)]
mod corpus;
mod decimal;
mod declined;
mod determined;
mod encoded;
mod exec;
mod forecast;
mod groups;
mod hints;
mod in_keys;
mod join_sides;
mod kept;
mod key_set;
mod keys;
mod lookup;
mod matching;
mod narrow;
mod number;
mod payload;
mod prepare;
mod ran;
mod recipe;
mod rle;
mod row_set;
mod row_test;
mod rows;
mod rule;
mod runs;
mod select;
mod shape;
mod side;
mod slots;
mod stored;
mod survivors;
mod tallies;
mod tally;
#[cfg(test)]
mod tests;
mod unit;
mod validity;
mod words;
mod worker;

pub(crate) use exec::{fallback, is_narrowed, survived, with_fallback};
pub(crate) use in_keys::{InKeys, KeyCollector, key_words};
pub(crate) use keys::KeyColumn;
pub(crate) use narrow::{parts_of, replace_columns};
pub(crate) use rule::FuseStarPipelines;
pub(crate) use tallies::sum_overflow;
