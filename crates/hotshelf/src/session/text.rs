//! What a statement's text needs before it is parsed: the parser reads some of it in another way than SQL says.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{Error, Result};

/// The text as the parser has to see it: `a IS DISTINCT FROM b`, whose right side the parser takes to reach over AND
/// and OR (`docs/upstream/is-distinct-from.md`), gets parentheses. Numbers that run into a word are refused: `1_000`
/// would be a 1 named `_000`.
pub(super) fn prepare<'a>(sql: &'a str, dialect: &dyn Dialect) -> Result<Cow<'a, str>> {
    if !may_need_preparing(sql) {
        return Ok(Cow::Borrowed(sql));
    }
    let tokens = Tokenizer::new(dialect, sql).tokenize_with_location();
    // What cannot be cut into tokens is the parser's to refuse.
    let Ok(tokens) = tokens else {
        return Ok(Cow::Borrowed(sql));
    };
    refuse_glued_numbers(&tokens)?;
    let mut places: Vec<(Location, char)> = Vec::new();
    for (is, right) in distinct_from(&tokens) {
        if let Some(end) = end_of_operand(&tokens[right..]) {
            places.push((start_of_operand(&tokens[..is], tokens[is].span.start), '('));
            places.push((end, ')'));
        }
    }
    Ok(match places.is_empty() {
        true => Cow::Borrowed(sql),
        false => Cow::Owned(insert(sql, &places)),
    })
}

fn may_need_preparing(sql: &str) -> bool {
    let bytes = sql.as_bytes();
    let glued = |pair: &[u8]| {
        pair[0].is_ascii_digit() && (pair[1] == b'_' || pair[1].is_ascii_alphabetic())
    };
    let compares = || {
        let words = bytes.windows(8);
        words
            .into_iter()
            .any(|word| word.eq_ignore_ascii_case(b"distinct"))
    };
    bytes.windows(2).any(glued) || compares()
}

fn refuse_glued_numbers(tokens: &[TokenWithSpan]) -> Result<()> {
    for pair in tokens.windows(2) {
        if let (Token::Number(number, _), Token::Word(word)) = (&pair[0].token, &pair[1].token)
            && word.quote_style.is_none()
        {
            return Err(Error::InvalidValue {
                what: "number",
                value: format!("{number}{}", word.value),
                expected: "digits alone; a name after a number is set apart by a blank".into(),
            });
        }
    }
    Ok(())
}

/// Where each `IS [NOT] DISTINCT FROM` begins, and its right side.
fn distinct_from(tokens: &[TokenWithSpan]) -> Vec<(usize, usize)> {
    let words: Vec<usize> = (0..tokens.len())
        .filter(|idx| !matches!(tokens[*idx].token, Token::Whitespace(_)))
        .collect();
    let is = |at: usize, keyword: Keyword| is_keyword(&tokens[words[at]].token, keyword);
    let found = (1..words.len().saturating_sub(2)).filter_map(|at| {
        if !(is(at, Keyword::DISTINCT) && is(at + 1, Keyword::FROM)) {
            return None;
        }
        let negated = at > 1 && is(at - 1, Keyword::NOT);
        let begin = if negated { at - 2 } else { at - 1 };
        is(begin, Keyword::IS).then(|| (words[begin], words[at + 2]))
    });
    found.collect()
}

fn is_keyword(token: &Token, keyword: Keyword) -> bool {
    matches!(token, Token::Word(word) if word.keyword == keyword && word.quote_style.is_none())
}

/// Where the operand at the end of the tokens starts.
fn start_of_operand(tokens: &[TokenWithSpan], end: Location) -> Location {
    let mut depth = 0usize;
    let mut start = end;
    for token in tokens.iter().rev() {
        let deeper = match &token.token {
            Token::Whitespace(_) => continue,
            Token::RParen | Token::RBracket | Token::RBrace => Some(true),
            Token::LParen | Token::LBracket | Token::LBrace => Some(false),
            Token::Comma | Token::SemiColon if depth == 0 => return start,
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::END => Some(true),
                Keyword::CASE => Some(false),
                keyword if depth == 0 && begins_expression(keyword) => return start,
                _ => None,
            },
            _ => None,
        };
        match deeper {
            Some(true) => depth += 1,
            Some(false) if depth == 0 => return start,
            Some(false) => depth -= 1,
            None => {}
        }
        start = token.span.start;
    }
    start
}

/// Whether an expression begins after a keyword.
fn begins_expression(keyword: Keyword) -> bool {
    use Keyword::{
        ALL, AND, BY, DISTINCT, ELSE, HAVING, LIMIT, NOT, ON, OR, QUALIFY, RETURNING, SELECT, SET,
        THEN, VALUES, WHEN, WHERE, XOR,
    };
    matches!(
        keyword,
        ALL | AND
            | BY
            | DISTINCT
            | ELSE
            | HAVING
            | LIMIT
            | NOT
            | ON
            | OR
            | QUALIFY
            | RETURNING
            | SELECT
            | SET
            | THEN
            | VALUES
            | WHEN
            | WHERE
            | XOR
    )
}

