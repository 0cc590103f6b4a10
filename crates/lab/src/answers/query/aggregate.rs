//! Aggregates: calls, filters of them, conditions on groups.

use super::expression::cast;
use super::generate::{Generator, Scope, count_all};
use super::{Expr, Form};
use crate::answers::schema::{BIGINT, Kind, Type};

/// Sums stay below this, unless wide sums are asked for.
const SUM_MAX: f64 = 9.0e18;
/// Averages and deviations of larger numbers depend on the order of rows.
const AVERAGED_MAX: f64 = 1e9;

impl Generator<'_> {
    pub(super) fn having(&mut self, scope: &Scope) -> Expr {
        if self.one_in(2) {
            let form = self.pick(&["{} > {}", "{} <> {}", "{} < {}"]);
            let number = Expr::int(self.rng.i64(1..4));
            return Expr::test(form, vec![count_all(), number]);
        }
        let column = self.column(scope);
        let literal = self.literal_of(&column);
        if column.ty.kind() == Kind::Boolean {
            return Expr::test("bool_or({})", vec![column.expr()]);
        }
        let form = self.pick(&["min({}) <= {}", "max({}) >= {}"]);
        Expr::test(form, vec![column.expr(), literal])
    }

    pub(super) fn aggregate(&mut self, scope: &Scope) -> Expr {
        let aggregate = self.plain_aggregate(scope);
        let takes_filter =
            !matches!(aggregate.form, Form::Pattern(form) if form.contains("coalesce"));
        if !takes_filter || !self.one_in(8) {
            return aggregate;
        }
        self.filtered(aggregate, scope)
    }

    fn filtered(&mut self, mut aggregate: Expr, scope: &Scope) -> Expr {
        let Form::Pattern(form) = aggregate.form else {
            return aggregate;
        };
        let filtered = match form {
            "count(*)" => "count(*) FILTER (WHERE {})",
            "count({})" => "count({}) FILTER (WHERE {})",
            "sum({})" => "sum({}) FILTER (WHERE {})",
            "min({})" => "min({}) FILTER (WHERE {})",
            "max({})" => "max({}) FILTER (WHERE {})",
            other => other,
        };
        if filtered != form {
            aggregate.args.push(self.predicate(scope, 0));
            aggregate.form = Form::Pattern(filtered);
        }
        aggregate
    }

    fn plain_aggregate(&mut self, scope: &Scope) -> Expr {
        let value = self.scalar(scope, 0);
        let (ty, kind) = (value.ty, value.kind());
        let bound = value.bound;
        match self.rng.u8(0..100) {
            0..18 => count_all(),
            18..28 => Expr::pattern(BIGINT, "count({})", vec![value]).with_bound(1e6),
            28..38 if !value.is_approximate => {
                Expr::pattern(BIGINT, "count(DISTINCT {})", vec![value]).with_bound(1e6)
            }
            38..45 if kind == Kind::Boolean => {
                let form = self.pick(&["bool_and({})", "bool_or({})"]);
                Expr::test(form, vec![value])
            }
            45..70 => self.sum(scope),
            70..80 => self.average(scope),
            _ if kind == Kind::Boolean => Expr::test("bool_or({})", vec![value]),
            _ => {
                let form = self.pick(&["min({})", "max({})"]);
                Expr::pattern(ty, form, vec![value]).with_bound(bound)
            }
        }
    }

    fn sum(&mut self, scope: &Scope) -> Expr {
        let kind = self.pick(&[Kind::Int, Kind::Int, Kind::Decimal, Kind::Float]);
        let value = self.scalar_of(scope, kind, 1);
        let sum = value.bound * scope.rows.max(1.0);
        let (fits, ty) = match value.ty {
            Type::Decimal { scale, .. } => {
                let limit = 10f64.powi(37 - i32::from(scale));
                (
                    sum < limit,
                    Type::Decimal {
                        precision: 38,
                        scale,
                    },
                )
            }
            Type::Real | Type::Double => (value.bound < AVERAGED_MAX, Type::Double),
            _ => (sum < SUM_MAX, BIGINT),
        };
        if !fits && (kind == Kind::Float || !self.taste.features.wide_sums) {
            return count_all();
        }
        let form = if self.one_in(8) && !value.is_approximate {
            "sum(DISTINCT {})"
        } else {
            "sum({})"
        };
        Expr::pattern(ty, form, vec![value]).with_bound(sum)
    }

    fn average(&mut self, scope: &Scope) -> Expr {
        let kind = self.pick(&[Kind::Int, Kind::Float, Kind::Decimal]);
        let value = self.scalar_of(scope, kind, 1);
        if value.bound >= AVERAGED_MAX {
            return count_all();
        }
        let bound = value.bound;
        let forms = ["avg({})", "avg({})", "stddev({})", "var_pop({})"];
        let form = self.pick(&forms);
        let wide = matches!(value.ty, Type::Decimal { precision, .. } if precision > 20);
        let value = if wide || form != "avg({})" {
            cast(value, Type::Double)
        } else {
            value
        };
        Expr::pattern(Type::Double, form, vec![value])
            .with_bound(bound * bound)
            .approximate()
    }

    /// Aggregates of a whole that follow from those of its parts: count, sum, min, max.
    pub(super) fn additive_aggregates(&mut self, scope: &Scope) -> Vec<Expr> {
        let mut items = vec![count_all()];
        for _ in 0..self.rng.usize(1..4) {
            let value = self.scalar(scope, 0);
            let sum = self.sum(scope);
            let is_sum = matches!(sum.form, Form::Pattern("sum({})"));
            let is_ordered = value.kind() != Kind::Boolean;
            items.push(match self.rng.u8(0..4) {
                0 => Expr::pattern(BIGINT, "count({})", vec![value]),
                1 if is_sum => sum,
                2 if is_ordered => Expr::pattern(value.ty, "min({})", vec![value]),
                3 if is_ordered => Expr::pattern(value.ty, "max({})", vec![value]),
                _ => count_all(),
            });
        }
        items
    }
}
