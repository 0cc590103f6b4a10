//! DataFusion's functions that can make much of little, with a limit on what they make at once.
//!
//! Operators account for batches when they get them. A call of `repeat` could have taken all memory by then, so the
//! size of its result is computed from its arguments first.

mod sizes;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::Array;
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{ExprSchema, ScalarValue};
use datafusion::error::{DataFusionError, Result as QueryResult};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ExpressionPlacement, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, StructFieldMapping,
};
use datafusion::prelude::SessionContext;

use crate::database::Parts;
use crate::engine::OperatorPool;
use crate::error::Error;
use sizes::{Argument, FUNCTIONS, Size};

/// What one call may always make, in bytes: batches may be as large anyway.
const BYTES_FREE: u64 = 8 << 20;
/// What one call may make at most, in bytes.
const BYTES_MAX: u64 = 1 << 30;

/// Years that begin and end within the range of timestamps in nanoseconds.
const YEARS: std::ops::Range<i32> = 1678..2262;

/// Functions whose bytes are not known before they are made, only that they are no more.
const BOUNDS: &[&str] = &["replace", "regexp_replace"];

/// Puts limits around the functions of a session.
pub(super) fn register(context: &SessionContext, parts: &Parts) {
    for (name, size) in FUNCTIONS {
        let known = context.state().scalar_functions().get(*name).cloned();
        if let Some(function) = known {
            context.register_udf(ScalarUDF::new_from_impl(Bounded {
                function,
                size: *size,
                memory: Some(Memory {
                    pool: parts.engine.pool.clone(),
                    threads: parts.machine.threads,
                }),
            }));
        }
    }
}

/// The function behind EXTRACT, which takes years that no timestamp has for what they wrap around to
/// (`docs/upstream/years-out-of-range.md`). `None` if it is guarded already or another function.
pub(crate) fn with_years_in_range(function: &Arc<ScalarUDF>) -> Option<ScalarUDF> {
    let is_plain =
        function.name() == "date_part" && function.inner().downcast_ref::<Bounded>().is_none();
    is_plain.then(|| {
        ScalarUDF::new_from_impl(Bounded {
            function: function.clone(),
            size: |_| 0,
            memory: None,
        })
    })
}

/// Whether a year has bounds that timestamps in nanoseconds cannot hold.
fn has_no_bounds(year: &Expr) -> bool {
    match year {
        Expr::Literal(ScalarValue::Int32(Some(year)), _) => !YEARS.contains(year),
        _ => false,
    }
}

/// A function that refuses to make more than fits.
#[derive(Clone)]
struct Bounded {
    function: Arc<ScalarUDF>,
    size: Size,
    /// What results are made of; `None` where nothing large is made.
    memory: Option<Memory>,
}

/// The memory that the calls of a query share.
#[derive(Clone)]
struct Memory {
    pool: Arc<OperatorPool>,
    threads: usize,
}

