//! Parsing: SQL text into statements that the planner reads as SQL means them.

use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::{DFParser, DFParserBuilder, Statement as ParsedStatement};
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation, SqlOption, Statement as SqlStatement,
};
use datafusion::sql::sqlparser::dialect::{GenericDialect, dialect_from_str};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::point::KnownPoint;
use super::{explain, shape, syntax, text};
use crate::error::Result;

/// One parsed SQL statement. It prints as SQL.
#[derive(Debug, Clone)]
pub struct Statement {
    pub(super) parsed: ParsedStatement,
    /// Tables that its text names.
    pub(super) tables_named: usize,
    /// Learned when it is run with values.
    pub(super) point: KnownPoint,
}

impl std::fmt::Display for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parsed.fmt(f)
    }
}

/// Splits SQL text into statements. Call it on a large stack.
pub(super) fn parse(state: &SessionState, sql: &str) -> Result<Vec<Statement>> {
    let name = state.config().options().sql_parser.dialect;
    let dialect = dialect_from_str(name).unwrap_or_else(|| Box::new(GenericDialect));
    shape::check_text(sql, dialect.as_ref())?;
    let sql = text::prepare(sql, dialect.as_ref())?;
    let mut parser = DFParserBuilder::new(sql.as_ref())
        .with_dialect(dialect.as_ref())
        .with_recursion_limit(shape::DEPTH_MAX)
        .build()?;
    let known = syntax::Known {
        aggregates: &|name| {
            state.aggregate_functions().contains_key(name)
                || state.window_functions().contains_key(name)
        },
    };
    let mut statements = Vec::new();
    for mut statement in parse_all(&mut parser).map_err(shape::name_the_limit)? {
        syntax::check(&mut statement, &known)?;
        let tables_named = shape::reshape(&mut statement)?;
        statements.push(Statement {
            parsed: statement,
            tables_named,
            point: KnownPoint::default(),
        });
    }
    Ok(statements)
}

/// The statements of a text, those between semicolons that are not empty.
fn parse_all(parser: &mut DFParser<'_>) -> Result<Vec<ParsedStatement>, DataFusionError> {
    let mut statements = Vec::new();
    loop {
        let mut is_separate = statements.is_empty();
        while parser.parser.consume_token(&Token::SemiColon) {
            is_separate = true;
        }
        let next = parser.parser.peek_token();
        if next == Token::EOF {
            return Ok(statements);
        }
        if !is_separate {
            parser.parser.expected("end of statement", next)?;
        }
        statements.push(parse_one(parser)?);
    }
}

/// One statement, by functions of our own where the engine's parser knows too little.
fn parse_one(parser: &mut DFParser<'_>) -> Result<ParsedStatement, DataFusionError> {
    if parser.parser.parse_keyword(Keyword::EXPLAIN) {
        return explain::parse(parser);
    }
    let is_alter_index = parser
        .parser
        .parse_keywords(&[Keyword::ALTER, Keyword::INDEX]);
    match is_alter_index {
        true => Ok(ParsedStatement::Statement(Box::new(alter_index(
            &mut parser.parser,
        )?))),
        false => parser.parse_statement(),
    }
}

/// What follows `ALTER INDEX`: a name and `SET (…)`. The parser's own statement knows nothing but renaming. As in
/// PostgreSQL, `ALTER TABLE` of the name of an index says the same.
fn alter_index(parser: &mut Parser<'_>) -> Result<SqlStatement, ParserError> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    parser.expect_keyword(Keyword::SET)?;
    parser.expect_token(&Token::LParen)?;
    // Not `parse_sql_option`: to that `clustered` begins something else.
    let options = parser.parse_comma_separated(|parser| {
        let key = parser.parse_identifier()?;
        parser.expect_token(&Token::Eq)?;
        let value = parser.parse_expr()?;
        Ok(SqlOption::KeyValue { key, value })
    })?;
    parser.expect_token(&Token::RParen)?;
    Ok(SqlStatement::AlterTable(AlterTable {
        name,
        if_exists,
        only: false,
        operations: vec![AlterTableOperation::SetOptionsParens { options }],
        location: None,
        on_cluster: None,
        table_type: None,
        end_token: AttachedToken::empty(),
    }))
}
