//! Pages of the guide that are made from the program: settings, table functions, the command line.
//!
//! `HOTSHELF_ACCEPT=1 cargo test --workspace --test cli reference` writes them again.

use std::fmt::Write;
use std::path::PathBuf;

use super::Bench;

/// Whether tests may rewrite pages.
pub fn accepts() -> bool {
    std::env::var_os("HOTSHELF_ACCEPT").is_some()
}

pub fn repository() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

fn compare(name: &str, generated: &str) {
    let path = repository().join("docs/guide").join(name);
    if accepts() {
        std::fs::write(&path, generated).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        page, generated,
        "docs/guide/{name} is not what the program says"
    );
}

/// Rows of a query, as objects by column name.
fn rows(bench: &Bench, sql: &str) -> Vec<serde_json::Value> {
    let answer = bench.ok(&["sql", "--format", "json", "-c", sql]);
    serde_json::from_str(&answer).unwrap()
}

fn cell<'a>(row: &'a serde_json::Value, column: &str) -> &'a str {
    row[column]
        .as_str()
        .unwrap_or_else(|| panic!("{column} of {row}"))
}

/// Defaults that differ from machine to machine.
const OF_THE_MACHINE: &[(&str, &str)] = &[
    (
        "budget",
        "a quarter of the memory, or of the control group's limit",
    ),
    ("threads", "one for each core"),
    (
        "profile",
        "defaults, until `hotshelf probe --db DIR` has measured the device",
    ),
];

#[test]
fn the_page_of_settings_is_what_the_program_has() {
    let bench = Bench::new();
    let mut page = String::from(
        "# Settings\n\n`SET hotshelf.NAME = value` changes a setting, `SHOW hotshelf.NAME` shows it, `SHOW ALL` shows \
         all. A test compares this page with the program.\n\nA *session* setting ends with the session. A *database* \
         setting holds for all sessions until the program closes the database.\n\n\
         | setting | default | what | holds for |\n|---|---|---|---|\n",
    );
    let sql = "SELECT name, value, description FROM information_schema.df_settings WHERE name LIKE 'hotshelf.%'";
    let mut measured = String::new();
    for row in rows(&bench, sql) {
        let name = cell(&row, "name").strip_prefix("hotshelf.").unwrap();
        let described = cell(&row, "description");
        let (what, scope) = described
            .rsplit_once(" (")
            .expect("a description ends with its scope");
        let scope = scope.trim_end_matches(')');
        if let Some(value) = name.strip_prefix("profile.") {
            writeln!(measured, "| `{value}` | {what} |").unwrap();
            continue;
        }
        let known = OF_THE_MACHINE.iter().find(|(known, _)| *known == name);
        let default = known.map_or_else(
            || format!("`{}`", cell(&row, "value")),
            |(_, text)| (*text).to_owned(),
        );
        writeln!(page, "| `hotshelf.{name}` | {default} | {what} | {scope} |").unwrap();
    }
    page.push_str(
        "\nSizes are written as `64MB` or `1GiB`, rates as `300MB/s`, switches as `on` and `off`. The flags \
         `--budget`, `--policy`, `--storage-bandwidth` and `--threads` set the first four.\n\n\
         ## Values of the machine profile\n\n\
         They are measured and cannot be set; `machine_profile()` shows them with the reason for each.\n\n\
         | value | what |\n|---|---|\n",
    );
    page.push_str(&measured);
    page.push_str(
        "\n## Settings of DataFusion\n\n`SHOW ALL` lists these as well (`datafusion.…`). Those that would take memory \
         before it can be counted have an upper limit.\n",
    );
    compare("settings.md", &page);
}

