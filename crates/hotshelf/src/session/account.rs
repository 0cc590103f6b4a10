//! What EXPLAIN ANALYZE says about memory: what the query got from it, and what it took of it from others.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use hotshelf_cache::ShelfPrice;

use crate::engine::{Engine, QueryMemory, QueryPool};

/// The account of one query, kept while it runs.
pub(super) struct QueryAccount {
    query: u64,
    engine: Arc<Engine>,
    pool: Arc<QueryPool>,
}

impl QueryAccount {
    /// Opens an account: what operators reserve in the context from here on is charged to it.
    pub fn open(query: u64, engine: Arc<Engine>, context: &mut TaskContext) -> Self {
        let shared = context.runtime_env();
        let pool = Arc::new(QueryPool::new(shared.memory_pool.clone()));
        let runtime = RuntimeEnv {
            memory_pool: pool.clone(),
            ..shared.as_ref().clone()
        };
        *context = std::mem::take(context).with_runtime(Arc::new(runtime));
        Self {
            query,
            engine,
            pool,
        }
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
    let held = format!("operators held {} at most", mb(memory.bytes_max));
    let refused = match memory.refusal_count {
        0 => String::new(),
        count => format!("; refused more {count} times"),
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
            byte_s: 32e6,
            refusal_count: 2,
        };
        let price = ShelfPrice {
            saved_s_per_byte_s: 2e-9,
            ..ShelfPrice::default()
        };
        assert_eq!(
            paid(&memory, Some(price)),
            "operators held 64.0 MB at most, which would have saved other queries 64.0 ms meanwhile \
             (at 2.0 s per GB and second); refused more 2 times"
        );
        let nothing = QueryMemory::default();
        assert_eq!(
            paid(&nothing, None),
            "operators held 0.0 MB at most; no price is known yet"
        );
    }
}