impl Bounded {
    /// Computes a call that fits. One whose bytes are known as a bound only, and beyond the limit, is computed in
    /// pieces.
    fn compute(&self, args: ScalarFunctionArgs) -> QueryResult<ColumnarValue> {
        let arguments: QueryResult<Vec<_>> = args.args.iter().map(Argument::new).collect();
        let arguments = arguments?;
        let bytes = (self.size)(&arguments);
        let limit = match bytes <= BYTES_FREE {
            true => BYTES_FREE,
            false => self.limit(),
        };
        if bytes <= limit {
            return self.function.invoke_with_args(args);
        }
        let rows = arguments.iter().map(Argument::rows).max().unwrap_or(0);
        if rows < 2 || !BOUNDS.contains(&self.function.name()) {
            return Err(self.too_large(bytes, limit));
        }
        let (first, second) = (rows_of(&args, 0, rows / 2), rows_of(&args, rows / 2, rows));
        let mut pieces = Vec::new();
        let mut made = 0;
        for half in [first, second] {
            let rows = half.number_rows;
            let piece = self.compute(half)?.into_array(rows)?;
            made += piece.get_array_memory_size() as u64;
            if made > limit {
                return Err(self.too_large(made, limit));
            }
            pieces.push(piece);
        }
        let pieces: Vec<_> = pieces.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&pieces)?))
    }

    fn too_large(&self, bytes: u64, limit: u64) -> DataFusionError {
        let function = self.function.name().to_owned();
        DataFusionError::from(Error::TooLarge {
            function,
            bytes,
            limit,
        })
    }

    /// What operators could still reserve, within bounds.
    fn limit(&self) -> u64 {
        let Some(Memory { pool, threads }) = &self.memory else {
            return BYTES_FREE;
        };
        let free = match pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit.saturating_sub(pool.reserved()) as u64,
            _ => BYTES_MAX,
        };
        // The workers of a query make as much at the same time, and each result is copied once.
        (free / *threads as u64).clamp(BYTES_FREE, BYTES_MAX)
    }

    /// The expression with calls of the plain function replaced by calls of this one.
    fn keep_bounds(&self, mut expr: Expr) -> Expr {
        if let Expr::ScalarFunction(call) = &mut expr
            && call.func.name() == self.function.name()
        {
            call.func = Arc::new(ScalarUDF::new_from_impl(self.clone()));
        }
        expr
    }
}

/// A call with some of its rows.
fn rows_of(args: &ScalarFunctionArgs, from: usize, to: usize) -> ScalarFunctionArgs {
    let mut part = args.clone();
    part.number_rows = to - from;
    for arg in &mut part.args {
        if let ColumnarValue::Array(values) = arg {
            *arg = ColumnarValue::Array(values.slice(from, to - from));
        }
    }
    part
}

impl std::fmt::Debug for Bounded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bounded").field(&self.function).finish()
    }
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.function == other.function
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.hash(state);
    }
}

// Every method is passed on: a default would change what the function means.
impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> QueryResult<String> {
        self.function.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> QueryResult<DataType> {
        self.function.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> QueryResult<FieldRef> {
        self.function.return_field_from_args(args)
    }

    #[expect(deprecated, reason = "passed on")]
    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        self.function.is_nullable(args, schema)
    }

    fn is_strict(&self) -> bool {
        self.function.is_strict()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> QueryResult<ColumnarValue> {
        self.compute(args)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let function = self.function.inner().with_updated_config(config)?;
        let function = Arc::new(function);
        Some(ScalarUDF::new_from_impl(Self {
            function,
            ..self.clone()
        }))
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> QueryResult<ExprSimplifyResult> {
        Ok(match self.function.simplify(args, info)? {
            ExprSimplifyResult::Simplified(expr) => {
                ExprSimplifyResult::Simplified(self.keep_bounds(expr))
            }
            original => original,
        })
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> QueryResult<PreimageResult> {
        match has_no_bounds(literal) {
            true => Ok(PreimageResult::None),
            false => self.function.preimage(args, literal, info),
        }
    }

    fn conditional_arguments<'a>(
        &self,
        args: &'a [Expr],
    ) -> Option<(Vec<&'a Expr>, Vec<&'a Expr>)> {
        self.function.conditional_arguments(args)
    }

    fn short_circuits(&self) -> bool {
        self.function.short_circuits()
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> QueryResult<Interval> {
        self.function.evaluate_bounds(inputs)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> QueryResult<Option<Vec<Interval>>> {
        self.function.propagate_constraints(interval, inputs)
    }

    fn struct_field_mapping(
        &self,
        literal_args: &[Option<ScalarValue>],
    ) -> Option<StructFieldMapping> {
        self.function.struct_field_mapping(literal_args)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> QueryResult<SortProperties> {
        self.function.output_ordering(inputs)
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> QueryResult<bool> {
        self.function.preserves_lex_ordering(inputs)
    }

    fn strictly_order_preserving(&self, inputs: &[ExprProperties]) -> QueryResult<bool> {
        self.function.strictly_order_preserving(inputs)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> QueryResult<Vec<DataType>> {
        self.function.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn placement(&self, args: &[ExpressionPlacement]) -> ExpressionPlacement {
        self.function.placement(args)
    }
}
