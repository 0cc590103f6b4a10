#!/usr/bin/env python3
"""Makes system calls fail, one at a time, through everything the program does.

    python3 benchmarks/io_errors.py --hotshelf target/release/hotshelf --places 3

`io_errors.c` is compiled with `cc` and loaded before the C library; it fails the n-th call of a kind (open, read, write, sync, rename,
unlink, mkdir, truncate, stat, list, lock) on a file below the database with an error (EIO, ENOSPC, EMFILE, ...) or cuts a transfer
to half, once or from then on. How many calls there are is counted first; `--places` of them are drawn for each operation, kind,
error and way. Rings are refused, so that reads go through the library.

An operation is two statements in one shell, or an import. Each must be acknowledged or refused with an error that has words. After a
single failure the other statement must work. Then, with sound calls in a new process:

* the tables hold exactly the acknowledged statements; a refused one may be there as a whole (*in doubt*) or not at all;
* no file is left behind, and `verify` is content;
* refused statements work when they are tried again.

Prints a table; the exit status is 1 if anything was not so.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import errno
import itertools
import pathlib
import random
import re
import shutil
import subprocess
import tempfile

import faults

ERRORS = {
    "open": ["EIO", "EMFILE", "EACCES", "ENOSPC"],
    "read": ["EIO", "half"],
    "write": ["EIO", "ENOSPC", "half"],
    "sync": ["EIO", "ENOSPC"],
    "rename": ["EIO", "ENOSPC"],
    "unlink": ["EIO"],
    "mkdir": ["ENOSPC", "EACCES"],
    "truncate": ["EIO", "ENOSPC"],
    "stat": ["EIO"],
    "list": ["EIO", "EMFILE"],
    "lock": ["EIO"],
}
BAD = ["lost or half-done", "wrong answer", "panic", "hang", "no words", "does not recover", "left behind", "verify complains"]
FINE = ["all worked", "refused", "in doubt"]
# A single failure that refuses a statement that comes later.
LATER = "refused later, too"


def series(append, count):
    return f"SELECT {append}000000 + value AS id, value % 101 AS k, concat('text ', value % 977) AS s FROM generate_series(1, {count})"


BASE = [
    f"CREATE TABLE t AS {series(1, 4000)}; CREATE INDEX by_k ON t USING elf (k, id); INSERT INTO t {series(2, 300)}",
    f"CREATE TABLE u CLUSTER BY elf (k) AS {series(3, 4000)}; INSERT INTO u {series(4, 300)}; CREATE VIEW v AS SELECT max(id) AS id FROM t",
]
SPILLED = "SELECT count(*) AS n, sum(r) AS r FROM (SELECT row_number() OVER (ORDER BY s, id, n) AS r FROM t, generate_series(1, 100) AS g(n)) AS x"
OPERATIONS = {
    "INSERT": [f"INSERT INTO t {series(5, 3000)}", f"INSERT INTO u {series(6, 200)}"],
    "import": ["IMPORT t rows.csv"],
    "CREATE TABLE AS": [f"CREATE TABLE a AS {series(5, 3000)}", "CREATE TABLE b CLUSTER BY elf (k) AS SELECT * FROM t"],
    "CREATE INDEX": ["CREATE INDEX by_s ON t USING elf (s)", "CREATE INDEX by_id ON u USING elf (id, k)"],
    "OPTIMIZE": ["OPTIMIZE TABLE t", "OPTIMIZE TABLE u"],
    "DROP": ["DROP INDEX by_k", "DROP TABLE u"],
    "view": ["CREATE OR REPLACE VIEW v AS SELECT min(id) AS id FROM t", "CREATE VIEW w AS SELECT * FROM u WHERE k = 3"],
    "query": ["SELECT sum(id) AS i, max(s) AS s FROM t WHERE k = 7", "SELECT count(*) AS n, max(s) AS s FROM u"],
    "spilling query": [SPILLED, SPILLED],
}
OPTIONS = {"spilling query": ["--budget", "8MB", "--threads", "2"]}
PROBES = [
    "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = 'public' ORDER BY 2",
    "SELECT DISTINCT table_name, index_name FROM hotshelf_indexes() ORDER BY 2",
    "SET hotshelf.elf = 'off'",
    *(f"SELECT id / 1000000 AS a, count(*) AS n, count(DISTINCT id) AS d, sum(id) AS i, max(s) AS s FROM {name} GROUP BY 1 ORDER BY 1" for name in "tuab"),
    *(f"SELECT * FROM {name} ORDER BY id" for name in "vw"),
    "SET hotshelf.elf = 'always'",
    *(f"SELECT count(*) AS n, sum(id) AS i FROM {name} WHERE k = 7 AND id > 0 AND s >= 'text'" for name in "tuab"),
]


@dataclasses.dataclass
class Fault:
    operation: str
    kind: str
    error: str
    nth: int
    lasting: bool

    def environment(self):
        number = 0 if self.error == "half" else getattr(errno, self.error)
        found = {"FAULT_KIND": self.kind, "FAULT_ERROR": str(number), "FAULT_NTH": str(self.nth)}
        return {**found, "FAULT_LASTING": "1"} if self.lasting else found


class Bench:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.library, self.base = folder / "faults.so", folder / "base"
        source = pathlib.Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.library, source, "-ldl"], check=True)
        for sql in BASE:
            program.must(program.sql(self.base, sql))
        with open(folder / "rows.csv", "w") as out:
            out.write("id,k,s\n")
            out.writelines(f"{5_000_000 + i},{i % 101},text {i % 977}\n" for i in range(1, 3001))
        self.states = {name: self.all_states(statements) for name, statements in OPERATIONS.items()}

    def copy(self, folder):
        shutil.copytree(self.base, folder / "db")
        return (folder / "db").resolve()

    def all_states(self, statements):
        """What the probes answer after every selection of the statements."""
        found = {}
        for chosen in itertools.product([False, True], repeat=len(statements)):
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                db = self.copy(pathlib.Path(folder))
                answers, run = self.run(db, [sql for sql, wanted in zip(statements, chosen) if wanted], {}, [])
                self.program.must(run)
                found[chosen] = self.probe(db)[0]
        return found

    def probe(self, db):
        """Answers of the probes, without what tables that do not exist say; and the run."""
        answers, run = self.program.ask(db, PROBES)
        return [re.sub(r"\n.*", "", answer) if isinstance(answer, str) else answer for answer in answers], run

    def run(self, db, statements, environment, options):
        """The statements in one process: answers, and how it ended."""
        if statements and statements[0].startswith("IMPORT"):
            _, table, file = statements[0].split()
            arguments = ["import", "--db", db, "--append", table, self.folder / file]
            run = self.program.run(*arguments, environment=environment)
            return [[] if run.code == 0 else run.error() or f"no words (exit code {run.code})"], run
        return self.program.ask(db, statements, *options, environment=environment)

    def environment(self, db, report):
        return {"LD_PRELOAD": str(self.library), "FAULT_FOLDER": str(db), "FAULT_REPORT": str(report)}

    def counts(self, operation):
        """How many calls of each kind an operation makes."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            db, report = self.copy(pathlib.Path(folder)), pathlib.Path(folder) / "report"
            _, run = self.run(db, OPERATIONS[operation], self.environment(db, report), OPTIONS.get(operation, []))
            self.program.must(run)
            return {kind: int(count) for kind, count in re.findall(r"^(\w+) (\d+)$", report.read_text(), re.M)}

    def judge(self, fault):
        """The outcome of one run with a fault, and what was seen."""
        statements = OPERATIONS[fault.operation]
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            db, report = self.copy(pathlib.Path(folder)), pathlib.Path(folder) / "report"
            environment = {**self.environment(db, report), **fault.environment()}
            answers, run = self.run(db, statements, environment, OPTIONS.get(fault.operation, []))
            if "hit" not in (report.read_text() if report.exists() else ""):
                return "not reached", ""
            return self.compare(fault, db, answers, run)

    def compare(self, fault, db, answers, run):
        words = run.words if run.out == run.words else run.out + run.words
        if run.code is None:
            return "hang", words[:500]
        if run.is_crash():
            return "panic", words[-800:]
        refused = [isinstance(answer, str) for answer in answers]
        if any(answer.startswith("no ") for answer in answers if isinstance(answer, str)) and "error: " not in words:
            return "no words", f"exit code {run.code}: {words[-300:]}"
        if fault.operation.endswith("query"):
            rights = self.right_answers(fault.operation)
            if any(isinstance(answer, list) and answer != right for answer, right in zip(answers, rights)):
                return "wrong answer", f"{answers}"
        found, probe = self.probe(db)
        chosen = [one for one, state in self.states[fault.operation].items() if state == found]
        allowed = [one for one in chosen if all(there or no for there, no in zip(one, refused))]
        if probe.is_crash() or probe.code is None:
            return "panic", probe.out[-500:]
        if not allowed:
            return "lost or half-done", f"refused {refused}, found {self.difference(fault, found, refused)}; {words[:500]}"
        return self.afterwards(fault, db, allowed[0], refused, words)

    def afterwards(self, fault, db, there, refused, words):
        left = faults.leftovers(db)
        if left:
            return "left behind", f"{left} {words[-300:]}"
        verify = self.program.verify(db)
        if verify.code != 0:
            return "verify complains", verify.out + verify.words
        missing = [sql for sql, is_there in zip(OPERATIONS[fault.operation], there) if not is_there]
        if not fault.operation.endswith("query"):
            answers, run = self.run(db, missing, {}, [])
            if run.code != 0 or any(isinstance(answer, str) for answer in answers):
                return "does not recover", f"{answers} {words[-300:]}"
            found, _ = self.probe(db)
            if found != self.states[fault.operation][(True,) * len(there)]:
                return "does not recover", f"after a second try: {found}"
        if not any(refused):
            return "all worked", ""
        # An opening that fails refuses all statements at once.
        if not fault.lasting and sum(refused) > 1 and faults.MARK in words:
            return LATER, words[:600]
        is_doubt = any(is_there and no for is_there, no in zip(there, refused)) and not fault.operation.endswith("query")
        is_doubt &= fault.operation != "OPTIMIZE"
        return ("in doubt" if is_doubt else "refused"), words[:400]

    def right_answers(self, operation):
        if operation not in self.rights:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                db = self.copy(pathlib.Path(folder))
                self.rights[operation] = self.run(db, OPERATIONS[operation], {}, OPTIONS.get(operation, []))[0]
        return self.rights[operation]

    rights = {}

    def difference(self, fault, found, refused):
        """Against the state in which exactly the acknowledged statements are there."""
        right = self.states[fault.operation][tuple(not no for no in refused)]
        return [(probe[:60], one, other) for probe, one, other in zip(PROBES, found, right) if one != other][:2]


