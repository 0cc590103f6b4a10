//! The few columns that a star's expressions need, and the expressions over these alone.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::Result as QueryResult;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;

use super::arithmetic::{Exact, Node};
use super::decimal::in_words;

/// Where a column comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Column of the scan's output.
    Probe(usize),
    /// Column of a build side.
    Build { join: usize, column: usize },
}

/// All columns of a star, and where each comes from unless it is computed.
pub(super) type WideColumns = Vec<(Option<Source>, FieldRef)>;

/// The computed columns of a star, by their index among all, and what they are, each over earlier columns.
pub(super) type Computed = Vec<(usize, Arc<dyn PhysicalExpr>)>;

/// Expressions over the few columns that they need.
#[derive(Debug, Clone)]
pub(super) struct Narrow {
    pub exprs: Vec<Computation>,
    pub sources: Vec<Source>,
    /// Further columns, each computed from those before it.
    pub computed: Vec<Computation>,
    /// All columns, those that are computed last.
    pub schema: SchemaRef,
}

/// An expression over the narrow columns.
#[derive(Debug, Clone)]
pub(super) struct Computation {
    pub expr: Arc<dyn PhysicalExpr>,
    pub data_type: DataType,
    pub nullable: bool,
    /// The same in words, where it can be.
    pub node: Option<Node>,
    /// What is evaluated where 64 bits may be too few.
    pub exact: Exact,
}

impl Computation {
    fn new(expr: Arc<dyn PhysicalExpr>, schema: &Schema) -> QueryResult<Self> {
        let node = Node::of(&expr, schema).filter(|node| !matches!(node, Node::Test(_)));
        let mut exact = Exact::new(&expr, schema)?;
        if node.is_none() {
            exact.expr = in_words(&exact.expr, &exact.schema)?;
        }
        Ok(Self {
            data_type: expr.data_type(schema)?,
            nullable: expr.nullable(schema)?,
            node,
            exact,
            expr,
        })
    }

    /// The column, if it is no more than that.
    pub fn column(&self) -> Option<usize> {
        self.expr.downcast_ref::<Column>().map(Column::index)
    }
}

impl Narrow {
    /// The columns that `exprs` read, and the expressions over these alone. What a projection computes and several of
    /// them read stays a column, computed once.
    pub fn new(
        wide: &WideColumns,
        computed: &Computed,
        exprs: &[Arc<dyn PhysicalExpr>],
    ) -> QueryResult<Self> {
        let (exprs, kept) = keep_shared(computed, exprs)?;
        let all = exprs.iter().chain(kept.iter().map(|(_, expr)| expr));
        let read = all.flat_map(|expr| collect_columns(expr).into_iter());
        let mut used: Vec<usize> = read
            .map(|column| column.index())
            .filter(|idx| wide[*idx].0.is_some())
            .collect();
        used.sort_unstable();
        used.dedup();
        let fields = |columns: &[usize]| -> SchemaRef {
            let fields = columns.iter().map(|idx| wide[*idx].1.clone());
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        };
        let sources = used.iter().filter_map(|idx| wide[*idx].0).collect();
        used.extend(kept.iter().map(|(idx, _)| *idx));
        let over_used = |expr: &Arc<dyn PhysicalExpr>| {
            replace_columns(expr, |column| {
                let idx = used.iter().position(|idx| *idx == column.index())?;
                Some(Arc::new(Column::new(column.name(), idx)) as _)
            })
        };
        let schema = fields(&used);
        let ready = |expr: &Arc<dyn PhysicalExpr>| Computation::new(over_used(expr)?, &schema);
        let computed = kept.iter().map(|(_, expr)| ready(expr));
        Ok(Self {
            exprs: exprs.iter().map(ready).collect::<QueryResult<_>>()?,
            sources,
            computed: computed.collect::<QueryResult<_>>()?,
            schema,
        })
    }
}

/// The expressions, with computed columns substituted that only one of them reads, and the other computed columns.
fn keep_shared(
    computed: &Computed,
    exprs: &[Arc<dyn PhysicalExpr>],
) -> QueryResult<(Vec<Arc<dyn PhysicalExpr>>, Computed)> {
    let mut exprs = exprs.to_vec();
    let mut kept = Computed::new();
    for (idx, definition) in computed.iter().rev() {
        let users = exprs.iter().chain(kept.iter().map(|(_, expr)| expr));
        match users.map(|expr| count_uses(expr, *idx)).sum::<usize>() {
            0 => {}
            1 => {
                let users = exprs.iter_mut();
                for expr in users.chain(kept.iter_mut().map(|(_, expr)| expr)) {
                    *expr = substitute(expr, *idx, definition)?;
                }
            }
            _ => kept.push((*idx, definition.clone())),
        }
    }
    kept.reverse();
    Ok((exprs, kept))
}

/// How often an expression reads a column.
fn count_uses(expr: &Arc<dyn PhysicalExpr>, idx: usize) -> usize {
    let own = expr.downcast_ref::<Column>();
    let own = usize::from(own.is_some_and(|column| column.index() == idx));
    let below = expr.children().into_iter();
    own + below.map(|child| count_uses(child, idx)).sum::<usize>()
}

/// The expression with one column replaced.
pub(super) fn substitute(
    expr: &Arc<dyn PhysicalExpr>,
    idx: usize,
    definition: &Arc<dyn PhysicalExpr>,
) -> QueryResult<Arc<dyn PhysicalExpr>> {
    replace_columns(expr, |column| {
        Some(if column.index() == idx {
            definition.clone()
        } else {
            Arc::new(column.clone())
        })
    })
}

/// Parts of an expression whose columns stand for as many each; for one where that is not known.
pub(crate) fn parts_of(
    expr: &Arc<dyn PhysicalExpr>,
    of_column: impl Fn(&Column) -> Option<usize>,
) -> QueryResult<usize> {
    let mut parts: usize = 0;
    expr.apply(|part| {
        let column = part.downcast_ref::<Column>();
        parts = parts.saturating_add(column.and_then(&of_column).unwrap_or(1));
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(parts)
}

/// The expression with its columns replaced; all of them must have a replacement.
pub(crate) fn replace_columns(
    expr: &Arc<dyn PhysicalExpr>,
    replacement: impl Fn(&Column) -> Option<Arc<dyn PhysicalExpr>>,
) -> QueryResult<Arc<dyn PhysicalExpr>> {
    expr.clone()
        .transform_down(|node| {
            let Some(column) = node.downcast_ref::<Column>() else {
                return Ok(Transformed::no(node));
            };
            match replacement(column) {
                Some(expr) => Ok(Transformed::new(expr, true, TreeNodeRecursion::Jump)),
                None => internal_err!("no column {column}"),
            }
        })
        .data()
}
