#!/usr/bin/env python3
"""Kills the program at random moments of everything that writes, and compares what is there with what was acknowledged.

    python3 benchmarks/crash.py --hotshelf target/release/hotshelf --kills 1000

Operations on up to five tables: import (new, append, replace), INSERT, many single-row INSERTs in one shell, CREATE TABLE AS (also in
the order of an index), DROP TABLE, CREATE INDEX (also clustered), DROP INDEX, OPTIMIZE TABLE. Every append has ids of its own, so that
rows that come twice are seen. After each operation, killed or not,

* every table holds exactly the appends that were acknowledged: their number of rows, each id once, the sum of the ids, with and without
  indexes; the one statement that was running when the process was killed may be there as a whole, or not at all;
* the folder holds exactly the files that the catalog names, nothing in `lost+found` and no rows that were spilled;
* `verify` is content (every fifth time).

After one kill in four, the opening that follows is killed, too. The exit status says whether all held; the database is kept if not.
"""

import argparse
import collections
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

import faults

IDS = 1_000_000
TABLES_MAX = 5
ROWS_MAX = 1_500_000
SINGLE_INSERTS = 40


class Model:
    """Which appends each table holds, and how many rows each append has."""

    def __init__(self):
        self.tables, self.rows, self.next_append = {}, {}, 0

    def new_append(self, count):
        self.next_append += 1
        self.rows[self.next_append] = count
        return self.next_append

    def expected(self, tables, name):
        """What `Check.contents` must find."""
        return {str(one): (self.rows[one], self.rows[one], one * IDS * self.rows[one] + sum(range(self.rows[one]))) for one in tables[name]}

    def size(self, name):
        return sum(self.rows[one] for one in self.tables[name])


class Operation:
    """A call of the program, and the states of the tables that may follow: without the change first, with all of it last."""

    def __init__(self, name, table, command, states, text=None):
        self.name, self.table, self.command, self.states, self.text = name, table, command, states, text


