//! Queries and tables as SQL text.

use crate::answers::query::{
    Body, Expr, Form, Grouping, Join, JoinKind, On, Order, Query, Relation, Select,
};
use crate::answers::schema::{Column, Dialect, Table, Type, Value};

/// A query's text.
pub fn query(query: &Query, dialect: Dialect) -> String {
    let mut text = String::new();
    if !query.ctes.is_empty() {
        let ctes = query.ctes.iter();
        let ctes = ctes.map(|(name, cte)| format!("{name} AS ({})", self::query(cte, dialect)));
        text.push_str(&format!("WITH {} ", join(ctes, ", ")));
    }
    match &query.body {
        Body::Select(select) => text.push_str(&self::select(select, dialect)),
        Body::Set {
            operator,
            left,
            right,
        } => text.push_str(&format!(
            "({}) {operator} ({})",
            self::query(left, dialect),
            self::query(right, dialect)
        )),
    }
    if !query.order.is_empty() {
        let order = join(query.order.iter().map(self::order), ", ");
        text.push_str(&format!(" ORDER BY {order}"));
    }
    if let Some(limit) = query.limit {
        text.push_str(&format!(" LIMIT {limit}"));
    }
    if let Some(offset) = query.offset {
        text.push_str(&format!(" OFFSET {offset}"));
    }
    text
}

fn order(order: &Order) -> String {
    let way = if order.is_descending { "DESC" } else { "ASC" };
    let nulls = if order.nulls_first { "FIRST" } else { "LAST" };
    format!("{} {way} NULLS {nulls}", order.position + 1)
}

fn select(select: &Select, dialect: Dialect) -> String {
    let write = |expr: &Expr| expression(expr, dialect);
    let items = select.items.iter().enumerate();
    let items = join(
        items.map(|(idx, item)| format!("{} AS c{idx}", write(item))),
        ", ",
    );
    let distinct = if select.is_distinct { "DISTINCT " } else { "" };
    let mut text = format!("SELECT {distinct}{items}");
    for (idx, source) in select.from.iter().enumerate() {
        text.push_str(&self::source(source, idx == 0, dialect));
    }
    if !select.filter.is_empty() {
        text.push_str(&format!(
            " WHERE {}",
            join(select.filter.iter().map(write), " AND ")
        ));
    }
    text.push_str(&grouping(&select.group, dialect));
    if !select.having.is_empty() {
        text.push_str(&format!(
            " HAVING {}",
            join(select.having.iter().map(write), " AND ")
        ));
    }
    text
}

fn source(source: &Join, is_first: bool, dialect: Dialect) -> String {
    let relation = match &source.relation {
        Relation::Table(name) => name.clone(),
        Relation::Derived(query) => format!("({})", self::query(query, dialect)),
    };
    let alias = &source.alias;
    if is_first {
        return format!(" FROM {relation} AS {alias}");
    }
    let kind = match (source.kind, dialect) {
        (JoinKind::Inner, _) => "JOIN",
        (JoinKind::Left, _) => "LEFT JOIN",
        (JoinKind::Right, _) => "RIGHT JOIN",
        (JoinKind::Full, _) => "FULL JOIN",
        (JoinKind::Semi, Dialect::Hotshelf) => "LEFT SEMI JOIN",
        (JoinKind::Anti, Dialect::Hotshelf) => "LEFT ANTI JOIN",
        (JoinKind::Semi, Dialect::Duckdb) => "SEMI JOIN",
        (JoinKind::Anti, Dialect::Duckdb) => "ANTI JOIN",
        (JoinKind::Cross, _) => "CROSS JOIN",
    };
    match &source.on {
        On::Nothing => format!(" {kind} {relation} AS {alias}"),
        On::Natural => format!(" NATURAL {kind} {relation} AS {alias}"),
        On::Using(columns) => format!(
            " {kind} {relation} AS {alias} USING ({})",
            columns.join(", ")
        ),
        On::All(conditions) => {
            let conditions = join(
                conditions.iter().map(|expr| expression(expr, dialect)),
                " AND ",
            );
            format!(" {kind} {relation} AS {alias} ON {conditions}")
        }
    }
}

