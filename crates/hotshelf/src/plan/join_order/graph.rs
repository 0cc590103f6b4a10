//! The join graph of a tree of inner, semi and anti joins: relations, what is equal between them, and other conditions.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan, Operator};

use super::columns::Columns;
use super::estimate::{Estimate, estimate, pair_count};
use super::reasons::{AsWritten, WhyAsWritten};
use super::rel_set::{RELATIONS_MAX, RelSet};
use super::safe::cannot_fail;
use super::selectivity::{filtered, selectivity};
use super::tree::{Flat, LeftJoins, Reducer, Tree, name};
use crate::statistics::column::ColumnEstimate;
use crate::statistics::distribution::Distribution;
use crate::statistics::row_bounds::RowBounds;

/// Columns with fewer values than this share of the rows have some of them more than once; estimates err by as much.
const REPEATING: f64 = 0.95;

/// What is joined: a part of the plan that is not taken apart.
#[derive(Debug)]
pub(super) struct Relation {
    pub plan: Arc<LogicalPlan>,
    pub estimate: Estimate,
    /// What it drops of other relations' rows, or adds to them, if it is the right side of a semi, anti or left join.
    pub reducer: Option<Reduction>,
}

/// A semi, anti or left join by a relation.
#[derive(Debug)]
pub(super) struct Reduction {
    pub reducer: Reducer,
    /// The relations that its keys and condition read.
    pub reads: RelSet,
    /// The share of rows that stay, or how many there are of each with what a left join adds.
    pub share: f64,
    /// How many of its rows a row finds.
    pub matches: f64,
    /// Whether a row finds one of its rows at most.
    pub is_unique: bool,
    /// Whether that is sure.
    pub is_found_once: bool,
}

/// A column that is equal to others in every row of the answer.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub relation: usize,
    pub column: Column,
    pub values: ColumnEstimate,
    /// How they are spread, where both they and those of another column repeat.
    pub spread: Option<Arc<Distribution>>,
    /// Whether a star pipeline could look it up.
    pub is_looked_up: bool,
}

/// An equality between two relations that implies no other: of expressions, of floats, of different types.
#[derive(Debug)]
pub(super) struct Edge {
    pub sides: [(usize, Expr); 2],
    pub values: [ColumnEstimate; 2],
}

/// Another condition over several relations.
#[derive(Debug)]
pub(super) struct Condition {
    pub predicate: Expr,
    pub reads: RelSet,
    pub share: f64,
}

/// A join graph.
#[derive(Debug)]
pub(super) struct Graph {
    pub relations: Vec<Relation>,
    /// Columns that are all equal: any of them may be compared.
    pub classes: Vec<Vec<Member>>,
    pub edges: Vec<Edge>,
    pub conditions: Vec<Condition>,
    /// What is tested once all is joined.
    pub last: Vec<Expr>,
    /// The order of the text.
    pub order: Tree,
}

impl Graph {
    /// The graph of a tree of joins, or why the tree stays as it is: something about it is not known or not sure.
    pub fn of(plan: &LogicalPlan, left_joins: LeftJoins) -> Result<Self, AsWritten> {
        let Some(flat) = Flat::of(plan, left_joins) else {
            return Err(AsWritten {
                relations: Vec::new(),
                why: WhyAsWritten::NotJoins,
            });
        };
        let relations = flat.relations.clone();
        Self::of_parts(flat).map_err(|why| AsWritten { relations, why })
    }

    fn of_parts(flat: Flat) -> Result<Self, WhyAsWritten> {
        if flat.relations.len() > RELATIONS_MAX {
            return Err(WhyAsWritten::ManyRelations);
        }
        let estimates = flat.relations.iter().map(|plan| {
            let known = estimate(plan);
            let known = known.filter(|one| one.columns.len() == plan.schema().fields().len());
            known.ok_or_else(|| WhyAsWritten::UnknownRows(name(plan)))
        });
        let estimates = estimates.collect::<Result<Vec<_>, _>>()?;
        let (flat, estimates) = numbered(flat, estimates);
        let columns = Columns::of(&flat.relations)?;
        let attached = flat.reducers.iter().filter(|(_, one)| one.attaches());
        let attached = attached.map(|(relation, _)| RelSet::of(*relation));
        let mut builder = Builder {
            attached: attached.fold(RelSet::EMPTY, RelSet::union),
            equal: (0..columns.owners.len()).collect(),
            estimates,
            columns,
            plans: flat.relations,
            edges: Vec::new(),
            conditions: Vec::new(),
            last: Vec::new(),
        };
        for (left, right) in flat.pairs {
            builder.add_equality(left, right)?;
        }
        for predicate in flat.predicates {
            builder.add_predicate(predicate)?;
        }
        builder.finish(flat.reducers, flat.order)
    }

