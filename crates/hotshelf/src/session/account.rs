//! What EXPLAIN ANALYZE says about memory: what the query got from it, and what it took of it from others.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use hotshelf_cache::ShelfPrice;

use crate::engine::{Engine, OperatorKind, QueryMemory, QueryPool};
use crate::settings::SessionSettings;

/// The account of one query, kept while it runs: its operators' memory is lent by what its time counts.
pub(super) struct QueryAccount {
    query: u64,
    engine: Arc<Engine>,
    pool: Arc<QueryPool>,
}

impl QueryAccount {
    /// Opens an account: what operators reserve in the context from here on is charged to it.
    pub fn open(
        settings: &SessionSettings,
        engine: Arc<Engine>,
        context: &mut TaskContext,
    ) -> Self {
        let shared = context.runtime_env();
        let weight = engine
            .cache
            .query_weight(settings.template, settings.priority);
        let pool = QueryPool::open(engine.pool.clone(), settings.query_id, weight);
        let runtime = RuntimeEnv {
            memory_pool: pool.clone(),
            ..shared.as_ref().clone()
        };
        *context = std::mem::take(context).with_runtime(Arc::new(runtime));
        Self {
            query: settings.query_id,
            engine,
            pool,
        }
    }

    /// Who lends the query's memory.
    pub fn pool(&self) -> Arc<QueryPool> {
        self.pool.clone()
    }

    /// Two lines: what the query got and what it paid. To be asked when it has run.
    pub fn describe(&self) -> String {
        let (mut memory_bytes, mut storage_bytes) = (0, 0);
        for run in self.engine.pipelines.runs() {
            if run.query == self.query {
                // Not `bytes_cache`: what look-ahead has read for the same run is a hit, too.
                memory_bytes += run.encoded_bytes.saturating_sub(run.counters.bytes_storage);
                storage_bytes += run.counters.bytes_storage;
            }
        }
        let board = self.engine.cache.price_board().read();
        let price = (board.confidence > 0.0).then_some(board.shelves[0]);
        let bandwidth = Some(board.tiers.storage_bandwidth).filter(|known| *known > 0.0);
        format!(
            "got: {}\npaid: {}",
            got(memory_bytes, storage_bytes, bandwidth),
            paid(&self.pool.taken(), price)
        )
    }
}

fn got(memory_bytes: u64, storage_bytes: u64, bandwidth: Option<f64>) -> String {
    let from = format!(
        "{} from memory, {} from storage",
        mb(memory_bytes),
        mb(storage_bytes)
    );
    match bandwidth {
        Some(bandwidth) => format!(
            "{from}; reading all of it would have taken {} longer at {} a second",
            ms(memory_bytes as f64 / bandwidth),
            mb(bandwidth as u64)
        ),
        None => from,
    }
}

fn paid(memory: &QueryMemory, price: Option<ShelfPrice>) -> String {
    let held = format!(
        "operators held {} at most{}",
        mb(memory.bytes_max),
        by_kind(memory)
    );
    let refused = match (memory.refusal_count, memory.outbid_count) {
        (0, _) => String::new(),
        (count, 0) => format!("; refused more {count} times"),
        (count, outbid) => {
            format!(
                "; refused more {count} times, {outbid} of them because others save more with it"
            )
        }
    };
    match price {
        Some(price) => format!(
            "{held}, which would have saved other queries {} meanwhile (at {:.1} s per GB and second){refused}",
            ms(memory.byte_s * price.saved_s_per_byte_s),
            price.saved_s_per_byte_s * 1e9
        ),
        None => format!("{held}; no price is known yet{refused}"),
    }
}

/// What operators of each kind held at most, if some of them can spill.
fn by_kind(memory: &QueryMemory) -> String {
    let kinds = OperatorKind::ALL.iter().zip(memory.bytes_max_by_kind);
    let held: Vec<_> = kinds.filter(|(_, bytes)| *bytes > 0).collect();
    let can_spill = held.iter().any(|(kind, _)| **kind != OperatorKind::Other);
    let held = held
        .iter()
        .map(|(kind, bytes)| format!("{kind} {}", mb(*bytes)));
    match can_spill {
        true => format!(" ({})", held.collect::<Vec<_>>().join(", ")),
        false => String::new(),
    }
}

fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 * 1e-6)
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_got_is_priced_by_the_storage_it_spared() {
        assert_eq!(
            got(30_000_000, 1_500_000, Some(1e9)),
            "30.0 MB from memory, 1.5 MB from storage; \
             reading all of it would have taken 30.0 ms longer at 1000.0 MB a second"
        );
        assert_eq!(got(0, 0, None), "0.0 MB from memory, 0.0 MB from storage");
    }

    #[test]
    fn what_was_paid_is_priced_by_what_others_would_have_saved() {
        let memory = QueryMemory {
            bytes_max: 64_000_000,
            bytes_max_by_kind: [0, 60_000_000, 5_000_000, 0],
            byte_s: 32e6,
            refusal_count: 2,
            outbid_count: 1,
        };
        let price = ShelfPrice {
            saved_s_per_byte_s: 2e-9,
            ..ShelfPrice::default()
        };
        assert_eq!(
            paid(&memory, Some(price)),
            "operators held 64.0 MB at most (joins 60.0 MB, aggregations 5.0 MB), which would have saved other \
             queries 64.0 ms meanwhile (at 2.0 s per GB and second); refused more 2 times, 1 of them because others \
             save more with it"
        );
        let nothing = QueryMemory::default();
        assert_eq!(
            paid(&nothing, None),
            "operators held 0.0 MB at most; no price is known yet"
        );
    }
}
