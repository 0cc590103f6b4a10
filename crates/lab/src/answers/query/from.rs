//! FROM clauses: tables, derived tables and joins, bounded in the rows that they make.

use super::generate::{Col, Generator, Scope, TableFacts};
use super::{Expr, Join, JoinKind, On, Relation, Select};
use crate::answers::schema::Kind;

impl Generator<'_> {
    /// A random FROM clause of one to four tables, with what it offers.
    pub(super) fn source(&mut self) -> (Select, Scope) {
        let table_count = match self.rng.u8(0..100) {
            0..42 => 1,
            42..78 => 2,
            78..94 => 3,
            _ => 4,
        };
        self.joined(table_count)
    }

    /// One table, for subqueries.
    pub(super) fn small_source(&mut self) -> (Select, Scope) {
        self.joined(1)
    }

    /// One table or a join, for subqueries.
    pub(super) fn subquery_source(&mut self, table_count: usize) -> (Select, Scope) {
        self.joined(table_count)
    }

    fn joined(&mut self, table_count: usize) -> (Select, Scope) {
        let first = self.table();
        let (join, mut scope) = self.first(&first);
        let mut select = Select {
            from: vec![join],
            ..Select::default()
        };
        for _ in 1..table_count {
            if let Some(join) = self.join(&mut scope) {
                select.from.push(join);
            }
        }
        (select, scope)
    }

    /// A table; large ones and those with rows more often.
    fn table(&mut self) -> TableFacts {
        let tables = self.tables.clone();
        let (one, other) = (self.pick(&tables), self.pick(&tables));
        if one.row_count >= other.row_count {
            one
        } else {
            other
        }
    }

    fn first(&mut self, table: &TableFacts) -> (Join, Scope) {
        let alias = self.alias();
        let scope = Scope {
            columns: offered(table, &alias),
            rows: table.row_count as f64,
            has_outer: false,
        };
        (source(JoinKind::Inner, table, alias, On::Nothing), scope)
    }

    fn join(&mut self, scope: &mut Scope) -> Option<Join> {
        let table = self.table();
        let alias = self.alias();
        let columns = offered(&table, &alias);
        let kind = match self.rng.u8(0..100) {
            0..42 => JoinKind::Inner,
            42..60 => JoinKind::Left,
            60..70 => JoinKind::Right,
            70..78 => JoinKind::Full,
            78..85 => JoinKind::Semi,
            85..92 => JoinKind::Anti,
            _ => JoinKind::Cross,
        };
        let mut merged = scope
            .columns
            .iter()
            .filter(|column| column.relation.is_none());
        if merged.any(|merged| columns.iter().any(|column| column.name == merged.name)) {
            // No relation's name distinguishes two merged columns.
            return None;
        }
        if kind == JoinKind::Cross {
            return self.cross(scope, table, alias);
        }
        if self.one_in(8)
            && let Some(join) = self.by_names(scope, &table, &alias, kind)
        {
            return Some(join);
        }
        let (condition, rows) = self.equality(scope, &columns, table.row_count)?;
        let mut conditions = vec![condition];
        self.add_conditions(&mut conditions, scope, &columns, kind);
        self.extend(scope, columns, kind, rows, table.row_count);
        Some(source(kind, &table, alias, On::All(conditions)))
    }

    /// Conditions besides the equality: over the new table, or over both sides.
    fn add_conditions(
        &mut self,
        conditions: &mut Vec<Expr>,
        scope: &Scope,
        columns: &[Col],
        kind: JoinKind,
    ) {
        if kind == JoinKind::Full || !self.one_in(4) {
            return;
        }
        let mut both = Scope {
            columns: columns.to_vec(),
            ..Scope::default()
        };
        if self.one_in(3) {
            both.columns.extend(scope.columns.iter().cloned());
        }
        let condition = self.predicate(&both, 0);
        conditions.push(condition);
    }

    fn extend(
        &mut self,
        scope: &mut Scope,
        columns: Vec<Col>,
        kind: JoinKind,
        rows: f64,
        added: usize,
    ) {
        match kind {
            JoinKind::Semi | JoinKind::Anti => {}
            _ => {
                scope.columns.extend(columns);
                scope.rows = rows.max(scope.rows) + added as f64;
                scope.has_outer |= matches!(kind, JoinKind::Right | JoinKind::Full);
            }
        }
    }

    fn cross(&mut self, scope: &mut Scope, table: TableFacts, alias: String) -> Option<Join> {
        let rows = scope.rows * table.row_count as f64;
        if rows > self.taste.joined_rows_max {
            return None;
        }
        scope.columns.extend(offered(&table, &alias));
        scope.rows = rows;
        Some(source(JoinKind::Cross, &table, alias, On::Nothing))
    }

    /// A pair of columns whose join makes few enough rows.
    fn equality(
        &mut self,
        scope: &Scope,
        columns: &[Col],
        row_count: usize,
    ) -> Option<(Expr, f64)> {
        for _ in 0..12 {
            let (left, right) = (self.column(scope), self.pick(columns));
            let fits = left.ty.kind() == right.ty.kind() && left.ty.kind() != Kind::Boolean;
            let fits = fits && (right.facts.frequency_max > 0 || self.one_in(8));
            // Equal names are what joins are written with.
            if !fits || (left.name != right.name && !self.one_in(4)) {
                continue;
            }
            let rows = scope.rows * right.facts.frequency_max as f64;
            let reverse = row_count as f64 * left.facts.frequency_max as f64;
            // A column of a joined table may repeat more often than in its own.
            let rows = if scope
                .columns
                .iter()
                .all(|column| column.relation == left.relation)
            {
                rows.min(reverse)
            } else {
                rows
            };
            if rows <= self.taste.joined_rows_max {
                let args = vec![left.expr(), right.expr()];
                return Some((Expr::test("{} = {}", args), rows));
            }
        }
        None
    }

    /// USING or NATURAL, where the tables share names of one type.
    fn by_names(
        &mut self,
        scope: &mut Scope,
        table: &TableFacts,
        alias: &str,
        kind: JoinKind,
    ) -> Option<Join> {
        let is_outer = matches!(kind, JoinKind::Right | JoinKind::Full);
        if (is_outer && !self.taste.features.full_using) || !has_one_relation(scope) {
            return None;
        }
        let shared = shared_columns(scope, table)?;
        let is_natural = self.one_in(3) && !matches!(kind, JoinKind::Semi | JoinKind::Anti);
        let used = if is_natural {
            shared
        } else {
            vec![self.pick(&shared)]
        };
        let frequency = used.iter().map(|column| column.facts.frequency_max).min();
        let rows = scope.rows * frequency.unwrap_or(0) as f64;
        if rows > self.taste.joined_rows_max {
            return None;
        }
        let names: Vec<String> = used.iter().map(|column| column.name.clone()).collect();
        let is_merged = |column: &Col| names.contains(&column.name);
        for column in scope.columns.iter_mut().filter(|column| is_merged(column)) {
            column.relation = None;
        }
        let mut added = offered(table, alias);
        added.retain(|column| !is_merged(column));
        self.extend(scope, added, kind, rows, table.row_count);
        let on = if is_natural {
            On::Natural
        } else {
            On::Using(names)
        };
        Some(source(kind, table, alias.to_owned(), on))
    }
}

fn has_one_relation(scope: &Scope) -> bool {
    let mut columns = scope.columns.iter();
    columns.all(|column| column.relation == scope.columns[0].relation)
}

/// The table's columns whose names the scope has, too; `None` if there are none, or if a type does not fit.
fn shared_columns(scope: &Scope, table: &TableFacts) -> Option<Vec<Col>> {
    let partner = |column: &Col| scope.columns.iter().find(|other| other.name == column.name);
    let shared = table
        .columns
        .iter()
        .filter(|column| partner(column).is_some());
    let shared: Vec<Col> = shared.cloned().collect();
    let fits =
        |column: &Col| partner(column).is_some_and(|other| other.ty.kind() == column.ty.kind());
    (!shared.is_empty() && shared.iter().all(fits)).then_some(shared)
}

fn offered(table: &TableFacts, alias: &str) -> Vec<Col> {
    let columns = table.columns.iter().cloned();
    columns
        .map(|column| Col {
            relation: Some(alias.to_owned()),
            ..column
        })
        .collect()
}

pub(super) fn source(kind: JoinKind, table: &TableFacts, alias: String, on: On) -> Join {
    Join {
        kind,
        relation: Relation::Table(table.name.clone()),
        alias,
        on,
    }
}