    /// The relations that keep their columns and have no reducer's part.
    pub fn all(&self) -> RelSet {
        let relations = 0..self.relations.len();
        relations.fold(RelSet::EMPTY, |all, idx| all.union(RelSet::of(idx)))
    }

    /// An order in words: the side that is kept for look-ups first.
    pub fn describe(&self, order: &Tree) -> String {
        match order {
            Tree::Leaf(relation) => name(&self.relations[*relation].plan),
            Tree::Join(left, right) => {
                format!("({} ⋈ {})", self.describe(left), self.describe(right))
            }
        }
    }

    /// The members of a class on two sides, if it joins them: of each side the one of the largest table, which a star
    /// pipeline would scan.
    pub fn crossing<'a>(
        &self,
        class: &'a [Member],
        left: RelSet,
        right: RelSet,
    ) -> Option<(&'a Member, &'a Member)> {
        let of = |side: RelSet| {
            let members = class.iter().filter(|member| side.has(member.relation));
            let rows = |member: &Member| self.relations[member.relation].estimate.table_rows;
            members.max_by(|a, b| rows(a).total_cmp(&rows(b)))
        };
        Some((of(left)?, of(right)?))
    }
}

/// The same with relations numbered by what they are and not by where the text names them: from the largest table, and
/// by the names of their columns where tables are equally large. All that follows then is the same for every text.
fn numbered(flat: Flat, estimates: Vec<Estimate>) -> (Flat, Vec<Estimate>) {
    let fields = |place: usize| {
        let fields = flat.relations[place].schema().iter();
        fields.map(|(table, field)| (table, field.name()))
    };
    let mut places: Vec<usize> = (0..estimates.len()).collect();
    places.sort_by(|&a, &b| {
        let larger = estimates[b].table_rows.total_cmp(&estimates[a].table_rows);
        larger.then_with(|| fields(a).cmp(fields(b)))
    });
    let estimates = places.iter().map(|place| estimates[*place].clone());
    let estimates = estimates.collect();
    (flat.renumbered(&places), estimates)
}

struct Builder {
    columns: Columns,
    /// The right sides of left joins. Conditions on what these add have to be tested after them.
    attached: RelSet,
    plans: Vec<Arc<LogicalPlan>>,
    estimates: Vec<Estimate>,
    /// Of each column one that it is equal to; the last of such a chain stands for all.
    equal: Vec<usize>,
    edges: Vec<Edge>,
    conditions: Vec<Condition>,
    last: Vec<Expr>,
}

impl Builder {
    fn add_equality(&mut self, left: Expr, right: Expr) -> Result<(), WhyAsWritten> {
        if let (Expr::Column(a), Expr::Column(b)) = (&left, &right) {
            let (a, b) = (self.columns.place(a)?, self.columns.place(b)?);
            self.reads(&left)?;
            self.reads(&right)?;
            let data_type = |place: usize| self.columns.all.field(place).data_type();
            if data_type(a) == data_type(b) && is_transitive(data_type(a)) {
                let (a, b) = (self.representative(a), self.representative(b));
                self.equal[a.max(b)] = a.min(b);
                return Ok(());
            }
        }
        let sides = (only(self.reads(&left)?), only(self.reads(&right)?));
        let (Some(from), Some(to)) = sides else {
            return self.add_predicate(equality(left, right));
        };
        if from == to {
            return self.add_predicate(equality(left, right));
        }
        // What may fail must not be computed for more rows than before.
        if let Some(unsafe_side) = [&left, &right].into_iter().find(|side| !self.is_safe(side)) {
            return Err(WhyAsWritten::MayFail(Box::new(unsafe_side.clone())));
        }
        let ((from, left), (to, right)) = match from < to {
            true => ((from, left), (to, right)),
            false => ((to, right), (from, left)),
        };
        let values = |relation: usize, expr: &Expr| {
            self.estimates[relation].of_expr(expr, self.plans[relation].schema())
        };
        self.edges.push(Edge {
            values: [values(from, &left), values(to, &right)],
            sides: [(from, left), (to, right)],
        });
        Ok(())
    }

