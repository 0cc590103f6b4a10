//! What an INSERT does with each value: a cast to its column's type that fails instead of rounding or cutting.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::error::Result;
use crate::input::exact::{Misfit, exact_cast, null_in_insert};

/// A cast to the type of a table's column that keeps values or fails.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ExactCast {
    signature: Signature,
    table: String,
    column: String,
    data_type: DataType,
    is_nullable: bool,
}

impl ExactCast {
    pub fn new(table: &str, column: &Field) -> Self {
        Self {
            signature: Signature::any(1, Volatility::Immutable),
            table: table.to_owned(),
            column: column.name().clone(),
            data_type: column.data_type().clone(),
            is_nullable: column.is_nullable(),
        }
    }

    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    pub fn takes_null(&self) -> bool {
        self.is_nullable
    }

    /// The cast of a value. A literal of the type stays as it is.
    pub fn of(&self, value: Expr) -> Expr {
        match &value {
            Expr::Literal(literal, _)
                if literal.data_type() == self.data_type && !literal.is_null() =>
            {
                value
            }
            _ => {
                let function = Arc::new(ScalarUDF::from(self.clone()));
                Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![value]))
            }
        }
    }

    fn cast(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let misfit = |misfit: Misfit| {
            let input = format!("INSERT INTO {}", self.table);
            misfit.in_statement(input, &self.column, &self.data_type)
        };
        let cast = exact_cast(values, &self.data_type).map_err(misfit)?;
        if !self.is_nullable && cast.logical_null_count() > 0 {
            return Err(null_in_insert(&self.table, &self.column, &self.data_type));
        }
        Ok(cast)
    }
}

impl ScalarUDFImpl for ExactCast {
    fn name(&self) -> &str {
        "exact_cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> QueryResult<DataType> {
        Ok(self.data_type.clone())
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs) -> QueryResult<FieldRef> {
        let (data_type, is_nullable) = (self.data_type.clone(), self.is_nullable);
        Ok(Arc::new(Field::new(self.name(), data_type, is_nullable)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> QueryResult<ColumnarValue> {
        let [value] = arguments.args.as_slice() else {
            return datafusion::common::exec_err!("exact_cast takes one argument");
        };
        Ok(match value {
            ColumnarValue::Array(values) => ColumnarValue::Array(self.cast(values)?),
            ColumnarValue::Scalar(value) => {
                let cast = self.cast(&value.to_array()?)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&cast, 0)?)
            }
        })
    }
}
