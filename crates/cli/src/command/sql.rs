//! `hotshelf sql`: statements in, answers out.

use std::io::{IsTerminal, Read};
use std::path::Path;

use crate::failure::{Failure, Result, note};
use crate::flags::{Source, Sql};
use crate::output::Output;
use crate::{interrupt, script};

pub fn run(sql: Sql) -> Result<()> {
    let text = read(&sql.source)?;
    let database = sql.engine.open()?;
    let session = database.reading_session()?;
    let mut output = Output::open(sql.target, sql.format)?;
    let timing = sql.timing;
    let work = script::run_all(&session, &text, &mut output, |number, outcome| {
        if timing {
            let seconds = outcome.elapsed.as_secs_f64();
            note(&format!(
                "statement {number}: {}, {seconds:.6} s",
                outcome.summary()
            ));
        } else if let Some(message) = &outcome.message {
            note(message);
        }
    });
    let done = interrupt::run(&database, work);
    database.tell_discarded();
    done?;
    output.close()
}

fn read(source: &Source) -> Result<String> {
    match source {
        Source::Text(text) => Ok(text.clone()),
        Source::File(path) => std::fs::read_to_string(path).map_err(Failure::io("read", path)),
        Source::Stdin => {
            let mut stdin = std::io::stdin();
            if stdin.is_terminal() {
                note(
                    "reading SQL from the terminal until Ctrl-D; `hotshelf shell` answers at once",
                );
            }
            let mut text = String::new();
            let read = stdin.read_to_string(&mut text);
            read.map_err(Failure::io("read", Path::new("standard input")))?;
            Ok(text)
        }
    }
}
