//! A sort with a limit somewhere above a scan: which of the scan's rows it wants first.

use arrow::compute::SortOptions;
use datafusion::physical_expr::expressions::Column;

use super::read_first::ReadFirst;
use super::source::TableScan;

/// What a sort with a limit says to the scans below it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopRows {
    /// The number of the dynamic filter that has its threshold.
    pub filter_id: u64,
    /// Of the first sort key.
    pub options: SortOptions,
}

impl TableScan {
    /// The scan with row groups in the order in which the sort wants them, if it looks at the sort's threshold and
    /// zones can be compared with that.
    pub fn reading_first(&self, top: &TopRows) -> Option<Self> {
        if self.has_limit() {
            return None;
        }
        let mut filters = self.dynamic.iter().map(|dynamic| &dynamic.expr);
        let filter = filters.find(|filter| filter.expression_id() == Some(top.filter_id))?;
        // The filter's children are the sort keys, as expressions over this scan.
        let key = filter.children().into_iter().next()?;
        let key = key.downcast_ref::<Column>()?;
        let field = self.schema.fields().get(key.index())?;
        let data_type = field.data_type();
        // Floats are not compared with zone maps: see `DynamicFilter::is_exact`.
        if data_type.is_floating() || data_type.is_nested() {
            return None;
        }
        let mut scan = self.clone();
        scan.first = Some(ReadFirst {
            column: *self.columns.get(key.index())?,
            name: field.name().clone(),
            data_type: data_type.clone(),
            options: top.options,
        });
        Some(scan)
    }
}
