//! Chooses how each scan finds its rows: by asking the Elfs of an index, by taking them from one that covers the
//! scan, or by looking at every row group.
//!
//! The rule runs once per plan, after DataFusion's own rules, when filters are pushed and workers are counted, and
//! before star pipelines are made, which leave a scan that an index covers to DataFusion. It stores its choice in the
//! scan; EXPLAIN prints it and the execution uses it. A star pipeline with look-ups chooses again for its scan when it
//! is made, and once more where its build sides turn out to have ranges of keys: EXPLAIN ANALYZE prints that choice.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result as QueryResult;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::scan::{TableScan, Taker};

/// Stores in each scan how it finds its rows.
#[derive(Debug)]
pub(super) struct ChooseAccess;

impl PhysicalOptimizerRule for ChooseAccess {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> QueryResult<Arc<dyn ExecutionPlan>> {
        let chosen = plan.transform_up(|node| {
            let leaf = node.downcast_ref::<DataSourceExec>();
            let scan = leaf.and_then(|leaf| leaf.data_source().downcast_ref::<TableScan>());
            let chosen = scan.and_then(|scan| scan.with_access(Taker::Operators));
            Ok(match chosen {
                Some(scan) => Transformed::yes(DataSourceExec::from_data_source(scan)),
                None => Transformed::no(node),
            })
        });
        chosen.data()
    }

    fn name(&self) -> &str {
        "choose_access"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
