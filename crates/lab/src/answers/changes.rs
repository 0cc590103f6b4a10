//! Random changes between queries: of rows, which the oracle makes too, and of the layout, which only we have.

use fastrand::Rng;

use crate::answers::data::pick;
use crate::answers::query::{Expr, Generator, Query};
use crate::answers::render;
use crate::answers::schema::{BIGINT, Column, Dialect, Index, Table, Type, World};

/// A change of one table.
#[derive(Debug, Clone)]
pub struct Change {
    /// In our SQL.
    pub statements: Vec<String>,
    /// In the oracle's; nothing if only the layout changes.
    pub for_oracle: Vec<String>,
    pub table: String,
    /// What happens to the table's description; its rows are read afterwards.
    pub effect: Effect,
}

#[derive(Debug, Clone)]
pub enum Effect {
    /// Rows are added.
    Grows,
    /// The table is there, or another one of its name, with these columns.
    Made(Vec<(String, Type)>, Option<Index>),
    Gone,
    Indexed(Index),
    Unindexed(String),
    Merged,
}

/// Most rows that INSERT … SELECT may double.
const ROWS_MAX: usize = 20_000;
const TABLES_MAX: usize = 7;

/// A random change of a database.
pub fn any(rng: &mut Rng, world: &World, number: u64) -> Option<Change> {
    match rng.u8(0..100) {
        0..60 => layout(rng, world, number),
        60..75 => insert(rng, world),
        75..95 => create_as(rng, world, number),
        _ => drop_table(rng, world),
    }
}

/// A random change that leaves rows as they are.
pub fn layout(rng: &mut Rng, world: &World, number: u64) -> Option<Change> {
    let table = pick_table(rng, world)?;
    let name = table.name.clone();
    let change = |statement: String, effect| Change {
        statements: vec![statement],
        for_oracle: Vec::new(),
        table: name.clone(),
        effect,
    };
    Some(match rng.u8(0..10) {
        0..2 => change(format!("OPTIMIZE TABLE {name}"), Effect::Merged),
        2..4 if !table.indexes.is_empty() => {
            let index = pick(rng, &table.indexes).name.clone();
            change(format!("DROP INDEX {index}"), Effect::Unindexed(index))
        }
        _ => {
            let index = index(rng, table, number);
            let probe = Table {
                indexes: vec![index.clone()],
                ..table.clone()
            };
            let statement = render::create_indexes(&probe).pop()?;
            change(statement, Effect::Indexed(index))
        }
    })
}

fn index(rng: &mut Rng, table: &Table, number: u64) -> Index {
    let mut columns: Vec<String> = table
        .columns
        .iter()
        .map(|column| column.name.clone())
        .collect();
    rng.shuffle(&mut columns);
    columns.truncate(rng.usize(1..=columns.len().min(5)));
    let has_clustered = table.indexes.iter().any(|index| index.is_clustered);
    Index {
        name: format!("i{number}"),
        columns,
        is_clustered: !has_clustered && rng.u8(0..4) == 0,
    }
}

fn pick_table<'a>(rng: &mut Rng, world: &'a World) -> Option<&'a Table> {
    (!world.tables.is_empty()).then(|| pick(rng, &world.tables))
}

/// Rows of the table itself, or of another one with columns of the same types.
fn insert(rng: &mut Rng, world: &World) -> Option<Change> {
    let table = pick_table(rng, world)?;
    if table.row_count() > ROWS_MAX {
        return None;
    }
    let columns = table.columns.iter().map(|column| column.name.as_str());
    let columns: Vec<&str> = columns.collect();
    let filter = filter(rng, world, &table.name);
    let statement = |dialect| {
        let filter = filter
            .as_ref()
            .map(|expr| format!(" WHERE {}", render::expression(expr, dialect)));
        format!(
            "INSERT INTO {} SELECT {} FROM {} AS r1{}",
            table.name,
            columns.join(", "),
            table.name,
            filter.unwrap_or_default()
        )
    };
    Some(Change {
        statements: vec![statement(Dialect::Hotshelf)],
        for_oracle: vec![statement(Dialect::Duckdb)],
        table: table.name.clone(),
        effect: Effect::Grows,
    })
}

