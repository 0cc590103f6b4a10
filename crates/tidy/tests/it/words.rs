//! Comments, messages and documents are plain idiomatic English.
//!
//! A list of turns that were found in the project and that no native speaker would use there. A turn that has a use of
//! its own is described so narrowly that the use passes.

use crate::ceilings::Findings;
use crate::checkout::rust_files;
use crate::links::{documents, prose_lines};
use crate::source::{Prose, Source};

/// Words that must not follow each other.
struct Turn {
    /// Separated by blanks; `a|b` stands for either.
    words: &'static str,
    /// It passes before one of these words,
    before: &'static [&'static str],
    /// and after one of these.
    after: &'static [&'static str],
    /// What to say.
    instead: &'static str,
}

const fn turn(words: &'static str, instead: &'static str) -> Turn {
    Turn {
        words,
        before: &[],
        after: &[],
        instead,
    }
}

/// The words that make "there is no …" and "is no longer" good English.
const TURNS: &[Turn] = &[
    turn("so many|few|much|often|long", "this many, N, as often as"),
    Turn {
        before: &[
            "longer",
            "more",
            "less",
            "better",
            "worse",
            "faster",
            "slower",
            "larger",
            "smaller",
            "different",
        ],
        after: &["there", "where", "answer"],
        ..turn("is|are|was|were|be|been no", "is not a")
    },
    Turn {
        before: &["of"],
        after: &["there"],
        ..turn("is|are|was|were none", "does not count, is not one")
    },
    turn(
        "is|are|was|were|be|being|gets|get told",
        "gets, is given, reports to",
    ),
    turn("tell|tells|told of|itself|him|whoever", "reports, names"),
    turn("obey|obeys|obeyed|obeying", "follows, carries out"),
    turn("asks|ask itself|themselves", "checks"),
    turn(
        "who waits|wait|asks|ask|waited|asked|reads|read|wants|want|uses|use",
        "name the caller or the thread",
    ),
    turn("whoever", "the caller that, the thread that"),
    turn("nobody|somebody", "nothing, no caller, another thread"),
    turn("asker|askers", "caller, waiter, requester"),
    Turn {
        before: &["for"],
        after: &[],
        ..turn(
            "stands|stand|stood still|in|there|beside|at|before|behind|ready|itself",
            "is, lies, waits",
        )
    },
    turn("stands|stand for itself|themselves", "is independent"),
    turn("of its|their own accord", "by itself"),
    turn(
        "goes|go|went|going on where|with|as|after|to|until|if|from",
        "continues, resumes",
    ),
    turn("goes|go|went away", "ends, is dropped"),
    turn("becomes|become|became of", "happens to"),
    turn(
        "says|say|said|knows|know|known of",
        "says about, knows about",
    ),
    turn("past the cache|page", "bypassing the cache"),
    turn("but for", "except for, apart from"),
    turn("whom", "which"),
    Turn {
        before: &[],
        after: &["of"],
        ..turn("ours", "the database's, this thread's")
    },
    turn("for ever", "forever"),
    turn("all|many|no|of|the|these damages", "damage"),
    turn("at will", "at any time"),
    turn("is|are it that", "turn the sentence round"),
    turn("has served", "is no longer needed"),
    turn("be had", "be obtained, be restored"),
    turn("such ones", "these"),
    turn("it|they is|are there", "it exists"),
    turn("the same again", "again"),
    turn("no one|body reads|has|wants", "nothing reads"),
    turn("thereof|therein|wherein|hereby|herein", "plain words"),
    turn("stay|stays|stayed behind", "remains"),
    turn(
        "is|are|was|were left over|from|unless|before|behind|until|when|or|by",
        "remains",
    ),
    turn(
        "bytes|rows|reads|memory|room|space|time|operations|nothing|none|what|all left",
        "remaining",
    ),
    turn("left until|untouched|for|only|when|after", "remaining"),
    turn("all is|are told|said", "everything is known"),
    turn("does|do so without being", "plain words"),
    turn("is|are to hand", "is available"),
    turn("in vain", "without effect"),
    turn("by together", "in all"),
];

/// A word of a comment, a message or a document, with its line. The end of a sentence or clause is a word of its own.
type Word = (usize, String);

