//! Number literals that no double is: the planner would round them.
//!
//! The planner reads a number with a point, and one that no integer holds, as a double. Next to a decimal a double
//! means the shortest number that reads as it ([`crate::plan`]): where that is another number than the one that is
//! written, the literal becomes a decimal.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, UnaryOperator, Value, ValueWithSpan,
};

use super::template::compares;

/// A number of no more digits is what its double is shown as.
const DOUBLE_DIGITS: usize = 15;
/// Digits that tell any double from any other.
const PRINTED_DIGITS: usize = 17;
/// Digits of the widest decimal.
const DECIMAL_DIGITS: usize = 38;

/// Makes a decimal of a number that would be rounded. Numbers as programs print doubles, with 17 digits
/// (`0.10000000000000001`), stay doubles, except for those that are compared: the other side says what they mean.
pub(super) fn keep(expr: &mut Expr) {
    match expr {
        Expr::BinaryOp { left, op, right } if compares(op) => {
            keep_all_digits(left);
            keep_all_digits(right);
        }
        Expr::Between {
            expr, low, high, ..
        } => {
            keep_all_digits(expr);
            keep_all_digits(low);
            keep_all_digits(high);
        }
        Expr::InList { expr, list, .. } => {
            keep_all_digits(expr);
            list.iter_mut().for_each(keep_all_digits);
        }
        _ => {}
    }
    replace(expr, |text| decimal(text).filter(|_| !is_printed(text)));
}

/// Makes a decimal of a number that is not what its double is shown as.
pub(super) fn keep_all_digits(expr: &mut Expr) {
    replace(expr, decimal);
}

fn replace(expr: &mut Expr, decimal: impl Fn(&str) -> Option<Expr>) {
    let is_negated = matches!(
        expr,
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            ..
        }
    );
    let number = match expr {
        Expr::UnaryOp { expr: inner, .. } if is_negated => inner.as_mut(),
        other => other,
    };
    let exact = number_of(number).filter(|text| match is_negated {
        true => !is_negated_integer(text),
        false => text.parse::<u64>().is_err(),
    });
    if let Some(exact) = exact.and_then(decimal) {
        *number = exact;
    }
}

/// Whether the planner reads the number behind a minus as an integer.
fn is_negated_integer(text: &str) -> bool {
    format!("-{text}").parse::<i64>().is_ok()
}

fn number_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::Number(text, _),
            ..
        }) => Some(text),
        _ => None,
    }
}

/// A number as a decimal; none if its double is shown with the same digits, if it has more digits than a decimal, or
/// an exponent.
fn decimal(text: &str) -> Option<Expr> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = whole.trim_start_matches('0').len() + fraction.len();
    let may_change = (DOUBLE_DIGITS + 1..=DECIMAL_DIGITS).contains(&digits);
    if !(may_change && all_digits(whole) && all_digits(fraction)) {
        return None;
    }
    let shown = text.parse::<f64>().ok()?.to_string();
    if without_zeros(&shown) == without_zeros(text) {
        return None;
    }
    let size = ExactNumberInfo::PrecisionAndScale(digits as u64, fraction.len() as i64);
    Some(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::value(Value::SingleQuotedString(text.to_owned()))),
        data_type: DataType::Decimal(size),
        array: false,
        format: None,
    })
}

/// Whether the number is its double, rounded to this many digits: the way to print doubles so that they are read again
/// as they were takes 17.
fn is_printed(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_start_matches('0');
    let Ok(value) = text.parse::<f64>() else {
        return false;
    };
    let printed = format!("{value:.*e}", digits.len().saturating_sub(1));
    let mantissa = printed.split('e').next().unwrap_or("");
    let mantissa: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.len() <= PRINTED_DIGITS && mantissa == digits
}

/// What is before and behind the point, without zeros that say nothing.
fn without_zeros(text: &str) -> (&str, &str) {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    (
        whole.trim_start_matches('0'),
        fraction.trim_end_matches('0'),
    )
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn kept(text: &str) -> String {
        let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap();
        let mut expr = parser.parse_expr().unwrap();
        keep(&mut expr);
        expr.to_string()
    }

    #[test]
    fn numbers_that_a_double_would_round_become_decimals() {
        for (text, size) in [
            ("9007199254740993.0", "17,1"),
            ("12345678901234567.0", "18,1"),
            ("0.1234567890123456789", "19,19"),
            ("18446744073709551616", "20,0"),
            ("18446744073709551617", "20,0"),
            ("00018446744073709551617.", "20,0"),
        ] {
            assert_eq!(kept(text), format!("CAST('{text}' AS DECIMAL({size}))"));
        }
        assert_eq!(
            kept("-9223372036854775809"),
            "-CAST('9223372036854775809' AS DECIMAL(19,0))"
        );
    }

    #[test]
    fn printed_doubles_that_are_compared_become_decimals() {
        let number = "0.10000000000000001";
        let decimal = format!("CAST('{number}' AS DECIMAL(17,17))");
        for text in ["a = $", "a BETWEEN $ AND b", "a IN (b, $)", "-$ < a"] {
            let expected = text.replace('$', &decimal);
            assert_eq!(kept(&text.replace('$', number)), expected);
        }
        let sum = format!("a + {number}");
        assert_eq!(kept(&sum), sum);
    }

    #[test]
    fn other_numbers_stay_as_they_are() {
        for text in [
            "1",
            "-1",
            "0.1",
            "-9223372036854775808",
            "9223372036854775808",
            "18446744073709551615",
            "9007199254740992.0",
            "0.30000000000000004",
            "0.10000000000000001",
            "-0.10000000000000001",
            "100000000000000000000",
            "1e400",
            "12345678901234567890e0",
            "0.1234567890123456789012345678901234567890",
        ] {
            assert_eq!(kept(text), text);
        }
    }
}
