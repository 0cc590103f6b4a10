//! Template fingerprints: equal for queries that differ in literals only.

use std::hash::{DefaultHasher, Hash, Hasher};

use datafusion::logical_expr::LogicalPlan;

/// A number for the plan's text without its literals. EXPLAIN and COPY count as the query they have.
pub(super) fn template(plan: &LogicalPlan) -> u64 {
    let plan = match plan {
        LogicalPlan::Analyze(analyze) => analyze.input.as_ref(),
        LogicalPlan::Explain(explain) => explain.plan.as_ref(),
        LogicalPlan::Copy(copy) => copy.input.as_ref(),
        plan => plan,
    };
    let mut hasher = DefaultHasher::new();
    without_literals(&plan.display_indent().to_string()).hash(&mut hasher);
    hasher.finish()
}

/// Replaces quoted text, and numbers that do not belong to a name, by `?`.
fn without_literals(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_name = false;
    while let Some(c) = chars.next() {
        if c == '"' {
            while chars.next().is_some_and(|inner| inner != '"') {}
            result.push('?');
            in_name = false;
        } else if c.is_ascii_digit() && !in_name {
            while chars
                .peek()
                .is_some_and(|next| next.is_ascii_digit() || *next == '.')
            {
                chars.next();
            }
            result.push('?');
        } else {
            in_name = c.is_alphanumeric() || c == '_';
            result.push(c);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_do_not_count_and_names_do() {
        let one = without_literals("Filter: t1.a = Int64(15) AND b = Utf8(\"ASIA\")");
        let other = without_literals("Filter: t1.a = Int64(7) AND b = Utf8(\"EUROPE 2\")");
        assert_eq!(one, other);
        assert_ne!(
            one,
            without_literals("Filter: t2.a = Int64(15) AND b = Utf8(\"ASIA\")")
        );
    }
}
