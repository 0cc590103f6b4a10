//! A benchmark's queries over its generated tables: its tables in a database, its queries timed and repeated.

mod load;
pub mod policies;

use std::path::Path;

use hotshelf::{Database, Session};
use hotshelf_datagen::Dataset;

use crate::failure::{Failure, Result};

pub use hotshelf::Measurement;
pub use hotshelf_datagen::Query;
pub(crate) use load::fill;
pub use load::prepare;

/// Runs a query to its end and drops the rows.
///
/// # Errors
/// [`Failure::Query`] with the query's name.
pub async fn measure(session: &Session, query: Query) -> Result<Measurement> {
    let (name, sql) = query;
    let measured = session.measure(sql).await;
    measured.map_err(|source| Failure::Query {
        query: name.to_owned(),
        source: Box::new(source),
    })
}

/// The median of each number by itself; all zero if there are no runs.
pub fn median(runs: &[Measurement]) -> Measurement {
    fn middle<T: Copy + PartialOrd>(
        runs: &[Measurement],
        value: fn(&Measurement) -> T,
    ) -> Option<T> {
        let mut values: Vec<T> = runs.iter().map(value).collect();
        values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        values.get(values.len() / 2).copied()
    }
    Measurement {
        seconds: middle(runs, |run| run.seconds).unwrap_or_default(),
        row_count: middle(runs, |run| run.row_count).unwrap_or_default(),
        bytes_cache: middle(runs, |run| run.bytes_cache).unwrap_or_default(),
        bytes_storage: middle(runs, |run| run.bytes_storage).unwrap_or_default(),
        pipeline_s: middle(runs, |run| run.pipeline_s).flatten(),
        predicted_s: middle(runs, |run| run.predicted_s).flatten(),
    }
}

/// Those of `queries` that have these names, or all if there are no names. Case does not matter.
///
/// # Errors
/// [`Failure::UnknownQuery`].
pub(crate) fn choose(queries: &[Query], names: &[String]) -> Result<Vec<Query>> {
    let is_known = |name: &&String| {
        let mut known = queries.iter();
        known.any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Err(Failure::UnknownQuery {
            name: unknown.clone(),
            known: queries.iter().map(|(name, _)| *name).collect(),
        });
    }
    let chosen = |name: &str| names.iter().any(|want| want.eq_ignore_ascii_case(name));
    let queries = queries.iter().copied();
    Ok(queries
        .filter(|(name, _)| names.is_empty() || chosen(name))
        .collect())
}

/// The tables that the database lacks.
///
/// # Errors
/// [`Failure::OtherScale`] if it holds one of another scale.
fn missing_tables<D: Dataset>(database: &Database, dataset: &D) -> Result<Vec<D::Table>> {
    let present = database.tables();
    let mut missing = Vec::new();
    for table in dataset.tables() {
        let name = table.to_string();
        let Some(summary) = present.iter().find(|summary| summary.name == name) else {
            missing.push(*table);
            continue;
        };
        let expected = dataset.row_count(*table);
        if summary.damage.is_none() && summary.row_count != expected {
            return Err(Failure::OtherScale {
                table: name,
                scale: dataset.scale(),
                expected,
                found: summary.row_count,
            });
        }
    }
    Ok(missing)
}

/// Makes the Parquet files of a folder known to the session under the tables' names.
///
/// # Errors
/// Those of the engine, if a file is missing or is not Parquet.
pub(crate) async fn use_parquet<D: Dataset>(
    session: &Session,
    dataset: &D,
    folder: &Path,
) -> Result<()> {
    for table in dataset.tables() {
        let path = folder.join(format!("{table}.parquet"));
        let path = path.to_string_lossy().replace('\'', "''");
        let sql = format!("CREATE EXTERNAL TABLE \"{table}\" STORED AS PARQUET LOCATION '{path}'");
        session.sql(&sql).await?;
    }
    Ok(())
}

/// Runs the queries one after the other, all of them `run_count` times; one row of runs for each query.
/// `done` is called after each run.
///
/// # Errors
/// That of the first query that fails.
pub(crate) async fn run_queries(
    session: &Session,
    queries: &[Query],
    run_count: usize,
    mut done: impl FnMut(&str, Measurement),
) -> Result<Vec<Vec<Measurement>>> {
    let mut runs = vec![Vec::with_capacity(run_count); queries.len()];
    for _ in 0..run_count {
        for (query, runs) in queries.iter().zip(&mut runs) {
            let measurement = measure(session, *query).await?;
            done(query.0, measurement);
            runs.push(measurement);
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotshelf_datagen::ssb::queries;

    #[test]
    fn the_median_is_taken_of_each_number_by_itself() {
        let run = |seconds, bytes_storage| Measurement {
            seconds,
            bytes_storage,
            ..Measurement::default()
        };
        let runs = [run(3.0, 10), run(1.0, 30), run(2.0, 20)];
        assert_eq!(median(&runs), run(2.0, 20));
        assert_eq!(median(&[]), Measurement::default());
    }

    #[test]
    fn queries_are_chosen_by_name_in_the_benchmarks_order() {
        let choose = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            super::choose(queries(), &names)
        };
        let chosen = choose(&["q4.1", "Q2.1"]).unwrap();
        let names: Vec<&str> = chosen.iter().map(|query| query.0).collect();
        assert_eq!(names, ["Q2.1", "Q4.1"]);
        assert_eq!(choose(&[]).unwrap().len(), 13);
        let error = choose(&["Q9.9"]).unwrap_err().to_string();
        assert!(error.contains("Q9.9") && error.contains("Q4.3"), "{error}");
    }
}
