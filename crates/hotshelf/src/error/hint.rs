//! What a user can do about an error.

use std::io::ErrorKind;

use datafusion::error::DataFusionError;
use hotshelf_operators::OperatorError;
use hotshelf_tier::Corruption;

use super::Error;

/// What follows the type of a column that has no NULLs.
pub(crate) const NOT_NULL: &str = " NOT NULL";
/// A value that VALUES of an INSERT may not have.
pub(crate) const DEFAULT_VALUE: &str = "DEFAULT as a value";

impl Error {
    /// A sentence that says what to do about it, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownTable {
                nearest: Some(name),
                ..
            }
            | Self::UnknownColumn {
                nearest: Some(name),
                ..
            }
            | Self::UnknownIndex {
                nearest: Some(name),
                ..
            }
            | Self::UnknownSetting {
                nearest: Some(name),
                ..
            } => Some(format!("did you mean '{name}'?")),
            Self::OtherKind { name, found, .. } => {
                let kind = found.rsplit(' ').next().unwrap_or(found).to_uppercase();
                Some(format!("DROP {kind} {name} first, or choose another name"))
            }
            Self::UnknownSchema { name } => Some(format!(
                "CREATE SCHEMA {name} makes it; tables without a schema's name are in `public`"
            )),
            Self::Io { source, .. } => io_hint(source).map(str::to_owned),
            Self::Store(error) => error.hint(),
            Self::Tier(error) => error.hint(),
            Self::Operator(error) | Self::NoRoomToSpill { error, .. } => {
                operator_hint(error).map(str::to_owned)
            }
            other => fixed_hint(other).map(str::to_owned),
        }
    }
}

/// The hints that name nothing of the statement.
fn fixed_hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::UnknownTable { .. } => "SHOW TABLES lists what there is",
        Error::UnknownIndex { .. } => "SELECT * FROM hotshelf_indexes() lists what there is",
        Error::UnknownSetting { .. } => {
            "SHOW ALL lists the settings; the names of Hotshelf's begin with 'hotshelf.'"
        }
        Error::MeasuredSetting { .. } => {
            "`hotshelf probe --db DIR` measures, `--no-profile` opens a database without what was measured"
        }
        Error::IndexExists { .. } => "drop it first, say IF NOT EXISTS, or choose another name",
        Error::NotIndexable { .. } => {
            "leave the column out; numbers, dates, times, booleans, strings and binaries can be indexed"
        }
        Error::TableExists { .. } => {
            "drop it first, append to it with INSERT INTO or `import --append`, or choose another name"
        }
        Error::ViewExists { .. } => "CREATE OR REPLACE VIEW replaces it",
        Error::SchemaExists { .. } => "CREATE SCHEMA IF NOT EXISTS leaves it as it is",
        Error::SchemaInUse { .. } => {
            "DROP SCHEMA … CASCADE drops its tables and views, too; `public` always stays"
        }
        Error::BudgetTooSmall { .. } => "raise the budget (`--budget`, SET hotshelf.budget)",
        Error::Corruption(found) => corruption_hint(found),
        Error::NoInput { .. } => "check the path; quote a glob so that the shell leaves it alone",
        Error::BadTarget { .. } => {
            "name a file or folder that can be made; the name of a folder ends in '/'"
        }
        Error::InputTooLarge { .. } => {
            "raise the budget (`--budget`, SET hotshelf.budget), or write the file again in smaller pieces"
        }
        Error::Misfit { data_type, .. } if data_type.ends_with(NOT_NULL) => {
            "give the column a value in every row: the table was made with NOT NULL"
        }
        Error::Misfit { .. } => {
            "round or cast it yourself, with `--schema` or INSERT INTO … SELECT, or choose a wider type for the column"
        }
        Error::NotSupported { what } if what == DEFAULT_VALUE => {
            "leave the column out of the INSERT's list of columns, or give it NULL"
        }
        Error::SchemaMismatch { .. } => {
            "give the column types with `--schema`, or select and cast the columns with INSERT INTO … SELECT"
        }
        Error::Panic { .. } => {
            "this is a bug of Hotshelf: please report it with the statement; other statements continue"
        }
        Error::TooDeep {
            what: "expression", ..
        } => {
            "join long chains with IN (…), concat(…) or a table of values, or compute parts in a subquery"
        }
        Error::TooDeep { .. } => "store intermediate results with CREATE TABLE … AS",
        Error::TooWide { .. } => {
            "store intermediate results with CREATE TABLE … AS, or split the statement"
        }
        Error::TooLarge { .. } => {
            "make shorter values, or raise the budget (`--budget`, SET hotshelf.budget)"
        }
        Error::Query(error) => return query_hint(error),
        _ => return None,
    })
}

/// What to do about damage depends on what is damaged: only data files cannot be made again.
fn corruption_hint(found: &Corruption) -> &'static str {
    let ends = |ending: &str| found.file.to_string_lossy().ends_with(ending);
    if ends(".spill") {
        "rows that a query had written to disk came back with other bytes: run it again, and look at the device"
    } else if ends(".elf") {
        "OPTIMIZE TABLE builds damaged index files again; until then the table is scanned"
    } else if ends("catalog.sqlite") {
        "`hotshelf repair --db DIR` makes the catalog again from the data files"
    } else {
        "`hotshelf verify --db DIR` names every damaged file; put those back from a copy, or import again the tables \
         whose data they hold"
    }
}

fn operator_hint(error: &OperatorError) -> Option<&'static str> {
    match error {
        OperatorError::DiskFull { .. } => {
            Some("free some space, spill to another disk (`--spill`), or raise the budget")
        }
        OperatorError::SpillLimit { .. } => Some(
            "free some space, spill to another disk (`--spill`), raise Options::spill_bytes_max, or the budget \
                 (`--budget`, SET hotshelf.budget)",
        ),
        OperatorError::Spill { source, .. } => io_hint(source),
        _ => None,
    }
}

fn io_hint(error: &std::io::Error) -> Option<&'static str> {
    if hotshelf_tier::is_out_of_descriptors(error) {
        return Some(
            "raise the number of files that a process may open (`ulimit -n`); nothing is damaged",
        );
    }
    match error.kind() {
        ErrorKind::StorageFull => Some("the disk is full: free some space; nothing was changed"),
        ErrorKind::NotConnected => Some(
            "connect or mount what the shelf is on; nothing is damaged, and the next statement finds it",
        ),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some("the folder must be writable")
        }
        _ => None,
    }
}

fn query_hint(error: &DataFusionError) -> Option<&'static str> {
    super::is_shortage(error).then_some(
        "the operators need more memory: raise the budget (`--budget`, SET hotshelf.budget)",
    )
}