/// The words of a piece of text that begins at a line. Quoted code is one word.
fn words(line: usize, text: &str, words: &mut Vec<Word>) {
    let (mut line, mut word, mut is_code) = (line, String::new(), false);
    for c in text.chars().chain([' ']) {
        line += usize::from(c == '\n');
        if c == '`' {
            is_code = !is_code;
            word.push(c);
        } else if is_code {
            continue;
        } else if c.is_alphanumeric() || matches!(c, '\'' | '-' | '_') {
            word.extend(c.to_lowercase());
        } else {
            if !word.is_empty() {
                words.push((line, std::mem::take(&mut word)));
            }
            if !c.is_whitespace() && !matches!(c, '*' | '"') {
                words.push((line, c.to_string()));
            }
        }
    }
}

/// The turns in a text: their lines, and what to say.
fn turns(words: &[Word]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for turn in TURNS {
        let parts: Vec<Vec<&str>> = turn
            .words
            .split(' ')
            .map(|part| part.split('|').collect())
            .collect();
        for (idx, window) in words.windows(parts.len()).enumerate() {
            let is_turn = window
                .iter()
                .zip(&parts)
                .all(|((_, word), part)| part.contains(&&**word));
            let before = idx.checked_sub(1).and_then(|idx| words.get(idx));
            let after = words.get(idx + parts.len());
            let is_excused = |word: Option<&Word>, excuses: &[&str]| {
                word.is_some_and(|(_, word)| excuses.contains(&&**word))
            };
            if is_turn && !is_excused(after, turn.before) && !is_excused(before, turn.after) {
                let said: Vec<&str> = window.iter().map(|(_, word)| &**word).collect();
                found.push((
                    window[0].0,
                    format!("\"{}\": {}", said.join(" "), turn.instead),
                ));
            }
        }
    }
    found
}

/// The words of comments and literals; comments on neighbouring lines are one text.
fn words_of_source(prose: &[Prose]) -> Vec<Word> {
    let (mut all, mut last): (Vec<Word>, Option<usize>) = (Vec::new(), None);
    for piece in prose {
        let continues = piece.is_comment && last.is_some_and(|last| last + 1 == piece.line);
        if !continues || piece.text.is_empty() {
            all.push((piece.line, "¶".to_owned()));
        }
        words(piece.line, &piece.text, &mut all);
        last = piece.is_comment.then_some(piece.line);
    }
    all
}

#[test]
fn words_are_plain() {
    let mut found = Findings::default();
    for file in rust_files(&["src", "tests", "examples"]) {
        if file.path.ends_with("tidy/tests/it/words.rs") {
            continue;
        }
        for (line, what) in turns(&words_of_source(&Source::parse(&file.text).prose)) {
            found.count(&file.path, format!("line {line}: {what}"));
        }
    }
    for document in documents() {
        let mut all = Vec::new();
        for (line, text) in prose_lines(&document.text) {
            if text.trim().is_empty() {
                all.push((line, "¶".to_owned()));
            }
            words(line, text, &mut all);
        }
        for (line, what) in turns(&all) {
            found.count(&document.path, format!("line {line}: {what}"));
        }
    }
    found.check(
        "words",
        "turns that are not plain English (each with what to say)",
    );
}

#[cfg(test)]
fn turns_in(text: &str) -> Vec<String> {
    let words = words_of_source(&Source::parse(text).prose);
    turns(&words)
        .into_iter()
        .map(|(line, what)| format!("{line} {what}"))
        .collect()
}

#[test]
fn turns_are_found_across_lines_and_in_messages() {
    let found = turns_in("/// It takes so\n/// many rows.\nlet a = \"it is no folder\";\n");
    let expected = [
        "1 \"so many\": this many, N, as often as",
        "3 \"is no\": is not a",
    ];
    assert_eq!(found, expected);
}

#[test]
fn good_english_passes() {
    let text = "// There is no folder. It is no longer there; the left side.\n\n\
        // It is so. Many are.\nfn so() {} // many\n// `is no` good\nlet is = no;\n// so\nlet x = 1;\n// many\n";
    assert!(turns_in(text).is_empty(), "{:?}", turns_in(text));
}
