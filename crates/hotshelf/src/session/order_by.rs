//! ORDER BY of output columns where a group key is a cast.
//!
//! Casts are left out of the names of columns, so that the planner may take an output column for the key of that name
//! (`docs/upstream/order-by-cast-key.md`). A SELECT around the groups has no such names.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias,
    TableFactor, TableWithJoins, Value, WildcardAdditionalOptions,
};

/// The name of the groups inside.
const GROUPS: &str = "__groups";

/// Puts a SELECT around groups that are ordered by their output columns, where these may be misread.
pub(super) fn separate(query: &mut Query) {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return;
    };
    let Some(OrderByKind::Expressions(keys)) =
        query.order_by.as_ref().map(|order_by| &order_by.kind)
    else {
        return;
    };
    let by_outputs = keys.iter().all(|key| is_output(select, &key.expr));
    if !by_outputs || !has_cast_key(select) || !has_names(select) {
        return;
    }
    let outer = SetExpr::Select(Box::new(everything_of(select)));
    *query.body = outer;
}

/// `SELECT * FROM (select) AS __groups`.
fn everything_of(select: &Select) -> Select {
    let groups = Query {
        with: None,
        body: Box::new(SetExpr::Select(Box::new(select.clone()))),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    };
    let from = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(groups),
        alias: Some(TableAlias {
            explicit: true,
            name: Ident::new(GROUPS),
            columns: Vec::new(),
            at: None,
        }),
        sample: None,
    };
    Select {
        distinct: None,
        projection: vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())],
        from: vec![TableWithJoins {
            relation: from,
            joins: Vec::new(),
        }],
        selection: None,
        group_by: GroupByExpr::Expressions(Vec::new(), Vec::new()),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        ..select.clone()
    }
}

fn has_cast_key(select: &Select) -> bool {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else {
        return false;
    };
    // A key may be the number or the name of an output column.
    let outputs = select.projection.iter().filter_map(expression);
    !keys.is_empty() && keys.iter().chain(outputs).any(is_cast)
}

fn is_cast(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) => is_cast(inner),
        other => matches!(other, Expr::Cast { .. }),
    }
}

fn expression(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Whether the output columns have names of their own, each a different one.
fn has_names(select: &Select) -> bool {
    let mut names = HashSet::new();
    let mut items = select.projection.iter();
    items.all(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => names.insert(alias.value.to_lowercase()),
        SelectItem::UnnamedExpr(expr) => names.insert(expr.to_string().to_lowercase()),
        _ => false,
    })
}

/// Whether a key of ORDER BY is the number or the name of an output column.
fn is_output(select: &Select, key: &Expr) -> bool {
    match key {
        Expr::Value(value) => matches!(&value.value, Value::Number(text, _)
            if text.bytes().all(|byte| byte.is_ascii_digit())),
        Expr::Identifier(name) => {
            let mut items = select.projection.iter();
            items.any(
                |item| matches!(item, SelectItem::ExprWithAlias { alias, .. } if alias == name),
            )
        }
        _ => false,
    }
}
