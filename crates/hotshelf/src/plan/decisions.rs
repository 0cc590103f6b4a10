//! What rules say about their decisions, for EXPLAIN VERBOSE.

use std::fmt::Display;

use datafusion::common::config::ConfigOptions;

use crate::settings::{Notes, SessionSettings};

/// Characters of an expression that are shown.
const SHOWN: usize = 60;

/// Where decisions are noted, if they are to be shown.
pub(super) fn wanted(config: &ConfigOptions) -> Option<&Notes> {
    let settings = config.extensions.get::<SessionSettings>()?;
    wanted_of(settings)
}

/// The same where the settings are at hand.
pub(super) fn wanted_of(settings: &SessionSettings) -> Option<&Notes> {
    let notes = &settings.decisions;
    notes.are_wanted().then_some(notes)
}

/// The beginning of an expression, in one line.
pub(super) fn shown(expr: &(impl Display + ?Sized)) -> String {
    let text = expr.to_string();
    let mut letters = text.chars().map(|letter| match letter.is_control() {
        true => ' ',
        false => letter,
    });
    let mut start: String = letters.by_ref().take(SHOWN).collect();
    if letters.next().is_some() {
        start.push('…');
    }
    start
}

/// The same for several.
pub(super) fn all_shown<T: Display>(exprs: impl IntoIterator<Item = T>) -> String {
    let exprs = exprs.into_iter().map(|expr| shown(&expr));
    exprs.collect::<Vec<_>>().join(", ")
}

/// Bytes in words.
pub(super) fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes * 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_cut_and_stay_in_one_line() {
        assert_eq!(shown("a = 'b\nc'"), "a = 'b c'");
        assert_eq!(shown(&"ö".repeat(SHOWN)), "ö".repeat(SHOWN));
        let cut = format!("{}…", "ö".repeat(SHOWN));
        assert_eq!(shown(&"ö".repeat(SHOWN + 1)), cut);
        assert_eq!(all_shown(["a", "b"]), "a, b");
    }

    #[test]
    fn nothing_is_noted_unless_it_is_wanted() {
        assert!(wanted(&ConfigOptions::default()).is_none());
        let mut settings = SessionSettings::default();
        assert!(wanted_of(&settings).is_none());
        settings.decisions = Notes::wanted();
        assert!(wanted_of(&settings).is_some());
    }
}
