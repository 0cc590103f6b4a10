//! DataFusion's functions that can make much of little, with a limit on what they make at once.
//!
//! Operators account for batches when they get them. A call of `repeat` could have taken all memory by then, so the
//! size of its result is computed from its arguments first.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, FieldRef, Int64Type, TimeUnit};
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

use crate::database::Inner;
use crate::error::Error;

/// What one call may always make, in bytes: batches are this large without anybody's doing.
const BYTES_FREE: u64 = 8 << 20;
/// What one call may make at most, in bytes.
const BYTES_MAX: u64 = 1 << 30;

/// Years that begin and end within the range of timestamps in nanoseconds.
const YEARS: std::ops::Range<i32> = 1678..2262;

/// What points in time are measured in.
const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Computes the bytes that a call would make.
type Size = fn(&[Argument]) -> u64;

const FUNCTIONS: &[(&str, Size)] = &[
    ("repeat", |args| {
        sum(args, |row| row.text(0).saturating_mul(row.count(1)))
    }),
    ("lpad", |args| sum(args, |row| row.count(1))),
    ("rpad", |args| sum(args, |row| row.count(1))),
    ("replace", |args| {
        sum(args, |row| replaced_bytes(row, row.text(1).max(1)))
    }),
    // A pattern may match between any two characters.
    ("regexp_replace", |args| {
        sum(args, |row| replaced_bytes(row, 0))
    }),
    ("concat", |args| sum(args, |row| row.texts(0))),
    ("concat_ws", |args| {
        sum(args, |row| {
            let separators = row.text(0).saturating_mul(row.args.len() as u64);
            row.texts(1).saturating_add(separators)
        })
    }),
    ("array_repeat", |args| {
        sum(args, |row| {
            row.args[0].element_bytes().saturating_mul(row.count(1))
        })
    }),
    ("array_concat", repeated_bytes),
    ("array_resize", |args| {
        sum(args, |row| row.count(1).saturating_mul(8))
    }),
    ("range", |args| sum(args, series_bytes)),
    ("generate_series", |args| sum(args, series_bytes)),
];

/// Functions whose bytes are not known before they are made, only that they are no more.
const BOUNDS: &[&str] = &["replace", "regexp_replace"];

