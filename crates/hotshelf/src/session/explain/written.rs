//! EXPLAIN as it is written. The engine's parser does not know the format that users of other databases ask for.

use datafusion::common::format::{ExplainFormat, ExplainStatementOptions};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::sql::parser::{DFParser, ExplainStatement, Statement as ParsedStatement};
use datafusion::sql::sqlparser::ast::{Expr, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Error, Result, nearest};

/// The formats, as they are written. `pgjson` is the engine's name of `json`.
const FORMATS: [(&str, ExplainFormat); 5] = [
    ("tree", ExplainFormat::Tree),
    ("indent", ExplainFormat::Indent),
    ("json", ExplainFormat::PostgresJSON),
    ("pgjson", ExplainFormat::PostgresJSON),
    ("graphviz", ExplainFormat::Graphviz),
];

/// The format of a name.
pub(in crate::session) fn format_named(name: &str) -> Result<ExplainFormat> {
    let known = FORMATS
        .into_iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, format)| format).ok_or_else(|| {
        let names = FORMATS.map(|(name, _)| name);
        let (last, others) = (names[names.len() - 1], &names[..names.len() - 1]);
        let all = format!("expected {} or {last}", others.join(", "));
        Error::InvalidValue {
            what: "EXPLAIN format",
            value: name.to_owned(),
            expected: match nearest(name, names) {
                Some(meant) => format!("{all}; '{meant}' is similar"),
                None => all,
            },
        }
    })
}

/// What follows the word EXPLAIN: `[ANALYZE] [VERBOSE] [FORMAT format] statement`, or with options in parentheses.
pub(in crate::session) fn parse(parser: &mut DFParser<'_>) -> QueryResult<ParsedStatement> {
    let mut options = match has_options(parser) {
        true => in_parentheses(parser)?,
        false => in_words(parser)?,
    };
    // The engine has no other format where EXPLAIN is VERBOSE. This one tells everything in any case.
    if options.format == Some(ExplainFormat::PostgresJSON) {
        options.verbose = false;
    }
    let statement = Box::new(parser.parse_statement()?);
    Ok(ParsedStatement::Explain(ExplainStatement {
        statement,
        options,
    }))
}

/// Whether a parenthesis begins options and not a query.
fn has_options(parser: &DFParser<'_>) -> bool {
    let begins_query = match parser.parser.peek_nth_token(1).token {
        Token::LParen => true,
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE | Keyword::FROM
        ),
        _ => false,
    };
    parser.parser.peek_token().token == Token::LParen && !begins_query
}

fn in_parentheses(parser: &mut DFParser<'_>) -> QueryResult<ExplainStatementOptions> {
    let mut options = parser.parser.parse_utility_options()?;
    let is_format = |name: &str| name.eq_ignore_ascii_case("format");
    for option in &mut options {
        if let (true, Some(arg)) = (is_format(&option.name.value), &mut option.arg)
            && let Some(name) = name_in(arg)
        {
            let format = format_named(&name)?.to_string();
            *arg = Expr::value(Value::SingleQuotedString(format));
        }
    }
    ExplainStatementOptions::from_utility_options(&options)
}

/// The name that an option is set to, in quotes or without.
fn name_in(arg: &Expr) -> Option<String> {
    match arg {
        Expr::Identifier(name) => Some(name.value.clone()),
        Expr::Value(value) => value.value.clone().into_string(),
        _ => None,
    }
}

fn in_words(parser: &mut DFParser<'_>) -> QueryResult<ExplainStatementOptions> {
    let analyze = parser.parser.parse_keyword(Keyword::ANALYZE);
    let verbose = parser.parser.parse_keyword(Keyword::VERBOSE);
    let name = parser.parse_explain_format()?;
    let format = name.map(|name| format_named(&name)).transpose();
    Ok(ExplainStatementOptions {
        analyze,
        verbose,
        format: format.map_err(DataFusionError::from)?,
        ..ExplainStatementOptions::default()
    })
}