fn grouping(grouping: &Grouping, dialect: Dialect) -> String {
    let write = |expr: &Expr| expression(expr, dialect);
    let keys = join(grouping.keys().iter().map(write), ", ");
    match grouping {
        Grouping::None => String::new(),
        Grouping::By(_) => format!(" GROUP BY {keys}"),
        Grouping::Rollup(_) => format!(" GROUP BY ROLLUP ({keys})"),
        Grouping::Cube(_) => format!(" GROUP BY CUBE ({keys})"),
        Grouping::Sets(keys, sets) => {
            let set = |set: &Vec<usize>| {
                let keys = set.iter().map(|idx| write(&keys[*idx]));
                format!("({})", join(keys, ", "))
            };
            format!(
                " GROUP BY GROUPING SETS ({})",
                join(sets.iter().map(set), ", ")
            )
        }
    }
}

/// An expression's text.
pub fn expression(expr: &Expr, dialect: Dialect) -> String {
    let mut args = expr.args.iter().map(|arg| expression(arg, dialect));
    match &expr.form {
        Form::Column {
            relation: Some(relation),
            name,
        } => format!("{relation}.{name}"),
        Form::Column {
            relation: None,
            name,
        } => name.clone(),
        Form::Literal { value, is_plain } => literal(value, expr.ty, *is_plain, dialect),
        Form::Pattern(pattern) | Form::Whole(pattern) => {
            let subquery = expr.query.as_ref().map(|query| self::query(query, dialect));
            fill(pattern, args, subquery.as_deref())
        }
        Form::Chain(word) => format!("({})", join(args, word)),
        Form::List(word) => {
            let first = args.next().unwrap_or_default();
            format!("({first} {word} ({}))", join(args, ", "))
        }
        Form::Cast => format!(
            "CAST({} AS {})",
            args.next().unwrap_or_default(),
            expr.ty.sql(dialect)
        ),
    }
}

fn fill(pattern: &str, mut args: impl Iterator<Item = String>, query: Option<&str>) -> String {
    let mut text = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        match rest.strip_prefix("{q}") {
            Some(after) => {
                text.push_str(query.unwrap_or_default());
                rest = after;
            }
            None => {
                text.push_str(&args.next().unwrap_or_default());
                rest = rest.strip_prefix("{}").unwrap_or("");
            }
        }
    }
    text + rest
}

/// A value's text; with its type unless `is_plain`.
pub fn literal(value: &Value, ty: Type, is_plain: bool, dialect: Dialect) -> String {
    match value {
        Value::Null if is_plain => "NULL".into(),
        Value::Null => format!("CAST(NULL AS {})", ty.sql(dialect)),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) if i64::try_from(*value).is_ok_and(|value| value != i64::MIN) => {
            value.to_string()
        }
        Value::Text(text) => quoted(text),
        Value::Date(days) => format!("DATE '{}'", date(*days)),
        Value::Timestamp(micros) => format!("TIMESTAMP '{}'", timestamp(*micros)),
        Value::Float(value) if is_plain && value.is_finite() => format!("{value:?}"),
        Value::Decimal(_) if is_plain => bare(value, ty),
        _ => format!("CAST('{}' AS {})", bare(value, ty), ty.sql(dialect)),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A number's text.
fn bare(value: &Value, ty: Type) -> String {
    match (value, ty) {
        (Value::Decimal(value), Type::Decimal { scale, .. }) => decimal(*value, scale),
        (Value::Float(value), _) if value.is_infinite() => if *value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        }
        .into(),
        (Value::Float(value), _) => format!("{value:?}"),
        (Value::Int(value), _) => value.to_string(),
        _ => String::new(),
    }
}

