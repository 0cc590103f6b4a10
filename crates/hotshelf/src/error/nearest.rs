//! What a mistyped name may have meant.

/// The nearest of `names` to `name`, if it is near enough to be a slip of the finger.
pub(crate) fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    names
        .into_iter()
        .map(|candidate| {
            (
                strsim::levenshtein(&name.to_lowercase(), &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, candidate)| *distance <= (candidate.len().max(name.len()) / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_offers_a_slip_but_not_another_word() {
        assert_eq!(
            nearest("lineordr", ["customer", "lineorder"]),
            Some("lineorder".into())
        );
        assert_eq!(nearest("sales", ["customer", "lineorder"]), None);
    }
}
