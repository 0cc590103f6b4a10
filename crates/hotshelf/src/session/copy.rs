//! COPY … TO, planned: its rows go to [`super::target`].

use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::dml::CopyTo;

use super::Session;
use super::planned::Planned;
use super::target::{SINGLE_FILE, Target, Unfinished};
use crate::error::Result;

impl Session {
    /// Plans a COPY. The target changes when the answer's rows are taken to their end, and only if nothing failed.
    pub(super) async fn plan_copy(&self, mut copy: CopyTo) -> Result<Planned> {
        let Some(target) = Target::of(&copy)? else {
            return self
                .plan_rows(LogicalPlan::Copy(copy))
                .await
                .map(Planned::Rows);
        };
        let unfinished = Unfinished::create(target)?;
        copy.output_url = unfinished.url()?;
        copy.options
            .insert(SINGLE_FILE.into(), unfinished.is_file().to_string());
        let plan = self.plan_rows(LogicalPlan::Copy(copy)).await?;
        Ok(Planned::Copy(plan, unfinished))
    }
}
