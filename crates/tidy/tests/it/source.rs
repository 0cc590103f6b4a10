//! Rust source taken apart: code, comments, and string literals.

/// A comment or a string literal.
#[derive(Debug, PartialEq, Eq)]
pub struct Prose {
    /// The line of its first character, from 1.
    pub line: usize,
    pub is_comment: bool,
    /// Without the marks around it.
    pub text: String,
}

/// A source file taken apart.
pub struct Source {
    /// The source with blanks in place of comments and literals: every character stays where it was.
    pub code: String,
    pub prose: Vec<Prose>,
}

impl Source {
    pub fn parse(text: &str) -> Self {
        let mut parser = Parser {
            chars: text.chars().collect(),
            at: 0,
            line: 1,
            code: String::with_capacity(text.len()),
            prose: Vec::new(),
        };
        while parser.at < parser.chars.len() {
            parser.step();
        }
        Self {
            code: parser.code,
            prose: parser.prose,
        }
    }

    /// The source without its test modules: `#[cfg(test)] mod name { … }`.
    pub fn without_tests(mut self) -> Self {
        while let Some((start, end)) = test_module(&self.code) {
            let line = |at: usize| self.code[..at].matches('\n').count() + 1;
            let (first, last) = (line(start), line(end));
            self.prose
                .retain(|prose| prose.line < first || prose.line > last);
            let kept = self.code[start..=end].chars().filter(|c| *c == '\n');
            let blanks: String = kept.collect();
            self.code.replace_range(start..=end, &blanks);
        }
        self
    }

    /// Lines with code or comments outside of test modules, counted in the text they were parsed from.
    pub fn test_line_count(code: &str) -> usize {
        let (mut count, mut rest) = (0, code.to_owned());
        while let Some((start, end)) = test_module(&rest) {
            count += rest[start..=end].matches('\n').count() + 1;
            rest.replace_range(start..=end, "");
        }
        count
    }
}

/// Where the first test module starts and ends, in code without comments and literals.
fn test_module(code: &str) -> Option<(usize, usize)> {
    const MARK: &str = "#[cfg(test)]";
    let mut from = 0;
    while let Some(found) = code[from..].find(MARK) {
        let start = from + found;
        let behind = &code[start + MARK.len()..];
        let is_module = behind.trim_start().starts_with("mod ");
        if let (true, Some(open)) = (is_module, behind.find(['{', ';']))
            && behind[open..].starts_with('{')
        {
            let open = start + MARK.len() + open;
            return Some((start, closing(code, open)));
        }
        from = start + MARK.len();
    }
    None
}

/// Where the brace that opens at `open` closes.
pub fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len() - 1
}

/// Identifiers, keywords and single other characters, each with its line; paths' `::` is one token.
pub fn tokens(code: &str) -> Vec<(usize, String)> {
    let mut tokens: Vec<(usize, String)> = Vec::new();
    let (mut line, mut is_word) = (1, false);
    for c in code.chars() {
        let goes_on = c.is_alphanumeric() || c == '_';
        match (goes_on && is_word, c) {
            (_, '\n') => line += 1,
            (_, c) if c.is_whitespace() => {}
            (true, c) => {
                if let Some((_, last)) = tokens.last_mut() {
                    last.push(c);
                }
            }
            (false, ':') if tokens.last().is_some_and(|(_, last)| last == ":") => {
                if let Some((_, last)) = tokens.last_mut() {
                    last.push(':');
                }
            }
            (false, c) => tokens.push((line, c.to_string())),
        }
        is_word = goes_on;
    }
    tokens
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    line: usize,
    code: String,
    prose: Vec<Prose>,
}

