//! Select lists that have an expression more than once: the engine's projections want a name for each column.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{Expr, Ident, SelectItem};

use super::using::normalized;

/// Names what a select list repeats in the same words: the columns of `SELECT a, a` are `a` and `a:1`, a name that no
/// statement means by chance.
pub(super) fn name_repeated(items: &mut [SelectItem]) {
    let mut names: HashSet<String> = items.iter().filter_map(name).collect();
    let mut seen = HashSet::new();
    for item in items {
        let SelectItem::UnnamedExpr(expr) = item else {
            continue;
        };
        if seen.insert(expr.to_string()) {
            continue;
        }
        let own = own_name(expr);
        let mut numbered = (1..).map(|number| format!("{own}:{number}"));
        let Some(alias) = numbered.find(|alias| names.insert(alias.clone())) else {
            continue;
        };
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', alias),
        };
    }
}

fn name(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(own_name(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Some(normalized(alias)),
        _ => None,
    }
}

/// The name of an expression's column.
fn own_name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => normalized(name),
        Expr::CompoundIdentifier(parts) => parts.last().map_or_else(String::new, normalized),
        other => other.to_string(),
    }
}
