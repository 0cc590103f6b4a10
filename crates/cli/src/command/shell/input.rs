//! What is typed, put together: lines into statements and commands. No terminal here.

/// Lines that do not make a statement yet.
#[derive(Debug, Default)]
pub struct Input {
    text: String,
}

/// What a line made.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Nothing yet: more lines are needed.
    More,
    /// A command of the shell.
    Meta(Meta),
    /// One or more statements.
    Statements(String),
}

/// A command of the shell.
#[derive(Debug, PartialEq, Eq)]
pub enum Meta {
    Quit,
    Help,
    Tables,
    Columns(String),
    /// `None`: the other way round.
    Timing(Option<bool>),
    Format(String),
    Unknown(String),
    /// A command whose argument is missing or senseless, and what it takes.
    Misused(String, &'static str),
}

impl Input {
    /// The prompt of the next line.
    pub fn prompt(&self) -> &'static str {
        if self.text.is_empty() {
            "hotshelf> "
        } else {
            "     ...> "
        }
    }

    /// Takes a line.
    pub fn take(&mut self, line: &str) -> Line {
        if self.text.is_empty() {
            if line.trim().is_empty() {
                return Line::More;
            }
            if let Some(meta) = parse_meta(line.trim()) {
                return Line::Meta(meta);
            }
        }
        self.text.push_str(line);
        self.text.push('\n');
        if is_complete(&self.text) {
            Line::Statements(std::mem::take(&mut self.text))
        } else {
            Line::More
        }
    }

    /// What was typed without a `;` when the input ends.
    pub fn rest(self) -> Option<String> {
        (!self.text.trim().is_empty()).then_some(self.text)
    }
}

/// Commands start with `\` or `.`; a few words leave the shell, as everywhere.
fn parse_meta(line: &str) -> Option<Meta> {
    let words = line.trim_end_matches(';');
    if matches!(words.to_ascii_lowercase().as_str(), "quit" | "exit") {
        return Some(Meta::Quit);
    }
    if !line.starts_with(['\\', '.']) {
        return None;
    }
    let (word, argument) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    let argument = argument.trim().trim_matches('"').to_owned();
    Some(match (&word[1..], argument.is_empty()) {
        ("q" | "quit" | "exit", _) => Meta::Quit,
        ("h" | "?" | "help", _) => Meta::Help,
        ("d" | "dt" | "tables", true) => Meta::Tables,
        ("d" | "schema", false) => Meta::Columns(argument),
        ("timing" | "timer", _) => match argument.to_ascii_lowercase().as_str() {
            "" => Meta::Timing(None),
            "on" => Meta::Timing(Some(true)),
            "off" => Meta::Timing(Some(false)),
            _ => Meta::Misused(word.to_owned(), "on, off or nothing"),
        },
        ("format" | "mode", false) => Meta::Format(argument),
        ("format" | "mode", true) => {
            Meta::Misused(word.to_owned(), "table, csv, tsv, json, ndjson or markdown")
        }
        _ => Meta::Unknown(word.to_owned()),
    })
}

/// Whether the text ends with a `;` that is neither quoted nor in a comment.
fn is_complete(text: &str) -> bool {
    let mut ended = false;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = match first {
            '\'' | '"' | '`' => match after.find(first) {
                Some(end) => &after[end + 1..],
                None => return false,
            },
            '-' if after.starts_with('-') => after.find('\n').map_or("", |end| &after[end..]),
            '/' if after.starts_with('*') => match after[1..].find("*/") {
                Some(end) => &after[end + 3..],
                None => return false,
            },
            _ => {
                if !first.is_whitespace() {
                    ended = first == ';';
                }
                after
            }
        };
        if matches!(first, '\'' | '"' | '`') {
            ended = false;
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_ends_with_a_semicolon_that_is_not_quoted_or_in_a_comment() {
        for complete in [
            "SELECT 1;",
            "SELECT ';';  ",
            "SELECT 1; -- done",
            "SELECT 1 /* ; */;",
            "SELECT 'it''s';",
            "SELECT 1; SELECT 2;",
            "SELECT 'a--b';",
        ] {
            assert!(is_complete(complete), "{complete}");
        }
        for open in [
            "SELECT 1",
            "SELECT ';",
            "SELECT 1 -- ;",
            "SELECT 1 /* ;",
            "SELECT 1; SELECT 2",
            "SELECT \";\"",
            "SELECT 1; /*",
            "/*",
            "-",
        ] {
            assert!(!is_complete(open), "{open}");
        }
    }

    #[test]
    fn lines_are_put_together_until_the_semicolon() {
        let mut input = Input::default();
        assert_eq!(input.take(""), Line::More);
        assert_eq!(input.prompt(), "hotshelf> ");
        assert_eq!(input.take("SELECT"), Line::More);
        assert_eq!(input.prompt(), "     ...> ");
        assert_eq!(input.take("\\q"), Line::More);
        assert_eq!(
            input.take(";"),
            Line::Statements("SELECT\n\\q\n;\n".to_owned())
        );
        assert_eq!(input.rest(), None);
    }

    #[test]
    fn commands_are_known_in_both_spellings() {
        let meta = |line: &str| match Input::default().take(line) {
            Line::Meta(meta) => meta,
            other => panic!("{line}: {other:?}"),
        };
        for quit in ["\\q", ".quit", "exit", "QUIT;", ".exit"] {
            assert_eq!(meta(quit), Meta::Quit);
        }
        assert_eq!(meta("\\d"), Meta::Tables);
        assert_eq!(meta(".schema \"date\""), Meta::Columns("date".to_owned()));
        assert_eq!(
            meta("\\d lineorder;"),
            Meta::Columns("lineorder".to_owned())
        );
        assert_eq!(meta("\\timing"), Meta::Timing(None));
        assert_eq!(meta(".timer on"), Meta::Timing(Some(true)));
        assert_eq!(meta(".timer OFF"), Meta::Timing(Some(false)));
        assert!(matches!(meta(".timer maybe"), Meta::Misused(..)));
        assert!(matches!(meta(".mode"), Meta::Misused(..)));
        assert_eq!(meta(".mode csv"), Meta::Format("csv".to_owned()));
        assert_eq!(meta("\\x"), Meta::Unknown("\\x".to_owned()));
    }
}