    fn add_predicate(&mut self, predicate: Expr) -> Result<(), WhyAsWritten> {
        check_repeatable(&predicate)?;
        if let Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) = &predicate
        {
            let (from, to) = (only(self.reads(left)?), only(self.reads(right)?));
            let joins = from.is_some() && to.is_some() && from != to;
            if joins && self.is_safe(&predicate) {
                return self.add_equality(left.as_ref().clone(), right.as_ref().clone());
            }
        }
        // The engine repeats a predicate now and then.
        let mut known = self.conditions.iter().map(|condition| &condition.predicate);
        if known.any(|known| *known == predicate) || self.last.contains(&predicate) {
            return Ok(());
        }
        let reads = self.reads(&predicate)?;
        if reads.is_empty() || !self.is_safe(&predicate) {
            self.last.push(predicate);
            return Ok(());
        }
        let share = selectivity(&predicate, &self.all_columns(), &self.columns.all);
        self.conditions.push(Condition {
            predicate,
            reads,
            share,
        });
        Ok(())
    }

    /// The relations that a condition reads, unless it reads what a left join adds.
    fn reads(&self, expr: &Expr) -> Result<RelSet, WhyAsWritten> {
        let reads = self.columns.reads(expr)?;
        match reads.meets(self.attached) {
            true => Err(WhyAsWritten::ReadsAdded(Box::new(expr.clone()))),
            false => Ok(reads),
        }
    }

    fn is_safe(&self, expr: &Expr) -> bool {
        cannot_fail(expr, &self.columns.all)
    }

    /// The columns of all relations side by side.
    fn all_columns(&self) -> Estimate {
        let rows = self.estimates.iter().map(|each| each.rows);
        let rows = rows.fold(1.0, f64::max);
        let columns = self.estimates.iter().flat_map(|each| &each.columns);
        Estimate {
            rows,
            unfiltered: rows,
            table_rows: rows,
            bounds: RowBounds::UNKNOWN,
            columns: columns.copied().collect(),
            sampled: None,
        }
    }

    fn representative(&self, mut place: usize) -> usize {
        while self.equal[place] != place {
            place = self.equal[place];
        }
        place
    }

    fn finish(
        mut self,
        reducers: Vec<(usize, Reducer)>,
        order: Tree,
    ) -> Result<Graph, WhyAsWritten> {
        self.filter_relations()?;
        let classes = self.classes();
        let mut reductions: Vec<_> = self.plans.iter().map(|_| None).collect();
        for (relation, reducer) in reducers {
            reductions[relation] = Some(self.reduction(relation, reducer)?);
        }
        // However they were written.
        self.edges
            .sort_by_cached_key(|edge| edge.sides.each_ref().map(|(_, side)| side.to_string()));
        self.last.sort_by_cached_key(Expr::to_string);
        let relations = self.plans.into_iter().zip(self.estimates).zip(reductions);
        let relations = relations.map(|((plan, estimate), reducer)| Relation {
            plan,
            estimate,
            reducer,
        });
        Ok(Graph {
            relations: relations.collect(),
            classes,
            edges: self.edges,
            conditions: self.conditions,
            last: self.last,
            order,
        })
    }

    /// Puts what concerns one relation alone on that relation: its own conditions, and equalities of its columns that
    /// follow from those with others.
    fn filter_relations(&mut self) -> Result<(), WhyAsWritten> {
        self.conditions
            .sort_by_cached_key(|condition| condition.predicate.to_string());
        let mut own: Vec<Vec<Expr>> = self.plans.iter().map(|_| Vec::new()).collect();
        for condition in std::mem::take(&mut self.conditions) {
            match only(condition.reads) {
                Some(relation) => own[relation].push(condition.predicate),
                None => self.conditions.push(condition),
            }
        }
        let mut first_of: HashMap<(usize, usize), usize> = HashMap::new();
        for place in 0..self.equal.len() {
            let (relation, _) = self.columns.owners[place];
            let class = self.representative(place);
            let first = *first_of.entry((class, relation)).or_insert(place);
            if first != place {
                let column = |place: usize| {
                    Expr::Column(Column::from(self.columns.all.qualified_field(place)))
                };
                own[relation].push(column(first).eq(column(place)));
            }
        }
        for (relation, predicates) in own.into_iter().enumerate() {
            for predicate in predicates {
                let plan = self.plans[relation].clone();
                let rows = self.estimates[relation].clone();
                self.estimates[relation] = filtered(rows, &predicate, plan.schema());
                let filter = Filter::try_new(predicate.clone(), plan);
                let filter = filter.map_err(|_| WhyAsWritten::NotAFilter(Box::new(predicate)))?;
                self.plans[relation] = Arc::new(LogicalPlan::Filter(filter));
            }
        }
        Ok(())
    }

    /// Columns that are equal, one for each relation.
    fn classes(&self) -> Vec<Vec<Member>> {
        let mut classes: HashMap<usize, Vec<Member>> = HashMap::new();
        for place in 0..self.equal.len() {
            let (relation, idx) = self.columns.owners[place];
            let (qualifier, field) = self.columns.all.qualified_field(place);
            let data_type = field.data_type();
            let class = classes.entry(self.representative(place)).or_default();
            if class.iter().all(|member| member.relation != relation) {
                class.push(Member {
                    relation,
                    column: Column::from((qualifier, field)),
                    values: self.estimates[relation].columns[idx],
                    spread: None,
                    is_looked_up: data_type.is_integer() || data_type.is_temporal(),
                });
            }
        }
        let mut joined: Vec<_> = classes
            .into_iter()
            .filter(|(_, class)| class.len() > 1)
            .collect();
        joined.sort_by_key(|(first, _)| *first);
        let mut classes: Vec<_> = joined.into_iter().map(|(_, class)| class).collect();
        self.spread(&mut classes);
        classes
    }

    /// Finds out how values are spread where rows of several relations have the same ones: most pairs are of frequent
    /// values.
    fn spread(&self, classes: &mut [Vec<Member>]) {
        for class in classes {
            let repeats = |member: &Member| {
                let rows = self.estimates[member.relation].rows;
                member.values.distinct < rows * REPEATING
            };
            if class.iter().filter(|member| repeats(member)).count() < 2 {
                continue;
            }
            for member in class.iter_mut().filter(|member| repeats(member)) {
                let schema = self.plans[member.relation].schema();
                let idx = schema.maybe_index_of_column(&member.column);
                let sampled = self.estimates[member.relation].sampled.as_ref();
                member.spread = idx
                    .zip(sampled)
                    .and_then(|(idx, rows)| rows.distribution_left(idx));
            }
        }
    }

    fn reduction(&self, relation: usize, reducer: Reducer) -> Result<Reduction, WhyAsWritten> {
        let mut reads = RelSet::EMPTY;
        for expr in reducer.exprs() {
            check_repeatable(expr)?;
            reads = reads.union(self.columns.reads(expr)?);
        }
        let keys = self.estimates[relation].clone();
        let schema = self.plans[relation].schema();
        let all = self.all_columns();
        let pairs = reducer.join.on.iter().map(|(left, right)| {
            let left = all.of_expr(left, &self.columns.all);
            (left, keys.of_expr(right, schema))
        });
        let pairs: Vec<_> = pairs.collect();
        let found = pairs.iter().map(|(left, right)| {
            let found = right.distinct / left.domain.max(1.0);
            found.min(1.0)
        });
        let matches = keys.rows / pair_count(&pairs, all.unfiltered, keys.unfiltered);
        let share = match reducer.attaches() {
            true => matches.max(1.0),
            false => reducer.share(found.fold(1.0, f64::min)),
        };
        let is_key = |(_, right): &(ColumnEstimate, ColumnEstimate)| {
            !right.repeats && right.distinct >= keys.rows * REPEATING
        };
        Ok(Reduction {
            share,
            matches,
            is_unique: pairs.iter().any(is_key),
            is_found_once: pairs.iter().any(|(_, right)| right.is_unique),
            reads: reads.without(RelSet::of(relation)),
            reducer,
        })
    }
}

/// The relation of a set that has one.
fn only(set: RelSet) -> Option<usize> {
    let mut relations = set.iter();
    relations.next().filter(|_| relations.next().is_none())
}

fn equality(left: Expr, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(
        Box::new(left),
        Operator::Eq,
        Box::new(right),
    ))
}

/// Refuses what gives another value each time, or depends on a row of a query around.
fn check_repeatable(expr: &Expr) -> Result<(), WhyAsWritten> {
    if expr.is_volatile() {
        return Err(WhyAsWritten::Volatile(Box::new(expr.clone())));
    }
    match expr.contains_outer() {
        true => Err(WhyAsWritten::ReadsOut(Box::new(expr.clone()))),
        false => Ok(()),
    }
}

/// Whether equality of values of a type is the same for joins and for filters, so that a = b and b = c give a = c.
fn is_transitive(data_type: &DataType) -> bool {
    !data_type.is_floating() && !data_type.is_nested()
}
