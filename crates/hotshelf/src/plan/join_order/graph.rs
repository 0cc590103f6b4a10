//! The join graph of a tree of inner, semi and anti joins: relations, what is equal between them, and other conditions.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan, Operator};

use super::estimate::{Estimate, estimate, pair_count};
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
    /// The graph of a tree of joins; `None` where something about it is not known or not sure.
    pub fn of(plan: &LogicalPlan, left_joins: LeftJoins) -> Option<Self> {
        let flat = Flat::of(plan, left_joins)?;
        if flat.relations.len() > RELATIONS_MAX {
            return None;
        }
        let estimates = flat.relations.iter().map(|plan| estimate(plan));
        let estimates = estimates.collect::<Option<Vec<_>>>()?;
        let (flat, estimates) = numbered(flat, estimates);
        let columns = Columns::of(&flat.relations)?;
        let mut pairs = estimates.iter().zip(&flat.relations);
        if pairs.any(|(each, plan)| each.columns.len() != plan.schema().fields().len()) {
            return None;
        }
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

/// Whose columns are whose.
struct Columns {
    all: DFSchema,
    /// The relation of each column, and its number there.
    owners: Vec<(usize, usize)>,
}

impl Columns {
    fn of(relations: &[Arc<LogicalPlan>]) -> Option<Self> {
        let (mut fields, mut owners) = (Vec::new(), Vec::new());
        for (relation, plan) in relations.iter().enumerate() {
            for (idx, (qualifier, field)) in plan.schema().iter().enumerate() {
                fields.push((qualifier.cloned(), field.clone()));
                owners.push((relation, idx));
            }
        }
        // It fails where names are not unique.
        let all = DFSchema::new_with_metadata(fields, HashMap::new()).ok()?;
        Some(Self { all, owners })
    }

    /// The place of a column, if there is exactly one that the name can mean.
    fn place(&self, column: &Column) -> Option<usize> {
        let means = |(_, (qualifier, field)): &(usize, (Option<&_>, &Arc<_>))| {
            let field: &Field = field;
            let same = match (&column.relation, qualifier) {
                (Some(asked), Some(known)) => asked.resolved_eq(known),
                (Some(_), None) => false,
                (None, _) => true,
            };
            same && *field.name() == column.name
        };
        let mut places = self.all.iter().enumerate().filter(means);
        let (place, _) = places.next()?;
        places.next().is_none().then_some(place)
    }

    /// The relations that an expression reads; `None` where that is not clear.
    fn reads(&self, expr: &Expr) -> Option<RelSet> {
        let mut read = RelSet::EMPTY;
        for column in expr.column_refs() {
            let (relation, _) = self.owners[self.place(column)?];
            read = read.union(RelSet::of(relation));
        }
        Some(read)
    }
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
    fn add_equality(&mut self, left: Expr, right: Expr) -> Option<()> {
        if let (Expr::Column(a), Expr::Column(b)) = (&left, &right) {
            let (a, b) = (self.columns.place(a)?, self.columns.place(b)?);
            self.reads(&left)?;
            self.reads(&right)?;
            let data_type = |place: usize| self.columns.all.field(place).data_type();
            if data_type(a) == data_type(b) && is_transitive(data_type(a)) {
                let (a, b) = (self.representative(a), self.representative(b));
                self.equal[a.max(b)] = a.min(b);
                return Some(());
            }
        }
        let (from, to) = (self.reads(&left)?, self.reads(&right)?);
        if from.len() != 1 || to.len() != 1 || from == to {
            let equality = BinaryExpr::new(Box::new(left), Operator::Eq, Box::new(right));
            return self.add_predicate(Expr::BinaryExpr(equality));
        }
        // What may fail must not be computed for more rows than before.
        if !self.is_safe(&left) || !self.is_safe(&right) {
            return None;
        }
        let (from, to) = (from.iter().next()?, to.iter().next()?);
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
        Some(())
    }

    fn add_predicate(&mut self, predicate: Expr) -> Option<()> {
        if predicate.is_volatile() || predicate.contains_outer() {
            return None;
        }
        if let Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) = &predicate
        {
            let (from, to) = (self.reads(left)?, self.reads(right)?);
            let joins = from.len() == 1 && to.len() == 1 && from != to;
            if joins && self.is_safe(&predicate) {
                return self.add_equality(left.as_ref().clone(), right.as_ref().clone());
            }
        }
        // The engine repeats a predicate now and then.
        let mut known = self.conditions.iter().map(|condition| &condition.predicate);
        if known.any(|known| *known == predicate) || self.last.contains(&predicate) {
            return Some(());
        }
        let reads = self.reads(&predicate)?;
        if reads.is_empty() || !self.is_safe(&predicate) {
            self.last.push(predicate);
            return Some(());
        }
        let share = selectivity(&predicate, &self.all_columns(), &self.columns.all);
        self.conditions.push(Condition {
            predicate,
            reads,
            share,
        });
        Some(())
    }

    /// The relations that a condition reads; `None` also where it reads what a left join adds.
    fn reads(&self, expr: &Expr) -> Option<RelSet> {
        let reads = self.columns.reads(expr)?;
        (!reads.meets(self.attached)).then_some(reads)
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

    fn finish(mut self, reducers: Vec<(usize, Reducer)>, order: Tree) -> Option<Graph> {
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
        Some(Graph {
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
    fn filter_relations(&mut self) -> Option<()> {
        self.conditions
            .sort_by_cached_key(|condition| condition.predicate.to_string());
        let mut own: Vec<Vec<Expr>> = self.plans.iter().map(|_| Vec::new()).collect();
        let (single, several) = std::mem::take(&mut self.conditions)
            .into_iter()
            .partition(|condition| condition.reads.len() == 1);
        self.conditions = several;
        let single: Vec<Condition> = single;
        for condition in single {
            own[condition.reads.iter().next()?].push(condition.predicate);
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
                let filter = Filter::try_new(predicate, plan).ok()?;
                self.plans[relation] = Arc::new(LogicalPlan::Filter(filter));
            }
        }
        Some(())
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

    fn reduction(&self, relation: usize, reducer: Reducer) -> Option<Reduction> {
        let mut reads = RelSet::EMPTY;
        for expr in reducer.exprs() {
            if expr.is_volatile() || expr.contains_outer() {
                return None;
            }
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
        Some(Reduction {
            share,
            matches,
            is_unique: pairs.iter().any(is_key),
            is_found_once: pairs.iter().any(|(_, right)| right.is_unique),
            reads: reads.without(RelSet::of(relation)),
            reducer,
        })
    }
}

/// Whether equality of values of a type is the same for joins and for filters, so that a = b and b = c give a = c.
fn is_transitive(data_type: &DataType) -> bool {
    !data_type.is_floating() && !data_type.is_nested()
}
