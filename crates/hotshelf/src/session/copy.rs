//! COPY … TO, planned: its rows go to [`super::target`].

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::dml::CopyTo;

use super::Session;
use super::planned::Planned;
use super::planning::runs_otherwise_again;
use super::target::{Run, SINGLE_FILE, Target, Unfinished};
use crate::error::{Error, Result};

impl Session {
    /// Plans a COPY. The target changes when the answer's rows are taken to their end, and only if nothing failed.
    pub(super) async fn plan_copy(&self, mut copy: CopyTo) -> Result<Planned> {
        let Some(target) = Target::of(&copy)? else {
            return self
                .plan_rows(LogicalPlan::Copy(copy))
                .await
                .map(Planned::Rows);
        };
        let unfinished = Arc::new(Unfinished::create(target)?);
        copy.options
            .insert(SINGLE_FILE.into(), unfinished.is_file().to_string());
        let run = |run| {
            let mut copy = copy.clone();
            copy.output_url = unfinished.url(run)?;
            Ok::<_, Error>(LogicalPlan::Copy(copy))
        };
        let mut plan = self.plan_rows(run(Run::First)?).await?;
        if runs_otherwise_again(&plan.state) {
            plan.logical = Some(run(Run::Second)?);
            let begun = Arc::downgrade(&unfinished);
            plan.discard = Some(Box::new(move || match begun.upgrade() {
                Some(unfinished) => unfinished.begin_again(),
                None => Err(Error::Cancelled),
            }));
        }
        Ok(Planned::Copy(plan, unfinished))
    }
}