/// Puts limits around the functions of a session.
pub(super) fn register(context: &SessionContext, inner: &Arc<Inner>) {
    for (name, size) in FUNCTIONS {
        let known = context.state().scalar_functions().get(*name).cloned();
        if let Some(function) = known {
            context.register_udf(ScalarUDF::new_from_impl(Bounded {
                function,
                size: *size,
                inner: Arc::downgrade(inner),
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
            inner: Weak::new(),
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
    inner: Weak<Inner>,
}

impl Bounded {
    /// Computes a call that fits. One whose bytes are known as a bound only, and beyond the limit, is computed in pieces.
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
        let Some(inner) = self.inner.upgrade() else {
            return BYTES_FREE;
        };
        let free = match inner.pool.memory_limit() {
            MemoryLimit::Finite(limit) => limit.saturating_sub(inner.pool.reserved()) as u64,
            _ => BYTES_MAX,
        };
        // The workers of a query make as much at the same time, and each result is copied once.
        let threads = inner.options.read().threads.max(1) as u64;
        (free / threads).clamp(BYTES_FREE, BYTES_MAX)
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

/// An argument of a call, ready to be measured.
enum Argument {
    Scalar {
        text: u64,
        count: Option<i64>,
        bytes: u64,
    },
    Array {
        values: ArrayRef,
        counts: Option<Int64Array>,
    },
}

impl Argument {
    fn new(value: &ColumnarValue) -> QueryResult<Self> {
        Ok(match value {
            ColumnarValue::Scalar(scalar) => Self::Scalar {
                text: scalar.try_as_str().flatten().map_or(0, str::len) as u64,
                count: count(scalar),
                bytes: scalar.size() as u64,
            },
            ColumnarValue::Array(values) => Self::Array {
                values: values.clone(),
                counts: counts(values)?,
            },
        })
    }

    fn rows(&self) -> usize {
        match self {
            Self::Scalar { .. } => 1,
            Self::Array { values, .. } => values.len(),
        }
    }

    /// Length of the text in a row.
    fn text(&self, row: usize) -> u64 {
        match self {
            Self::Scalar { text, .. } => *text,
            Self::Array { values, .. } => text(values, row).map_or(0, str::len) as u64,
        }
    }

    fn number(&self, row: usize) -> Option<i64> {
        match self {
            Self::Scalar { count, .. } => *count,
            Self::Array { counts, .. } => {
                let counts = counts.as_ref()?;
                (row < counts.len() && counts.is_valid(row)).then(|| counts.value(row))
            }
        }
    }

    /// Bytes of one value, on average.
    fn element_bytes(&self) -> u64 {
        match self {
            Self::Scalar { bytes, .. } => *bytes,
            Self::Array { values, .. } => {
                (values.get_array_memory_size() / values.len().max(1)).max(1) as u64
            }
        }
    }
}

/// The values as numbers, if they are numbers or points in time (then in microseconds).
fn counts(values: &ArrayRef) -> QueryResult<Option<Int64Array>> {
    let data_type = values.data_type();
    let numbers = match data_type {
        integer if integer.is_integer() => cast(values, &DataType::Int64),
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => {
            cast(values, &MICROSECONDS).and_then(|points| cast(&points, &DataType::Int64))
        }
        _ => return Ok(None),
    };
    // Values beyond the range are not numbers that a size could be computed of.
    let numbers = numbers.ok();
    Ok(numbers.map(|numbers| numbers.as_primitive::<Int64Type>().clone()))
}

/// A scalar as [`counts`] gives it; a length of time counts in microseconds, too.
fn count(scalar: &ScalarValue) -> Option<i64> {
    const DAY: i64 = 86_400_000_000;
    match scalar {
        ScalarValue::IntervalYearMonth(months) => Some(i64::from((*months)?) * 28 * DAY),
        ScalarValue::IntervalDayTime(time) => {
            let time = (*time)?;
            Some(i64::from(time.days) * DAY + i64::from(time.milliseconds) * 1000)
        }
        ScalarValue::IntervalMonthDayNano(time) => {
            let time = (*time)?;
            let days = i64::from(time.months) * 28 + i64::from(time.days);
            Some(
                days.saturating_mul(DAY)
                    .saturating_add(time.nanoseconds / 1000),
            )
        }
        other => {
            let counts = counts(&other.to_array().ok()?).ok()??;
            counts.is_valid(0).then(|| counts.value(0))
        }
    }
}

fn text(values: &ArrayRef, row: usize) -> Option<&str> {
    if row >= values.len() || values.is_null(row) {
        return None;
    }
    Some(match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().value(row),
        DataType::LargeUtf8 => values.as_string::<i64>().value(row),
        DataType::Utf8View => values.as_string_view().value(row),
        _ => return None,
    })
}

/// One row of the arguments.
struct Row<'a> {
    args: &'a [Argument],
    row: usize,
}

impl Row<'_> {
    fn text(&self, idx: usize) -> u64 {
        self.args.get(idx).map_or(0, |arg| arg.text(self.row))
    }

    /// Bytes of all texts from one argument on.
    fn texts(&self, from: usize) -> u64 {
        (from..self.args.len()).map(|idx| self.text(idx)).sum()
    }

    fn number(&self, idx: usize) -> Option<i64> {
        self.args.get(idx)?.number(self.row)
    }

    fn count(&self, idx: usize) -> u64 {
        self.number(idx).map_or(0, |count| count.max(0) as u64)
    }
}

fn sum(args: &[Argument], bytes: impl Fn(&Row) -> u64) -> u64 {
    let rows = args.iter().map(Argument::rows).max().unwrap_or(0);
    (0..rows).fold(0, |sum: u64, row| {
        sum.saturating_add(bytes(&Row { args, row }))
    })
}

/// Scalars are repeated for every row; what columns add is no more than they have.
fn repeated_bytes(args: &[Argument]) -> u64 {
    let rows = args.iter().map(Argument::rows).max().unwrap_or(0) as u64;
    let scalars = args.iter().map(|arg| match arg {
        Argument::Scalar { bytes, .. } => *bytes,
        Argument::Array { .. } => 0,
    });
    scalars.sum::<u64>().saturating_mul(rows)
}

/// At most: every piece of `from` bytes that could be replaced is.
fn replaced_bytes(row: &Row, from: u64) -> u64 {
    let (text, to) = (row.text(0), row.text(2));
    let pieces = match from {
        0 => text + 1,
        from => text / from,
    };
    text.saturating_add(pieces.saturating_mul(to.saturating_sub(from)))
}

/// `range(stop)`, `range(start, stop)` or `range(start, stop, step)` of numbers or points in time.
fn series_bytes(row: &Row) -> u64 {
    let (start, stop) = match row.args.len() {
        1 => (Some(0), row.number(0)),
        _ => (row.number(0), row.number(1)),
    };
    let step = match row.args.len() {
        0..=2 => Some(1),
        _ => row.number(2),
    };
    match (start, stop, step) {
        (Some(start), Some(stop), Some(step)) => {
            let count = start.abs_diff(stop) / step.unsigned_abs().max(1);
            count.saturating_mul(8)
        }
        _ => 0,
    }
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