class Operations:
    """Draws operations that the tables allow."""

    def __init__(self, model, db, folder, dice):
        self.model, self.db, self.folder, self.dice = model, db, folder, dice
        self.names = 0
        self.makers = {
            "import": (self.import_new, 2),
            "append": (self.append, 5),
            "replace": (self.replace, 1),
            "INSERT": (self.insert, 3),
            "single INSERTs": (self.single_inserts, 3),
            "CTAS": (self.create_as, 2),
            "CTAS in order": (self.create_in_order, 1),
            "DROP TABLE": (self.drop, 2),
            "CREATE INDEX": (self.index, 3),
            "clustered index": (self.clustered_index, 2),
            "DROP INDEX": (self.drop_index, 1),
            "OPTIMIZE": (self.optimize, 4),
        }

    def draw(self):
        names, weights = zip(*((name, weight) for name, (_, weight) in self.makers.items()))
        while True:
            name = "import" if len(self.model.tables) < 2 else self.dice.choices(names, weights)[0]
            if operation := self.makers[name][0](name):
                return operation

    def source(self, count):
        """A file with a new append's rows; the append and the path."""
        append = self.model.new_append(count)
        path = self.folder / f"{append}.csv"
        with open(path, "w") as out:
            out.write("id,k,m,s\n")
            out.writelines(f"{append * IDS + i},{i * 7919 % 1009},{i % 77},text {i % 977}\n" for i in range(count))
        return append, path

    def rows(self, append):
        """The same as SQL."""
        return (
            f"SELECT {append * IDS} + value AS id, value * 7919 % 1009 AS k, value % 77 AS m, concat('text ', value % 977) AS s "
            f"FROM generate_series(0, {self.model.rows[append] - 1})"
        )

    def new_name(self):
        self.names += 1
        return f"t{self.names}"

    def any_table(self):
        return self.dice.choice(list(self.model.tables))

    def states(self, **changes):
        """The tables as they are and as they will be; None drops one."""
        after = {**self.model.tables, **changes}
        return [self.model.tables, {name: appends for name, appends in after.items() if appends is not None}]

    def sql(self, name, table, sql, states):
        return Operation(name, table, ["sql", "--db", self.db, "-c", sql], states)

    def import_new(self, name):
        if len(self.model.tables) >= TABLES_MAX:
            return None
        table, (append, path) = self.new_name(), self.source(self.dice.choice([1000, 50_000, 300_000]))
        return Operation(name, table, ["import", "--db", self.db, table, path], self.states(**{table: {append}}))

    def append(self, name):
        table = self.any_table()
        sources = [self.source(self.dice.choice([1000, 50_000, 300_000])) for _ in range(self.dice.choice([1, 1, 3]))]
        states = self.states(**{table: self.model.tables[table] | {append for append, _ in sources}})
        return Operation(name, table, ["import", "--db", self.db, "--append", table, *(path for _, path in sources)], states)

    def replace(self, name):
        table, (append, path) = self.any_table(), self.source(100_000)
        return Operation(name, table, ["import", "--db", self.db, "--replace", table, path], self.states(**{table: {append}}))

    def insert(self, name):
        table, append = self.any_table(), self.model.new_append(self.dice.choice([1, 30_000]))
        states = self.states(**{table: self.model.tables[table] | {append}})
        return self.sql(name, table, f"INSERT INTO {table} {self.rows(append)}", states)

    def single_inserts(self, name):
        """Small files, one after the other: what merging in the background lives on."""
        table = self.any_table()
        states, text = [self.model.tables], ["\\format csv"]
        for number in range(SINGLE_INSERTS):
            append = self.model.new_append(1)
            states.append({**states[-1], table: states[-1][table] | {append}})
            text += [f"INSERT INTO {table} {self.rows(append)};", f"SELECT 'acknowledged {number + 1}' AS mark;"]
        return Operation(name, table, ["shell", "--db", self.db], states, "\n".join(text) + "\n")

    def create_as(self, name, clustered=""):
        if len(self.model.tables) >= TABLES_MAX:
            return None
        table, new = self.any_table(), self.new_name()
        states = self.states(**{new: self.model.tables[table]})
        return self.sql(name, new, f"CREATE TABLE {new}{clustered} AS SELECT * FROM {table}", states)

    def create_in_order(self, name):
        return self.create_as(name, " CLUSTER BY elf (k, m)")

    def drop(self, name):
        large = [one for one in self.model.tables if self.model.size(one) > ROWS_MAX]
        if len(self.model.tables) <= 3 and not large:
            return None
        table = self.dice.choice(large or list(self.model.tables))
        return self.sql(name, table, f"DROP TABLE {table}", self.states(**{table: None}))

    def index(self, name):
        table, columns = self.any_table(), self.dice.choice(["k, m", "s", "m, k, id", "id"])
        sql = f"DROP INDEX IF EXISTS plain_{table}; CREATE INDEX plain_{table} ON {table} USING elf ({columns})"
        return self.sql(name, table, sql, self.states())

    def clustered_index(self, name):
        table = self.any_table()
        if any(row.clustered and row.index != f"ordered_{table}" for row in self.indexes(table)):
            return None
        sql = f"CREATE INDEX ordered_{table} ON {table} USING elf (m, id) WITH (clustered = true)"
        return self.sql(name, table, f"DROP INDEX IF EXISTS ordered_{table}; {sql}", self.states())

    def drop_index(self, name):
        table = self.any_table()
        if not (indexes := self.indexes(table)):
            return None
        return self.sql(name, table, f"DROP INDEX {self.dice.choice(indexes).index}", self.states())

    def indexes(self, table):
        row = collections.namedtuple("Row", "index clustered")
        with faults.catalog_of(self.db) as catalog:
            found = catalog.execute(
                "SELECT indexes.name, clustered FROM indexes JOIN tables ON tables.id = table_id WHERE tables.name = ?", [table]
            )
            return [row(*one) for one in found]

    def optimize(self, name):
        table = self.any_table()
        return self.sql(name, table, f"OPTIMIZE TABLE {table}", self.states())


