//! Queries that were asked before: what their plans are found by, and what remains to be done with one.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::execution::session_state::SessionState;

use super::filling::{filled, is_plan, of_template};
use super::parts::parts_of;
use super::planned::Planned;
use super::planning::settings_of;
use super::point::PointStatement;
use super::template::Template;
use super::{Session, Statement};
use crate::error::{Error, Result};
use crate::kept_plans::{Asked, KeptPlan, Moment};

/// What the plan of a query is found by.
pub(super) struct Question {
    exact: Asked,
    /// For a small query: without its values.
    template: Option<(Asked, Template)>,
}

impl Session {
    /// None if the plan is not to be kept.
    pub(super) fn question(&self, statement: &Statement) -> Option<Question> {
        // Before the settings themselves: what is set meanwhile has another version.
        let version = self.prepared.settings();
        let floats_are_decimals = {
            let state = self.context.state_ref();
            let state = state.read();
            if !settings_of(&state)?.keep_plans {
                return None;
            }
            let options = state.config().options();
            options.sql_parser.parse_float_as_decimal
        };
        let bytes = self.database.engine().pool.limit_bytes();
        let exact = Asked::of(&statement.parsed, version, bytes)?;
        let template = Template::of(&statement.parsed, floats_are_decimals).map(|template| {
            let types = template.values.iter().map(ScalarValue::data_type);
            let asked = exact.with_template(template.query.clone(), types.collect());
            (asked, template)
        });
        Some(Question { exact, template })
    }

    /// What remains to be done for a query if its plan was kept, or that of its template.
    pub(super) async fn recalled(&self, question: &Question) -> Result<Option<Planned>> {
        let plans = &self.database.parts().plans;
        if let Some(kept) = plans.get(&question.exact) {
            if question.template.is_some()
                && let Some(rows) = self.answer_kept(&question.exact, &kept, &[]).await
            {
                return Ok(Some(Planned::Answered(rows)));
            }
            let state = self.state_for(&question.exact, &kept);
            if let Some(settings) = settings_of(&state) {
                settings.join_sides.lock().clone_from(&kept.join_sides);
            }
            return self
                .runnable(&kept, state, true)
                .await
                .map(Planned::Rows)
                .map(Some);
        }
        let Some((asked, template)) = &question.template else {
            return Ok(None);
        };
        let Some(kept) = plans.get(asked).filter(|kept| kept.proof.holds()) else {
            return Ok(None);
        };
        if let Some(rows) = self.answer_kept(asked, &kept, &template.values).await {
            return Ok(Some(Planned::Answered(rows)));
        }
        let state = self.state_for(asked, &kept);
        match filled(&kept, &template.values, &state) {
            Some(query) => self
                .runnable(&query, state, false)
                .await
                .map(Planned::Rows)
                .map(Some),
            None => Ok(None),
        }
    }

    /// A state of the session for a query whose plan was kept.
    fn state_for(&self, asked: &Asked, kept: &KeptPlan) -> SessionState {
        let state = self.lean.get(asked.settings(), || self.context.state());
        self.numbered(state, &kept.plan, kept.template)
    }

    /// The answer of a query with values in the plan that was kept, if an index has it.
    async fn answer_kept(
        &self,
        asked: &Asked,
        kept: &KeptPlan,
        values: &[ScalarValue],
    ) -> Option<RecordBatch> {
        let statement = PointStatement::of(&kept.plan, asked.settings())?;
        let values = values.iter().cloned();
        let values: Vec<_> = values
            .map(|value| ScalarAndMetadata::new(value, None))
            .collect();
        self.answer_statement(&statement, &values).await
    }

    /// Keeps the plan that was made for a query, begun at a moment, and that of its template.
    pub(super) fn keep(
        &self,
        question: Question,
        kept: &Arc<KeptPlan>,
        state: &SessionState,
        begun: Moment,
    ) -> Result<()> {
        let Question { exact, template } = question;
        let bytes = self.database.engine().pool.limit_bytes();
        // What was set meanwhile may be in the plan.
        if !exact.is_now(self.prepared.settings(), bytes) {
            return Ok(());
        }
        let Some(parts) = parts_of(kept, &exact).map_err(Error::from_query)? else {
            return Ok(());
        };
        let plans = &self.database.parts().plans;
        if let Some((asked, template)) = template {
            match plans.get(&asked) {
                None => {
                    if let Some(own) = of_template(kept, &template, state) {
                        plans.keep(asked, Arc::new(own), parts.clone(), begun);
                    }
                }
                Some(before) if before.proof.is_open() => prove(&before, kept, &template, state),
                Some(_) => {}
            }
        }
        plans.keep(exact, kept.clone(), parts, begun);
        Ok(())
    }
}

/// Compares a template's plan, with the values of a query, with the plan that was made for that query.
fn prove(before: &KeptPlan, made: &KeptPlan, template: &Template, state: &SessionState) {
    if before.optimized == made.optimized {
        return;
    }
    if let Some(own) = filled(before, &template.values, state) {
        before.proof.settle(is_plan(&own, made));
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::displayable;

    use crate::{Database, Options, outline};

    #[test]
    fn the_plan_by_an_outline_is_the_one_without() {
        let options = Options {
            threads: 2,
            ..Options::default()
        };
        let database = Database::temporary(options).unwrap();
        let session = database.session();
        for sql in [
            "CREATE TABLE t AS SELECT value AS n, value % 100 AS k, value % 7 AS v FROM range(200000)",
            "CREATE TABLE s AS SELECT value AS k, 'name ' || value AS name FROM range(100)",
        ] {
            session.query(sql).unwrap();
        }
        for query in [
            "SELECT s.name, sum(t.n) FROM t JOIN s ON t.k = s.k WHERE s.name > 'name 5' GROUP BY 1 ORDER BY 2 LIMIT 3",
            "SELECT min(n), max(v) FROM t WHERE n + v > (SELECT avg(k) FROM s)",
            "SELECT n, v FROM t WHERE v > 3 ORDER BY v, n DESC LIMIT 4",
            "SELECT a.k, b.v FROM t AS a LEFT JOIN t AS b ON a.n = b.n AND a.v < b.k WHERE a.k < 7",
            "WITH q AS (SELECT k, v, count(*) AS c FROM t GROUP BY k, v)
                SELECT a.k, rank() OVER (ORDER BY a.c) FROM q AS a JOIN q AS b ON a.c = b.v AND a.k = b.k",
            "SELECT k FROM s EXCEPT SELECT v FROM t UNION ALL SELECT DISTINCT n FROM t WHERE k IN (SELECT v FROM t)",
        ] {
            let plans = database.block_on(async {
                let state = session.context.state();
                let plan = state.create_logical_plan(query).await?;
                let optimized = state.optimize(&plan)?;
                let whole = crate::shared::plan_physically(&optimized, &state).await?;
                let outline = outline::of(&optimized, &state).await?.expect(query);
                Ok::<_, datafusion::error::DataFusionError>([
                    whole,
                    outline::finish(&outline, &state)?,
                    outline::finish(&outline, &state)?,
                ])
            });
            let [whole, once, twice] = plans.unwrap().map(|plan| {
                let shown = displayable(plan.as_ref()).set_show_schema(true);
                shown.indent(true).to_string()
            });
            assert_eq!(once, whole);
            assert_eq!(twice, whole);
        }
    }
}
