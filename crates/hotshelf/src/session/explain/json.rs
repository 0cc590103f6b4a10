//! A plan for tools: what the tree says, in the form of PostgreSQL's `EXPLAIN (FORMAT JSON)`. Bytes are bytes, times
//! milliseconds; what was not counted is missing.

use serde_json::{Map, Value, json};

use super::node::{Node, Ran};

/// The document with a plan alone.
pub(super) fn text(root: &Node) -> String {
    let plan = json!([{ "Plan": object(root) }]);
    format!("{plan:#}")
}

/// The document with more beside the plan: texts by the name that their row has beside a tree, as their lines.
pub(super) fn with_members<'a>(
    document: &str,
    members: impl IntoIterator<Item = (&'a str, String)>,
) -> serde_json::Result<String> {
    let mut document: Vec<Map<String, Value>> = serde_json::from_str(document)?;
    for (kind, text) in members {
        let lines: Vec<&str> = text.lines().collect();
        for query in &mut document {
            query.insert(name_of(kind), json!(lines));
        }
    }
    Ok(format!("{:#}", json!(document)))
}

/// `star_pipelines` is called "Star Pipelines".
fn name_of(kind: &str) -> String {
    let words = kind.split('_').map(|word| {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        first.to_uppercase() + rest
    });
    words.collect::<Vec<_>>().join(" ")
}

fn object(node: &Node) -> Value {
    let Ran {
        rows,
        time,
        memory_bytes,
        storage_bytes,
        held_bytes,
        spilled_bytes,
    } = node.ran;
    let time_ms = time.map(|time| time.as_secs_f64() * 1e3);
    let numbers: [(&str, Option<Value>); 7] = [
        ("Plan Rows", node.expected_rows.map(Into::into)),
        ("Actual Rows", rows.map(Into::into)),
        ("Compute Time", time_ms.map(Into::into)),
        ("Bytes from Memory", memory_bytes.map(Into::into)),
        ("Bytes from Storage", storage_bytes.map(Into::into)),
        ("Peak Memory", held_bytes.map(Into::into)),
        ("Bytes Spilled", spilled_bytes.map(Into::into)),
    ];
    let mut members = Map::new();
    members.insert("Node Type".into(), node.name.clone().into());
    members.insert("Details".into(), node.details.clone().into());
    let known = numbers.into_iter();
    members.extend(known.filter_map(|(name, value)| Some((name.to_owned(), value?))));
    let inputs: Vec<_> = node.inputs.iter().map(object).collect();
    members.insert("Plans".into(), inputs.into());
    members.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn tools_get_what_the_tree_says() {
        let scan = Node {
            name: "DataSource".to_owned(),
            expected_rows: Some(1_234_567),
            ran: Ran {
                rows: Some(7),
                time: Some(Duration::from_micros(1500)),
                memory_bytes: Some(1),
                storage_bytes: Some(2),
                held_bytes: Some(3),
                spilled_bytes: Some(4),
            },
            ..Node::default()
        };
        let root = Node {
            name: "Sort".to_owned(),
            details: vec!["a ASC".to_owned()],
            inputs: vec![scan],
            ..Node::default()
        };
        let decisions = "a line\nanother".to_owned();
        let document = with_members(&text(&root), [("join_order", decisions)]).unwrap();
        let read: Value = serde_json::from_str(&document).unwrap();
        let scan = json!({
            "Node Type": "DataSource", "Details": [], "Plan Rows": 1_234_567, "Actual Rows": 7, "Compute Time": 1.5,
            "Bytes from Memory": 1, "Bytes from Storage": 2, "Peak Memory": 3, "Bytes Spilled": 4, "Plans": []
        });
        let sort = json!({ "Node Type": "Sort", "Details": ["a ASC"], "Plans": [scan] });
        assert_eq!(
            read,
            json!([{ "Plan": sort, "Join Order": ["a line", "another"] }])
        );
    }
}
