//! Random predicates of every form; literals come from the data, so that most of them hold for some rows.

use super::expression::cast;
use super::generate::{Col, Generator, Scope};
use super::{Expr, Form, Query, Select};
use crate::answers::schema::{BIGINT, Kind, Type};

const COMPARISONS: &[&str] = &[
    "{} = {}", "{} <> {}", "{} < {}", "{} <= {}", "{} > {}", "{} >= {}",
];
const ORDERINGS: &[&str] = &["{} < {}", "{} <= {}", "{} > {}", "{} >= {}", "{} <> {}"];

impl Generator<'_> {
    /// Up to `count_max` conditions for a WHERE clause.
    pub(super) fn filter(&mut self, scope: &Scope, count_max: usize) -> Vec<Expr> {
        if scope.has_outer && !self.taste.features.outer_filters {
            return Vec::new();
        }
        let count = self.pick(&[0, 0, 0, 1, 1, 1, 2, 3]).min(count_max);
        (0..count).map(|_| self.predicate(scope, 2)).collect()
    }

    /// A predicate without subqueries if `depth` is 0.
    pub(super) fn predicate(&mut self, scope: &Scope, depth: usize) -> Expr {
        match self.rng.u8(0..100) {
            0..14 if depth > 1 => self.chain(scope, depth - 1, " OR "),
            14..20 if depth > 1 => self.chain(scope, depth - 1, " AND "),
            20..25 if depth > 0 => {
                let inner = self.membership_free(scope, depth - 1);
                Expr::test("(NOT ({}))", vec![inner])
            }
            25..30 if depth > 0 => self.with_subquery(scope),
            30..35 if depth > 0 => self.conditional_test(scope, depth - 1),
            35..43 => self.computed_test(scope, depth),
            _ => self.simple_test(scope),
        }
    }

    fn chain(&mut self, scope: &Scope, depth: usize, word: &'static str) -> Expr {
        let count = self.rng.usize(2..4);
        let parts = (0..count)
            .map(|_| self.membership_free(scope, depth))
            .collect();
        Expr::new(Type::Boolean, Form::Chain(word), parts)
    }

    /// A predicate below NOT or OR: without memberships where those are left out.
    fn membership_free(&mut self, scope: &Scope, depth: usize) -> Expr {
        loop {
            let predicate = self.predicate(scope, depth);
            if self.taste.features.not_in_nulls || !has_membership(&predicate) {
                return predicate;
            }
        }
    }

    fn simple_test(&mut self, scope: &Scope) -> Expr {
        let mut column = self.column(scope);
        if column.facts.samples.is_empty() {
            // Probably all NULL: less often than other columns.
            column = self.column(scope);
        }
        let value = column.expr();
        match (column.ty.kind(), self.rng.u8(0..100)) {
            (Kind::Boolean, 0..55) => {
                let forms = [
                    "{}",
                    "(NOT {})",
                    "{} IS TRUE",
                    "{} IS NOT TRUE",
                    "{} IS FALSE",
                    "{} IS NOT FALSE",
                ];
                Expr::test(self.pick(&forms), vec![value])
            }
            (Kind::Text, 0..35) => self.like(value),
            (_, 0..45) => {
                let literal = self.literal_of(&column);
                let few = column.facts.frequency_max > 3;
                let forms = if few { COMPARISONS } else { ORDERINGS };
                Expr::test(self.pick(forms), vec![value, literal])
            }
            (_, 45..57) => self.between(&column),
            (_, 57..70) => self.membership(&column),
            (_, 70..76) => Expr::test(
                self.pick(&["{} IS NULL", "{} IS NOT NULL", "{} IS NOT NULL"]),
                vec![value],
            ),
            (_, 76..84) => self.distinct_from(&column),
            (_, 84..94) => self.two_columns(scope, &column),
            _ => {
                let literal = self.literal_of(&column);
                Expr::test("{} <= {}", vec![literal, value])
            }
        }
    }

    fn between(&mut self, column: &Col) -> Expr {
        let (low, high) = (self.literal_of(column), self.literal_of(column));
        let form = if self.one_in(5) {
            "({} NOT BETWEEN {} AND {})"
        } else {
            "({} BETWEEN {} AND {})"
        };
        Expr::test(form, vec![column.expr(), low, high])
    }

    fn membership(&mut self, column: &Col) -> Expr {
        let count = self.pick(&[1, 2, 3, 5, 20]);
        let mut args = vec![column.expr()];
        args.extend((0..count).map(|_| self.literal_of(column)));
        let is_not = self.one_in(3);
        if self.one_in(7) && (!is_not || self.taste.features.not_in_nulls) {
            args.push(Self::null(column.ty));
        }
        Expr::new(
            Type::Boolean,
            Form::List(if is_not { "NOT IN" } else { "IN" }),
            args,
        )
    }

    fn like(&mut self, value: Expr) -> Expr {
        let pattern = self.pick(&[
            "%", "a%", "%a", "%a%", "_", "__%", "%ü%", "foo%", "%bar", "%o%r%", "Z_rich%", "%'%",
        ]);
        let form = self.pick(&["{} LIKE {}", "{} LIKE {}", "{} NOT LIKE {}", "{} ILIKE {}"]);
        Expr::test(form, vec![value, Expr::text(pattern)])
    }

    fn distinct_from(&mut self, column: &Col) -> Expr {
        let other = if self.one_in(3) {
            Self::null(column.ty)
        } else {
            self.literal_of(column)
        };
        let args = vec![column.expr(), other];
        let bare = self.taste.features.bare_distinct && self.one_in(3);
        Expr::test(
            match (bare, self.rng.bool()) {
                (true, true) => "{} IS DISTINCT FROM {}",
                (true, false) => "{} IS NOT DISTINCT FROM {}",
                (false, true) => "({} IS DISTINCT FROM {})",
                (false, false) => "({} IS NOT DISTINCT FROM {})",
            },
            args,
        )
    }

    /// Two columns of one kind, maybe of different types and tables.
    fn two_columns(&mut self, scope: &Scope, column: &Col) -> Expr {
        let other = self.column_of(scope, column.ty.kind());
        let other = other.unwrap_or_else(|| column.clone());
        let forms = if self.one_in(3) {
            COMPARISONS
        } else {
            ORDERINGS
        };
        Expr::test(self.pick(forms), vec![column.expr(), other.expr()])
    }

    fn conditional_test(&mut self, scope: &Scope, depth: usize) -> Expr {
        let mut parts = (0..3).map(|_| self.predicate(scope, depth.min(1)));
        let args = vec![parts.next(), parts.next(), parts.next()];
        let args: Vec<Expr> = args.into_iter().flatten().collect();
        drop(parts);
        if self.one_in(2) {
            return Expr::test("CASE WHEN {} THEN {} ELSE {} END", args);
        }
        let column = self.column(scope);
        let literal = self.literal_of(&column);
        let filled = Expr::pattern(
            column.ty,
            "coalesce({}, {})",
            vec![column.expr(), literal.clone()],
        );
        Expr::test(self.pick(COMPARISONS), vec![filled, literal])
    }

    fn computed_test(&mut self, scope: &Scope, depth: usize) -> Expr {
        let kind = self.pick(&[
            Kind::Int,
            Kind::Int,
            Kind::Text,
            Kind::Float,
            Kind::Decimal,
            Kind::Date,
        ]);
        let left = self.scalar_of(scope, kind, depth.max(1));
        let literal = match self.column_of(scope, kind) {
            Some(column) => self.literal_of(&column),
            None => left.clone(),
        };
        Expr::test(self.pick(ORDERINGS), vec![left, literal])
    }

    /// IN, EXISTS and comparisons with a query over another table.
    fn with_subquery(&mut self, scope: &Scope) -> Expr {
        if self.one_in(3)
            && let Some(test) = self.correlated_test(scope)
        {
            return test;
        }
        let (select, inner) = self.small_source();
        let column = self.column(scope);
        let Some(partner) = self.column_of(&inner, column.ty.kind()) else {
            return self.simple_test(scope);
        };
        let mut select = select;
        select.filter = self.plain_filter(&inner);
        match self.rng.u8(0..10) {
            0..3 => {
                select.items = vec![partner.expr()];
                self.member_of(&column, select)
            }
            3..7 => {
                let equal = Expr::test("{} = {}", vec![partner.expr(), column.expr()]);
                select.filter.push(equal);
                select.items = vec![Expr::int(1)];
                let form = self.pick(&["EXISTS ({q})", "NOT EXISTS ({q})"]);
                Expr::test(form, Vec::new()).with_query(Query::select(select))
            }
            7 if column.ty.kind() != Kind::Boolean => {
                let equal = Expr::test("{} = {}", vec![partner.expr(), column.expr()]);
                select.filter.push(equal);
                select.items = vec![super::generate::count_all()];
                let form = self.pick(&["({q}) > {}", "({q}) = {}"]);
                let number = Expr::int(self.rng.i64(0..3));
                Expr::test(form, vec![number]).with_query(Query::select(select))
            }
            _ if column.ty.kind() == Kind::Boolean => column.expr(),
            _ => {
                let form = self.pick(&["min({})", "max({})"]);
                select.items = vec![Expr::pattern(partner.ty, form, vec![partner.expr()])];
                let form = self.pick(&["{} <= ({q})", "{} >= ({q})", "{} <> ({q})"]);
                Expr::test(form, vec![column.expr()]).with_query(Query::select(select))
            }
        }
    }

    fn member_of(&mut self, column: &Col, mut select: Select) -> Expr {
        let is_not = self.one_in(2);
        if is_not && !self.taste.features.not_in_nulls {
            let items = select.items.clone();
            select.filter.push(Expr::test("{} IS NOT NULL", items));
        }
        let form = if is_not {
            "{} NOT IN ({q})"
        } else {
            "{} IN ({q})"
        };
        Expr::test(form, vec![column.expr()]).with_query(Query::select(select))
    }

    /// One or two simple conditions.
    pub(super) fn plain_filter(&mut self, scope: &Scope) -> Vec<Expr> {
        let count = self.pick(&[0, 1, 1, 2]);
        (0..count).map(|_| self.simple_test(scope)).collect()
    }

    /// A count of rows for which the predicate holds, as a sum.
    pub fn counted(predicate: &Expr) -> Expr {
        let form = "coalesce(sum(CASE WHEN {} THEN 1 ELSE 0 END), 0)";
        cast(Expr::pattern(BIGINT, form, vec![predicate.clone()]), BIGINT)
    }
}

fn has_membership(expr: &Expr) -> bool {
    let here = match expr.form {
        Form::List(_) => true,
        Form::Pattern(pattern) => pattern.contains(" IN ("),
        _ => false,
    };
    here || expr.args.iter().any(has_membership)
}
