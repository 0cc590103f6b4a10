//! The Star Schema Benchmark as an experiment: its tables in a database, its queries repeated.

use std::path::Path;

use hotshelf::{Database, Session};

use super::{ExperimentError, Measurement, Query, measure};
use hotshelf_datagen::Dataset;
use hotshelf_datagen::ssb::{SsbGenerator, SsbTable, queries};

/// The queries of these names in the benchmark's order, or all if there are no names. Case does not matter.
///
/// # Errors
/// [`ExperimentError::UnknownQuery`].
pub fn choose(names: &[String]) -> Result<Vec<Query>, ExperimentError> {
    let is_known = |name: &&String| {
        queries()
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
    };
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Err(ExperimentError::UnknownQuery {
            name: unknown.clone(),
            known: queries().iter().map(|(name, _)| *name).collect(),
        });
    }
    let chosen = |name: &str| names.iter().any(|want| want.eq_ignore_ascii_case(name));
    Ok(queries()
        .iter()
        .filter(|(name, _)| names.is_empty() || chosen(name))
        .copied()
        .collect())
}

/// The tables that the database lacks.
///
/// # Errors
/// [`ExperimentError::OtherScale`] if it holds one of another scale.
pub fn missing_tables(
    database: &Database,
    dataset: &SsbGenerator,
) -> Result<Vec<SsbTable>, ExperimentError> {
    let present = database.tables();
    let mut missing = Vec::new();
    for table in SsbTable::ALL {
        let Some(summary) = present.iter().find(|summary| summary.name == table.name()) else {
            missing.push(table);
            continue;
        };
        let expected = dataset.row_count(table);
        if summary.damage.is_none() && summary.row_count != expected {
            return Err(ExperimentError::OtherScale {
                table: summary.name.clone(),
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
/// Those of the engine, if a file is missing or is no Parquet file.
pub async fn use_parquet(session: &Session, folder: &Path) -> Result<(), ExperimentError> {
    for table in SsbTable::ALL {
        let path = folder.join(format!("{table}.parquet"));
        let path = path.to_string_lossy().replace('\'', "''");
        let sql = format!("CREATE EXTERNAL TABLE \"{table}\" STORED AS PARQUET LOCATION '{path}'");
        session.sql(&sql).await?;
    }
    Ok(())
}

/// Runs the queries one after the other, all of them `run_count` times; one row of runs for each query.
/// `done` hears of each run.
///
/// # Errors
/// That of the first query that fails.
pub async fn run_queries(
    session: &Session,
    queries: &[Query],
    run_count: usize,
    mut done: impl FnMut(&str, Measurement),
) -> Result<Vec<Vec<Measurement>>, ExperimentError> {
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

    #[test]
    fn queries_are_chosen_by_name_in_the_benchmarks_order() {
        let names = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let chosen = choose(&names(&["q4.1", "Q2.1"])).unwrap();
        assert_eq!(
            chosen.iter().map(|query| query.0).collect::<Vec<_>>(),
            ["Q2.1", "Q4.1"]
        );
        assert_eq!(choose(&[]).unwrap().len(), 13);
        let error = choose(&names(&["Q9.9"])).unwrap_err().to_string();
        assert!(error.contains("Q9.9") && error.contains("Q4.3"), "{error}");
    }
}
