//! `hotshelf shell`: type SQL, see the answers.

mod input;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use hotshelf::Session;
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::tables;
use crate::failure::{Failure, Result, note};
use crate::flags::Engine;
use crate::interrupt::{self, AtSignal};
use crate::opened::Opened;
use crate::output::{Format, Output, Target};
use crate::script;
use input::{Input, Line, Meta};

const HELP: &str = "\
A statement ends with ';' and may span lines.
  \\d            list the tables            (.tables)
  \\d NAME       columns of a table         (.schema NAME)
  \\timing       show times: on, off or the other way round (.timer)
  \\format NAME  table, csv, tsv, json, ndjson or markdown   (.mode NAME)
  \\help         this                       (.help)
  \\q            leave                      (.quit, Ctrl-D)
Ctrl-C ends a query, or forgets what was typed. SET hotshelf.budget | policy | storage_bandwidth | threads
change settings; SELECT * FROM cache_columns(), io_stats() and others show the inside.";

pub fn run(engine: &Engine) -> Result<()> {
    // The editor takes SIGINT for itself, so it comes first and goes last.
    let mut editor = DefaultEditor::new().map_err(terminal_failure)?;
    interrupt::listen()?;
    let database = engine.open()?;
    let history = history_path();
    if let Some(path) = &history {
        // The first time there is none.
        editor.load_history(path).ok();
    }
    let mut shell = Shell {
        session: database.reading_session()?,
        database,
        timing: true,
        format: Format::Table,
        failure_count: 0,
    };
    let terminal = std::io::stdin().is_terminal().then(Terminal::keep);
    if terminal.is_some() {
        interrupt::stay_at_prompt();
        if shell.database.is_temporary() {
            note("temporary database: tables are gone at the end; --db DIR keeps them");
        }
    }
    let done = shell.read_and_run(&mut editor);
    shell.database.tell_discarded();
    if let Some(path) = &history
        && let Err(error) = editor.save_history(path)
    {
        tracing::warn!(path = %path.display(), %error, "cannot save the history");
    }
    done
}

struct Shell {
    database: Opened,
    session: Session,
    timing: bool,
    format: Format,
    failure_count: usize,
}

/// The terminal's modes as they were, given back if a signal ends the program in the middle of a line.
struct Terminal {
    _at_signal: Option<AtSignal>,
}

impl Terminal {
    /// Ends bracketed paste, which the line editor has begun.
    const PASTE_OFF: &str = "\x1b[?2004l";

    fn keep() -> Self {
        let modes = tcgetattr(std::io::stdin()).ok();
        let give_back = |modes: Termios| {
            move |_| {
                tcsetattr(std::io::stdin(), SetArg::TCSANOW, &modes).ok();
                write!(std::io::stdout(), "{}", Self::PASTE_OFF).ok();
                std::io::stdout().flush().ok();
            }
        };
        Self {
            _at_signal: modes.map(|modes| AtSignal::new(give_back(modes))),
        }
    }
}

impl Shell {
    fn read_and_run(&mut self, editor: &mut DefaultEditor) -> Result<()> {
        let at_terminal = std::io::stdin().is_terminal();
        let mut input = Input::default();
        loop {
            match editor.readline(input.prompt()) {
                Ok(line) => match input.take(script::without_mark(&line)) {
                    Line::More => {}
                    Line::Meta(Meta::Quit) => break,
                    Line::Meta(meta) => {
                        editor.add_history_entry(line.trim()).ok();
                        let done = self.run_meta(meta);
                        self.report(done, at_terminal)?;
                    }
                    Line::Statements(text) => {
                        editor.add_history_entry(text.trim()).ok();
                        let done = self.answer(&text);
                        self.report(done, at_terminal)?;
                    }
                },
                Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {
                    input = Input::default();
                }
                Err(ReadlineError::Eof) => {
                    match input.rest() {
                        None => {}
                        Some(_) if at_terminal => note("unfinished statement discarded"),
                        Some(text) => {
                            let done = self.answer(&text);
                            self.report(done, at_terminal)?;
                        }
                    }
                    break;
                }
                Err(error) => return Err(terminal_failure(error)),
            }
        }
        match self.failure_count {
            failure_count if failure_count > 0 && !at_terminal => {
                Err(Failure::Script { failure_count })
            }
            _ => Ok(()),
        }
    }

    /// Prints a failure. It ends the statement, not the shell, unless the output is closed or a script is stopped.
    fn report(&mut self, done: Result<()>, at_terminal: bool) -> Result<()> {
        match done {
            Err(failure) if failure.ends_output() => Err(failure),
            Err(failure) if failure.is_interruption() && !at_terminal => Err(failure),
            Err(failure) => {
                self.failure_count += 1;
                failure.print();
                Ok(())
            }
            Ok(()) => Ok(()),
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

    fn run_meta(&mut self, meta: Meta) -> Result<()> {
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
            Meta::Timing(wanted) => {
                self.timing = wanted.unwrap_or(!self.timing);
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
            Meta::Misused(word, expected) => {
                return Err(Failure::usage(
                    format!("{word} does not take that"),
                    format!("it takes {expected}"),
                ));
            }
            Meta::Quit => {}
        }
        Ok(())
    }
}

/// `HOTSHELF_HISTORY`, or a file in the home folder. None if that is not a file: saving to a device such as `/dev/null`
/// would take its permissions from other users.
fn history_path() -> Option<PathBuf> {
    let path = match std::env::var_os("HOTSHELF_HISTORY") {
        Some(path) => PathBuf::from(path),
        None => std::env::home_dir()?.join(".hotshelf_history"),
    };
    let is_file = path.metadata().map_or(true, |found| found.is_file());
    is_file.then_some(path)
}

fn terminal_failure(error: ReadlineError) -> Failure {
    let source = match error {
        ReadlineError::Io(source) => source,
        other => std::io::Error::other(other.to_string()),
    };
    Failure::io("read", Path::new("the terminal"))(source)
}
