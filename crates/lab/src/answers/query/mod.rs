//! Queries as trees, so that parts can be taken out of them.

mod aggregate;
mod correlated;
mod expression;
mod from;
mod generate;
mod predicate;
mod select;
mod star;
mod window;

pub use generate::{Generator, Taste};
pub use select::approximate_items;

use crate::answers::schema::{Kind, Type, Value};

/// An expression with what the generator knows about its values.
#[derive(Debug, Clone)]
pub struct Expr {
    pub ty: Type,
    pub form: Form,
    pub args: Vec<Expr>,
    pub query: Option<Box<Query>>,
    /// The largest magnitude of its values, if they are numbers.
    pub bound: f64,
    /// Whether engines may differ in the last digits.
    pub is_approximate: bool,
}

/// How an expression is written.
#[derive(Debug, Clone)]
pub enum Form {
    Column {
        relation: Option<String>,
        name: String,
    },
    /// `is_plain`: written without its type.
    Literal { value: Value, is_plain: bool },
    /// Each `{}` stands for the next argument, `{q}` for the query.
    Pattern(&'static str),
    /// A pattern whose arguments only make sense together: parts are not replaced.
    Whole(&'static str),
    /// All arguments with a word between.
    Chain(&'static str),
    /// The first argument, the word, and a list of the others.
    List(&'static str),
    /// The first argument as another type; `TRY_CAST` is not used.
    Cast,
}

impl Expr {
    pub fn new(ty: Type, form: Form, args: Vec<Expr>) -> Self {
        let bound = args.iter().map(|arg| arg.bound).fold(0.0, f64::max);
        let is_approximate = args.iter().any(|arg| arg.is_approximate);
        Self {
            ty,
            form,
            args,
            query: None,
            bound,
            is_approximate,
        }
    }

    pub fn pattern(ty: Type, pattern: &'static str, args: Vec<Expr>) -> Self {
        Self::new(ty, Form::Pattern(pattern), args)
    }

    pub fn test(pattern: &'static str, args: Vec<Expr>) -> Self {
        Self::pattern(Type::Boolean, pattern, args)
    }

    pub fn literal(ty: Type, value: Value) -> Self {
        let bound = crate::answers::schema::Facts::of(std::slice::from_ref(&value), ty).bound;
        let form = Form::Literal {
            value,
            is_plain: false,
        };
        Self {
            bound,
            ..Self::new(ty, form, Vec::new())
        }
    }

    pub fn int(value: i64) -> Self {
        Self::literal(
            crate::answers::schema::BIGINT,
            Value::Int(i128::from(value)),
        )
    }

    pub fn text(value: &str) -> Self {
        Self::literal(Type::Text, Value::Text(value.to_owned()))
    }

    pub fn with_bound(mut self, bound: f64) -> Self {
        self.bound = bound;
        self
    }

    pub fn approximate(mut self) -> Self {
        self.is_approximate = true;
        self
    }

    pub fn with_query(mut self, query: Query) -> Self {
        self.query = Some(Box::new(query));
        self
    }

    pub fn kind(&self) -> Kind {
        self.ty.kind()
    }

    /// Whether a column of `relation` occurs.
    pub fn names(&self, relation: &str) -> bool {
        let here =
            matches!(&self.form, Form::Column { relation: Some(name), .. } if name == relation);
        here || self.args.iter().any(|arg| arg.names(relation))
            || self
                .query
                .as_ref()
                .is_some_and(|query| query.names(relation))
    }
}

/// A query with its order and limits.
#[derive(Debug, Clone)]
pub struct Query {
    pub ctes: Vec<(String, Query)>,
    pub body: Body,
    pub order: Vec<Order>,
    pub limit: Option<u64>,
    pub offset: Option<u64>,
}

/// A column of the result by its position, from 0.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    pub position: usize,
    pub is_descending: bool,
    pub nulls_first: bool,
}

#[derive(Debug, Clone)]
pub enum Body {
    Select(Box<Select>),
    Set {
        operator: &'static str,
        left: Box<Query>,
        right: Box<Query>,
    },
}

#[derive(Debug, Clone, Default)]
pub struct Select {
    pub is_distinct: bool,
    /// Results are named c0, c1, ….
    pub items: Vec<Expr>,
    pub from: Vec<Join>,
    /// All must hold.
    pub filter: Vec<Expr>,
    pub group: Grouping,
    pub having: Vec<Expr>,
}

#[derive(Debug, Clone, Default)]
pub enum Grouping {
    #[default]
    None,
    By(Vec<Expr>),
    Rollup(Vec<Expr>),
    Cube(Vec<Expr>),
    Sets(Vec<Expr>, Vec<Vec<usize>>),
}

impl Grouping {
    pub fn keys(&self) -> &[Expr] {
        match self {
            Self::None => &[],
            Self::By(keys) | Self::Rollup(keys) | Self::Cube(keys) | Self::Sets(keys, _) => keys,
        }
    }
}

/// A source with how it joins those before; the first one's way is not written.
#[derive(Debug, Clone)]
pub struct Join {
    pub kind: JoinKind,
    pub relation: Relation,
    pub alias: String,
    pub on: On,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
    Semi,
    Anti,
    Cross,
}

#[derive(Debug, Clone)]
pub enum Relation {
    Table(String),
    Derived(Box<Query>),
}

#[derive(Debug, Clone)]
pub enum On {
    Nothing,
    All(Vec<Expr>),
    Using(Vec<String>),
    Natural,
}

impl Relation {
    /// The query it stands for, if it is one.
    pub fn derived(&self) -> Option<&Query> {
        match self {
            Self::Table(_) => None,
            Self::Derived(query) => Some(query),
        }
    }
}

impl Query {
    pub fn plain(body: Body) -> Self {
        Self {
            ctes: Vec::new(),
            body,
            order: Vec::new(),
            limit: None,
            offset: None,
        }
    }

    pub fn select(select: Select) -> Self {
        Self::plain(Body::Select(Box::new(select)))
    }

    /// Names of all tables (and common table expressions) that occur.
    pub fn tables(&self, into: &mut Vec<String>) {
        self.ctes.iter().for_each(|(_, query)| query.tables(into));
        match &self.body {
            Body::Set { left, right, .. } => {
                left.tables(into);
                right.tables(into);
            }
            Body::Select(select) => select.tables(into),
        }
    }

    fn names(&self, relation: &str) -> bool {
        match &self.body {
            Body::Set { left, right, .. } => left.names(relation) || right.names(relation),
            Body::Select(select) => select.exprs().any(|expr| expr.names(relation)),
        }
    }
}

impl Select {
    /// All expressions of the select itself, those of joins included.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let conditions = self.from.iter().flat_map(|join| match &join.on {
            On::All(conditions) => conditions.as_slice(),
            _ => &[],
        });
        let parts = self.items.iter().chain(&self.filter).chain(&self.having);
        parts.chain(self.group.keys()).chain(conditions)
    }

    fn tables(&self, into: &mut Vec<String>) {
        for join in &self.from {
            match &join.relation {
                Relation::Table(name) => into.push(name.clone()),
                Relation::Derived(query) => query.tables(into),
            }
        }
        self.exprs().for_each(|expr| tables_of(expr, into));
    }
}

/// The tables of an expression's subqueries.
pub fn tables_of(expr: &Expr, into: &mut Vec<String>) {
    expr.args.iter().for_each(|arg| tables_of(arg, into));
    if let Some(query) = &expr.query {
        query.tables(into);
    }
}
