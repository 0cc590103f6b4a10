//! What the generator may use. Each switch is a kind of query or data that a run can leave out.
//!
//! -0.0 is not generated unless a flag asks for it: DuckDB holds it equal to 0.0 everywhere, DataFusion orders, groups
//! and joins by the total order of IEEE 754, in which it comes first.

/// Switches of the generator; see [`NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    pub outer_filters: bool,
    pub not_in_nulls: bool,
    pub decimal_literals: bool,
    pub bare_distinct: bool,
    pub negative_zero: bool,
    pub not_a_number: bool,
    pub wide_sums: bool,
    pub set_all: bool,
    pub full_using: bool,
}

type Switch = fn(&mut Features) -> &mut bool;

/// The switches' names, and what they stand for.
pub const NAMES: &[(&str, Switch, &str)] = &[
    (
        "outer-filters",
        |f| &mut f.outer_filters,
        "filters over the columns of RIGHT and FULL joins",
    ),
    (
        "not-in-nulls",
        |f| &mut f.not_in_nulls,
        "NOT IN over NULLs, and memberships under OR and NOT",
    ),
    (
        "decimal-literals",
        |f| &mut f.decimal_literals,
        "literals such as 1.25 beside decimal columns",
    ),
    (
        "bare-distinct",
        |f| &mut f.bare_distinct,
        "IS DISTINCT FROM without parentheses",
    ),
    (
        "negative-zero",
        |f| &mut f.negative_zero,
        "-0.0 in data and literals",
    ),
    (
        "not-a-number",
        |f| &mut f.not_a_number,
        "NaN and infinities in data",
    ),
    (
        "wide-sums",
        |f| &mut f.wide_sums,
        "sums that leave the range of their type",
    ),
    (
        "set-all",
        |f| &mut f.set_all,
        "INTERSECT ALL and EXCEPT ALL",
    ),
    (
        "full-using",
        |f| &mut f.full_using,
        "columns of RIGHT and FULL joins with USING",
    ),
];

impl Features {
    /// Everything.
    pub const ALL: Self = Self {
        outer_filters: true,
        not_in_nulls: true,
        decimal_literals: true,
        bare_distinct: true,
        negative_zero: true,
        not_a_number: true,
        wide_sums: true,
        set_all: true,
        full_using: true,
    };

    /// What a run uses unless its flags say otherwise.
    pub const USUAL: Self = Self {
        negative_zero: false,
        ..Self::ALL
    };

    /// These, with the named switches on or off; the error is the name that is not one.
    pub fn set<'a>(
        mut self,
        names: impl IntoIterator<Item = &'a str>,
        is_on: bool,
    ) -> Result<Self, String> {
        for name in names {
            let (_, switch, _) = NAMES
                .iter()
                .find(|(known, ..)| *known == name)
                .ok_or_else(|| name.to_owned())?;
            *switch(&mut self) = is_on;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_switch_what_they_name() {
        let features = Features::ALL.set(["negative-zero"], false).unwrap();
        assert!(!features.negative_zero && features.set_all);
        assert_eq!(features.set(["negative-zero"], true), Ok(Features::ALL));
        assert_eq!(Features::ALL.set(["zero"], false), Err("zero".to_owned()));
    }
}
