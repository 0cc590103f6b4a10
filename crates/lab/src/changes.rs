//! Random changes between queries: of rows, which the oracle makes too, and of the layout, which only we have.

use fastrand::Rng;

use crate::data::pick;
use crate::query::{Generator, Query};
use crate::render;
use crate::schema::{BIGINT, Column, Dialect, Index, Table, Type, World};

/// A change of one table.
#[derive(Debug, Clone)]
pub struct Change {
    /// In our SQL.
    pub statements: Vec<String>,
    /// In the oracle's; nothing if only the layout changes.
    pub for_oracle: Vec<String>,
    pub table: String,
    /// What becomes of the table's description; its rows are read afterwards.
    pub effect: Effect,
}

#[derive(Debug, Clone)]
pub enum Effect {
    /// Rows are added.
    Grows,
    /// The table is there, or another one of its name, with these columns.
    Made(Vec<(String, Type)>),
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

fn filter(rng: &mut Rng, world: &World, table: &str) -> Option<crate::query::Expr> {
    let only = World {
        tables: world
            .tables
            .iter()
            .filter(|other| other.name == table)
            .cloned()
            .collect(),
    };
    Generator::new(rng, &only, crate::query::Taste::default())
        .map(|mut generator| generator.condition())
}

/// CREATE TABLE AS and CREATE OR REPLACE TABLE: rows of one table, or groups of it.
fn create_as(rng: &mut Rng, world: &World, number: u64) -> Option<Change> {
    let table = pick_table(rng, world)?;
    let replaced = world.tables.iter().filter(|other| other.name != table.name);
    let replaced: Vec<&str> = replaced.map(|other| other.name.as_str()).collect();
    let is_replaced = !replaced.is_empty() && (world.tables.len() >= TABLES_MAX || rng.bool());
    let name = if is_replaced {
        (*pick(rng, &replaced)).to_owned()
    } else {
        format!("n{number}")
    };
    let mut columns: Vec<&Column> = table.columns.iter().collect();
    rng.shuffle(&mut columns);
    columns.truncate(rng.usize(1..=columns.len()));
    let mut made: Vec<(String, Type)> = columns.iter().map(|c| (c.name.clone(), c.ty)).collect();
    let names = made
        .iter()
        .map(|(name, _)| name.clone())
        .collect::<Vec<_>>()
        .join(", ");
    let filter = if rng.bool() {
        filter(rng, world, &table.name)
    } else {
        None
    };
    let is_grouped = rng.u8(0..3) == 0;
    let is_clustered = rng.u8(0..5) == 0;
    let statement = |dialect| {
        let filter = filter
            .as_ref()
            .map(|expr| format!(" WHERE {}", render::expression(expr, dialect)));
        let filter = filter.unwrap_or_default();
        let cluster = if is_clustered && dialect == Dialect::Hotshelf {
            format!(" CLUSTER BY elf ({})", columns[0].name)
        } else {
            String::new()
        };
        let (count, group) = if is_grouped {
            (", count(*) AS how_many", format!(" GROUP BY {names}"))
        } else {
            ("", String::new())
        };
        let verb = if is_replaced {
            "CREATE OR REPLACE TABLE"
        } else {
            "CREATE TABLE"
        };
        format!(
            "{verb} {name}{cluster} AS SELECT {names}{count} FROM {} AS r1{filter}{group}",
            table.name
        )
    };
    if is_grouped {
        made.push(("how_many".into(), BIGINT));
    }
    let names_once = made.iter().enumerate();
    let mut duplicate =
        names_once.filter(|(idx, (name, _))| made[..*idx].iter().any(|(other, _)| other == name));
    if duplicate.next().is_some() {
        return None;
    }
    Some(Change {
        statements: vec![statement(Dialect::Hotshelf)],
        for_oracle: vec![statement(Dialect::Duckdb)],
        table: name.clone(),
        effect: Effect::Made(made.clone()),
    })
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
