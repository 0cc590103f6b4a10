//! What an aggregate in the place of one of the engine's leaves to it.

/// The methods of `AggregateUDFImpl` that are those of the engine's function, which `self.engines()` gives: all but the
/// accumulators'.
macro_rules! as_the_engines {
    () => {
        fn name(&self) -> &str {
            self.engines().name()
        }

        fn aliases(&self) -> &[String] {
            self.engines().aliases()
        }

        fn signature(&self) -> &datafusion::logical_expr::Signature {
            self.engines().signature()
        }

        fn return_type(&self, types: &[DataType]) -> QueryResult<DataType> {
            self.engines().return_type(types)
        }

        fn return_field(
            &self,
            fields: &[arrow::datatypes::FieldRef],
        ) -> QueryResult<arrow::datatypes::FieldRef> {
            self.engines().return_field(fields)
        }

        fn is_nullable(&self) -> bool {
            self.engines().is_nullable()
        }

        fn coerce_types(&self, types: &[DataType]) -> QueryResult<Vec<DataType>> {
            self.engines().coerce_types(types)
        }

        fn state_fields(
            &self,
            args: datafusion::logical_expr::function::StateFieldsArgs,
        ) -> QueryResult<Vec<arrow::datatypes::FieldRef>> {
            self.engines().state_fields(args)
        }

        fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
            self.engines().groups_accumulator_supported(args)
        }

        fn is_descending(&self) -> Option<bool> {
            self.engines().is_descending()
        }

        fn order_sensitivity(&self) -> datafusion::logical_expr::utils::AggregateOrderSensitivity {
            self.engines().order_sensitivity()
        }

        fn reverse_expr(&self) -> datafusion::logical_expr::ReversedUDAF {
            self.engines().reverse_expr()
        }

        fn simplify(
            &self,
        ) -> Option<datafusion::logical_expr::function::AggregateFunctionSimplification> {
            self.engines().simplify()
        }

        fn simplify_expr_op_literal(
            &self,
            function: &datafusion::logical_expr::expr::AggregateFunction,
            argument: &datafusion::logical_expr::Expr,
            op: datafusion::logical_expr::Operator,
            literal: &datafusion::logical_expr::Expr,
            argument_is_left: bool,
        ) -> QueryResult<Option<datafusion::logical_expr::Expr>> {
            self.engines().simplify_expr_op_literal(
                function,
                argument,
                op,
                literal,
                argument_is_left,
            )
        }

        fn value_from_stats(
            &self,
            args: &datafusion::logical_expr::StatisticsArgs,
        ) -> Option<ScalarValue> {
            self.engines().value_from_stats(args)
        }

        fn default_value(&self, data_type: &DataType) -> QueryResult<ScalarValue> {
            self.engines().default_value(data_type)
        }

        fn set_monotonicity(
            &self,
            data_type: &DataType,
        ) -> datafusion::logical_expr::SetMonotonicity {
            self.engines().set_monotonicity(data_type)
        }

        fn documentation(&self) -> Option<&datafusion::logical_expr::Documentation> {
            self.engines().documentation()
        }
    };
}

pub(super) use as_the_engines;
