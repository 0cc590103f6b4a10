//! Parsing: SQL text into statements that the planner reads as SQL means them.

use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::{DFParserBuilder, Statement as ParsedStatement};
use datafusion::sql::sqlparser::dialect::{GenericDialect, dialect_from_str};

use super::point::KnownPoint;
use super::{shape, syntax, text};
use crate::error::Result;

/// One parsed SQL statement. It prints as SQL.
#[derive(Debug, Clone)]
pub struct Statement {
    pub(super) parsed: ParsedStatement,
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
    for mut statement in parser.parse_statements().map_err(shape::name_the_limit)? {
        syntax::check(&mut statement, &known)?;
        shape::reshape(&mut statement)?;
        statements.push(Statement {
            parsed: statement,
            point: KnownPoint::default(),
        });
    }
    Ok(statements)
}
