//! The built program from outside: commands, formats, bad input, exit codes, what goes where.

#[path = "cli/commands.rs"]
mod commands;
#[path = "cli/damage.rs"]
mod damage;
#[path = "cli/formats.rs"]
mod formats;
#[path = "cli/guide.rs"]
mod guide;
#[path = "cli/interrupts.rs"]
mod interrupts;
#[path = "cli/probe.rs"]
mod probe;
#[path = "cli/reference.rs"]
mod reference;
#[path = "cli/refusals.rs"]
mod refusals;
#[path = "cli/terminal.rs"]
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A folder of a test, and calls of the program in it.
struct Bench {
    folder: TempDir,
}

/// What a call did.
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    /// With a database `db` whose table `t` has columns `a` 0 to 999, and `b`, a text.
    fn with_table() -> Self {
        let bench = Self::new();
        let rows: String = (0..1000).map(|a| format!("{a},text {a}\n")).collect();
        bench.write("t.csv", format!("a,b\n{rows}"));
        bench.ok(&["import", "--db", "db", "t", "t.csv"]);
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hotshelf"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOTSHELF_HISTORY", self.path("history"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Done {
        self.command(arguments).output().unwrap().into()
    }

    fn run_with_stdin(&self, arguments: &[&str], stdin: &str) -> Done {
        use std::io::Write;
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(stdin.as_bytes()).unwrap();
        drop(input);
        child.wait_with_output().unwrap().into()
    }

    /// A call that must succeed; its standard output.
    fn ok(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, Some(0), "{arguments:?}: {}", done.stderr);
        done.stdout
    }

    /// A call that must fail with that exit code, print no result, and say `error:` with all of `parts`.
    fn fails(&self, code: i32, arguments: &[&str], parts: &[&str]) {
        let done = self.run(arguments);
        let stderr = &done.stderr;
        assert_eq!(done.code, Some(code), "{arguments:?}: {stderr}");
        assert_eq!(done.stdout, "", "{arguments:?}");
        assert!(stderr.contains("error: "), "{arguments:?}: {stderr}");
        for part in parts {
            assert!(stderr.contains(part), "{arguments:?}: {stderr}");
        }
    }

    /// CSV of a query over the database `db`.
    fn query(&self, sql: &str) -> String {
        self.ok(&["sql", "--db", "db", "--format", "csv", "-c", sql])
    }

    /// The data files of a table of the database `db`.
    fn data_files(&self, table: &str) -> Vec<PathBuf> {
        let is_of_table = |path: &Path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with(&format!("{table}-"))
        };
        entries(&self.path("db/data"))
            .into_iter()
            .filter(|path| is_of_table(path))
            .flat_map(|folder| entries(&folder))
            .filter(|path| path.extension().is_some_and(|ending| ending == "vortex"))
            .collect()
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Folders in a folder: of `data`, the tables'.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = entries(folder).into_iter();
    entries.filter(|path| path.is_dir()).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}
