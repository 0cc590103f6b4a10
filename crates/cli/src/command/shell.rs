//! `hotshelf shell`: type SQL, see the answers.

mod input;

use std::path::{Path, PathBuf};

use hotshelf::{Database, Session};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::tables;
use crate::failure::{Failure, Result, note};
use crate::flags::Engine;
use crate::output::{Format, Output, Target};
use crate::{interrupt, script};
use input::{Input, Line, Meta};

const HELP: &str = "\
A statement ends with ';' and may span lines.
  \\d            list the tables            (.tables)
  \\d NAME       columns of a table         (.schema NAME)
  \\timing       show times or not          (.timer)
  \\format NAME  table, csv, json, ndjson or markdown   (.mode NAME)
  \\help         this                       (.help)
  \\q            leave                      (.quit, Ctrl-D)
Ctrl-C ends a query, or forgets what was typed. SET hotshelf.budget | policy | storage_bandwidth | threads
change settings; SELECT * FROM cache_columns(), io_stats() and others show the inside.";

pub fn run(engine: &Engine) -> Result<()> {
    let database = engine.open()?;
    let mut editor = DefaultEditor::new().map_err(terminal_failure)?;
    let history = history_path();
    if let Some(path) = &history {
        // The first time there is none.
        editor.load_history(path).ok();
    }
    let mut shell = Shell {
        session: database.session(),
        database,
        timing: true,
        format: Format::Table,
    };
    let done = shell.read_and_run(&mut editor);
    if let Some(path) = &history
        && let Err(error) = editor.save_history(path)
    {
        tracing::warn!(path = %path.display(), %error, "cannot save the history");
    }
    done
}

struct Shell {
    database: Database,
    session: Session,
    timing: bool,
    format: Format,
}

impl Shell {
    fn read_and_run(&mut self, editor: &mut DefaultEditor) -> Result<()> {
        let mut input = Input::default();
        loop {
            match editor.readline(input.prompt()) {
                Ok(line) => match input.take(&line) {
                    Line::More => {}
                    Line::Meta(Meta::Quit) => return Ok(()),
                    Line::Meta(meta) => {
                        editor.add_history_entry(line.trim()).ok();
                        go_on(self.obey(meta))?;
                    }
                    Line::Statements(text) => {
                        editor.add_history_entry(text.trim()).ok();
                        go_on(self.answer(&text))?;
                    }
                },
                Err(ReadlineError::Interrupted) => input = Input::default(),
                Err(ReadlineError::Eof) => {
                    let rest = input.rest();
                    return rest.map_or(Ok(()), |text| go_on(self.answer(&text)));
                }
                Err(error) => return Err(terminal_failure(error)),
            }
        }
    }

    fn answer(&self, text: &str) -> Result<()> {
        let mut output = Output::open(Target::Stdout, self.format)?;
        let work = script::run_all(&self.session, text, &mut output, |_, outcome| {
            let seconds = outcome.elapsed.as_secs_f64();
            if self.timing {
                note(&format!("{}, {seconds:.3} s", outcome.summary()));
            } else {
                note(&outcome.summary());
            }
        });
        interrupt::run(&self.database, work)?;
        output.close()
    }

    fn obey(&mut self, meta: Meta) -> Result<()> {
        match meta {
            Meta::Help => note(HELP),
            Meta::Tables => {
                let mut output = Output::open(Target::Stdout, self.format)?;
                output.print(&tables::list(&self.database.tables())?)?;
                output.close()?;
            }
            Meta::Columns(table) => {
                let quoted = table.replace('"', "\"\"");
                self.answer(&format!("DESCRIBE \"{quoted}\""))?;
            }
            Meta::Timing => {
                self.timing = !self.timing;
                note(if self.timing {
                    "timing is on"
                } else {
                    "timing is off"
                });
            }
            Meta::Format(name) => {
                let format = Format::parse(&name)?;
                Target::Stdout.check(format)?;
                self.format = format;
            }
            Meta::Unknown(word) => {
                return Err(Failure::usage(
                    format!("there is no command {word}"),
                    "\\help lists them",
                ));
            }
            Meta::Quit => {}
        }
        Ok(())
    }
}

/// A failure ends the statement, not the shell; unless nobody is there to read on.
fn go_on(done: Result<()>) -> Result<()> {
    match done {
        Err(Failure::BrokenPipe) => Err(Failure::BrokenPipe),
        Err(failure) => {
            failure.print();
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// `HOTSHELF_HISTORY`, or a file in the home folder.
fn history_path() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("HOTSHELF_HISTORY") {
        return Some(path.into());
    }
    std::env::home_dir().map(|home| home.join(".hotshelf_history"))
}

fn terminal_failure(error: ReadlineError) -> Failure {
    let source = match error {
        ReadlineError::Io(source) => source,
        other => std::io::Error::other(other.to_string()),
    };
    Failure::io("read", Path::new("the terminal"))(source)
}
