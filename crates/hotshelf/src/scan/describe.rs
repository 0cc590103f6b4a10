//! What EXPLAIN says about a scan.

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;

use super::source::TableScan;
use crate::index::{AccessPath, Outcome};

impl TableScan {
    /// The scan that an operator is, if it is one of a table of the database.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<&Self> {
        let leaf = plan.downcast_ref::<DataSourceExec>()?;
        leaf.data_source().downcast_ref()
    }

    /// What it reads and how, in parts with a name each, with the way that an execution took.
    pub fn described(&self, access: &AccessPath, outcome: &Outcome) -> Vec<String> {
        let fields = self.schema.fields().iter();
        let names: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
        let mut parts = vec![
            format!("table={}", self.table.name),
            format!("columns=[{}]", names.join(", ")),
        ];
        if !self.filters.is_empty() {
            let filters = self.filters.iter();
            let filters: Vec<String> = filters.map(|filter| filter.expr.to_string()).collect();
            parts.push(format!("filter={}", filters.join(" AND ")));
        }
        let more = [access.to_string(), outcome.to_string()];
        let more = more.iter().map(|part| part.trim_start_matches(", "));
        parts.extend(more.filter(|part| !part.is_empty()).map(str::to_owned));
        parts
    }

    /// What it reads of rows that others have chosen.
    pub fn read_of_rows(&self, columns: &[usize]) -> Vec<String> {
        let names = columns
            .iter()
            .map(|idx| self.schema.field(*idx).name().as_str());
        let names: Vec<&str> = names.collect();
        vec![
            format!("table={}", self.table.name),
            format!("columns=[{}]", names.join(", ")),
        ]
    }

    /// The same with the way that the latest execution took, or that is to be taken.
    pub fn planned(&self) -> Vec<String> {
        let taken = self.taken.lock().clone();
        self.described(taken.as_ref().unwrap_or(&self.access), &self.outcome)
    }
}
