//! What queries showed about joins and columns, from one process to the next.
//!
//! It is read when a database is opened and written when it is closed; a crash costs what was learned since. Of tables
//! that have been replaced, or have grown much since, it does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hotshelf_store::learned::{read, write};
use serde::{Deserialize, Serialize};

use crate::past_runs::{Correction, PastRuns, Shown};
use crate::storage::Storage;
use crate::table::Table;

/// What queries showed counts while each table that they read has at most this many times the rows that it had, and the
/// other way round.
const ROWS_FACTOR: u64 = 2;
/// Templates are numbered by hashes of plans, which another version of the program may write in another way.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Learned {
    program: String,
    /// By template.
    queries: BTreeMap<u64, Query>,
    combinations: Vec<Combinations>,
}

#[derive(PartialEq, Serialize, Deserialize)]
struct Query {
    /// What is joined, and by how much its rows differ from what statistics say.
    joins: Vec<(Vec<u64>, f64)>,
    no_stars: BTreeSet<String>,
    /// Folders of the tables that were read, and the rows that these had.
    tables: BTreeMap<String, u64>,
}

/// How many combinations of values columns of a table have, by their numbers, and the rows that it had.
#[derive(PartialEq, Serialize, Deserialize)]
struct Combinations {
    table: String,
    columns: Vec<usize>,
    count: f64,
    rows: u64,
}

/// What earlier processes have kept of tables, which get it here, and of joins.
pub(crate) fn recall(storage: &Storage) -> PastRuns {
    let learned = stored(storage);
    let tables = by_folder(storage);
    for known in learned.combinations {
        if let Some(table) = tables.get(&known.table) {
            let counted = (known.count, known.rows);
            let own = &table.combinations;
            own.recall(&known.columns, counted, table.row_count());
        }
    }
    let queries = learned.queries.into_iter();
    let shown = queries.map(|(template, query)| (template, query.into()));
    PastRuns::with(shown.filter(|(_, shown)| holds(shown, &tables)))
}

fn stored(storage: &Storage) -> Learned {
    let Some(content) = read(&storage.store) else {
        return Learned::default();
    };
    let learned = serde_json::from_slice(&content).unwrap_or_else(|error| {
        tracing::warn!(%error, "what queries showed before is not used");
        Learned::default()
    });
    match learned.program == PROGRAM {
        true => learned,
        false => Learned::default(),
    }
}

/// Keeps it for later ones. Nothing else fails where that does.
pub(crate) fn keep(storage: &Storage, past_runs: &PastRuns) {
    let tables = by_folder(storage);
    let shown = past_runs.shown().into_iter();
    let queries = shown.filter(|(_, shown)| holds(shown, &tables));
    let combinations = tables.values().flat_map(|table| {
        let counted = table.combinations.all().into_iter();
        counted.map(|(columns, (count, rows))| Combinations {
            table: table.folder.clone(),
            columns,
            count,
            rows,
        })
    });
    let learned = Learned {
        program: PROGRAM.to_owned(),
        queries: queries
            .map(|(template, shown)| (template, shown.into()))
            .collect(),
        combinations: combinations.collect(),
    };
    let is_empty = learned.queries.is_empty() && learned.combinations.is_empty();
    if is_empty && stored(storage) == Learned::default() {
        return;
    }
    let kept = match serde_json::to_vec(&learned) {
        Ok(content) => write(&storage.store, &content).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = kept {
        tracing::warn!(error, "what queries showed is not kept");
    }
}

fn by_folder(storage: &Storage) -> BTreeMap<String, Arc<Table>> {
    let tables = storage.all_tables().into_iter();
    tables.map(|table| (table.folder.clone(), table)).collect()
}

/// Whether the tables that a query read are still about the same. Of a query that did not end, they are not known.
fn holds(shown: &Shown, tables: &BTreeMap<String, Arc<Table>>) -> bool {
    let is_alike = |(folder, before): (&String, &u64)| {
        let now = tables.get(folder).map(|table| table.row_count());
        now.is_some_and(|now| now.max(*before) <= now.min(*before).saturating_mul(ROWS_FACTOR))
    };
    !shown.tables.is_empty() && shown.tables.iter().all(is_alike)
}

impl From<Query> for Shown {
    fn from(query: Query) -> Self {
        let joins = query.joins.into_iter();
        let corrections = joins.map(|(joined, factor)| Correction::new(joined.into(), factor));
        Self {
            corrections: corrections.collect(),
            no_stars: query.no_stars,
            tables: query.tables,
        }
    }
}

impl From<Shown> for Query {
    fn from(shown: Shown) -> Self {
        let joins = shown.corrections.into_iter();
        Self {
            joins: joins
                .map(|known| (known.joined.to_vec(), known.factor))
                .collect(),
            no_stars: shown.no_stars,
            tables: shown.tables,
        }
    }
}
