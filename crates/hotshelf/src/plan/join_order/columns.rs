//! The columns of all relations of a graph, and which relation each is of.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::reasons::WhyAsWritten;
use super::rel_set::RelSet;

/// Whose columns are whose.
pub(super) struct Columns {
    pub all: DFSchema,
    /// The relation of each column, and its number there.
    pub owners: Vec<(usize, usize)>,
}

impl Columns {
    pub fn of(relations: &[Arc<LogicalPlan>]) -> Result<Self, WhyAsWritten> {
        let (mut fields, mut owners) = (Vec::new(), Vec::new());
        for (relation, plan) in relations.iter().enumerate() {
            for (idx, (qualifier, field)) in plan.schema().iter().enumerate() {
                fields.push((qualifier.cloned(), field.clone()));
                owners.push((relation, idx));
            }
        }
        // It fails where names are not unique.
        match DFSchema::new_with_metadata(fields, HashMap::new()) {
            Ok(all) => Ok(Self { all, owners }),
            Err(_) => Err(WhyAsWritten::SameNames),
        }
    }

    /// The place of a column, if there is exactly one that the name can mean.
    pub fn place(&self, column: &Column) -> Result<usize, WhyAsWritten> {
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
        match (places.next(), places.next()) {
            (Some((place, _)), None) => Ok(place),
            _ => Err(WhyAsWritten::Unclear(Box::new(column.clone()))),
        }
    }

    /// The relations that an expression reads, where that is clear.
    pub fn reads(&self, expr: &Expr) -> Result<RelSet, WhyAsWritten> {
        let mut read = RelSet::EMPTY;
        for column in expr.column_refs() {
            let (relation, _) = self.owners[self.place(column)?];
            read = read.union(RelSet::of(relation));
        }
        Ok(read)
    }
}
