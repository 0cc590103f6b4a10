//! The kernel's lists of small numbers: `0-3,8,10-11`.

/// No list of a real machine names more numbers than this; longer ranges are a damaged text.
const NUMBERS_MAX: usize = 1 << 16;

/// The numbers a list names, ascending and without repeats. Parts that make no sense are skipped.
pub(super) fn parse(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else {
            continue;
        };
        let room = NUMBERS_MAX - numbers.len();
        numbers.extend((first..=last).take(room));
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lists_of_ranges_and_numbers_are_read_and_nonsense_is_skipped() {
        assert_eq!(parse("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse(""), [] as [u32; 0]);
        assert_eq!(parse("5-2,x,1-,3"), [3]);
        assert_eq!(parse("0-4294967295").len(), 1 << 16);
    }
}
