//! Random scalar expressions. What engines define differently (integer division, rounding casts, overflow) is not made.

use super::generate::{Col, Generator, Scope};
use super::{Expr, Form};
use crate::answers::schema::{BIGINT, Kind, Type, Value};

/// Larger numbers are not calculated with: products and sums of thousands of them stay far from 2^63.
const CALCULATED_MAX: f64 = 2_147_483_648.0;

const KINDS: &[Kind] = &[
    Kind::Int,
    Kind::Int,
    Kind::Text,
    Kind::Decimal,
    Kind::Float,
    Kind::Date,
    Kind::Timestamp,
    Kind::Boolean,
];

impl Generator<'_> {
    /// Any column.
    pub(super) fn column(&mut self, scope: &Scope) -> Col {
        self.pick(&scope.columns)
    }

    /// A column of a kind, if there is one.
    pub(super) fn column_of(&mut self, scope: &Scope, kind: Kind) -> Option<Col> {
        let columns = scope.columns.iter();
        let fitting: Vec<&Col> = columns.filter(|column| column.ty.kind() == kind).collect();
        (!fitting.is_empty()).then(|| self.pick(&fitting).clone())
    }

    /// Any expression over the scope: mostly a column.
    pub(super) fn scalar(&mut self, scope: &Scope, depth: usize) -> Expr {
        let kind = self.pick(KINDS);
        if self.percent(35)
            && let Some(expr) = self.computed(scope, kind, depth)
        {
            return expr;
        }
        self.column(scope).expr()
    }

    /// An expression of a kind; a literal if the scope has no such column.
    pub(super) fn scalar_of(&mut self, scope: &Scope, kind: Kind, depth: usize) -> Expr {
        if depth > 0
            && self.percent(30)
            && let Some(expr) = self.computed(scope, kind, depth)
        {
            return expr;
        }
        match self.column_of(scope, kind) {
            Some(column) => column.expr(),
            None => self.any_literal(kind),
        }
    }

    fn computed(&mut self, scope: &Scope, kind: Kind, depth: usize) -> Option<Expr> {
        if self.percent(30) {
            return self.conditional(scope, kind, depth);
        }
        match kind {
            Kind::Boolean => Some(self.predicate(scope, depth.min(1))),
            Kind::Int => self.integer(scope),
            Kind::Decimal => self.decimal(scope),
            Kind::Float => self.float(scope),
            Kind::Text => self.text(scope),
            Kind::Date => self.date(scope),
            Kind::Timestamp => self.timestamp(scope),
        }
    }

    /// CASE, COALESCE, NULLIF, greatest, least.
    fn conditional(&mut self, scope: &Scope, kind: Kind, depth: usize) -> Option<Expr> {
        let column = self.column_of(scope, kind)?;
        let ty = column.ty;
        let value = column.expr();
        let literal = self.literal_of(&column);
        let same = scope.columns.iter().filter(|other| other.ty == ty);
        let same: Vec<Col> = same.cloned().collect();
        let other = self.pick(&same).expr();
        Some(match self.rng.u8(0..6) {
            0 => Expr::pattern(ty, "coalesce({}, {})", vec![value, literal]),
            1 => Expr::pattern(ty, "nullif({}, {})", vec![value, literal]),
            2 => Expr::pattern(ty, "greatest({}, {})", vec![value, other]),
            3 => Expr::pattern(ty, "least({}, {})", vec![value, other]),
            4 => {
                let condition = self.predicate(scope, depth.min(1));
                Expr::pattern(ty, "CASE WHEN {} THEN {} END", vec![condition, value])
            }
            _ => {
                let condition = self.predicate(scope, depth.min(1));
                let args = vec![condition, value, other];
                Expr::pattern(ty, "CASE WHEN {} THEN {} ELSE {} END", args)
            }
        })
    }

    /// An integer column as BIGINT, if it is small enough to calculate with.
    fn small_integer(&mut self, scope: &Scope) -> Option<Expr> {
        let columns = scope.columns.iter();
        let small = columns
            .filter(|column| column.ty.kind() == Kind::Int && column.facts.bound < CALCULATED_MAX);
        let small: Vec<&Col> = small.collect();
        (!small.is_empty()).then(|| cast(self.pick(&small).expr(), BIGINT))
    }

    fn integer(&mut self, scope: &Scope) -> Option<Expr> {
        let literal = self.rng.i64(1..10);
        match self.rng.u8(0..12) {
            0..6 => {
                let value = self.small_integer(scope)?;
                let bound = value.bound;
                let number = Expr::int(literal);
                Some(match self.rng.u8(0..6) {
                    0 => Expr::pattern(BIGINT, "({} + {})", vec![value, number])
                        .with_bound(bound + 9.0),
                    1 => Expr::pattern(BIGINT, "({} - {})", vec![value, number])
                        .with_bound(bound + 9.0),
                    2 => Expr::pattern(BIGINT, "({} * {})", vec![value, number])
                        .with_bound(bound * 9.0),
                    3 => Expr::pattern(BIGINT, "({} % {})", vec![value, number]).with_bound(9.0),
                    4 => Expr::pattern(BIGINT, "abs({})", vec![value]),
                    _ => {
                        let other = self.small_integer(scope)?;
                        let bound = bound + other.bound;
                        Expr::pattern(BIGINT, "({} - {})", vec![value, other]).with_bound(bound)
                    }
                })
            }
            6..8 => {
                let text = self.column_of(scope, Kind::Text)?.expr();
                Some(Expr::pattern(BIGINT, "length({})", vec![text]).with_bound(100.0))
            }
            8..11 => {
                let kind = self.pick(&[Kind::Date, Kind::Timestamp]);
                let value = self.column_of(scope, kind)?.expr();
                let part = self.pick(&[
                    "CAST(EXTRACT(year FROM {}) AS BIGINT)",
                    "CAST(EXTRACT(month FROM {}) AS BIGINT)",
                    "CAST(EXTRACT(day FROM {}) AS BIGINT)",
                    "CAST(EXTRACT(quarter FROM {}) AS BIGINT)",
                    "CAST(EXTRACT(doy FROM {}) AS BIGINT)",
                ]);
                Some(Expr::pattern(BIGINT, part, vec![value]).with_bound(10_000.0))
            }
            _ => {
                let value = self.column_of(scope, Kind::Boolean)?.expr();
                Some(Expr::pattern(BIGINT, "CAST({} AS BIGINT)", vec![value]).with_bound(1.0))
            }
        }
    }

    fn decimal(&mut self, scope: &Scope) -> Option<Expr> {
        let column = self.column_of(scope, Kind::Decimal)?;
        let Type::Decimal { precision, scale } = column.ty else {
            return None;
        };
        // Room for the digits that a calculation adds, in every engine's rules.
        if precision > 20 || column.facts.bound > 1e12 {
            return Some(Expr::pattern(column.ty, "abs({})", vec![column.expr()]));
        }
        let value = column.expr();
        let bound = value.bound;
        let wide = Type::Decimal {
            precision: 30,
            scale,
        };
        let literal = self.literal_of(&column);
        Some(match self.rng.u8(0..5) {
            0 => Expr::pattern(wide, "({} + {})", vec![cast(value, wide), literal])
                .with_bound(bound * 2.0),
            1 => Expr::pattern(wide, "({} - {})", vec![cast(value, wide), literal])
                .with_bound(bound * 2.0),
            2 => Expr::pattern(
                wide,
                "({} * {})",
                vec![cast(value, wide), Expr::int(self.rng.i64(2..9))],
            )
            .with_bound(bound * 9.0),
            3 => Expr::pattern(column.ty, "(- {})", vec![value]),
            _ => Expr::pattern(column.ty, "abs({})", vec![value]),
        })
    }

    fn float(&mut self, scope: &Scope) -> Option<Expr> {
        if self.one_in(3)
            && let Some(value) = self.small_integer(scope)
        {
            return Some(cast(value, Type::Double));
        }
        let column = self.column_of(scope, Kind::Float)?;
        let value = cast(column.expr(), Type::Double);
        let (bound, double) = (value.bound, Type::Double);
        let number = Expr::literal(double, Value::Float(self.rng.i64(1..40) as f64 / 8.0));
        if bound > 1e9 {
            return Some(Expr::pattern(double, "abs({})", vec![value]));
        }
        // Adding 0.0 makes -0.0 the other zero.
        Some(match self.rng.u8(0..6) {
            0 => Expr::pattern(double, "({} + {})", vec![value, number]).with_bound(bound + 5.0),
            1 => Expr::pattern(double, "({} * {})", vec![value, number]).with_bound(bound * 5.0),
            2 => Expr::pattern(double, "({} / {})", vec![value, number])
                .with_bound(bound * 8.0)
                .approximate(),
            3 => Expr::pattern(double, "floor({})", vec![value]).with_bound(bound + 1.0),
            4 => Expr::pattern(double, "(ceil({}) + 0.0)", vec![value]).with_bound(bound + 1.0),
            _ => Expr::pattern(double, "abs({})", vec![value]),
        })
    }

    fn text(&mut self, scope: &Scope) -> Option<Expr> {
        let text = Type::Text;
        if self.one_in(4) {
            let kind = self.pick(&[Kind::Int, Kind::Date, Kind::Boolean, Kind::Decimal]);
            let value = self.column_of(scope, kind)?.expr();
            return Some(cast(value, text).with_bound(0.0));
        }
        let value = self.column_of(scope, Kind::Text)?.expr();
        let (from, count) = (Expr::int(self.rng.i64(1..4)), Expr::int(self.rng.i64(0..5)));
        Some(match self.rng.u8(0..10) {
            0 => Expr::pattern(text, "upper({})", vec![value]),
            1 => Expr::pattern(text, "lower({})", vec![value]),
            2 => Expr::pattern(text, "substr({}, {}, {})", vec![value, from, count]),
            3 => Expr::pattern(text, "({} || {})", vec![value, Expr::text("_é")]),
            4 => Expr::pattern(text, "concat({}, {})", vec![value, Expr::text("-")]),
            5 => Expr::pattern(
                text,
                "replace({}, {}, {})",
                vec![value, Expr::text("a"), Expr::text("bb")],
            ),
            6 => Expr::pattern(text, "trim({})", vec![value]),
            7 => Expr::pattern(text, "left({}, {})", vec![value, count]),
            8 => Expr::pattern(text, "right({}, {})", vec![value, from]),
            _ => Expr::pattern(
                text,
                "lpad({}, {}, {})",
                vec![value, Expr::int(6), Expr::text("*")],
            ),
        })
    }

    fn date(&mut self, scope: &Scope) -> Option<Expr> {
        if self.one_in(3) {
            let value = self.column_of(scope, Kind::Timestamp)?.expr();
            return Some(cast(value, Type::Date));
        }
        let value = self.column_of(scope, Kind::Date)?.expr();
        let patterns = [
            "CAST(date_trunc('month', {}) AS DATE)",
            "CAST(date_trunc('year', {}) AS DATE)",
            "CAST({} + INTERVAL '1 month' AS DATE)",
            "CAST({} - INTERVAL '10 days' AS DATE)",
        ];
        Some(Expr::pattern(Type::Date, self.pick(&patterns), vec![value]))
    }

    fn timestamp(&mut self, scope: &Scope) -> Option<Expr> {
        let value = self.column_of(scope, Kind::Timestamp)?.expr();
        let patterns = [
            "date_trunc('hour', {})",
            "date_trunc('day', {})",
            "date_trunc('month', {})",
            "({} + INTERVAL '90 minutes')",
        ];
        Some(Expr::pattern(
            Type::Timestamp,
            self.pick(&patterns),
            vec![value],
        ))
    }

    /// A literal that the column mostly has.
    pub(super) fn literal_of(&mut self, column: &Col) -> Expr {
        if column.facts.samples.is_empty() || self.one_in(12) {
            return self.any_literal_of(column.ty);
        }
        let value = self.pick(&column.facts.samples);
        self.literal(column.ty, value)
    }

    fn literal(&mut self, ty: Type, value: Value) -> Expr {
        let is_plain = match (ty, &value) {
            (Type::Decimal { precision, .. }, _) => {
                self.taste.features.decimal_literals && precision < 38 && self.one_in(3)
            }
            (_, Value::Float(value)) => value.abs() < 1e15 && self.one_in(2),
            _ => false,
        };
        let mut literal = Expr::literal(ty, value.clone());
        literal.form = Form::Literal { value, is_plain };
        literal
    }

    /// A NULL of a type.
    pub(super) fn null(ty: Type) -> Expr {
        Expr::literal(ty, Value::Null)
    }

    fn any_literal(&mut self, kind: Kind) -> Expr {
        self.any_literal_of(match kind {
            Kind::Boolean => Type::Boolean,
            Kind::Int => BIGINT,
            Kind::Float => Type::Double,
            Kind::Decimal => Type::Decimal {
                precision: 9,
                scale: 2,
            },
            Kind::Text => Type::Text,
            Kind::Date => Type::Date,
            Kind::Timestamp => Type::Timestamp,
        })
    }

    fn any_literal_of(&mut self, ty: Type) -> Expr {
        let number = self.rng.i64(-10..300);
        let value = match ty {
            Type::Boolean => Value::Bool(number % 2 == 0),
            Type::Int { .. } => {
                let (low, high) = ty.int_range();
                Value::Int(i128::from(number).clamp(low, high))
            }
            Type::Real | Type::Double => Value::Float(number as f64 / 8.0),
            Type::Decimal { scale, .. } => {
                Value::Decimal(i128::from(number % 100) * 10i128.pow(u32::from(scale)))
            }
            Type::Text => Value::Text(self.pick(&["", "a", "b1", "m", "日", "foo bar2"]).into()),
            Type::Date => Value::Date(10_950 + number as i32 * 9),
            Type::Timestamp => Value::Timestamp(946_684_800_000_000 + number * 86_400_000_000),
        };
        self.literal(ty, value)
    }
}

/// An expression as another type.
pub(super) fn cast(expr: Expr, ty: Type) -> Expr {
    let is_approximate = expr.kind() == Kind::Decimal && ty == Type::Double;
    let bound = expr.bound;
    let mut result = Expr::new(ty, Form::Cast, vec![expr]).with_bound(bound);
    result.is_approximate |= is_approximate;
    result
}
