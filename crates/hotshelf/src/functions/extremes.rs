//! `min` and `max` of floats by group, in the order that both have without groups: NaN is the greatest value.
//!
//! The engine's compare the floats of groups as numbers: whether NaN wins depends on the order of the rows, and
//! infinities are lost (`docs/upstream/grouped-extremes-of-floats.md`). These are the engine's in all but that.

use std::cmp::Ordering;
use std::fmt::Debug;
use std::hash::Hash;

use arrow::datatypes::{
    ArrowNativeTypeOp, ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type,
};
use datafusion::error::Result as QueryResult;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator};
use datafusion::scalar::ScalarValue;
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use super::engines::as_the_engines;

/// The functions to register.
pub(crate) fn extremes() -> [AggregateUDF; 2] {
    [
        AggregateUDF::from(Ordered {
            engines: Min::new(),
        }),
        AggregateUDF::from(Ordered {
            engines: Max::new(),
        }),
    ]
}

/// The engine's function, with floats of groups compared in their total order.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Ordered<F> {
    engines: F,
}

/// Which of two values a function keeps.
trait Extreme {
    /// How the kept value compares with the other one.
    const KEPT: Ordering;
}

impl Extreme for Min {
    const KEPT: Ordering = Ordering::Less;
}

impl Extreme for Max {
    const KEPT: Ordering = Ordering::Greater;
}

/// What a function keeps of the floats of each group.
fn groups<F, T>(data_type: &DataType) -> Box<dyn GroupsAccumulator>
where
    F: Extreme,
    T: ArrowPrimitiveType + Send,
    T::Native: ArrowNativeTypeOp,
{
    let keep = |kept: &mut T::Native, value: T::Native| {
        if value.compare(*kept) == F::KEPT {
            *kept = value;
        }
    };
    // Every value takes its place.
    let none = match F::KEPT {
        Ordering::Less => T::Native::MAX_TOTAL_ORDER,
        _ => T::Native::MIN_TOTAL_ORDER,
    };
    let groups = PrimitiveGroupsAccumulator::<T, _>::new(data_type, keep);
    Box::new(groups.with_starting_value(none))
}

impl<F: AggregateUDFImpl> Ordered<F> {
    fn engines(&self) -> &dyn AggregateUDFImpl {
        &self.engines
    }
}

