//! What a sort with a limit tells the scan below it: rows that come after enough others are not wanted.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr, is_null, lit};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::scalar::ScalarValue;
use hotshelf_operators::OperatorError;
use hotshelf_operators::sort::Sorter;
use parking_lot::Mutex;

/// The threshold of a sort, which its partitions share.
pub(super) struct Threshold {
    filter: Arc<DynamicFilterPhysicalExpr>,
    first: PhysicalSortExpr,
    /// The least key that one of the partitions has enough rows before.
    least: Mutex<Option<Vec<u8>>>,
}

impl Threshold {
    /// The threshold of a sort whose scan looks at one, if its first key's values compare in filters as they do in
    /// sorts.
    pub fn of(sort: &SortExec) -> Option<Arc<Self>> {
        let produced = sort.dynamic_expressions_produced().into_iter().next()?;
        let produced = produced as Arc<dyn std::any::Any + Send + Sync>;
        let filter = produced.downcast().ok()?;
        let first = sort.expr().first().clone();
        let data_type = first.expr.data_type(&sort.input().schema()).ok()?;
        compares_alike(&data_type).then(|| {
            Arc::new(Self {
                filter,
                first,
                least: Mutex::default(),
            })
        })
    }

    /// The filter that the scan looks at.
    pub fn filter(&self) -> &Arc<DynamicFilterPhysicalExpr> {
        &self.filter
    }

    /// Takes a sorter's bound, if it is less than those of before.
    pub fn take(&self, sorter: &Sorter) -> Result<(), OperatorError> {
        let Some(bound) = sorter.bound() else {
            return Ok(());
        };
        let mut least = self.least.lock();
        if least.as_deref().is_some_and(|least| least <= bound) {
            return Ok(());
        }
        let values = sorter.key_values(bound)?;
        if let Some(first) = values.first() {
            // Without a threshold the scan reads more, and nothing is wrong.
            let wanted = ScalarValue::try_from_array(first, 0).and_then(|value| self.wanted(value));
            if let Ok(Some(wanted)) = wanted {
                self.filter.update(wanted).ok();
            }
        }
        *least = Some(bound.to_vec());
        Ok(())
    }

    /// Which rows may come before a row with this first value, or beside it.
    fn wanted(&self, value: ScalarValue) -> QueryResult<Option<Arc<dyn PhysicalExpr>>> {
        if value.is_null() {
            return Ok(None);
        }
        let (expr, options) = (&self.first.expr, self.first.options);
        let operator = match options.descending {
            true => Operator::GtEq,
            false => Operator::LtEq,
        };
        let compared = BinaryExpr::new(expr.clone(), operator, lit(value));
        let compared: Arc<dyn PhysicalExpr> = Arc::new(compared);
        Ok(Some(match options.nulls_first {
            true => Arc::new(BinaryExpr::new(
                is_null(expr.clone())?,
                Operator::Or,
                compared,
            )),
            false => compared,
        }))
    }

    /// Forgets it: the sort begins anew with other rows.
    pub fn reset(&self) -> QueryResult<()> {
        *self.least.lock() = None;
        self.filter.update(lit(true))
    }
}

impl fmt::Debug for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threshold").finish_non_exhaustive()
    }
}

/// Whether comparing values of this type is what sorting them is: not so with floats, for NaN and signed zeros.
fn compares_alike(data_type: &DataType) -> bool {
    data_type.is_integer()
        || data_type.is_temporal()
        || data_type.is_decimal()
        || data_type.is_string()
}
