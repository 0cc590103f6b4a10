//! Smaller queries: each candidate leaves one part out or puts a part in the place of the whole.

use crate::answers::check::Case;
use crate::answers::query::{Body, Expr, Form, Grouping, JoinKind, On, Query, Relation, Select};
use crate::answers::render;
use crate::answers::schema::{Dialect, Type, Value};

/// Cases with a smaller query or predicate.
pub fn of_case(case: &Case) -> Vec<Case> {
    let mut cases = Vec::new();
    for query in of_query(&case.query, false) {
        cases.push(Case {
            query,
            ..case.clone()
        });
    }
    for predicate in case.predicate.iter().flat_map(of_expr) {
        cases.push(Case {
            predicate: Some(predicate),
            ..case.clone()
        });
    }
    cases
}

/// `keeps_items`: other parts name the columns of the result.
fn of_query(query: &Query, keeps_items: bool) -> Vec<Query> {
    let mut result = Vec::new();
    let with = |change: &dyn Fn(&mut Query)| {
        let mut query = query.clone();
        change(&mut query);
        query
    };
    for idx in 0..query.ctes.len() {
        result.push(with(&|query| drop(query.ctes.remove(idx))));
    }
    if query.limit.is_some() || query.offset.is_some() {
        result.push(with(&|query| (query.limit, query.offset) = (None, None)));
    }
    if query.offset.is_some() {
        result.push(with(&|query| query.offset = None));
    }
    if !query.order.is_empty() && query.limit.is_none() && query.offset.is_none() {
        result.push(with(&|query| query.order.clear()));
    }
    match &query.body {
        Body::Set {
            left,
            right,
            operator,
        } => {
            for side in [left, right] {
                let mut side = Query::clone(side);
                side.ctes.splice(..0, query.ctes.iter().cloned());
                result.push(side);
            }
            for left in of_query(left, true) {
                result.push(with(&|query| query.body = set(operator, &left, right)));
            }
            for right in of_query(right, true) {
                result.push(with(&|query| query.body = set(operator, left, &right)));
            }
        }
        Body::Select(select) => {
            result.extend(inner_query(query, select));
            for (select, removed) in of_select(select, keeps_items) {
                result.push(with(&|query| put(query, &select, removed)));
            }
        }
    }
    for (idx, (_, cte)) in query.ctes.iter().enumerate() {
        for cte in of_query(cte, true) {
            result.push(with(&|query| query.ctes[idx].1 = cte.clone()));
        }
    }
    result
}

fn set(operator: &'static str, left: &Query, right: &Query) -> Body {
    Body::Set {
        operator,
        left: Box::new(left.clone()),
        right: Box::new(right.clone()),
    }
}

/// Puts a select into a query; the order forgets a removed item.
fn put(query: &mut Query, select: &Select, removed: Option<usize>) {
    query.body = Body::Select(Box::new(select.clone()));
    if let Some(removed) = removed {
        query.order.retain(|order| order.position != removed);
        for order in &mut query.order {
            order.position -= usize::from(order.position > removed);
        }
    }
}

/// The derived table instead of the query over it.
fn inner_query(query: &Query, select: &Select) -> Option<Query> {
    let [source] = select.from.as_slice() else {
        return None;
    };
    let Relation::Derived(inner) = &source.relation else {
        return None;
    };
    let mut inner = Query::clone(inner);
    inner.ctes.splice(..0, query.ctes.iter().cloned());
    Some(inner)
}

/// A select with the item that is missing from it.
type Smaller = (Select, Option<usize>);

/// Smaller selects.
fn of_select(select: &Select, keeps_items: bool) -> Vec<Smaller> {
    let mut result = Vec::new();
    leave_out(select, keeps_items, &mut result);
    of_joins(select, &mut result);
    of_exprs(select, &mut result);
    result
}

fn changed(select: &Select, change: impl FnOnce(&mut Select)) -> Select {
    let mut select = select.clone();
    change(&mut select);
    select
}

/// Without one of its parts.
fn leave_out(select: &Select, keeps_items: bool, result: &mut Vec<Smaller>) {
    let mut push = |change: &dyn Fn(&mut Select), removed| {
        result.push((changed(select, change), removed));
    };
    for idx in (1..select.from.len()).rev() {
        push(&|select| drop_join(select, idx), None);
    }
    for idx in 0..select.filter.len() {
        push(&|select| drop(select.filter.remove(idx)), None);
    }
    if !select.having.is_empty() {
        push(&|select| select.having.clear(), None);
    }
    if select.is_distinct {
        push(&|select| select.is_distinct = false, None);
    }
    if !matches!(select.group, Grouping::None | Grouping::By(_)) {
        push(
            &|select| select.group = Grouping::By(select.group.keys().to_vec()),
            None,
        );
    }
    if !keeps_items && select.items.len() > 1 {
        for idx in 0..select.items.len() {
            push(&|select| drop_item(select, idx), Some(idx));
        }
    }
}

