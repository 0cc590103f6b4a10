//! `Shared`: one use of a part, as a leaf of a logical plan.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::{DFSchemaRef, Result as QueryResult, internal_err};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

/// One use of a part. Two uses are equal if they are of one part, which is not compared.
#[derive(Clone)]
pub(super) struct Shared {
    /// How often the query has it.
    pub uses: usize,
    /// With leaves of its own in place of what it has more than once.
    pub part: Arc<LogicalPlan>,
}

impl Shared {
    pub fn new(uses: usize, part: LogicalPlan) -> Self {
        let part = Arc::new(part);
        Self { uses, part }
    }

    pub fn leaf(self) -> LogicalPlan {
        let node = Arc::new(self);
        LogicalPlan::Extension(Extension { node })
    }

    /// What tells its part from others of the query.
    pub fn key(&self) -> usize {
        Arc::as_ptr(&self.part).addr()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared: part used {} times", self.uses)
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Shared {}

impl PartialOrd for Shared {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.key().cmp(&other.key()))
    }
}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl UserDefinedLogicalNodeCore for Shared {
    fn name(&self) -> &str {
        "Shared"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        self.part.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> QueryResult<Self> {
        if !exprs.is_empty() || !inputs.is_empty() {
            return internal_err!("a shared part has neither expressions nor inputs");
        }
        Ok(self.clone())
    }
}
