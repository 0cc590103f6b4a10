//! Where the segments of a table's files are read from, as the user chose it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use arrow::datatypes::Schema;

use crate::root::Root;
use crate::shelf::Shelf;

/// Where the segments of a table's files are read from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// The shelf.
    pub shelf: Shelf,
    /// The columns whose segments are there; none means all of the file.
    pub columns: Vec<String>,
}

/// A text that is not a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is neither a shelf nor a shelf and columns")]
pub struct UnknownPlacement;

impl Placement {
    /// Whether the files themselves are read.
    pub fn is_file(&self) -> bool {
        self.shelf == Shelf::File
    }

    /// The folder that the table's files are moved to, if they are.
    pub fn folder(&self) -> Option<&Path> {
        self.shelf.folder().filter(|_| self.columns.is_empty())
    }

    /// The folder on the shelf that the files of a table's folder are in, if they are moved.
    pub fn files_in(&self, root: &Root, table_folder: &str) -> Option<PathBuf> {
        Some(root.on_shelf(self.folder()?)?.join(table_folder))
    }

    /// Whether copies of the files, or of some columns, are on the shelf, and the files stay.
    pub fn is_copied(&self) -> bool {
        !self.is_file() && self.folder().is_none()
    }

    /// The numbers of the columns that are on the shelf; `None` if everything is.
    pub(crate) fn column_idxs(&self, schema: &Schema) -> Option<Vec<usize>> {
        if self.columns.is_empty() {
            return None;
        }
        let named = |name: &String| schema.index_of(name).ok();
        Some(self.columns.iter().filter_map(named).collect())
    }
}

/// As the catalog keeps it: the shelf, and in a second line the names of the columns as a JSON list, empty if all are
/// meant.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = serde_json::to_string(&self.columns).map_err(|_| fmt::Error)?;
        write!(f, "{}\n{names}", self.shelf)
    }
}

impl FromStr for Placement {
    type Err = UnknownPlacement;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A folder's name may have line breaks; the list has none. The first databases had no list for all columns.
        let (shelf, names) = text.rsplit_once('\n').unwrap_or((text, "[]"));
        let shelf: Shelf = shelf.parse().map_err(|_| UnknownPlacement)?;
        let columns: Vec<String> = serde_json::from_str(names).map_err(|_| UnknownPlacement)?;
        match shelf.folder().is_none_or(Path::is_absolute) {
            true => Ok(Self { shelf, columns }),
            false => Err(UnknownPlacement),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_read_as_it_was_written() {
        let columns = vec!["lo_a".to_owned(), "two\nlines \"b\"".to_owned()];
        for shelf in [
            Shelf::File,
            Shelf::Dram,
            Shelf::Node(3),
            Shelf::Emulated("cxl".into()),
            Shelf::Dax("/a folder\nwith\n[\"lines\"]/b".into()),
            Shelf::Folder("/a\n[\"id\"]".into()),
        ] {
            for columns in [Vec::new(), columns.clone()] {
                let shelf = shelf.clone();
                let placement = Placement { shelf, columns };
                assert_eq!(placement.to_string().parse(), Ok(placement));
            }
        }
        let placed = "dram".parse::<Placement>().unwrap();
        assert_eq!((placed.shelf, placed.columns.len()), (Shelf::Dram, 0));
        for wrong in [
            "",
            "tape\n[]",
            "dram\n",
            "dram\n[\"a\"",
            "node:x\n[\"a\"]",
            "file:relative\n[]",
        ] {
            assert_eq!(wrong.parse::<Placement>(), Err(UnknownPlacement), "{wrong}");
        }
    }
}
