//! The shell on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::pty::openpty;

use super::Bench;

/// A shell on a pseudo-terminal.
struct Terminal {
    shell: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn open(bench: &Bench) -> Self {
        let ends = openpty(None, None).unwrap();
        let slave = || Stdio::from(ends.slave.try_clone().unwrap());
        let shell = bench
            .command(&["shell", "--db", "db"])
            .env("TERM", "xterm")
            .stdin(slave())
            .stdout(slave())
            .stderr(slave())
            .spawn()
            .unwrap();
        let keyboard = File::from(ends.master);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut output, shown) = (keyboard.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                *shown.lock().unwrap() += &String::from_utf8_lossy(&bytes[..count]);
            }
        });
        let terminal = Self {
            shell,
            keyboard,
            screen,
        };
        terminal.wait_for("hotshelf> ");
        terminal
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn wait_for(&self, text: &str) {
        let started = Instant::now();
        while !self.screen.lock().unwrap().contains(text) {
            let screen = || self.screen.lock().unwrap().clone();
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{text}: {}",
                screen()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn lines_typed_while_a_query_runs_are_all_executed() {
    let bench = Bench::with_table();
    let mut terminal = Terminal::open(&bench);
    terminal.press(".mode csv\n");
    terminal
        .press("SELECT count(*) AS slow FROM generate_series(1, 1000000) WHERE value % 3 = 1;\n");
    terminal.press("SELECT 11 AS a1;\nSELECT 22\nAS a2;\nSELECT 33 AS a3; SELECT 44 AS a4;\n\\q\n");
    for answer in [
        "slow\r\n333334",
        "a1\r\n11\r\n",
        "a2\r\n22\r\n",
        "a3\r\n33\r\n",
        "a4\r\n44\r\n",
    ] {
        terminal.wait_for(answer);
    }
    assert_eq!(terminal.shell.wait().unwrap().code(), Some(0));
}

#[test]
fn ctrl_d_discards_an_unfinished_statement() {
    let bench = Bench::with_table();
    let mut terminal = Terminal::open(&bench);
    terminal.press("DROP TABLE t\n");
    terminal.wait_for("...> ");
    terminal.press("\x04");
    terminal.wait_for("unfinished statement discarded");
    assert_eq!(terminal.shell.wait().unwrap().code(), Some(0));
    assert_eq!(bench.query("SELECT count(*) AS n FROM t"), "n\n1000\n");
}

#[test]
fn a_terminal_shows_the_first_rows_and_counts_all() {
    let bench = Bench::with_table();
    let mut terminal = Terminal::open(&bench);
    terminal.press("SELECT value FROM generate_series(1, 20000);\n");
    terminal.wait_for("showing the first 1,000 of 20,000 rows");
    terminal.wait_for("20000 rows, ");
    assert!(!terminal.screen.lock().unwrap().contains("| 1001 "));
    terminal.press("\\q\n");
    assert_eq!(terminal.shell.wait().unwrap().code(), Some(0));
}