#[test]
fn the_page_of_table_functions_is_what_the_program_has() {
    let bench = Bench::new();
    let mut page = String::from(
        "# Table functions\n\nWhat can be seen from inside, as rows: `SELECT * FROM cache_stats()`. A test compares \
         this page with the program; `hotshelf_functions()` lists the functions. Each takes a snapshot when the \
         query is planned.\n",
    );
    let mut used = std::collections::BTreeSet::new();
    for function in rows(&bench, "SELECT * FROM hotshelf_functions()") {
        let name = cell(&function, "name");
        let (first, rest) = cell(&function, "what").split_at(1);
        let first = first.to_uppercase();
        write!(
            page,
            "\n## `{name}()`\n\n{first}{rest}.\n\n| column | type | what |\n|---|---|---|\n"
        )
        .unwrap();
        for column in rows(&bench, &format!("DESCRIBE SELECT * FROM {name}()")) {
            let column_name = cell(&column, "column_name");
            let own = format!("{name}.{column_name}");
            let meaning = |wanted: &str| COLUMNS.iter().find(|(known, _)| *known == wanted);
            let (known, what) = meaning(&own)
                .or_else(|| meaning(column_name))
                .unwrap_or_else(|| panic!("COLUMNS does not say what {own} means"));
            used.insert(*known);
            writeln!(
                page,
                "| `{column_name}` | {} | {what} |",
                cell(&column, "data_type")
            )
            .unwrap();
        }
    }
    let unused = COLUMNS.iter().filter(|(known, _)| !used.contains(known));
    assert_eq!(unused.count(), 0, "COLUMNS explains what no function has");
    compare("table-functions.md", &page);
}

#[test]
fn the_page_of_the_command_line_is_what_the_program_has() {
    let bench = Bench::new();
    let help = bench.ok(&["--help"]);
    let commands = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let commands = commands
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let mut page = format!(
        "# Command line\n\nThe help of every command, made from the program; a test compares this page with it.\n\n\
         ```text\n{}\n```\n",
        help.trim_end()
    );
    for command in commands.filter(|command| *command != "help") {
        let help = bench.ok(&[command, "--help"]);
        write!(
            page,
            "\n## `hotshelf {command}`\n\n```text\n{}\n```\n",
            help.trim_end()
        )
        .unwrap();
    }
    compare("command-line.md", &page);
}

