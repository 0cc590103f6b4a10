//! Columns that joins merge: the `k` of `a FULL JOIN b USING (k)`.
//!
//! The planner takes the left side's column, which is NULL where only the right side has a row, and finds the name
//! ambiguous in WHERE (`docs/upstream/using-columns.md`). The unqualified name is replaced by what it means: the left
//! side's column, the right side's of a RIGHT JOIN, and the first of both that is not NULL of a FULL JOIN.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, ReplaceSelectElement,
    ReplaceSelectItem, Select, SelectItem, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};

use crate::error::Error;

/// Replaces merged columns in one SELECT.
pub(super) fn resolve(select: &mut Select) -> ControlFlow<Error> {
    let [from] = select.from.as_slice() else {
        return ControlFlow::Continue(());
    };
    let merged = Merged::of(from)?;
    if merged.meanings.is_empty() {
        return ControlFlow::Continue(());
    }
    merged.name_projection(&mut select.projection);
    let mut replace = Replace {
        merged: &merged,
        depth: 0,
    };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            let _ = expr.visit(&mut replace);
        }
    }
    let clauses = [
        &mut select.selection,
        &mut select.having,
        &mut select.qualify,
    ];
    for expr in clauses.into_iter().flatten() {
        let _ = expr.visit(&mut replace);
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        for key in keys {
            let _ = key.visit(&mut replace);
        }
    }
    ControlFlow::Continue(())
}

/// What the merged columns of a FROM clause mean, by name.
struct Merged {
    meanings: HashMap<String, Expr>,
    /// Those that are not simply the left side's, in order: a `*` names them.
    changed: Vec<Ident>,
}

impl Merged {
    fn of(from: &TableWithJoins) -> ControlFlow<Error, Self> {
        let mut merged = Self {
            meanings: HashMap::new(),
            changed: Vec::new(),
        };
        // The table that unmerged columns are from, while there is only one.
        let mut left = qualifier(&from.relation);
        for join in &from.joins {
            let Some((side, constraint)) = side(&join.join_operator) else {
                left = None;
                continue;
            };
            match constraint {
                JoinConstraint::Using(columns) => {
                    let right = qualifier(&join.relation);
                    merged.merge(side, columns, left.as_ref(), right.as_ref())?;
                }
                JoinConstraint::Natural if side != KeptSide::Left => {
                    return ControlFlow::Break(Error::NotSupported {
                        what: "NATURAL RIGHT or FULL JOIN (name the columns with USING)".into(),
                    });
                }
                _ => {}
            }
            left = None;
        }
        ControlFlow::Continue(merged)
    }

    fn merge(
        &mut self,
        side: KeptSide,
        columns: &[ObjectName],
        left: Option<&Ident>,
        right: Option<&Ident>,
    ) -> ControlFlow<Error> {
        for column in columns {
            let name = column.0.last().and_then(|part| part.as_ident());
            let Some(name) = name else { continue };
            let key = normalized(name);
            if self
                .changed
                .iter()
                .any(|changed| normalized(changed) == key)
            {
                // The planner would join by the left side's column alone.
                return ControlFlow::Break(Error::NotSupported {
                    what: format!("USING ({name}) after a RIGHT or FULL JOIN by it (write ON)"),
                });
            }
            let of = |table: &Ident| Expr::CompoundIdentifier(vec![table.clone(), name.clone()]);
            let known = self.meanings.get(&key).cloned().or_else(|| left.map(of));
            let meaning = match (side, known, right.map(of)) {
                (KeptSide::Left, Some(left), _) => left,
                (KeptSide::Right, _, Some(right)) => right,
                (KeptSide::Full, Some(left), Some(right)) => coalesce(left, right),
                // It is not clear which table the left column is from: the planner has to know.
                (KeptSide::Left, None, _) => continue,
                _ => {
                    return ControlFlow::Break(Error::NotSupported {
                        what: format!(
                            "USING ({name}) in this RIGHT or FULL JOIN (write ON, and coalesce of both columns)"
                        ),
                    });
                }
            };
            if side != KeptSide::Left {
                self.changed.push(name.clone());
            }
            self.meanings.insert(key, meaning);
        }
        ControlFlow::Continue(())
    }

    fn meaning(&self, expr: &Expr) -> Option<(&Expr, Ident)> {
        let Expr::Identifier(name) = expr else {
            return None;
        };
        Some((self.meanings.get(&normalized(name))?, name.clone()))
    }

    /// Gives merged columns of the select list the names they have, and spells out what a `*` means for them.
    fn name_projection(&self, items: &mut [SelectItem]) {
        for item in items {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    if let Some((meaning, alias)) = self.meaning(expr) {
                        *item = SelectItem::ExprWithAlias {
                            expr: meaning.clone(),
                            alias,
                        };
                    }
                }
                SelectItem::Wildcard(options) if !self.changed.is_empty() => {
                    let replaced = options
                        .opt_replace
                        .get_or_insert_with(|| ReplaceSelectItem { items: Vec::new() });
                    for name in &self.changed {
                        if let Some(expr) = self.meanings.get(&normalized(name)) {
                            replaced.items.push(Box::new(ReplaceSelectElement {
                                expr: expr.clone(),
                                column_name: name.clone(),
                                as_keyword: true,
                            }));
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whose rows a join keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptSide {
    Left,
    Right,
    Full,
}

fn side(join: &JoinOperator) -> Option<(KeptSide, &JoinConstraint)> {
    use JoinOperator::{FullOuter, Inner, Join, Left, LeftOuter, Right, RightOuter};
    match join {
        Join(constraint) | Inner(constraint) | Left(constraint) | LeftOuter(constraint) => {
            Some((KeptSide::Left, constraint))
        }
        Right(constraint) | RightOuter(constraint) => Some((KeptSide::Right, constraint)),
        FullOuter(constraint) => Some((KeptSide::Full, constraint)),
        _ => None,
    }
}

/// The name that columns of a table are qualified with.
fn qualifier(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(alias.name.clone()),
            None => name.0.last().and_then(|part| part.as_ident()).cloned(),
        },
        TableFactor::Derived { alias, .. } => alias.as_ref().map(|alias| alias.name.clone()),
        _ => None,
    }
}

/// The name as the planner reads it.
pub(super) fn normalized(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

fn coalesce(left: Expr, right: Expr) -> Expr {
    let arg = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![arg(left), arg(right)],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Replaces names in an expression; names in subqueries are their own.
struct Replace<'a> {
    merged: &'a Merged,
    depth: usize,
}

impl VisitorMut for Replace<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Some((meaning, _)) = self.merged.meaning(expr)
        {
            *expr = meaning.clone();
        }
        ControlFlow::Continue(())
    }
}
