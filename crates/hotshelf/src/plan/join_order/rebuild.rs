//! A plan of a graph's joins in another order, with every condition at the lowest join that has its columns.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr, Filter, Join, JoinConstraint, JoinType, LogicalPlan, Projection,
};

use super::graph::{Graph, Member};
use super::rel_set::RelSet;
use super::tree::Tree;

/// The plan, with the columns of the one that it replaces.
pub(super) fn rebuild(
    graph: &Graph,
    order: &Tree,
    replaced: &LogicalPlan,
) -> QueryResult<LogicalPlan> {
    let (mut plan, _) = joined(graph, order)?;
    if let Some(predicate) = conjunction(graph.last.iter().cloned()) {
        plan = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(plan))?);
    }
    let schema = replaced.schema().clone();
    let projection = Projection::new_from_schema(Arc::new(plan), schema);
    Ok(LogicalPlan::Projection(projection))
}

fn joined(graph: &Graph, order: &Tree) -> QueryResult<(LogicalPlan, RelSet)> {
    let (left, right) = match order {
        Tree::Leaf(relation) => {
            let plan = graph.relations[*relation].plan.as_ref().clone();
            return Ok((plan, RelSet::of(*relation)));
        }
        Tree::Join(left, right) => (joined(graph, left)?, joined(graph, right)?),
    };
    let ((left, of_left), (right, of_right)) = (left, right);
    let relations = of_left.union(of_right);
    let mut inputs = Inputs {
        join_type: JoinType::Inner,
        on: keys(graph, of_left, of_right),
        filter: condition(graph, of_left, of_right),
    };
    let reducer = of_right.iter().next().filter(|_| of_right.len() == 1);
    let reducer = reducer.and_then(|relation| graph.relations[relation].reducer.as_ref());
    if let Some(reduction) = reducer {
        let join = &reduction.reducer.join;
        inputs = Inputs {
            join_type: join.join_type,
            on: join.on.clone(),
            filter: join.filter.clone(),
        };
    }
    Ok((inputs.join(left, right)?, relations))
}

/// What a join compares.
struct Inputs {
    join_type: JoinType,
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
}

impl Inputs {
    fn join(self, left: LogicalPlan, right: LogicalPlan) -> QueryResult<LogicalPlan> {
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            self.on,
            self.filter,
            self.join_type,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?;
        Ok(LogicalPlan::Join(join))
    }
}

/// The equalities between two sides: of columns that are all equal one for each side.
fn keys(graph: &Graph, left: RelSet, right: RelSet) -> Vec<(Expr, Expr)> {
    let classes = graph.classes.iter();
    let crossing = classes.filter_map(|class| graph.crossing(class, left, right));
    let column = |member: &Member| Expr::Column(member.column.clone());
    let of_classes = crossing.map(|(left, right)| (column(left), column(right)));
    let of_edges = graph.edges.iter().filter_map(|edge| {
        let [(a, of_a), (b, of_b)] = &edge.sides;
        if left.has(*a) && right.has(*b) {
            return Some((of_a.clone(), of_b.clone()));
        }
        (left.has(*b) && right.has(*a)).then(|| (of_b.clone(), of_a.clone()))
    });
    of_classes.chain(of_edges).collect()
}

/// The conditions that can be tested here and not below.
fn condition(graph: &Graph, left: RelSet, right: RelSet) -> Option<Expr> {
    let relations = left.union(right);
    let here = graph.conditions.iter().filter(|condition| {
        let reads = condition.reads;
        relations.contains(reads) && !left.contains(reads) && !right.contains(reads)
    });
    conjunction(here.map(|condition| condition.predicate.clone()))
}