/// An unscaled decimal with its point.
pub fn decimal(value: i128, scale: u8) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let digits = value.unsigned_abs().to_string();
    let scale = usize::from(scale);
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// Days since 1970 as a date of the Gregorian calendar.
fn date(days: i32) -> String {
    // Years begin in March, so that leap days come last.
    let days = i64::from(days) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Microseconds since 1970 as date and time.
pub fn timestamp(micros: i64) -> String {
    const DAY: i64 = 86_400_000_000;
    let (day, rest) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
    let seconds = rest / 1_000_000;
    format!(
        "{} {:02}:{:02}:{:02}.{:06}",
        date(day as i32),
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60,
        rest % 1_000_000
    )
}

/// CREATE TABLE without rows.
pub fn create_table(table: &Table, dialect: Dialect) -> String {
    let columns = table.columns.iter();
    let columns = columns.map(|column| format!("{} {}", column.name, column.ty.sql(dialect)));
    format!("CREATE TABLE {} ({})", table.name, join(columns, ", "))
}

/// One INSERT for each file.
pub fn inserts(table: &Table, dialect: Dialect) -> Vec<String> {
    let mut start = 0;
    let files = table.files.iter().map(|rows| {
        start += rows;
        start - rows..start
    });
    files
        .map(|rows| {
            let row = |row_idx: usize| {
                let columns = table.columns.iter();
                let values = columns.map(|column| stored(&column.values[row_idx], column, dialect));
                format!("({})", join(values, ", "))
            };
            let list = join(rows.map(row), ", ");
            insert(table, &list, dialect)
        })
        .collect()
}

/// A value in a list of rows: numbers that a parser might round are quoted, and cast later.
fn stored(value: &Value, column: &Column, dialect: Dialect) -> String {
    let is_exact = match column.ty {
        Type::Int { bits, .. } => bits < 64,
        Type::Real | Type::Double | Type::Decimal { .. } => false,
        _ => true,
    };
    match value {
        Value::Null => "NULL".into(),
        value if is_exact => literal(value, column.ty, true, dialect),
        value => format!("'{}'", bare(value, column.ty)),
    }
}

/// Values of mixed widths are cast one by one, as VALUES takes its types from all rows.
fn insert(table: &Table, list: &str, dialect: Dialect) -> String {
    let columns = (1..=table.columns.len()).map(|idx| format!("v{idx}"));
    let casts = table.columns.iter().enumerate();
    let casts =
        casts.map(|(idx, column)| format!("CAST(v{} AS {})", idx + 1, column.ty.sql(dialect)));
    format!(
        "INSERT INTO {} SELECT {} FROM (VALUES {list}) AS v({})",
        table.name,
        join(casts, ", "),
        join(columns, ", ")
    )
}

/// CREATE INDEX, one for each index.
pub fn create_indexes(table: &Table) -> Vec<String> {
    let create = |index: &crate::answers::schema::Index| {
        let clustered = if index.is_clustered {
            " WITH (clustered = true)"
        } else {
            ""
        };
        format!(
            "CREATE INDEX {} ON {} USING elf ({}){clustered}",
            index.name,
            table.name,
            index.columns.join(", ")
        )
    };
    table.indexes.iter().map(create).collect()
}

fn join(parts: impl Iterator<Item = String>, between: &str) -> String {
    parts.collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::schema::BIGINT;

    fn column(name: &str) -> Expr {
        let form = Form::Column {
            relation: Some("a".into()),
            name: name.into(),
        };
        Expr::new(BIGINT, form, Vec::new())
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(-1), "1969-12-31");
        assert_eq!(timestamp(-1), "1969-12-31 23:59:59.999999");
    }

    #[test]
    fn decimals_keep_their_zeros() {
        assert_eq!(decimal(-5, 2), "-0.05");
        assert_eq!(decimal(12_300, 2), "123.00");
        assert_eq!(decimal(7, 0), "7");
    }

    #[test]
    fn patterns_take_their_arguments_in_order() {
        let expr = Expr::test(
            "{} BETWEEN {} AND {}",
            vec![column("x"), Expr::int(1), Expr::int(2)],
        );
        assert_eq!(expression(&expr, Dialect::Duckdb), "a.x BETWEEN 1 AND 2");
        let list = Expr::new(
            Type::Boolean,
            Form::List("IN"),
            vec![column("x"), Expr::text("it's")],
        );
        assert_eq!(expression(&list, Dialect::Duckdb), "(a.x IN ('it''s'))");
    }

    #[test]
    fn semi_joins_are_written_for_each_engine() {
        let join = |kind, alias: &str, on| Join {
            kind,
            relation: Relation::Table("t".into()),
            alias: alias.into(),
            on,
        };
        let select = Select {
            items: vec![column("x")],
            from: vec![
                join(JoinKind::Inner, "a", On::Nothing),
                join(JoinKind::Semi, "b", On::Using(vec!["x".into()])),
            ],
            ..Select::default()
        };
        let select = Query::select(select);
        let ours = query(&select, Dialect::Hotshelf);
        assert_eq!(
            ours,
            "SELECT a.x AS c0 FROM t AS a LEFT SEMI JOIN t AS b USING (x)"
        );
        let theirs = query(&select, Dialect::Duckdb);
        assert_eq!(theirs, ours.replace("LEFT SEMI", "SEMI"));
    }
}
