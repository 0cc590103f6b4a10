//! A plan as a tree of lines of at most 99 columns, which are 120 in a table: what each operator does, and beside it
//! what was expected of it and what running it took.

use std::time::Duration;

use super::node::Node;

/// Columns of a line. The name of the longest row beside it, `star_pipelines`, and a table's frame take the other 21.
const WIDTH: usize = 99;
/// Columns of a number and the space before it.
const NUMBER_WIDTH: usize = 9;
/// Columns for an operator's name: those that are deeper are not moved further to the right.
const NAME_WIDTH: usize = 22;
/// Details have at least this many columns.
const DETAIL_WIDTH_MIN: usize = 30;
/// Lines of details for an operator.
const DETAIL_LINES: usize = 4;

/// What a column of numbers is called, and its number of an operator.
type Column = (&'static str, fn(&Node) -> Option<String>);

const COLUMNS: [Column; 7] = [
    ("expected", |node| node.expected_rows.map(count)),
    ("rows", |node| node.ran.rows.map(count)),
    ("time", |node| node.ran.time.map(time)),
    ("memory", |node| node.ran.memory_bytes.map(bytes)),
    ("storage", |node| node.ran.storage_bytes.map(bytes)),
    ("held", |node| node.ran.held_bytes.map(bytes)),
    ("spilled", |node| node.ran.spilled_bytes.map(bytes)),
];

/// The tree, and above it the names of the columns that have numbers.
pub(super) fn text(root: &Node) -> String {
    let all = root.all();
    let has_numbers = |column: &Column| all.iter().any(|node| column.1(node).is_some());
    let columns: Vec<Column> = COLUMNS.into_iter().filter(has_numbers).collect();
    let names = columns.iter().map(|(name, _)| Some((*name).to_owned()));
    let mut lines = vec![line("", names.collect())];
    add(root, "", "", &columns, &mut lines);
    lines.join("\n")
}

/// Adds an operator and its inputs: an only input below it, several as branches. `first` is before its name, `others`
/// before all other lines.
fn add(node: &Node, first: &str, others: &str, columns: &[Column], lines: &mut Vec<String>) {
    let numbers = columns.iter().map(|(_, number)| number(node)).collect();
    lines.push(line(&format!("{first}{}", node.name), numbers));
    let bar = if node.inputs.is_empty() { "  " } else { "│ " };
    let indent = format!("{others}{bar}");
    for detail in details(node, WIDTH.saturating_sub(width(&indent))) {
        lines.push(format!("{indent}{detail}"));
    }
    if let [input] = &node.inputs[..] {
        return add(input, others, others, columns, lines);
    }
    let last = node.inputs.len().saturating_sub(1);
    let has_room = width(others) + 6 + NAME_WIDTH <= room_of(columns.len());
    for (number, input) in node.inputs.iter().enumerate() {
        let (branch, below) = match (number == last, has_room) {
            (true, true) => ("└─ ", "   "),
            (false, true) => ("├─ ", "│  "),
            (true, false) => ("└─ ", ""),
            (false, false) => ("├─ ", ""),
        };
        let (first, others) = (format!("{others}{branch}"), format!("{others}{below}"));
        add(input, &first, &others, columns, lines);
    }
}

/// A line with numbers at its right end. A name that is too long is cut.
fn line(name: &str, numbers: Vec<Option<String>>) -> String {
    let room = room_of(numbers.len());
    let mut line = cut(name, room);
    line.push_str(&" ".repeat(room - width(&line)));
    for number in numbers {
        line.push_str(&format!("{:>NUMBER_WIDTH$}", number.unwrap_or_default()));
    }
    line.trim_end().to_owned()
}

/// Columns beside this many numbers.
fn room_of(numbers: usize) -> usize {
    WIDTH.saturating_sub(numbers * NUMBER_WIDTH).max(NAME_WIDTH)
}

/// What an operator does, in lines of at most this many columns. What is too much is left to EXPLAIN VERBOSE.
fn details(node: &Node, room: usize) -> Vec<String> {
    let room = room.max(DETAIL_WIDTH_MIN);
    let mut lines: Vec<String> = Vec::new();
    for detail in &node.details {
        match lines.last_mut() {
            Some(last) if width(last) + 2 + width(detail) <= room => {
                last.push_str(", ");
                last.push_str(detail);
            }
            _ => lines.extend(wrapped(detail, room)),
        }
    }
    if lines.len() > DETAIL_LINES {
        lines.truncate(DETAIL_LINES);
        if let Some(last) = lines.last_mut() {
            *last = cut(&format!("{last} …"), room);
            if !last.ends_with('…') {
                last.push('…');
            }
        }
    }
    lines
}

/// Lines of a text, none longer than those of a tree.
pub(super) fn wrapped_lines(text: &str) -> String {
    let lines = text.lines().flat_map(|line| wrapped(line, WIDTH));
    lines.collect::<Vec<_>>().join("\n")
}

/// Words in lines of at most this many columns; longer words are cut into pieces.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut put = |word: &str| {
        let last = lines.len() - 1;
        let space = usize::from(!lines[last].is_empty());
        if width(&lines[last]) + space + width(word) > room {
            lines.push(word.to_owned());
        } else {
            lines[last].push_str(&" ".repeat(space));
            lines[last].push_str(word);
        }
    };
    for word in text.split(' ') {
        let letters: Vec<char> = word.chars().collect();
        for piece in letters.chunks(room) {
            put(&piece.iter().collect::<String>());
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// At most this many columns of a text.
fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let kept = text.chars().take(room.saturating_sub(1));
    kept.chain(['…']).collect()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

fn count(count: u64) -> String {
    scaled(count as f64, &["", " k", " M", " G", " T", " P", " E"])
}

fn bytes(bytes: u64) -> String {
    scaled(
        bytes as f64,
        &[" B", " kB", " MB", " GB", " TB", " PB", " EB"],
    )
}

fn time(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us >= 1e6 {
        true => format!("{:.2} s", us * 1e-6),
        false => scaled(us, &[" us", " ms", " s"]),
    }
}

/// A number in the unit in which it is at least 1 and less than 1000, if it is not less than 1.
fn scaled(number: f64, units: &[&str]) -> String {
    let (mut number, mut unit) = (number, 0);
    let is_whole = number.fract() == 0.0;
    while number >= 999.5 && unit + 1 < units.len() {
        number /= 1000.0;
        unit += 1;
    }
    match unit == 0 && is_whole {
        true => format!("{number:.0}{}", units[unit]),
        false => format!("{number:.1}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::node::Ran;
    use super::*;

    fn node(name: &str, details: &[&str], inputs: Vec<Node>) -> Node {
        Node {
            name: name.to_owned(),
            details: details.iter().map(|&detail| detail.to_owned()).collect(),
            expected_rows: Some(1_234_567),
            inputs,
            ..Node::default()
        }
    }

    #[test]
    fn a_plan_is_a_tree_with_numbers_at_the_right() {
        let mut scan = node("DataSource", &["table: t", "columns: a, b"], vec![]);
        scan.ran = Ran {
            rows: Some(999),
            time: Some(Duration::from_micros(1500)),
            storage_bytes: Some(2_500_000),
            ..Ran::default()
        };
        let other = node("DataSource", &["table: u"], vec![]);
        let root = node(
            "Sort",
            &["a ASC"],
            vec![node("Join", &["on: a = b"], vec![scan, other])],
        );
        let lines: Vec<String> = text(&root).lines().map(str::to_owned).collect();
        let shown = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>().join(" ");
        let all: Vec<String> = (0..lines.len()).map(shown).collect();
        assert_eq!(
            all,
            [
                "expected rows time storage",
                "Sort 1.2 M",
                "│ a ASC",
                "Join 1.2 M",
                "│ on: a = b",
                "├─ DataSource 1.2 M 999 1.5 ms 2.5 MB",
                "│ table: t, columns: a, b",
                "└─ DataSource 1.2 M",
                "table: u",
            ]
        );
        assert!(lines[5].ends_with("2.5 MB") && width(&lines[5]) == WIDTH);
    }

    #[test]
    fn no_line_is_longer_than_a_tree_may_be() {
        let long = "x".repeat(500);
        let words = vec!["word"; 300].join(" ");
        let mut root = node("Last", &[&long, &words], vec![]);
        for depth in 0..60 {
            let name = format!("SpillingHashJoin{depth}");
            let other = node("DataSource", &[], vec![]);
            root = node(&name, &[&words, &long], vec![root, other]);
            root.ran = Ran {
                rows: Some(7),
                time: Some(Duration::ZERO),
                memory_bytes: Some(1),
                storage_bytes: Some(1),
                held_bytes: Some(1),
                spilled_bytes: Some(u64::MAX),
            };
        }
        let text = text(&root);
        let longest = text.lines().map(width).max();
        assert_eq!(longest, Some(WIDTH), "{text}");
        for depth in 0..60 {
            assert!(text.contains(&format!("SpillingHashJoin{depth}")), "{text}");
        }
        let shallow = node(&long, &[&words, &long], vec![]);
        let text = super::text(&shallow);
        assert!(text.lines().all(|line| width(line) <= WIDTH), "{text}");
        assert!(text.lines().count() <= 2 + DETAIL_LINES, "{text}");
        assert!(text.contains('…'));
    }

    #[test]
    fn numbers_have_a_unit_that_keeps_them_short() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1.0 k");
        assert_eq!(count(60_000_000), "60.0 M");
        assert_eq!(bytes(12), "12 B");
        assert_eq!(bytes(999_999), "1.0 MB");
        assert_eq!(time(Duration::from_nanos(1500)), "1.5 us");
        assert_eq!(time(Duration::from_millis(999)), "999.0 ms");
        assert_eq!(time(Duration::from_millis(61_500)), "61.50 s");
    }
}