/// What columns of table functions mean: by name, or by `function.name` where one name means several things.
const COLUMNS: &[(&str, &str)] = &[
    ("what", "what its rows are"),
    ("actual", "share of it in memory, 0 to 1"),
    ("actual_s", "time of its latest complete run, in seconds"),
    (
        "age_s",
        "age of the price, in seconds; NULL until there is one",
    ),
    ("bandwidth", "bytes per second; NULL until known"),
    (
        "bandwidth_max",
        "the cap in bytes per second, if there is one",
    ),
    ("bound", "what limits it: storage, memory or processing"),
    ("budget_bytes", "the budget, in bytes"),
    ("busy_ns", "time in which at least one read was under way"),
    ("busy_s", "processor time of its workers, in seconds"),
    ("bytes", "size in bytes"),
    ("bytes_cache", "encoded bytes that were in memory"),
    ("bytes_storage", "encoded bytes read from storage"),
    ("cache", "which of its blocks stay in memory, as chosen"),
    (
        "cache_bytes",
        "bytes of blocks in memory: its own, or of all indexes with cache = 'auto'",
    ),
    ("cached_bytes", "bytes of it in memory"),
    ("cached_segments", "segments of it in memory"),
    ("cancelled", "reads cancelled before they were answered"),
    ("capacity_bytes", "bytes that fit; NULL: not bounded"),
    ("capped", "whether reads and writes are capped"),
    (
        "changed_bytes",
        "bytes that it last gained, or lost if negative",
    ),
    ("changed_s_ago", "when that was, in seconds before now"),
    (
        "class",
        "column, index block, metadata, look-up or operator",
    ),
    (
        "clustered",
        "whether the table's rows are stored in the order of the index",
    ),
    ("column_name", "column"),
    (
        "hotshelf_indexes.columns",
        "indexed columns, in their order",
    ),
    ("hpcache_tuner.columns", "columns of the last problem"),
    ("confidence", "how far the price can be trusted, 0 to 1"),
    ("damage", "what is damaged, if anything is"),
    ("decisions", "problems solved"),
    ("decoded_bytes", "bytes that were decoded"),
    (
        "detached_bytes",
        "bytes that the cache gave up and a query still uses",
    ),
    (
        "device_bytes",
        "bytes that came from the device, in whole pages",
    ),
    ("device_operations", "operations given to the device"),
    ("elapsed_s", "time from beginning to end, in seconds"),
    (
        "encoded_bytes",
        "bytes of the segments that it read, as stored",
    ),
    ("engine", "how files are read"),
    ("error", "why it failed, if it did"),
    ("errors", "reads that failed"),
    ("event", "hit, miss, insert, evict and others"),
    ("evictions", "how many were given up for others"),
    ("failures", "problems that could not be solved"),
    ("elf_stats.file", "number of the data file"),
    ("file", "name of the data file"),
    ("files", "data files of the table"),
    ("files_after", "files after it"),
    ("files_before", "files before it"),
    ("finished", "whether it ran to its end"),
    (
        "gap",
        "by which share the savings may fall short of the best",
    ),
    ("head_bytes", "bytes of its head, which every look-up reads"),
    ("head_resident", "whether its head is in memory"),
    (
        "head_levels",
        "levels of its head that are in memory without the others",
    ),
    ("held_bytes", "bytes of its blocks in memory"),
    ("hits", "requests answered from memory"),
    ("in_flight", "reads under way"),
    ("in_flight_bytes", "bytes of reads under way"),
    (
        "in_memory_s",
        "predicted time with everything in memory, in seconds",
    ),
    ("index_name", "index"),
    ("indexed_files", "data files that have a usable index file"),
    ("inserts", "segments kept on arrival"),
    (
        "item",
        "which column, index or look-up, or which operators of which running query; NULL in the row of a whole class",
    ),
    ("kept_bytes", "bytes that the last placement keeps"),
    ("hotshelf_indexes.kind", "elf"),
    ("cache_segments.kind", "data or metadata"),
    ("last_error", "why the latest one failed"),
    (
        "latency_s",
        "time of a request before its first byte, in seconds",
    ),
    ("limit_bytes", "bytes of blocks that may be in memory"),
    ("look_ups", "keys and ranges that were looked up"),
    (
        "memory_bandwidth",
        "bandwidth of memory, in bytes per second",
    ),
    (
        "memory_blocks",
        "blocks that were in memory when look-ups needed them",
    ),
    ("merged", "reads that shared an operation with another"),
    ("misses", "requests that began a read"),
    ("name", "name"),
    (
        "next_s_per_gb_s",
        "what one more GB would save, in seconds per second",
    ),
    ("operator", "scan or star pipeline"),
    ("operator_bytes", "bytes that operators hold"),
    ("operator_bytes_max", "the most that they have held"),
    (
        "overcommits",
        "reads admitted beyond the budget, as nothing else could go on",
    ),
    (
        "overlap_loss",
        "share of the shorter of reading and processing that the longer does not hide",
    ),
    (
        "p_bw_decoded",
        "throughput of its processing, in decoded bytes per second",
    ),
    (
        "p_bw_encoded",
        "throughput of its processing, in encoded bytes per second",
    ),
    ("pipeline", "number of the pipeline in its query"),
    ("pipelines", "pipelines of the last problem"),
    ("elf_stats.policy", "how the blocks are chosen"),
    (
        "elf_stats.shelf",
        "where its leaves are read from: `file`, `dax:FOLDER`, `node:N`, `emulated:NAME`",
    ),
    (
        "on_shelf",
        "whether the shelf has them; until then the file is read",
    ),
    ("policy", "the policy in force"),
    (
        "predicted_s",
        "predicted time with what is in memory, in seconds",
    ),
    (
        "processing_bandwidth",
        "its own throughput, in bytes per second",
    ),
    ("queries", "questions to stretches of all indexes"),
    ("query", "number of the query"),
    ("kept_plans.uses", "how often it was asked again"),
    (
        "kept_plans.outline",
        "whether its operators are kept, too, as far as they are the same each time",
    ),
    (
        "kept_plans.bytes",
        "about what it takes in memory, beside the budget",
    ),
    (
        "kept_plans.query",
        "the query's text, with `$1`, `$2`, … in the place of values where its plan serves for others",
    ),
    ("elf_stats.reads", "reads of storage for these blocks"),
    ("io_stats.reads", "reads asked for"),
    ("reason", "why it has this value"),
    (
        "refill_s_per_gb",
        "time to read a displaced GB again, in seconds",
    ),
    ("rejects", "segments not kept on arrival"),
    ("requested_bytes", "bytes asked for by all reads"),
    ("row_group", "number of the row group"),
    ("row_groups", "row groups read"),
    (
        "row_groups_pruned",
        "row groups skipped, as their bounds cannot match",
    ),
    ("rows", "rows"),
    ("rows_in", "rows of the row groups read"),
    ("rows_kept", "rows that passed filters and look-ups"),
    (
        "saved_s",
        "time that the last placement is predicted to save, in seconds",
    ),
    (
        "memory_market.saved_s_per_gb_s",
        "what a GB of it saves, in seconds per second",
    ),
    (
        "hotshelf_shelves.saved_s_per_gb_s",
        "the shelf's price: what one more GB would save, in seconds per second",
    ),
    ("seconds", "how long it took"),
    (
        "seconds_saved_per_gb",
        "what one more GB would save, in seconds",
    ),
    ("segment", "number of the segment in its file"),
    ("segments", "segments"),
    ("sequence", "number of the event"),
    ("shared", "requests that joined a read under way"),
    (
        "shelf",
        "0 is memory, the last one is where everything is stored",
    ),
    ("hotshelf_tables.shelf", "the shelf that the table is on"),
    (
        "shelf_columns",
        "the columns that are on it, or all; none for tables in the database's folder",
    ),
    (
        "shelf_bytes",
        "bytes of its copies on the shelf, or of its files there that loads read, by now",
    ),
    ("skipped", "steps in which nothing was new"),
    (
        "slowdown",
        "the time over the time with everything in memory",
    ),
    ("solve_ns", "time of the last solution"),
    ("solve_ns_max", "time of the longest solution"),
    ("solves", "problems tried"),
    ("source", "where the value comes from"),
    ("spill_limit_bytes", "what it may occupy"),
    ("spill_used_bytes", "what the spill folder occupies now"),
    ("spill_used_bytes_max", "the most that it has occupied"),
    ("spilled_bytes", "the same bytes compressed, in whole pages"),
    (
        "spilled_raw_bytes",
        "bytes spilled, before they are compressed",
    ),
    ("state", "cached, in use, being read or waiting"),
    ("step_ns", "time of all steps"),
    ("steps", "steps taken"),
    (
        "storage_bandwidth",
        "bandwidth of storage as measured, in bytes per second; 0 until known",
    ),
    ("storage_blocks", "blocks that had to be read for look-ups"),
    ("stretch", "number of the stretch in the file"),
    ("table_name", "table"),
    ("target", "share of it that should be in memory, 0 to 1"),
    ("template", "fingerprint of the query without its literals"),
    (
        "throttled_ns",
        "time in which the cap held reads and writes back",
    ),
    ("unspilled_bytes", "spilled bytes that were read again"),
    ("total_s", "predicted time of the known queries, in seconds"),
    ("used_bytes", "bytes in use"),
    ("used_bytes_max", "the most that has been in use"),
    ("value", "value"),
    (
        "wait_s",
        "time in which its workers waited for reads, in seconds",
    ),
    ("weight", "how much it counts"),
    ("why", "why that happened"),
    ("window", "how past queries fade"),
    ("workers", "threads that worked on it"),
    ("writes", "writes given to the device"),
    ("written_bytes", "bytes written by them"),
    ("working", "whether the tuner works"),
];
