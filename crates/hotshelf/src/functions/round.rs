//! `round` of decimals whose type is settled once.
//!
//! The engine's keeps as many digits as its second argument says if that is a literal then, and all if not: the type of
//! `round(d, n)` changes when `n` becomes a literal (`docs/upstream/places-of-round.md`). This one is the engine's as
//! if it never did.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result as QueryResult;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

/// The function in the place of the engine's `round`. `None` if this is it already, or another function.
pub(crate) fn with_settled_type(function: &Arc<ScalarUDF>) -> Option<ScalarUDF> {
    let is_engines = function.name() == "round"
        && function
            .inner()
            .downcast_ref::<RoundWithAllDigits>()
            .is_none();
    is_engines.then(|| {
        ScalarUDF::new_from_impl(RoundWithAllDigits {
            function: function.clone(),
        })
    })
}

/// `round` that keeps the digits of its type, with zeros in the place of those that it rounds away.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RoundWithAllDigits {
    function: Arc<ScalarUDF>,
}

impl ScalarUDFImpl for RoundWithAllDigits {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> QueryResult<DataType> {
        self.function.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> QueryResult<FieldRef> {
        let unknown = vec![None; args.scalar_arguments.len()];
        self.function.return_field_from_args(ReturnFieldArgs {
            arg_fields: args.arg_fields,
            scalar_arguments: &unknown,
        })
    }

    fn is_strict(&self) -> bool {
        self.function.is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> QueryResult<ColumnarValue> {
        self.function.invoke_with_args(args)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> QueryResult<SortProperties> {
        self.function.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }
}
