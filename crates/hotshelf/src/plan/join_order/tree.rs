//! A tree of joins, flattened: what is joined, by what, and in which order.

use std::rc::Rc;
use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan};

use super::rel_set::RelSet;
use super::safe::cannot_fail;

/// An order of joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tree {
    Leaf(usize),
    Join(Rc<Tree>, Rc<Tree>),
}

impl Tree {
    pub fn join(left: Self, right: Self) -> Self {
        Self::Join(Rc::new(left), Rc::new(right))
    }

    /// The same of relations with other numbers.
    fn renumbered(&self, numbers: &[usize]) -> Self {
        match self {
            Self::Leaf(relation) => Self::Leaf(numbers[*relation]),
            Self::Join(left, right) => {
                Self::join(left.renumbered(numbers), right.renumbered(numbers))
            }
        }
    }

    /// The relations below.
    pub fn relations(&self) -> RelSet {
        match self {
            Self::Leaf(relation) => RelSet::of(*relation),
            Self::Join(left, right) => left.relations().union(right.relations()),
        }
    }
}

/// Whether left joins are taken apart, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftJoins {
    Inside,
    /// Each is a part of its own.
    Apart,
}

/// A semi, anti or left join, whose left side may be any part of the tree that has its columns.
#[derive(Debug, Clone)]
pub(super) struct Reducer {
    pub join: Join,
}

impl Reducer {
    /// Whether it adds columns, and drops no row.
    pub fn attaches(&self) -> bool {
        self.join.join_type == JoinType::Left
    }

    /// What it compares and tests.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let keys = self.join.on.iter().flat_map(|(left, right)| [left, right]);
        keys.chain(&self.join.filter)
    }

    /// The share of rows that stay if this share of them finds its keys.
    pub fn share(&self, found: f64) -> f64 {
        let found = match self.join.filter {
            Some(_) => found * 0.5,
            None => found,
        };
        match self.join.join_type {
            JoinType::LeftAnti => (1.0 - found).max(0.1),
            _ => found,
        }
    }
}

/// A tree of joins without its nodes.
#[derive(Debug)]
pub(super) struct Flat {
    pub relations: Vec<Arc<LogicalPlan>>,
    pub pairs: Vec<(Expr, Expr)>,
    pub predicates: Vec<Expr>,
    /// Semi, anti and left joins, with the relation that is their right side.
    pub reducers: Vec<(usize, Reducer)>,
    pub order: Tree,
}

impl Flat {
    /// The parts of a tree of joins, if the plan is one.
    pub fn of(plan: &LogicalPlan, left_joins: LeftJoins) -> Option<Self> {
        if !is_inside(plan, left_joins) {
            return None;
        }
        let mut flat = Self {
            relations: Vec::new(),
            pairs: Vec::new(),
            predicates: Vec::new(),
            reducers: Vec::new(),
            order: Tree::Leaf(0),
        };
        flat.order = flat.take(plan, left_joins);
        Some(flat)
    }

    /// The same with its relations in the order of these places.
    pub fn renumbered(self, places: &[usize]) -> Self {
        let mut numbers = vec![0; places.len()];
        for (number, place) in places.iter().enumerate() {
            numbers[*place] = number;
        }
        let relations = places.iter().map(|place| self.relations[*place].clone());
        let reducers = self.reducers.into_iter();
        let mut reducers: Vec<_> = reducers
            .map(|(relation, reducer)| (numbers[relation], reducer))
            .collect();
        reducers.sort_by_key(|(relation, _)| *relation);
        Self {
            relations: relations.collect(),
            reducers,
            order: self.order.renumbered(&numbers),
            ..self
        }
    }

    fn take(&mut self, plan: &LogicalPlan, left_joins: LeftJoins) -> Tree {
        match plan {
            _ if !is_inside(plan, left_joins) => self.leaf(plan),
            LogicalPlan::Join(join) if is_inner(join) => {
                self.pairs.extend(join.on.iter().cloned());
                self.add(join.filter.iter());
                let left = self.take(&join.left, left_joins);
                Tree::join(left, self.take(&join.right, left_joins))
            }
            LogicalPlan::Join(join) => {
                let left = self.take(&join.left, left_joins);
                let right = self.leaf(&join.right);
                let join = join.clone();
                self.reducers
                    .push((self.relations.len() - 1, Reducer { join }));
                Tree::join(left, right)
            }
            LogicalPlan::Filter(filter) => {
                self.add([&filter.predicate].into_iter());
                self.take(&filter.input, left_joins)
            }
            LogicalPlan::Projection(projection) => self.take(&projection.input, left_joins),
            _ => self.leaf(plan),
        }
    }

    fn add<'a>(&mut self, predicates: impl Iterator<Item = &'a Expr>) {
        let parts = predicates.flat_map(split_conjunction);
        self.predicates.extend(parts.cloned());
    }

    fn leaf(&mut self, plan: &LogicalPlan) -> Tree {
        self.relations.push(Arc::new(plan.clone()));
        Tree::Leaf(self.relations.len() - 1)
    }
}

fn is_inner(join: &Join) -> bool {
    join.join_type == JoinType::Inner
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.null_aware
}

fn follows_rows(join: &Join, left_joins: LeftJoins) -> bool {
    let is_known = match join.join_type {
        JoinType::LeftSemi | JoinType::LeftAnti => true,
        JoinType::Left => left_joins == LeftJoins::Inside,
        _ => false,
    };
    is_known
        && join.null_equality == NullEquality::NullEqualsNothing
        && !join.null_aware
        && !join.on.is_empty()
        && tests_safely(join)
}

/// Whether a join's keys and condition may be computed for more rows than the plan says.
fn tests_safely(join: &Join) -> bool {
    let Ok(schema) = join.left.schema().join(join.right.schema()) else {
        return false;
    };
    let keys = join.on.iter().flat_map(|(left, right)| [left, right]);
    let mut exprs = keys.chain(&join.filter);
    exprs.all(|expr| cannot_fail(expr, &schema))
}

/// Whether a node is inside of a tree of joins: an inner, semi, anti or left join, or what may stand above one without
/// changing its rows and the names of its columns.
pub(super) fn is_inside(plan: &LogicalPlan, left_joins: LeftJoins) -> bool {
    match plan {
        LogicalPlan::Join(join) => is_inner(join) || follows_rows(join, left_joins),
        LogicalPlan::Filter(filter) => is_inside(&filter.input, left_joins),
        LogicalPlan::Projection(projection) => {
            let mut exprs = projection.expr.iter();
            let are_columns = exprs.all(|expr| matches!(expr, Expr::Column(_)));
            are_columns && is_inside(&projection.input, left_joins)
        }
        _ => false,
    }
}

/// What a part of a plan is called: an alias, or the tables below.
pub(super) fn name(plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => alias.alias.table().to_owned(),
        LogicalPlan::TableScan(scan) => scan.table_name.table().to_owned(),
        LogicalPlan::Values(_) => "values".into(),
        _ => match plan.inputs().as_slice() {
            [] => "rows".into(),
            [input] => name(input),
            [first, ..] => format!("{} …", name(first)),
        },
    }
}
