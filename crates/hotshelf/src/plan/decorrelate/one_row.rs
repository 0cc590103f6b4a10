//! The value of a subquery that may have one row and no more.

use std::sync::LazyLock;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// `value`, and an error where `rows` is above one.
pub(super) fn one_row(value: Expr, rows: Expr) -> Expr {
    static FUNCTION: LazyLock<ScalarUDF> = LazyLock::new(|| {
        ScalarUDF::from(OneRow {
            signature: Signature::any(2, Volatility::Immutable),
        })
    });
    FUNCTION.call(vec![value, rows])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OneRow {
    signature: Signature,
}

impl ScalarUDFImpl for OneRow {
    fn name(&self) -> &str {
        "one_row"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> QueryResult<DataType> {
        match arguments {
            [value, _] => Ok(value.clone()),
            _ => plan_err!("one_row takes a value and a number of rows"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> QueryResult<ColumnarValue> {
        let [value, rows] = arguments.args.as_slice() else {
            return exec_err!("one_row takes a value and a number of rows");
        };
        let most = match rows {
            ColumnarValue::Scalar(ScalarValue::Int64(rows)) => *rows,
            ColumnarValue::Array(rows) if rows.data_type() == &DataType::Int64 => {
                datafusion::arrow::compute::max(rows.as_primitive::<Int64Type>())
            }
            _ => return exec_err!("the number of a subquery's rows is not a number"),
        };
        match most.unwrap_or(0) > 1 {
            true => exec_err!("a subquery that stands for one value has more than one row"),
            false => Ok(value.clone()),
        }
    }
}