impl<F> AggregateUDFImpl for Ordered<F>
where
    F: AggregateUDFImpl + Extreme + Debug + Eq + Hash + 'static,
{
    as_the_engines!();

    fn accumulator(&self, args: AccumulatorArgs) -> QueryResult<Box<dyn Accumulator>> {
        self.engines.accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> QueryResult<Box<dyn Accumulator>> {
        self.engines.create_sliding_accumulator(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> QueryResult<Box<dyn GroupsAccumulator>> {
        let data_type = args.return_field.data_type();
        Ok(match data_type {
            DataType::Float16 => groups::<F, Float16Type>(data_type),
            DataType::Float32 => groups::<F, Float32Type>(data_type),
            DataType::Float64 => groups::<F, Float64Type>(data_type),
            _ => return self.engines.create_groups_accumulator(args),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, Float32Array, Float64Array};
    use arrow::compute::{cast, concat};
    use arrow::datatypes::{Field, FieldRef, Schema};
    use datafusion::logical_expr::EmitTo;
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::expressions::Column;
    use proptest::prelude::*;

    use super::*;

    const GROUPS: usize = 3;

    const VALUES: [f64; 8] = [
        f64::NEG_INFINITY,
        -1.5,
        -0.0,
        0.0,
        2.5,
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
    ];

    fn with_args<T>(data_type: &DataType, f: impl FnOnce(AccumulatorArgs) -> T) -> T {
        let field: FieldRef = Arc::new(Field::new("x", data_type.clone(), true));
        let schema = Schema::new(vec![field.clone()]);
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("x", 0));
        f(AccumulatorArgs {
            return_field: field.clone(),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: "extreme",
            is_distinct: false,
            exprs: &[column],
            expr_fields: &[field],
        })
    }

    /// The bits of each group's value, from parts that are aggregated apart and merged.
    fn by_group(function: &AggregateUDF, parts: &[(ArrayRef, Vec<usize>)]) -> ArrayRef {
        let data_type = parts[0].0.data_type();
        let new = || {
            with_args(data_type, |args| {
                function.create_groups_accumulator(args).unwrap()
            })
        };
        let mut merged = new();
        let all: Vec<usize> = (0..GROUPS).collect();
        for (idx, (values, groups)) in parts.iter().enumerate() {
            let mut part = new();
            if idx % 2 == 0 {
                part.update_batch(std::slice::from_ref(values), groups, None, GROUPS)
                    .unwrap();
                let state = part.state(EmitTo::All).unwrap();
                merged.merge_batch(&state, &all, GROUPS).unwrap();
            } else {
                let state = part
                    .convert_to_state(std::slice::from_ref(values), None)
                    .unwrap();
                merged.merge_batch(&state, groups, GROUPS).unwrap();
            }
        }
        merged.evaluate(EmitTo::All).unwrap()
    }

    /// The same of the rows of each group by themselves.
    fn each_alone(function: &AggregateUDF, parts: &[(ArrayRef, Vec<usize>)]) -> ArrayRef {
        let data_type = parts[0].0.data_type();
        let of = |group: usize| {
            let new = |args: AccumulatorArgs| function.accumulator(args).unwrap();
            let mut alone = with_args(data_type, new);
            for (values, groups) in parts {
                for row in (0..values.len()).filter(|row| groups[*row] == group) {
                    alone.update_batch(&[values.slice(row, 1)]).unwrap();
                }
            }
            alone.evaluate().unwrap().to_array().unwrap()
        };
        let groups: Vec<ArrayRef> = (0..GROUPS).map(of).collect();
        let groups: Vec<&dyn Array> = groups.iter().map(AsRef::as_ref).collect();
        concat(&groups).unwrap()
    }

    fn parts_of(
        rows: &[Vec<(Option<usize>, usize)>],
        data_type: &DataType,
    ) -> Vec<(ArrayRef, Vec<usize>)> {
        let part = |rows: &Vec<(Option<usize>, usize)>| {
            // A group without a row in its first batch counts as seen.
            let rows: Vec<_> = (0..GROUPS)
                .map(|group| (None, group))
                .chain(rows.iter().copied())
                .collect();
            let values: Float64Array = rows
                .iter()
                .map(|(value, _)| value.map(|idx| VALUES[idx]))
                .collect();
            let values = cast(&values, data_type).unwrap();
            (values, rows.iter().map(|(_, group)| *group).collect())
        };
        rows.iter().map(part).collect()
    }

    proptest! {
        #[test]
        fn groups_have_what_their_rows_alone_have_in_any_order_and_any_parts(
            rows in proptest::collection::vec(
                proptest::collection::vec((proptest::option::of(0..VALUES.len()), 0..GROUPS), 0..12),
                1..5,
            ),
            type_idx in 0..3usize,
        ) {
            let data_type = [DataType::Float16, DataType::Float32, DataType::Float64][type_idx].clone();
            let parts = parts_of(&rows, &data_type);
            for function in extremes() {
                let expected = each_alone(&function, &parts);
                // Equal floats of Arrow's arrays have equal bits.
                prop_assert_eq!(&by_group(&function, &parts), &expected);
                let mut turned: Vec<_> = rows.concat();
                turned.reverse();
                prop_assert_eq!(&by_group(&function, &parts_of(&[turned], &data_type)), &expected);
            }
        }
    }

    #[test]
    fn nan_is_the_greatest_and_infinities_are_kept() {
        let [min, max] = extremes();
        let values = [
            f64::NAN,
            1.0,
            f64::NEG_INFINITY,
            f64::NEG_INFINITY,
            f64::INFINITY,
        ];
        let values: ArrayRef = Arc::new(Float32Array::from(
            values.map(|value| value as f32).to_vec(),
        ));
        let parts = [(values, vec![0, 0, 1, 1, 2])];
        let expected =
            |values: [f32; GROUPS]| Arc::new(Float32Array::from(values.to_vec())) as ArrayRef;
        let (low, high) = (f32::NEG_INFINITY, f32::INFINITY);
        assert_eq!(&by_group(&min, &parts), &expected([1.0, low, high]));
        assert_eq!(&by_group(&max, &parts), &expected([f32::NAN, low, high]));
    }
}
