//! `ROLLUP (a, b, c)`: the groups by a and b are made of those by a, b and c, those by a of these, and so on.
//!
//! Each level has a fraction of the rows of the one before, where otherwise all rows are put into a group of every set
//! (Gray et al., ICDE 1996: the smallest parent).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result as QueryResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::Aggregate;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt, stream};
use parking_lot::Mutex;

use super::sets::Sets;
use super::spec::Spec;

/// This many batches wait to be handed on before the next is made.
const WAITING_MAX: usize = 2;

/// The levels of an aggregation of states by sets that each have some of the keys of the one before.
pub(super) struct RollUp {
    /// All keys: rows are such states already.
    all: Sets,
    key_count: usize,
    schema: SchemaRef,
    /// The others, from the one with most keys.
    pub levels: Vec<Arc<Spec>>,
}

impl RollUp {
    /// `None`: it is another aggregation.
    pub fn of(exec: &AggregateExec) -> QueryResult<Option<Self>> {
        let sets = exec.group_expr();
        if !takes_numbered_states(exec) {
            return Ok(None);
        }
        let mut chain = sets.groups().to_vec();
        chain.sort_by_key(|set| set.iter().filter(|is_null| **is_null).count());
        let drops_keys = |pair: &[Vec<bool>]| {
            let mut both = pair[0].iter().zip(&pair[1]);
            pair[0] != pair[1] && both.all(|(before, after)| !before || *after)
        };
        let has_all = chain[0].iter().all(|is_null| !is_null);
        if !has_all || !chain.windows(2).all(drops_keys) {
            return Ok(None);
        }
        let by = |set: &[bool]| {
            AggregateExec::try_new(
                AggregateMode::PartialReduce,
                PhysicalGroupBy::new(
                    sets.expr().to_vec(),
                    sets.null_expr().to_vec(),
                    vec![set.to_vec()],
                    true,
                ),
                exec.aggr_expr().to_vec(),
                exec.filter_expr().to_vec(),
                exec.input().clone(),
                exec.input_schema(),
            )
        };
        let levels = chain[1..].iter().map(|set| Spec::of(&by(set)?));
        let levels = levels.collect::<QueryResult<Result<Vec<Spec>, _>>>()?;
        let all = Sets::of(&by(&chain[0])?, &exec.input().schema());
        let (Ok(levels), Some(all)) = (levels, all) else {
            return Ok(None);
        };
        Ok(Some(Self {
            all,
            key_count: sets.num_group_exprs(),
            schema: exec.schema(),
            levels: levels.into_iter().map(Arc::new).collect(),
        }))
    }

    /// Rows as groups by all keys.
    pub fn groups(&self, rows: &RecordBatch) -> QueryResult<RecordBatch> {
        let mut keys = self.all.keys_of(rows)?;
        keys.extend(rows.columns().iter().skip(self.key_count).cloned());
        Ok(RecordBatch::try_new(self.schema.clone(), keys)?)
    }
}

/// Whether the input is what `plan/grouping_sets` makes: the keys, the number of a set, and states, as in the output.
fn takes_numbered_states(exec: &AggregateExec) -> bool {
    let keys = exec.group_expr().expr().iter().enumerate();
    let mut keys = keys.map(|(at, (key, _))| (at, key.downcast_ref::<Column>()));
    let input = exec.input().schema();
    let number = exec.group_expr().expr().len();
    *exec.mode() == AggregateMode::PartialReduce
        && keys.all(|(at, key)| key.is_some_and(|column| column.index() == at))
        && input.fields().len() == exec.schema().fields().len()
        && input.field(number).name() == Aggregate::INTERNAL_GROUPING_ID
}

/// Groups that have been made and not handed on.
#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<VecDeque<RecordBatch>>>);

impl Waiting {
    /// Groups on their way to the next level, which wait here, too. Where several do already, they have to be handed on
    /// before.
    pub fn noting(&self, groups: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let (schema, waiting, mut groups) = (groups.schema(), self.clone(), groups);
        let noted = stream::poll_fn(move |context: &mut Context<'_>| {
            if waiting.0.lock().len() >= WAITING_MAX {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let next = groups.poll_next_unpin(context);
            if let Poll::Ready(Some(Ok(batch))) = &next {
                waiting.0.lock().push_back(batch.clone());
            }
            next
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, noted))
    }

    /// All that waits, while the last level is made.
    pub fn handed_on(
        self,
        mut last: SendableRecordBatchStream,
    ) -> impl Stream<Item = QueryResult<RecordBatch>> + Send {
        let mut has_ended = false;
        stream::poll_fn(move |context| {
            loop {
                if let Some(batch) = self.0.lock().pop_front() {
                    return Poll::Ready(Some(Ok(batch)));
                }
                if has_ended {
                    return Poll::Ready(None);
                }
                match Pin::new(&mut last).poll_next(context) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(None) => has_ended = true,
                    Poll::Pending if self.0.lock().is_empty() => return Poll::Pending,
                    Poll::Pending => {}
                }
            }
        })
    }
}
