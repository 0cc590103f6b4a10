//! Syntax that the planner would accept and ignore, or read in another way than SQL says.
//!
//! The text is looked at before it is parsed (precedence, numbers), the parsed statement before it is planned
//! (clauses without an effect). Functions here recurse over what is parsed: call them on a large stack.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::Path;

use datafusion::sql::parser::{CopyToSource, Statement as ParsedStatement};
use datafusion::sql::sqlparser::ast::{
    CastKind, ColumnDef, ColumnOption, DataType, ExactNumberInfo, Expr, Function,
    FunctionArguments, GroupByExpr, ObjectNamePart, Query, Select, SelectFlavor, SelectItem,
    SetExpr, SetOperator, SetQuantifier, Statement as SqlStatement, TableFactor, Value,
    ValueWithSpan, VisitMut, VisitorMut, WildcardAdditionalOptions,
};
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{Error, Result};

/// Significant digits that tell any double from any other.
const DOUBLE_DIGITS: usize = 17;
/// Digits of the widest decimal.
const DECIMAL_DIGITS: usize = 38;

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

/// What the check has to know of the session.
pub(super) struct Known<'a> {
    /// Whether a name is that of an aggregate or window function.
    pub aggregates: &'a dyn Fn(&str) -> bool,
}

/// Refuses clauses that would have no effect, and completes what has a plain meaning (`FROM t`).
pub(super) fn check(statement: &mut ParsedStatement, known: &Known) -> Result<()> {
    match statement {
        ParsedStatement::Statement(statement) => visit(statement.as_mut(), known),
        ParsedStatement::Explain(explain) => check(&mut explain.statement, known),
        ParsedStatement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => visit(query.as_mut(), known),
            CopyToSource::Relation(_) => Ok(()),
        },
        ParsedStatement::CreateExternalTable(_) | ParsedStatement::Reset(_) => Ok(()),
    }
}

fn visit(node: &mut impl VisitMut, known: &Known) -> Result<()> {
    match node.visit(&mut Checker { known }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Checker<'a> {
    known: &'a Known<'a>,
}

/// Refuses a feature where it is used.
fn refuse(uses: &[(bool, &str)]) -> ControlFlow<Error> {
    match uses.iter().find(|(used, _)| *used) {
        Some((_, what)) => ControlFlow::Break(Error::NotSupported {
            what: (*what).to_owned(),
        }),
        None => ControlFlow::Continue(()),
    }
}

/// EXCEPT ALL or INTERSECT ALL in a query's body: the planner ignores how often a row occurs
/// (`docs/upstream/set-operations-all.md`).
fn counts_rows(body: &SetExpr) -> Option<&'static str> {
    let SetExpr::SetOperation {
        left,
        op,
        set_quantifier,
        right,
    } = body
    else {
        return None;
    };
    match (op, set_quantifier) {
        (SetOperator::Except, SetQuantifier::All) => Some("EXCEPT ALL"),
        (SetOperator::Intersect, SetQuantifier::All) => Some("INTERSECT ALL"),
        _ => counts_rows(left).or_else(|| counts_rows(right)),
    }
}

