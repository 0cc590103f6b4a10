//! Tables of a random database: types, values, columns, and the indexes on them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A column's SQL type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Boolean,
    Int { bits: u8, signed: bool },
    Real,
    Double,
    Decimal { precision: u8, scale: u8 },
    Text,
    Date,
    Timestamp,
}

/// Types that can be compared with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Boolean,
    Int,
    Float,
    Decimal,
    Text,
    Date,
    Timestamp,
}

/// The 64-bit integer that arithmetic uses.
pub const BIGINT: Type = Type::Int {
    bits: 64,
    signed: true,
};

impl Type {
    pub fn kind(self) -> Kind {
        match self {
            Self::Boolean => Kind::Boolean,
            Self::Int { .. } => Kind::Int,
            Self::Real | Self::Double => Kind::Float,
            Self::Decimal { .. } => Kind::Decimal,
            Self::Text => Kind::Text,
            Self::Date => Kind::Date,
            Self::Timestamp => Kind::Timestamp,
        }
    }

    /// Smallest and largest value of an integer type.
    pub fn int_range(self) -> (i128, i128) {
        match self {
            Self::Int { bits, signed: true } => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            Self::Int { bits, .. } => (0, (1i128 << bits) - 1),
            _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
        }
    }

    /// The type's name in an engine's SQL.
    pub fn sql(self, dialect: Dialect) -> String {
        match (self, dialect) {
            (Self::Boolean, _) => "BOOLEAN".into(),
            (Self::Int { bits, signed }, _) if signed => int_name(bits).into(),
            (Self::Int { bits, .. }, Dialect::Hotshelf) => format!("{} UNSIGNED", int_name(bits)),
            (Self::Int { bits: 32, .. }, Dialect::Duckdb) => "UINTEGER".into(),
            (Self::Int { bits, .. }, Dialect::Duckdb) => format!("U{}", int_name(bits)),
            (Self::Real, _) => "REAL".into(),
            (Self::Double, _) => "DOUBLE".into(),
            (Self::Decimal { precision, scale }, _) => format!("DECIMAL({precision}, {scale})"),
            (Self::Text, _) => "VARCHAR".into(),
            (Self::Date, _) => "DATE".into(),
            (Self::Timestamp, _) => "TIMESTAMP".into(),
        }
    }
}

fn int_name(bits: u8) -> &'static str {
    match bits {
        8 => "TINYINT",
        16 => "SMALLINT",
        32 => "INT",
        _ => "BIGINT",
    }
}

/// Whose SQL is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Hotshelf,
    Duckdb,
}

/// A value of a table or a literal.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i128),
    /// Unscaled; the type has the scale.
    Decimal(i128),
    Float(f64),
    Text(String),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since 1970.
    Timestamp(i64),
}

impl Value {
    /// How large the number is, without its sign; 0 for what is not a number.
    fn magnitude(&self, ty: Type) -> f64 {
        match (self, ty) {
            (Self::Int(value), _) => value.unsigned_abs() as f64,
            (Self::Decimal(value), Type::Decimal { scale, .. }) => {
                value.unsigned_abs() as f64 / 10f64.powi(i32::from(scale))
            }
            (Self::Float(value), _) if value.is_nan() => f64::INFINITY,
            (Self::Float(value), _) => value.abs(),
            _ => 0.0,
        }
    }
}

/// A column with its values. Cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub ty: Type,
    pub values: Arc<Vec<Value>>,
    facts: OnceLock<Arc<Facts>>,
}

impl Column {
    pub fn new(name: &str, ty: Type, values: Vec<Value>) -> Self {
        Self {
            name: name.to_owned(),
            ty,
            values: Arc::new(values),
            facts: OnceLock::new(),
        }
    }

    /// What queries need to know about the column; found out once.
    pub fn facts(&self) -> Arc<Facts> {
        self.facts
            .get_or_init(|| Arc::new(Facts::of(&self.values, self.ty)))
            .clone()
    }
}

/// Values of a column that literals are drawn from.
const SAMPLES: usize = 64;

/// What queries need to know about a column's values.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The largest magnitude of a number.
    pub bound: f64,
    /// How often the most frequent value occurs.
    pub frequency_max: usize,
    /// No value twice and no NULL.
    pub is_unique: bool,
    pub samples: Vec<Value>,
}

impl Facts {
    pub fn of(values: &[Value], ty: Type) -> Self {
        let mut frequencies: HashMap<String, usize> = HashMap::new();
        let mut bound: f64 = 0.0;
        for value in values.iter().filter(|value| **value != Value::Null) {
            *frequencies.entry(format!("{value:?}")).or_default() += 1;
            bound = bound.max(value.magnitude(ty));
        }
        let step = (values.len() / SAMPLES).max(1);
        let samples = values.iter().step_by(step);
        Self {
            bound,
            frequency_max: frequencies.values().copied().max().unwrap_or(0),
            is_unique: frequencies.len() == values.len(),
            samples: samples
                .filter(|value| **value != Value::Null)
                .cloned()
                .collect(),
        }
    }
}

/// An Elf index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    pub name: String,
    pub columns: Vec<String>,
    pub is_clustered: bool,
}

/// A table with its rows and how they are stored.
#[derive(Debug, Clone)]
pub struct Table {
    pub name: String,
    pub columns: Vec<Column>,
    /// Rows of each data file, in order; they add up to the table's rows.
    pub files: Vec<usize>,
    pub indexes: Vec<Index>,
}

impl Table {
    pub fn row_count(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// The table with the rows for which `keep` holds, in as many files as have any.
    pub fn with_rows(&self, keep: impl Fn(usize) -> bool) -> Self {
        let mut result = self.clone();
        for column in &mut result.columns {
            let values = column.values.iter().enumerate();
            let kept = values.filter(|(row_idx, _)| keep(*row_idx));
            let kept = kept.map(|(_, value)| value.clone()).collect();
            *column = Column::new(&column.name, column.ty, kept);
        }
        let mut start = 0;
        for file in &mut result.files {
            let end = start + *file;
            *file = (start..end).filter(|row_idx| keep(*row_idx)).count();
            start = end;
        }
        result.files.retain(|rows| *rows > 0);
        result
    }
}

/// A random database.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub tables: Vec<Table>,
}

impl World {
    pub fn row_count(&self) -> usize {
        self.tables.iter().map(Table::row_count).sum()
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in &self.tables {
            let columns = table.columns.iter();
            let columns: Vec<String> = columns
                .map(|column| format!("{} {}", column.name, column.ty.sql(Dialect::Hotshelf)))
                .collect();
            writeln!(
                f,
                "-- {}: {} rows in {} files ({})",
                table.name,
                table.row_count(),
                table.files.len(),
                columns.join(", ")
            )?;
        }
        Ok(())
    }
}