/// With a simpler join.
fn of_joins(select: &Select, result: &mut Vec<Smaller>) {
    let mut push = |change: &dyn Fn(&mut Select)| result.push((changed(select, change), None));
    for (idx, join) in select.from.iter().enumerate() {
        if idx > 0 && !matches!(join.kind, JoinKind::Inner | JoinKind::Cross) {
            push(&|select| select.from[idx].kind = JoinKind::Inner);
        }
        if let On::All(conditions) = &join.on {
            for (condition_idx, condition) in conditions.iter().enumerate() {
                if conditions.len() > 1 {
                    push(&|select| drop_condition(select, idx, condition_idx));
                }
                for condition in of_expr(condition) {
                    push(&|select| set_condition(select, idx, condition_idx, &condition));
                }
            }
        }
        if let Relation::Derived(inner) = &join.relation {
            for inner in of_query(inner, true) {
                let derived = Relation::Derived(Box::new(inner));
                push(&|select| select.from[idx].relation = derived.clone());
            }
        }
    }
}

/// With a smaller expression.
fn of_exprs(select: &Select, result: &mut Vec<Smaller>) {
    type Part = fn(&mut Select) -> &mut Vec<Expr>;
    let parts: [Part; 3] = [|s| &mut s.filter, |s| &mut s.having, |s| &mut s.items];
    for part in parts {
        let exprs = part(&mut select.clone()).clone();
        for (idx, expr) in exprs.iter().enumerate() {
            for smaller in of_expr(expr) {
                let smaller = changed(select, |select| part(select)[idx] = smaller);
                result.push((smaller, None));
            }
        }
    }
}

/// A join goes with everything that names its columns, as far as something remains.
fn drop_join(select: &mut Select, idx: usize) {
    let alias = select.from.remove(idx).alias;
    select.filter.retain(|expr| !expr.names(&alias));
    select.having.retain(|expr| !expr.names(&alias));
    for join in &mut select.from {
        if let On::All(conditions) = &mut join.on
            && conditions.iter().any(|condition| !condition.names(&alias))
        {
            conditions.retain(|condition| !condition.names(&alias));
        }
    }
}

fn drop_condition(select: &mut Select, join_idx: usize, idx: usize) {
    if let On::All(conditions) = &mut select.from[join_idx].on {
        conditions.remove(idx);
    }
}

fn set_condition(select: &mut Select, join_idx: usize, idx: usize, condition: &Expr) {
    if let On::All(conditions) = &mut select.from[join_idx].on {
        conditions[idx] = condition.clone();
    }
}

/// An item goes, and the key that it is.
fn drop_item(select: &mut Select, idx: usize) {
    let text = |expr: &Expr| render::expression(expr, Dialect::Hotshelf);
    let item = text(&select.items.remove(idx));
    if let Grouping::By(keys) = &mut select.group {
        keys.retain(|key| text(key) != item);
        if keys.is_empty() {
            select.group = Grouping::None;
        }
    }
}

/// Smaller expressions of the same kind.
fn of_expr(expr: &Expr) -> Vec<Expr> {
    let mut result = Vec::new();
    let is_literal = matches!(expr.form, Form::Literal { .. });
    if expr.ty == Type::Boolean && !is_literal {
        result.push(Expr::literal(Type::Boolean, Value::Bool(true)));
    }
    if matches!(expr.form, Form::Whole(_)) {
        return result;
    }
    result.extend(
        expr.args
            .iter()
            .filter(|arg| arg.kind() == expr.kind())
            .cloned(),
    );
    let first_removable = match expr.form {
        Form::Chain(_) => Some(0),
        Form::List(_) => Some(1),
        _ => None,
    };
    if let Some(first) = first_removable {
        result.extend(without_one(expr, first));
    }
    for (idx, arg) in expr.args.iter().enumerate() {
        for smaller in of_expr(arg) {
            let mut expr = expr.clone();
            expr.args[idx] = smaller;
            result.push(expr);
        }
    }
    if let Some(query) = &expr.query {
        for smaller in of_query(query, true) {
            result.push(expr.clone().with_query(smaller));
        }
    }
    result
}

/// The expression without one of its arguments, of which two or more remain to choose from; long lists are halved.
fn without_one(expr: &Expr, first: usize) -> Vec<Expr> {
    let count = expr.args.len();
    let mut result = Vec::new();
    if count - first > 4 {
        let middle = first + (count - first) / 2;
        for kept in [first..middle, middle..count] {
            let mut half = expr.clone();
            half.args = expr.args[..first]
                .iter()
                .chain(&expr.args[kept])
                .cloned()
                .collect();
            result.push(half);
        }
    }
    for idx in (first..count).filter(|_| count - first > 1) {
        let mut smaller = expr.clone();
        smaller.args.remove(idx);
        result.push(smaller);
    }
    result
}
