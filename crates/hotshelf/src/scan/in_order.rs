//! Reading a table outside a query: all rows, in the order of its files.

use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result as QueryResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;

use super::env::ScanEnv;
use super::source::TableScan;
use crate::settings::SessionSettings;
use crate::table::Table;

/// All rows of a table, of these columns or all. What is read does not change what the cache holds.
pub(crate) fn read_in_order(
    env: &Arc<ScanEnv>,
    table: Arc<Table>,
    columns: Option<Vec<usize>>,
) -> QueryResult<SendableRecordBatchStream> {
    let config = SessionConfig::new()
        // One reader keeps the rows in the order of the files.
        .with_target_partitions(1)
        .with_option_extension(SessionSettings::outside_sessions());
    let scan = TableScan::new(env.clone(), table, columns, None, config.options())?;
    let context = TaskContext::default().with_session_config(config);
    DataSourceExec::from_data_source(scan).execute(0, Arc::new(context))
}
