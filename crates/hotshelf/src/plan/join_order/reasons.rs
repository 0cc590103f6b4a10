//! Why a tree of joins keeps the order of the text.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::rel_set::RELATIONS_MAX;
use super::tree::name;
use crate::plan::decisions::shown;

/// A tree of joins that has no graph.
#[derive(Debug)]
pub(super) struct AsWritten {
    /// What it joins, as far as it was taken apart.
    pub relations: Vec<Arc<LogicalPlan>>,
    pub why: WhyAsWritten,
}

/// Why there is no graph of a tree of joins.
#[derive(Debug)]
pub(super) enum WhyAsWritten {
    /// The topmost node is not part of such a tree.
    NotJoins,
    ManyRelations,
    /// Of this part.
    UnknownRows(String),
    SameNames,
    /// It is in none of the relations, or its name may mean several of their columns.
    Unclear(Box<Column>),
    Volatile(Box<Expr>),
    /// It reads a row of a query around.
    ReadsOut(Box<Expr>),
    MayFail(Box<Expr>),
    /// It reads what a left join adds.
    ReadsAdded(Box<Expr>),
    /// It cannot be a filter on the relation that it reads.
    NotAFilter(Box<Expr>),
}

impl AsWritten {
    /// What EXPLAIN says; `None` where two parts or fewer are joined.
    pub fn describe(&self) -> Option<String> {
        if self.relations.len() < 3 {
            return None;
        }
        let names = self.relations.iter().map(|plan| name(plan));
        let names = names.collect::<Vec<_>>().join(", ");
        let why = &self.why;
        Some(match why {
            WhyAsWritten::ReadsAdded(_) => {
                format!("{names}: left joins are not moved among the other joins, as {why}")
            }
            _ => format!("{names}: joined in the order of the text, as {why}"),
        })
    }
}

impl fmt::Display for WhyAsWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJoins => write!(f, "there are no joins that can be taken apart"),
            Self::ManyRelations => write!(f, "there are more than {RELATIONS_MAX}"),
            Self::UnknownRows(part) => write!(f, "nothing is known about the rows of {part}"),
            Self::SameNames => write!(f, "two columns have the same name"),
            Self::Unclear(column) => write!(f, "{column} is not the name of exactly one column"),
            Self::Volatile(expr) => write!(f, "{} differs each time", shown(expr)),
            Self::ReadsOut(expr) => write!(f, "{} reads a row of the query around", shown(expr)),
            Self::MayFail(expr) => {
                let expr = shown(expr);
                write!(f, "{expr} may fail for rows that another join drops")
            }
            Self::ReadsAdded(expr) => write!(f, "{} reads what one of them adds", shown(expr)),
            Self::NotAFilter(expr) => write!(f, "{} cannot be a filter", shown(expr)),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{LogicalPlanBuilder, col};

    use super::*;

    fn described(relations: usize, why: WhyAsWritten) -> Option<String> {
        let values = LogicalPlanBuilder::empty(true).build().unwrap();
        let values = Arc::new(values);
        AsWritten {
            relations: vec![values; relations],
            why,
        }
        .describe()
    }

    #[test]
    fn three_or_more_parts_are_worth_a_reason() {
        assert_eq!(described(2, WhyAsWritten::SameNames), None);
        assert_eq!(
            described(3, WhyAsWritten::SameNames).unwrap(),
            "rows, rows, rows: joined in the order of the text, as two columns have the same name"
        );
    }

    #[test]
    fn left_joins_that_stay_do_not_keep_the_others() {
        let added = WhyAsWritten::ReadsAdded(Box::new(col("s.x")));
        assert_eq!(
            described(3, added).unwrap(),
            "rows, rows, rows: left joins are not moved among the other joins, as s.x reads what one of them adds"
        );
    }
}
