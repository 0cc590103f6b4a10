//! INSERT loses nothing: where a value must change its type for its column, it keeps its value or the statement fails.
//!
//! The planner puts casts around what a query gives. Those that may lose something become [`ExactCast`].

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::DFSchema;
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::dml::DmlStatement;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Projection, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Values, Volatility, WriteOp,
};
use datafusion::scalar::ScalarValue;

use crate::error::{Error, Result};
use crate::input::exact::{exact_cast, may_lose};

/// An INSERT with exact casts; other statements as they are.
pub(super) fn exact(mut dml: DmlStatement) -> Result<DmlStatement> {
    if let (WriteOp::Insert(_), LogicalPlan::Projection(top)) = (&dml.op, dml.input.as_ref()) {
        let table = dml.table_name.to_string();
        let input = exact_values(&table, top)?;
        let expressions = top.expr.iter().zip(top.schema.fields());
        let expressions = expressions
            .map(|(expression, field)| {
                exact_expression(&table, field.name(), expression, top.input.schema())
            })
            .collect();
        let top = Projection::try_new(expressions, input).map_err(Error::from_query)?;
        dml.input = Arc::new(LogicalPlan::Projection(top));
    }
    Ok(dml)
}

fn exact_expression(table: &str, column: &str, expression: &Expr, input: &DFSchema) -> Expr {
    match expression {
        Expr::Alias(alias) => {
            let mut alias = alias.clone();
            alias.expr = Box::new(exact_expression(table, column, &alias.expr, input));
            Expr::Alias(alias)
        }
        Expr::Cast(cast) => match exact_call(table, column, cast, input) {
            Some(call) => call.alias(expression.schema_name().to_string()),
            None => expression.clone(),
        },
        other => other.clone(),
    }
}

fn exact_call(table: &str, column: &str, cast: &Cast, input: &DFSchema) -> Option<Expr> {
    let have = cast.expr.get_type(input).ok()?;
    let want = cast.field.data_type();
    may_lose(&have, want).then(|| {
        let function = ExactCast {
            signature: Signature::any(1, Volatility::Immutable),
            table: table.to_owned(),
            column: column.to_owned(),
            data_type: want.clone(),
        };
        let function = Arc::new(ScalarUDF::from(function));
        Expr::ScalarFunction(ScalarFunction::new_udf(
            function,
            vec![cast.expr.as_ref().clone()],
        ))
    })
}

/// VALUES, whose literals the planner casts in place.
fn exact_values(table: &str, top: &Projection) -> Result<Arc<LogicalPlan>> {
    let LogicalPlan::Values(values) = top.input.as_ref() else {
        return Ok(top.input.clone());
    };
    // With a column list, the columns of VALUES are not in the table's order.
    let name = |idx: usize| {
        let of_values = values.schema.field(idx).name();
        let is_it = |expression: &Expr| {
            let columns = expression.column_refs();
            columns.iter().any(|column| column.name == *of_values)
        };
        let mut columns = top.expr.iter().zip(top.schema.fields());
        let column = columns.find(|(expression, _)| is_it(expression));
        column.map_or_else(|| of_values.clone(), |(_, field)| field.name().clone())
    };
    let empty = DFSchema::empty();
    let exact = |(idx, expression): (usize, &Expr)| match expression {
        Expr::Cast(cast) if is_literal(&cast.expr) => {
            exact_call(table, &name(idx), cast, &empty).unwrap_or_else(|| expression.clone())
        }
        other => other.clone(),
    };
    let rows = values
        .values
        .iter()
        .map(|row| row.iter().enumerate().map(exact).collect());
    Ok(Arc::new(LogicalPlan::Values(Values {
        schema: values.schema.clone(),
        values: rows.collect(),
    })))
}

fn is_literal(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(..) => true,
        Expr::Negative(inner) => is_literal(inner),
        _ => false,
    }
}

/// A cast to a column's type that fails instead of rounding or cutting.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactCast {
    signature: Signature,
    table: String,
    column: String,
    data_type: DataType,
}

impl ExactCast {
    fn cast(&self, values: &ArrayRef) -> Result<ArrayRef> {
        let cast = exact_cast(values, &self.data_type);
        cast.map_err(|misfit| misfit.in_insert(&self.table, &self.column, &self.data_type))
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

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> QueryResult<FieldRef> {
        let nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(
            self.name(),
            self.data_type.clone(),
            nullable,
        )))
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