class Check:
    """Compares a database with the states that it may be in."""

    def __init__(self, program, db, model):
        self.program, self.db, self.model = program, db, model

    def contents(self):
        """Tables, and each one's appends with rows, different ids and their sum; a text if something does not answer."""
        names = self.program.sql(self.db, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        if names.code != 0:
            return names.words
        found = {}
        tables = names.out.splitlines()[1:]
        count = f"SELECT id / {IDS} AS append, count(*) AS n, count(DISTINCT id) AS d, sum(id) AS s FROM {{}} WHERE id >= 0 AND k >= 0 GROUP BY 1"
        questions = [f"SET hotshelf.elf = '{use}'" for use in ("off", "always")]
        asked = [questions[0], *(count.format(name) for name in tables), questions[1], *(count.format(name) for name in tables)]
        answers, run = self.program.ask(self.db, asked)
        half = len(asked) // 2
        for name, off, always in zip(tables, answers[1:half], answers[half + 1 :]):
            if isinstance(off, str) or isinstance(always, str) or sorted(off) != sorted(always):
                return f"{name} answers {off} without and {always} with indexes: {run.out[-500:]}"
            parts = [line.split(",") for line in off[1:]]
            found[name] = {append: tuple(map(int, numbers)) for append, *numbers in parts}
        return found

    def state(self, states):
        """Which of the states it is, and what is wrong if it is none; later ones are preferred."""
        found = self.contents()
        if isinstance(found, str):
            return None, found
        for state in reversed(states):
            if found == {name: self.model.expected(state, name) for name in state}:
                return state, ""
        return None, self.difference(found, states[0])

    def difference(self, found, state):
        words = []
        for name in sorted(found.keys() | state.keys()):
            right = self.model.expected(state, name) if name in state else None
            if found.get(name) != right:
                words.append(f"{name}: found {found.get(name)}, before the operation {right}")
        return "; ".join(words)


class Killer:
    """Runs operations and kills them."""

    def __init__(self, arguments, folder):
        self.dice = random.Random(arguments.seed)
        self.program = faults.Program(arguments.hotshelf, seconds_max=120)
        self.folder, self.db = folder, folder / "db"
        self.model = Model()
        self.operations = Operations(self.model, self.db, folder, self.dice)
        self.check = Check(self.program, self.db, self.model)
        self.seconds, self.counts = {}, collections.defaultdict(collections.Counter)
        self.openings_killed = 0

    def round(self):
        """One operation, and a look at what is there; what is wrong."""
        operation = self.operations.draw()
        usual = self.seconds.get(operation.name, 0.3)
        code, out, words = self.run(operation, self.dice.uniform(0, usual * 1.1))
        killed = code < 0
        acknowledged = len(re.findall(r"^acknowledged ", out, re.M)) if operation.text else 0
        if killed and self.dice.random() < 0.25:
            self.kill_opening()
        # A statement whose answer was read is acknowledged; of the others only the first was running.
        states = operation.states[acknowledged : acknowledged + 2] if killed else operation.states[-1:]
        problems = [] if code <= 0 else [f"exit code {code}: {words[-500:]}"]
        state, wrong = self.check.state(states)
        problems += [wrong] if wrong else []
        problems += [f"not in the catalog: {name}" for name in faults.leftovers(self.db)]
        count = self.counts[operation.name]
        count["killed" if killed else "ended"] += 1
        if killed and states[0] != states[-1]:
            count["there" if state == states[-1] else "not there"] += 1
        if self.dice.random() < 0.2 or problems:
            run = self.program.verify(self.db)
            problems += [run.out + run.words] if run.code != 0 else []
        self.model.tables = state or {}
        for path in self.folder.glob("*.csv"):
            path.unlink()
        return [f"{operation.name} of {operation.table}, {'killed' if killed else 'ended'}: {problem}" for problem in problems]

    def run(self, operation, seconds):
        """Runs an operation and kills it after some seconds; its exit code, output and messages."""
        command = [self.program.path, *map(str, operation.command)]
        started = time.monotonic()
        # Into files: a pipe that nothing reads would block the process.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as words, tempfile.TemporaryFile("w+") as text:
            text.write(operation.text or "")
            text.seek(0)
            process = subprocess.Popen(command, env=faults.ENVIRONMENT, stdin=text, stdout=out, stderr=words)
            try:
                code = process.wait(seconds)
                took = time.monotonic() - started
                self.seconds[operation.name] = (self.seconds.get(operation.name, took) + took) / 2
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
                # A wrong guess of how long it takes must not last.
                self.seconds[operation.name] = self.seconds.get(operation.name, 0.3) * 1.05
            out.seek(0)
            words.seek(0)
            return code, out.read(), words.read()

    def kill_opening(self):
        process = subprocess.Popen(
            [self.program.path, "tables", "--db", self.db], env=faults.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(self.dice.uniform(0, 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.openings_killed += 1

    def kills(self):
        return sum(count["killed"] for count in self.counts.values())


def report(killer):
    """The counts as Markdown."""
    columns = ["killed", "there", "not there", "ended"]
    lines = ["| operation | kills | the change was there | not there | ended before |", "|---|---|---|---|---|"]
    for name in killer.operations.makers:
        lines.append(f"| {name} | {' | '.join(str(killer.counts[name][column]) for column in columns)} |")
    sums = [sum(count[column] for count in killer.counts.values()) for column in columns]
    return "\n".join([*lines, f"| **all** | {' | '.join(map(str, sums))} |", f"\n{killer.openings_killed} openings after a kill were killed, too"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True, help="the binary")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=pathlib.Path, help="folder for the database, 1 GB")
    arguments = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hotshelf-crash-", dir=arguments.work))
    killer = Killer(arguments, folder)
    while killer.kills() < arguments.kills:
        if sys.stderr.isatty():
            print(f"\r{killer.kills()} kills", end="", file=sys.stderr, flush=True)
        if problems := killer.round():
            print(report(killer))
            raise SystemExit(f"after {killer.kills()} kills (kept in {folder}):\n" + "\n".join(problems))
    print(report(killer))
    print("nothing lost, nothing twice, nothing half-done, nothing left behind")
    subprocess.run(["rm", "-rf", folder], check=True)


if __name__ == "__main__":
    sys.exit(main())
