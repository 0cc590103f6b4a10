//! A database as commands have it: it leaves nothing behind, however the program ends.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use hotshelf::{Database, Options, Session};

use crate::failure::{Result, note};
use crate::interrupt::{self, AtSignal, Held};

/// An open database. Closing it does not wait for what Ctrl-C has stopped.
pub struct Opened {
    database: Database,
    /// The folder that opening made.
    made: Option<PathBuf>,
    is_temporary: bool,
    _at_signal: AtSignal,
}

impl Opened {
    /// Opens the database in a folder, or a temporary one.
    pub fn open(folder: Option<&Path>, options: Options) -> Result<Self> {
        let _held = Held::hold();
        let made = folder.filter(|folder| !folder.exists());
        let made = made.map(Path::to_owned);
        let database = match folder {
            Some(folder) => Database::open(folder, options)?,
            None => Database::temporary(options)?,
        };
        let (of_signal, made_by_us) = (database.clone(), made.clone());
        let at_signal = AtSignal::new(move |patience| {
            of_signal.shut_down(patience);
            remove_if_empty(&of_signal, made_by_us.as_deref());
        });
        Ok(Self {
            database,
            made,
            is_temporary: folder.is_none(),
            _at_signal: at_signal,
        })
    }
}

impl Opened {
    /// A session for people: plans are shown as trees.
    pub fn reading_session(&self) -> Result<Session> {
        let session = self.database.session();
        session.query("SET datafusion.explain.format = 'tree'")?;
        Ok(session)
    }

    /// Says what goes with a temporary database, if it has tables.
    pub fn tell_discarded(&self) {
        let tables = match self.database.table_names().len() {
            count if !self.is_temporary || count == 0 => return,
            1 => "1 table".to_owned(),
            count => format!("{count} tables"),
        };
        note(&format!(
            "temporary database: {tables} discarded; --db DIR keeps them"
        ));
    }

    /// Whether it is removed when the program ends.
    pub fn is_temporary(&self) -> bool {
        self.is_temporary
    }
}

impl Deref for Opened {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.database
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        interrupt::wait_if_ending();
        if interrupt::has_stopped_work() {
            self.database.shut_down(interrupt::PATIENCE);
        }
        if remove_if_empty(&self.database, self.made.as_deref()) {
            note(&format!(
                "{} was made for this call and has no tables, so it is removed",
                self.database.folder().display()
            ));
        }
    }
}

/// Removes a database that was made by the way: a mistyped name is not to leave one behind.
fn remove_if_empty(database: &Database, made: Option<&Path>) -> bool {
    made.is_some_and(|folder| {
        database.table_names().is_empty() && std::fs::remove_dir_all(folder).is_ok()
    })
}
