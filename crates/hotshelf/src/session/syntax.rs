//! Syntax that the planner would accept and ignore, or read in another way than SQL says.
//!
//! [`super::text`] looks at the text before it is parsed; this looks at the parsed statement before it is planned.
//! Functions here recurse over what is parsed: call them on a large stack.

use std::ops::ControlFlow;
use std::path::Path;

use datafusion::sql::parser::{CopyToSource, ResetStatement, Statement as ParsedStatement};
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, Expr, Function, FunctionArguments, GroupByExpr, Ident, ObjectName,
    ObjectNamePart, Query, Select, SelectFlavor, SelectItem, SetExpr, SetOperator, SetQuantifier,
    Statement as SqlStatement, TableFactor, VisitMut, VisitorMut, WildcardAdditionalOptions,
};

use crate::error::hint::DEFAULT_VALUE;
use crate::error::{Error, Result};

/// What the check needs from the session.
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
        ParsedStatement::CreateExternalTable(_) => Ok(()),
        ParsedStatement::Reset(ResetStatement::Variable(name)) => check_reset(name),
    }
}

/// The engine knows the defaults of its own settings only.
fn check_reset(name: &ObjectName) -> Result<()> {
    let is_ours = |part: &Ident| part.value.eq_ignore_ascii_case("hotshelf");
    match name.0.first().and_then(ObjectNamePart::as_ident) {
        Some(first) if is_ours(first) => Err(Error::NotSupported {
            what: format!(
                "RESET {name}: SET it to the value that SHOW {name} gives in a new session"
            ),
        }),
        _ => Ok(()),
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
        match statement {
            SqlStatement::CreateTable(create) => {
                match create.columns.iter().find_map(unknown_option) {
                    Some(what) => ControlFlow::Break(Error::NotSupported { what }),
                    None => ControlFlow::Continue(()),
                }
            }
            SqlStatement::Insert(insert) => insert
                .source
                .as_deref_mut()
                .map_or(ControlFlow::Continue(()), check_values),
            _ => ControlFlow::Continue(()),
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
        super::repeated::name_repeated(&mut select.projection);
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
        super::exact_number::keep(expr);
        match expr {
            Expr::Function(function) => self.check_function(function),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Values of an INSERT: numbers among them keep all their digits, and DEFAULT is refused, which the parser takes for
/// the name of a column.
fn check_values(source: &mut Query) -> ControlFlow<Error> {
    let SetExpr::Values(values) = source.body.as_mut() else {
        return ControlFlow::Continue(());
    };
    let mut has_default = false;
    for cell in values.rows.iter_mut().flat_map(|row| &mut row.content) {
        has_default |= matches!(cell, Expr::Identifier(name)
            if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"));
        super::exact_number::keep_all_digits(cell);
    }
    refuse(&[(has_default, DEFAULT_VALUE)])
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

/// `FROM 'sales'` means the folder `sales`, if there is one and no table of that name. A name without quotes is that
/// of a table.
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