def draw(bench, operation, places, dice):
    """Faults of an operation."""
    for kind, count in bench.counts(operation).items():
        for error, lasting in itertools.product(ERRORS[kind], [False, True]):
            for nth in sorted(dice.sample(range(1, count + 1), min(places, count))):
                yield Fault(operation, kind, error, nth, lasting)


def table(counts, first, names, outcomes):
    lines = [f"| {first} | places | {' | '.join(outcomes)} |", "|---" * (len(outcomes) + 2) + "|"]
    for name in names:
        numbers = [counts[name][outcome] for outcome in outcomes]
        lines.append(f"| {name} | {sum(numbers)} | {' | '.join(str(n or '') for n in numbers)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True, help="the binary")
    parser.add_argument("--places", type=int, default=3, help="calls drawn for each operation, kind, error and way")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="operations with this in their name")
    parser.add_argument("--kind", default="", help="kinds of calls with this in their name")
    parser.add_argument("--work", type=pathlib.Path, help="folder for the copies, 100 MB")
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    by_kind, by_operation = collections.defaultdict(collections.Counter), collections.defaultdict(collections.Counter)
    later = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="hotshelf-io-", dir=arguments.work) as folder:
        bench = Bench(faults.Program(arguments.hotshelf), pathlib.Path(folder).resolve())
        names = [name for name in OPERATIONS if arguments.only in name]
        drawn = [fault for name in names for fault in draw(bench, name, arguments.places, dice) if arguments.kind in fault.kind]
        dice.shuffle(drawn)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for fault, (outcome, words) in zip(drawn, pool.map(bench.judge, drawn)):
                if outcome == "not reached":
                    later[outcome] += 1
                    continue
                by_kind[f"{fault.kind}: {fault.error}{', from then on' if fault.lasting else ''}"][outcome] += 1
                by_operation[fault.operation][outcome] += 1
                if outcome in BAD or outcome == LATER:
                    print(f"{outcome.upper()}: {fault}: {words}", flush=True)
    outcomes = [*FINE, LATER, *BAD]
    rows = [f"{kind}: {error}{way}" for kind in ERRORS for error in ERRORS[kind] for way in ("", ", from then on")]
    print(table(by_kind, "call", [row for row in rows if row in by_kind], outcomes), "\n")
    print(table(by_operation, "operation", names, outcomes))
    total = sum((count for count in by_operation.values()), collections.Counter())
    print(f"\n{sum(total.values())} calls failed: {dict(total)}; {later['not reached']} drawn calls were not reached")
    raise SystemExit(any(total[outcome] for outcome in BAD))


if __name__ == "__main__":
    main()