impl VisitorMut for Checker<'_> {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> ControlFlow<Error> {
        let SqlStatement::CreateTable(create) = statement else {
            return ControlFlow::Continue(());
        };
        match create.columns.iter().find_map(unknown_option) {
            Some(what) => ControlFlow::Break(Error::NotSupported { what }),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        super::order_by::separate(query);
        let counted = counts_rows(&query.body);
        refuse(&[
            (counted.is_some(), counted.unwrap_or_default()),
            (!query.locks.is_empty(), "FOR UPDATE or FOR SHARE"),
            (query.for_clause.is_some(), "FOR XML, JSON or BROWSE"),
            (query.settings.is_some(), "SETTINGS in a query"),
            (query.format_clause.is_some(), "FORMAT in a query"),
        ])
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if matches!(select.flavor, SelectFlavor::FromFirstNoSelect) {
            select.flavor = SelectFlavor::FromFirst;
            let everything = WildcardAdditionalOptions::default();
            select.projection = vec![SelectItem::Wildcard(everything)];
        }
        super::using::resolve(select)?;
        let filtered = select.projection.iter().any(|item| match item {
            SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) => {
                options.opt_ilike.is_some()
            }
            _ => false,
        });
        refuse(&[
            (filtered, "* ILIKE"),
            (
                select.exclude.is_some(),
                "EXCLUDE behind the select list (write * EXCLUDE (…))",
            ),
            (select.select_modifiers.is_some(), "a modifier after SELECT"),
            (
                has_group_modifiers(&select.group_by),
                "GROUP BY … WITH ROLLUP, CUBE or TOTALS (write GROUP BY ROLLUP (…) or CUBE (…))",
            ),
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (
                select.value_table_mode.is_some(),
                "SELECT AS STRUCT or AS VALUE",
            ),
        ])
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        name_folder(factor);
        match factor {
            TableFactor::Table {
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                ..
            } => refuse(&[
                (sample.is_some(), "TABLESAMPLE"),
                (version.is_some(), "a table as of an earlier time"),
                (*with_ordinality, "WITH ORDINALITY"),
                (!with_hints.is_empty(), "WITH (…) behind a table"),
                (!partitions.is_empty(), "PARTITION (…) behind a table"),
                (!index_hints.is_empty(), "an index hint"),
                (json_path.is_some(), "a JSON path behind a table"),
            ]),
            TableFactor::Derived { sample, .. } => refuse(&[(sample.is_some(), "TABLESAMPLE")]),
            TableFactor::Function {
                with_ordinality, ..
            } => refuse(&[(*with_ordinality, "WITH ORDINALITY")]),
            TableFactor::Pivot { .. } => refuse(&[(true, "PIVOT")]),
            TableFactor::Unpivot { .. } => refuse(&[(true, "UNPIVOT")]),
            TableFactor::MatchRecognize { .. } => refuse(&[(true, "MATCH_RECOGNIZE")]),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Some(exact) = exact_number(expr) {
            *expr = exact;
        }
        match expr {
            Expr::Function(function) => self.check_function(function),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn has_group_modifiers(group_by: &GroupByExpr) -> bool {
    match group_by {
        GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers) => {
            !modifiers.is_empty()
        }
    }
}

/// An option of a column in CREATE TABLE that would have no effect.
fn unknown_option(column: &ColumnDef) -> Option<String> {
    let mut options = column.options.iter().map(|option| &option.option);
    let unknown = options.find(|option| {
        !matches!(
            option,
            ColumnOption::Null
                | ColumnOption::NotNull
                | ColumnOption::Default(_)
                | ColumnOption::PrimaryKey(_)
                | ColumnOption::Unique(_)
                | ColumnOption::ForeignKey(_)
                | ColumnOption::Check(_)
        )
    });
    unknown.map(|option| format!("{option} of column {}", column.name))
}

/// `FROM 'sales'` means the folder `sales`, if there is one and no table of that name. A name without quotes is that of a table.
fn name_folder(factor: &mut TableFactor) {
    if let TableFactor::Table { name, .. } = factor
        && let [ObjectNamePart::Identifier(ident)] = name.0.as_mut_slice()
        && ident.quote_style == Some('\'')
        && !ident.value.ends_with('/')
        && Path::new(&ident.value).is_dir()
    {
        ident.value.push('/');
    }
}

impl Checker<'_> {
    /// Clauses of aggregates behind other functions.
    fn check_function(&self, function: &Function) -> ControlFlow<Error> {
        let (distinct, clauses) = match &function.args {
            FunctionArguments::List(list) => {
                (list.duplicate_treatment.is_some(), !list.clauses.is_empty())
            }
            _ => (false, false),
        };
        let has_parameters = !matches!(function.parameters, FunctionArguments::None);
        let uses = [
            (distinct, "DISTINCT or ALL"),
            (clauses, "ORDER BY or another clause"),
            (function.filter.is_some(), "FILTER"),
            (function.null_treatment.is_some(), "IGNORE or RESPECT NULLS"),
            (!function.within_group.is_empty(), "WITHIN GROUP"),
        ];
        let name = function.name.to_string().to_ascii_lowercase();
        let used = uses.iter().find(|(used, _)| *used);
        if let Some((_, clause)) = used
            && !(self.known.aggregates)(&name)
        {
            let what = format!("{clause} with {name}, which is not an aggregate,");
            return ControlFlow::Break(Error::NotSupported { what });
        }
        refuse(&[(has_parameters, "a function with two argument lists")])
    }
}

/// A number with more digits than any double needs, as a decimal.
fn exact_number(expr: &Expr) -> Option<Expr> {
    let Expr::Value(ValueWithSpan {
        value: Value::Number(text, _),
        ..
    }) = expr
    else {
        return None;
    };
    let (whole, fraction) = text.split_once('.')?;
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = whole.trim_start_matches('0').len() + fraction.len();
    let significant = [whole, fraction].concat();
    let significant = significant.trim_start_matches('0').trim_end_matches('0');
    let fits = significant.len() > DOUBLE_DIGITS && digits <= DECIMAL_DIGITS;
    if !(all_digits(whole) && all_digits(fraction) && fits) {
        return None;
    }
    let size = ExactNumberInfo::PrecisionAndScale(digits as u64, fraction.len() as i64);
    Some(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::value(Value::SingleQuotedString(text.clone()))),
        data_type: DataType::Decimal(size),
        array: false,
        format: None,
    })
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