fn filter(rng: &mut Rng, world: &World, table: &str) -> Option<Expr> {
    let only = World {
        tables: world
            .tables
            .iter()
            .filter(|other| other.name == table)
            .cloned()
            .collect(),
    };
    Generator::new(rng, &only, crate::answers::query::Taste::default())
        .map(|mut generator| generator.condition())
}

/// CREATE TABLE AS and CREATE OR REPLACE TABLE: rows of one table, or groups of it.
fn create_as(rng: &mut Rng, world: &World, number: u64) -> Option<Change> {
    let source = pick_table(rng, world)?;
    let replaced = world
        .tables
        .iter()
        .filter(|other| other.name != source.name);
    let replaced: Vec<&str> = replaced.map(|other| other.name.as_str()).collect();
    let replaces = !replaced.is_empty() && (world.tables.len() >= TABLES_MAX || rng.bool());
    let mut columns: Vec<&Column> = source.columns.iter().collect();
    columns.retain(|column| column.name != COUNT);
    rng.shuffle(&mut columns);
    columns.truncate(rng.usize(1..=columns.len().max(1)));
    let first = columns.first()?;
    let made = CreateAs {
        verb: if replaces {
            "CREATE OR REPLACE TABLE"
        } else {
            "CREATE TABLE"
        },
        name: if replaces {
            (*pick(rng, &replaced)).to_owned()
        } else {
            format!("n{number}")
        },
        source: &source.name,
        cluster_by: (rng.u8(0..5) == 0).then_some(first.name.as_str()),
        is_grouped: rng.u8(0..3) == 0,
        filter: if rng.bool() {
            filter(rng, world, &source.name)
        } else {
            None
        },
        columns,
    };
    Some(Change {
        statements: vec![made.statement(Dialect::Hotshelf)],
        for_oracle: vec![made.statement(Dialect::Duckdb)],
        effect: Effect::Made(made.made_columns(), made.index()),
        table: made.name,
    })
}

/// Column with the number of rows of each group.
const COUNT: &str = "how_many";

struct CreateAs<'a> {
    verb: &'static str,
    name: String,
    source: &'a str,
    columns: Vec<&'a Column>,
    cluster_by: Option<&'a str>,
    is_grouped: bool,
    filter: Option<Expr>,
}

impl CreateAs<'_> {
    fn statement(&self, dialect: Dialect) -> String {
        let names: Vec<&str> = self
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        let names = names.join(", ");
        let filter = self.filter.as_ref();
        let filter = filter.map(|expr| format!(" WHERE {}", render::expression(expr, dialect)));
        let cluster = self.cluster_by.filter(|_| dialect == Dialect::Hotshelf);
        let cluster = cluster.map(|column| format!(" CLUSTER BY elf ({column})"));
        let (count, group) = match self.is_grouped {
            true => (
                format!(", count(*) AS {COUNT}"),
                format!(" GROUP BY {names}"),
            ),
            false => (String::new(), String::new()),
        };
        format!(
            "{} {}{} AS SELECT {names}{count} FROM {} AS r1{}{group}",
            self.verb,
            self.name,
            cluster.unwrap_or_default(),
            self.source,
            filter.unwrap_or_default(),
        )
    }

    /// The index that CLUSTER BY makes.
    fn index(&self) -> Option<Index> {
        let column = self.cluster_by?;
        Some(Index {
            name: format!("{}_{column}_elf", self.name),
            columns: vec![column.to_owned()],
            is_clustered: true,
        })
    }

    fn made_columns(&self) -> Vec<(String, Type)> {
        let columns = self
            .columns
            .iter()
            .map(|column| (column.name.clone(), column.ty));
        columns
            .chain(self.is_grouped.then(|| (COUNT.to_owned(), BIGINT)))
            .collect()
    }
}

fn drop_table(rng: &mut Rng, world: &World) -> Option<Change> {
    if world.tables.len() < 2 {
        return None;
    }
    let name = pick_table(rng, world)?.name.clone();
    Some(Change {
        statements: vec![format!("DROP TABLE {name}")],
        for_oracle: vec![format!("DROP TABLE {name}")],
        table: name,
        effect: Effect::Gone,
    })
}

/// All rows of a table.
pub fn contents(table: &str, columns: &[(String, Type)]) -> Query {
    Generator::contents(table, columns)
}