impl Parser {
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    /// Passes one character, which is code or not.
    fn pass(&mut self, is_code: bool) -> char {
        let c = self.peek(0);
        self.at += 1;
        self.line += usize::from(c == '\n');
        self.code.push(match is_code || c == '\n' {
            true => c,
            false => ' ',
        });
        c
    }

    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => self.line_comment(),
            ('/', '*') => self.block_comment(),
            ('"', _) => self.string(),
            ('r' | 'b' | 'c', _) if self.raw_marks().is_some() => self.raw_string(),
            ('\'', _) => self.character(),
            _ => {
                self.pass(true);
            }
        }
    }

    fn line_comment(&mut self) {
        let (line, mut text) = (self.line, String::new());
        while self.at < self.chars.len() && self.peek(0) != '\n' {
            text.push(self.pass(false));
        }
        let text = text.trim_start_matches('/').trim_start_matches('!').trim();
        self.prose.push(Prose {
            line,
            is_comment: true,
            text: text.to_owned(),
        });
    }

    fn block_comment(&mut self) {
        let (line, mut text, mut depth) = (self.line, String::new(), 0);
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => depth += 1,
                ('*', '/') => depth -= 1,
                _ => {
                    text.push(self.pass(false));
                    continue;
                }
            }
            self.pass(false);
            self.pass(false);
            if depth == 0 {
                break;
            }
        }
        self.prose.push(Prose {
            line,
            is_comment: true,
            text,
        });
    }

    fn string(&mut self) {
        let (line, mut text) = (self.line, String::new());
        self.pass(false);
        while self.at < self.chars.len() {
            match self.pass(false) {
                '"' => break,
                '\\' => {
                    let escaped = self.pass(false);
                    text.push(if escaped == '"' { '"' } else { ' ' });
                }
                c => text.push(c),
            }
        }
        self.prose.push(Prose {
            line,
            is_comment: false,
            text,
        });
    }

    /// Of a raw string that starts here: the characters before its quote, and the number of its marks.
    fn raw_marks(&self) -> Option<(usize, usize)> {
        let is_inside_a_word = self.at > 0 && {
            let before = self.chars[self.at - 1];
            before.is_alphanumeric() || before == '_'
        };
        if is_inside_a_word {
            return None;
        }
        let prefix = match (self.peek(0), self.peek(1)) {
            ('r', _) => 1,
            ('b' | 'c', 'r') => 2,
            _ => return None,
        };
        let marks = (prefix..)
            .take_while(|ahead| self.peek(*ahead) == '#')
            .count();
        (self.peek(prefix + marks) == '"').then_some((prefix + marks, marks))
    }

    fn raw_string(&mut self) {
        let (lead, marks) = self.raw_marks().unwrap_or_default();
        let (line, mut text) = (self.line, String::new());
        (0..=lead).for_each(|_| {
            self.pass(false);
        });
        while self.at < self.chars.len() {
            let c = self.pass(false);
            if c == '"' && (0..marks).all(|ahead| self.peek(ahead) == '#') {
                (0..marks).for_each(|_| {
                    self.pass(false);
                });
                break;
            }
            text.push(c);
        }
        self.prose.push(Prose {
            line,
            is_comment: false,
            text,
        });
    }

    /// A character literal, or the quote of a lifetime.
    fn character(&mut self) {
        let is_escaped = self.peek(1) == '\\';
        if !is_escaped && self.peek(2) != '\'' {
            self.pass(true);
            return;
        }
        self.pass(false);
        if is_escaped {
            self.pass(false);
            self.pass(false);
        }
        while self.at < self.chars.len() && self.pass(false) != '\'' {}
    }
}

#[test]
fn comments_and_literals_are_not_code() {
    let text = "let a = \"x // \\\" y\"; // one\n\
        let r = r#\"raw \" here\"#; /* two /* three */ */ let c = '\"';\nlet s: &'a str;";
    let source = Source::parse(text);
    assert_eq!(source.code.len(), text.len());
    let words: Vec<&str> = source.code.split_whitespace().collect();
    let expected = "let a = ; let r = ; let c = ; let s: &'a str;";
    assert_eq!(words, expected.split_whitespace().collect::<Vec<_>>());
    let prose: Vec<(usize, &str)> = source
        .prose
        .iter()
        .map(|prose| (prose.line, prose.text.trim()))
        .collect();
    let expected = [
        (1, "x // \" y"),
        (1, "one"),
        (2, "raw \" here"),
        (2, "two  three"),
    ];
    assert_eq!(prose, expected);
}

#[test]
fn test_modules_are_taken_out_and_declared_ones_stay() {
    let text = "#[cfg(test)]\nmod testing;\nfn f() {}\n\
        #[cfg(test)]\nmod tests {\n    // gone\n    fn g() {}\n}\nfn h() {}\n";
    let source = Source::parse(text).without_tests();
    assert!(source.code.contains("fn f") && source.code.contains("fn h"));
    assert!(!source.code.contains("fn g") && source.prose.is_empty());
    assert_eq!(
        source.code.matches('\n').count(),
        text.matches('\n').count()
    );
    assert_eq!(Source::test_line_count(&Source::parse(text).code), 5);
}

#[test]
fn tokens_are_words_marks_and_path_separators() {
    let found: Vec<String> = tokens("use a::b_1 ;\nx:y")
        .into_iter()
        .map(|(_, token)| token)
        .collect();
    assert_eq!(found, ["use", "a", "::", "b_1", ";", "x", ":", "y"]);
}
