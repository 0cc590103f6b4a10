"""What the scripts that damage, kill and starve a database share: running the program, and what its folder must hold."""

import contextlib
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import tempfile

MARK = "answered"
# A file system without direct reads is worth a warning, but not here.
ENVIRONMENT = {**os.environ, "RUST_LOG": "error", "HOTSHELF_HISTORY": os.devnull, "RUST_BACKTRACE": "0"}
TIMING = re.compile(r"^(\d+ rows?|set), [\d.]+ s$")
# What the catalog of a database does not list, and is not left behind by anybody.
OWN_FILES = re.compile(r"HEAD|NAMES|[^/]+/TABLE")
OWN_ENTRIES = {"catalog.sqlite", "catalog.sqlite-wal", "catalog.reserve", "data", "LOCK", "profile.json", "spill"}


class Run:
    """How a call of the program ended: exit code (negative: a signal; None: it hung) and what it said."""

    def __init__(self, code, out, words):
        self.code, self.out, self.words = code, out, words

    def is_crash(self):
        return self.code is not None and self.code not in (0, 1, 2) or "panicked" in self.words + self.out

    def error(self):
        """The first error in what was said."""
        found = re.search(r"^error: .*(?:\n(?!\n|error: ).*)*", self.words, re.M)
        return found[0] if found else ""


class Program:
    def __init__(self, path, seconds_max=20, prefix=()):
        self.path, self.seconds_max, self.prefix = str(pathlib.Path(path).resolve()), seconds_max, list(prefix)

    def run(self, *arguments, text=None, merged=False, environment=None):
        """Runs a subcommand to its end; with `merged`, output and messages come in the order in which they were written."""
        command = [*self.prefix, self.path, *map(str, arguments)]
        errors = subprocess.STDOUT if merged else subprocess.PIPE
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        with subprocess.Popen(command, env={**ENVIRONMENT, **(environment or {})}, text=True, errors="replace", **pipes) as child:
            try:
                out, words = child.communicate(text or "", timeout=self.seconds_max)
                code = child.returncode
            except subprocess.TimeoutExpired:
                child.kill()
                out, words = child.communicate()
                code = None
        return Run(code, out, out if merged else words)

    def sql(self, db, text, *options):
        return self.run("sql", "--db", db, "--format", "csv", *options, "-c", text)

    def verify(self, db):
        return self.run("verify", "--db", db)

    def must(self, run):
        if run.code != 0:
            raise SystemExit(f"{self.path} failed ({run.code}):\n{run.out}{run.words}")
        return run

    def ask(self, db, questions, *options, environment=None):
        """Answers of one shell to several questions, each a list of lines or the error as a text; and how the shell ended."""
        text = "\\format csv\n" + "".join(f"{sql};\nSELECT '{MARK} {i}' AS mark;\n" for i, sql in enumerate(questions))
        run = self.run("shell", "--db", db, *options, text=text, merged=True, environment=environment)
        return [section(run, i) for i in range(len(questions))], run


def section(run, number):
    """What a shell said to one question."""
    parts = re.split(rf"^mark\n{MARK} (?:\d+)\n", run.out, flags=re.M)
    if number + 1 >= len(parts):
        return run.error() or f"no answer (exit code {run.code})"
    lines = [line for line in parts[number].splitlines() if not TIMING.search(line)]
    wrong = [at for at, line in enumerate(lines) if line.startswith("error")]
    return "\n".join(lines[wrong[0] :]) if wrong else lines


@contextlib.contextmanager
def catalog_of(db):
    """A copy of the catalog: looking at the original would leave files beside it."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("catalog.sqlite", "catalog.sqlite-wal"):
            shutil.copy(pathlib.Path(db) / name, folder)
        connection = sqlite3.connect(f"{folder}/catalog.sqlite")
        yield connection
        connection.close()


def named_files(db):
    """Files below `data` that the catalog names, and the folders of its tables."""
    with catalog_of(db) as catalog:
        data = catalog.execute("SELECT folder, number FROM tables JOIN files ON tables.id = files.table_id").fetchall()
        elfs = catalog.execute(
            "SELECT folder, files.number, index_number FROM tables JOIN files ON tables.id = files.table_id "
            "JOIN index_files ON files.id = index_files.file_id"
        ).fetchall()
        folders = {folder for (folder,) in catalog.execute("SELECT folder FROM tables")}
    named = {f"{folder}/{number}.vortex" for folder, number in data} | {f"{folder}/sums/{number}.crc" for folder, number in data}
    return named | {f"{folder}/elf/{number}-{index}.elf" for folder, number, index in elfs}, folders


def leftovers(db):
    """Files that nothing names, names without files, and folders and files that no database has."""
    named, folders = named_files(db)
    db = pathlib.Path(db)
    data = db / "data"
    found = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    found = {name for name in found if not OWN_FILES.fullmatch(name)}
    strange = {f"data/{path.name}" for path in data.iterdir() if path.is_dir() and path.name not in folders}
    strange |= {path.name for path in db.iterdir() if path.name not in OWN_ENTRIES}
    strange |= {str(path.relative_to(db)) for path in (db / "spill").glob("*")}
    return sorted({f"data/{name}" for name in found ^ named} | strange)


def file_count(db):
    """Data files in the catalog."""
    return sum(name.endswith(".vortex") for name in named_files(db)[0])