/// Where the operand at the beginning of the tokens ends, if AND or OR follows it.
fn end_of_operand(tokens: &[TokenWithSpan]) -> Option<Location> {
    let mut depth = 0usize;
    let mut end = tokens.first()?.span.start;
    for (idx, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::Whitespace(_) => continue,
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth = depth.checked_sub(1)?,
            Token::Comma | Token::SemiColon if depth == 0 => return None,
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::CASE => depth += 1,
                Keyword::END => depth = depth.checked_sub(1)?,
                Keyword::AND | Keyword::OR | Keyword::XOR if depth == 0 => {
                    return Some(end);
                }
                keyword if depth == 0 && ends_expression(keyword, tokens.get(idx + 1)) => {
                    return None;
                }
                _ => {}
            },
            _ => {}
        }
        end = token.span.end;
    }
    None
}

/// Whether a keyword begins another clause. LEFT and RIGHT may be functions.
fn ends_expression(keyword: Keyword, next: Option<&TokenWithSpan>) -> bool {
    use Keyword::{
        AS, ASC, CROSS, DESC, ELSE, EXCEPT, FETCH, FROM, FULL, GROUP, HAVING, INNER, INTERSECT,
        JOIN, LEFT, LIMIT, NATURAL, NULLS, OFFSET, ON, ORDER, QUALIFY, RIGHT, THEN, UNION, USING,
        WHEN, WHERE, WINDOW,
    };
    match keyword {
        LEFT | RIGHT => next.is_none_or(|next| next.token != Token::LParen),
        AS | ASC | CROSS | DESC | ELSE | EXCEPT | FETCH | FROM | FULL | GROUP | HAVING | INNER
        | INTERSECT | JOIN | LIMIT | NATURAL | NULLS | OFFSET | ON | ORDER | QUALIFY | THEN
        | UNION | USING | WHEN | WHERE | WINDOW => true,
        _ => false,
    }
}

/// The text with characters put in at places (lines and columns count from 1).
fn insert(sql: &str, places: &[(Location, char)]) -> String {
    let mut text = String::with_capacity(sql.len() + places.len());
    let mut here = Location { line: 1, column: 1 };
    let put = |text: &mut String, here: Location| {
        let chars = places.iter().filter(|(place, _)| *place == here);
        text.extend(chars.map(|(_, char)| *char));
    };
    for char in sql.chars() {
        put(&mut text, here);
        text.push(char);
        if char == '\n' {
            here = Location {
                line: here.line + 1,
                column: 1,
            };
        } else {
            here.column += 1;
        }
    }
    put(&mut text, here);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::sqlparser::dialect::GenericDialect;

    fn prepared(sql: &str) -> String {
        prepare(sql, &GenericDialect).unwrap().into_owned()
    }

    #[test]
    fn is_distinct_from_ends_before_and_and_or() {
        for (sql, expected) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            (
                "x AND NOT a + 1 is not distinct from f(x, y AND z) OR c",
                "x AND NOT (a + 1 is not distinct from f(x, y AND z)) OR c",
            ),
            (
                "WHERE é IS DISTINCT FROM\n 'ü' AND c",
                "WHERE (é IS DISTINCT FROM\n 'ü') AND c",
            ),
            (
                "(f(a, b) IS DISTINCT FROM CASE WHEN b AND c THEN 1 END AND d)",
                "((f(a, b) IS DISTINCT FROM CASE WHEN b AND c THEN 1 END) AND d)",
            ),
            (
                "SELECT x, CASE WHEN a THEN b END IS DISTINCT FROM left(b, 1) AND c",
                "SELECT x, (CASE WHEN a THEN b END IS DISTINCT FROM left(b, 1)) AND c",
            ),
            (
                "a IS DISTINCT FROM b OR c IS DISTINCT FROM d AND e",
                "(a IS DISTINCT FROM b) OR (c IS DISTINCT FROM d) AND e",
            ),
        ] {
            assert_eq!(prepared(sql), expected);
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for sql in [
            "SELECT DISTINCT a FROM b AND c",
            "SELECT a IS DISTINCT FROM b FROM t WHERE c AND d",
            "(a IS DISTINCT FROM b) AND c",
            "SELECT a IS DISTINCT FROM b, c AND d",
            "a IS DISTINCT FROM b GROUP BY c HAVING d AND e",
            "SELECT 'x IS DISTINCT FROM y AND z'",
        ] {
            assert_eq!(prepared(sql), sql);
        }
    }

    #[test]
    fn numbers_that_run_into_words_are_refused() {
        for sql in ["SELECT 1_000_000", "SELECT 12ab"] {
            assert!(prepare(sql, &GenericDialect).is_err(), "{sql}");
        }
        for sql in [
            "SELECT 1e5, 0x1f, t1.a_1 FROM t1",
            "SELECT '1_000', \"1_a\", 1 _a",
        ] {
            assert!(prepare(sql, &GenericDialect).is_ok(), "{sql}");
        }
    }
}
