#!/usr/bin/env python3
"""Damages one file of a database in every way and looks at what the program makes of it.

    python3 benchmarks/fault_matrix.py --hotshelf target/release/hotshelf --places 1200 --keep wrong-cases

A small database (three tables with several files, indexes, a schema, views) is made twice, the second time with other rows, and
kept at several moments of its life; one more copy is that of a killed process, with changes in the write-ahead log alone. Each
case copies it and damages one file: a byte flipped at a random place, cut off at a random place, emptied, deleted, exchanged with
another file of its kind (of the same database or of the other one), replaced by an earlier version. A shell then answers questions
about all rows with and without indexes, and `verify` runs (before or after). The outcome of a case is the worst of

    wrong     an answer that is not right, without an error
    deleted   a file other than the damaged one is gone, and not in lost+found
    panic     a panic, a signal, or an exit code that no error has
    hang      no end within 20 s
    error     a question is refused with an error that has words
    repaired  all answers are right, and the damaged file is not damaged any more
    seen      all answers are right, and `verify` names the damage
    harmless  all answers are right

After an error or a complaint of `verify`, `hotshelf repair` runs on the copy (not for damaged data), and after damage to an index
`OPTIMIZE TABLE`: counted is how often all answers are right again and `verify` is content. What differs afterwards without a word
counts as wrong. The exit status is 1 after any of the first four.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time

import faults

ROWS_PER_FILE = 4_000
BAD = ["wrong", "deleted", "panic", "hang"]
OUTCOMES = [*BAD, "error", "repaired", "seen", "harmless"]
DAMAGES = ["flipped byte", "cut off", "emptied", "deleted", "swapped", "older"]
# How many of the places each kind of file gets.
SHARES = {
    "data file": 0.24,
    "sums": 0.12,
    "data file and its sums": 0.02,
    "index file": 0.19,
    "catalog": 0.17,
    "catalog beside a log": 0.05,
    "write-ahead log": 0.11,
    "HEAD": 0.04,
    "TABLE": 0.025,
    "NAMES": 0.025,
    "catalog.reserve": 0.005,
    "LOCK": 0.005,
}
# Damage to them is nothing that `hotshelf repair` is for.
DATA = ("data file", "sums", "data file and its sums", "index file")


@dataclasses.dataclass
class Case:
    kind: str
    damage: str
    # The file below the database's folder; several where they go together.
    files: list
    # Where the bytes come from that replace it: folder and files.
    source: tuple = None
    place: int = None
    bits: int = 0
    verify_first: bool = False

    def words(self):
        at = f" at {self.place} ^ {self.bits}" if self.damage == "flipped byte" else f" at {self.place}" if self.place else ""
        return f"{self.kind}: {self.damage}: {', '.join(self.files)}{at}{f' from {self.source}' if self.source else ''}"


class Worlds:
    """The databases that are damaged, in a folder: `base`, `killed` and their earlier versions, and the same of another database."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        for name, salt in (("", 0), ("other-", 1)):
            self.make(name, salt)

    def path(self, name):
        return self.folder / name

    def make(self, prefix, salt):
        work = self.path("work")
        for number, statements in enumerate(history(salt)):
            self.program.must(self.program.sql(work, statements))
            self.keep(f"{prefix}base-{number}")
        self.path(f"{prefix}base-{number}").rename(self.path(f"{prefix}base"))
        self.kill_after(work, late_changes(salt), prefix)
        shutil.rmtree(work)

    def keep(self, name):
        shutil.copytree(self.path("work"), self.path(name), dirs_exist_ok=True)

    def kill_after(self, work, changes, prefix):
        """Changes in a shell that is killed; a copy is kept after each."""
        command = [self.program.path, "shell", "--db", work]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(command, text=True, env=faults.ENVIRONMENT, **pipes) as shell:
            for number, change in enumerate(changes):
                shell.stdin.write(f"{change};\nSELECT '{faults.MARK}' AS mark;\n")
                shell.stdin.flush()
                while faults.MARK not in shell.stdout.readline():
                    pass
                name = f"{prefix}killed" if number + 1 == len(changes) else f"{prefix}killed-{number}"
                self.keep(name)
            shell.kill()


def rows_of(first, count, salt):
    """The SQL of rows with these ids."""
    return (
        f"SELECT value AS id, CAST(value * {7919 + salt} % 101 AS INT) AS k, CAST(value % 77 AS INT) AS m, "
        f"concat('text ', (value * 31 + {salt}) % 977) AS s, CASE WHEN value % 11 = 0 THEN NULL ELSE (value + {salt}) * 0.25 END AS x, "
        f"(value + {salt}) % 3 = 0 AS b FROM generate_series({first}, {first + count - 1})"
    )


def history(salt):
    """Statements that make the database, in the steps after which a version is kept."""
    n = ROWS_PER_FILE
    return [
        f"CREATE TABLE t AS {rows_of(1, n, salt)}; CREATE INDEX by_k ON t USING elf (k, m); CREATE SCHEMA x; "
        f"CREATE TABLE u CLUSTER BY elf (m, k) AS {rows_of(1, n, salt + 5)}; CREATE TABLE x.w (a INT, c TEXT); "
        f"INSERT INTO x.w VALUES (1, 'one'), ({2 + salt}, 'two'); CREATE VIEW v AS SELECT m, count(*) AS n FROM t GROUP BY m",
        f"INSERT INTO t {rows_of(n + 1, n, salt)}; INSERT INTO u {rows_of(n + 1, n, salt + 5)}; INSERT INTO x.w VALUES (3, 'three')",
        f"INSERT INTO u {rows_of(2 * n + 1, n // 2, salt + 5)}; CREATE INDEX by_s ON t USING elf (s, id); DROP INDEX by_s; "
        "CREATE OR REPLACE VIEW v AS SELECT k, m, count(*) AS n FROM t GROUP BY k, m; CREATE TABLE r AS SELECT 1 AS a",
        f"OPTIMIZE TABLE u; INSERT INTO t {rows_of(2 * n + 1, n, salt)}; INSERT INTO u {rows_of(5 * n // 2 + 1, n // 2, salt + 5)}; "
        "CREATE INDEX by_x ON t USING elf (x, b); CREATE VIEW x.large AS SELECT * FROM x.w WHERE a > 1; INSERT INTO x.w VALUES (4, 'four'); "
        "CREATE OR REPLACE TABLE r AS SELECT 2 AS a",
    ]


def late_changes(salt):
    n = ROWS_PER_FILE
    return [
        f"INSERT INTO x.w VALUES ({50 + salt}, 'late')",
        f"INSERT INTO t {rows_of(3 * n + 1, 100, salt)}",
        "CREATE VIEW late AS SELECT max(id) AS id FROM t",
        f"CREATE TABLE young AS {rows_of(1, 50, salt)}",
        "DROP INDEX by_x",
    ]


def questions(is_killed):
    asked = [
        "SELECT count(*) AS n, min(id) AS a, max(id) AS z, min(k) AS b, max(k) AS c, min(s) AS d, max(s) AS e, max(x) AS f FROM t",
        "SELECT count(*) AS n, min(id) AS a, max(id) AS z, min(m) AS b, max(m) AS c, count(x) AS d FROM u",
        "SELECT * FROM t ORDER BY id",
        "SELECT * FROM u ORDER BY id",
        "SELECT count(*) AS n, sum(id) AS i, sum(x) AS x, min(s) AS s FROM t WHERE k = 17 AND m < 40",
        "SELECT id, s FROM t WHERE k BETWEEN 90 AND 91 AND m = 13 ORDER BY id",
        "SELECT count(*) AS n, sum(id) AS i FROM t WHERE x > 2000 AND b",
        "SELECT count(*) AS n, sum(id) AS i, max(s) AS s FROM u WHERE m = 5 AND k > 50",
        "SELECT count(*) AS n FROM t WHERE x IS NULL",
        "SELECT * FROM v ORDER BY k, m",
        "SELECT t.b, count(*) AS n, sum(u.x) AS x FROM t JOIN u ON t.id = u.id WHERE u.m < 9 GROUP BY t.b ORDER BY t.b",
        "SELECT * FROM x.w ORDER BY a",
        "SELECT * FROM r",
        "SELECT * FROM x.large ORDER BY a",
        "SELECT table_schema, table_name, table_type FROM information_schema.tables "
        "WHERE table_schema IN ('public', 'x') ORDER BY 1, 2",
    ]
    if is_killed:
        asked += ["SELECT * FROM young ORDER BY id", "SELECT * FROM late"]
    both = [f"SET hotshelf.elf = '{use}'" for use in ("off", "always")]
    return [both[0], *asked, both[1], *(question for question in asked if " WHERE " in question)]


def files_of(world, kind):
    """The files of a kind, below the folder."""
    patterns = {
        "data file": "data/*/*.vortex",
        "data file and its sums": "data/*/*.vortex",
        "sums": "data/*/sums/*.crc",
        "index file": "data/*/elf/*.elf",
        "catalog": "catalog.sqlite",
        "catalog beside a log": "catalog.sqlite",
        "write-ahead log": "catalog.sqlite-wal",
        "HEAD": "data/HEAD",
        "TABLE": "data/*/TABLE",
        "NAMES": "data/NAMES",
    }
    return sorted(str(path.relative_to(world)) for path in world.glob(patterns.get(kind, kind)))


def with_sums(kind, file):
    """The files that go together."""
    path = pathlib.Path(file)
    return [file, str(path.parent / "sums" / f"{path.stem}.crc")] if kind == "data file and its sums" else [file]


def is_killed(kind):
    return kind in ("write-ahead log", "catalog beside a log")


class Plan:
    """Which cases there are."""

    def __init__(self, worlds, dice):
        self.worlds, self.dice = worlds, dice

    def cases(self, kind, count):
        """Every file emptied and deleted, exchanges and earlier versions, cuts, and flips for the rest."""
        world = "killed" if is_killed(kind) else "base"
        files = files_of(self.worlds.path(world), kind)
        whole = [Case(kind, damage, with_sums(kind, file)) for file in files for damage in ("emptied", "deleted")]
        foreign = self.swaps(kind, world, files) + self.earlier(kind, world, files)
        most = max(count // 3, 4)
        cases = self.dice.sample(whole, min(len(whole), most)) + self.dice.sample(foreign, min(len(foreign), most))
        cases += [self.cut(kind, world, files) for _ in range(max(count // 8, 2))]
        if kind != "data file and its sums":
            cases += [self.flip(kind, world, files) for _ in range(count - len(cases))]
        for case in cases:
            case.verify_first = self.dice.random() < 0.5
        return cases

    def length(self, world, file):
        return (self.worlds.path(world) / file).stat().st_size

    def place(self, length):
        """Often near the beginning and the end, where the structure is."""
        end = min(length, 300)
        return self.dice.choice([self.dice.randrange(length), self.dice.randrange(length), self.dice.randrange(end), length - 1 - self.dice.randrange(end)])

    def flip(self, kind, world, files):
        file = self.dice.choice([file for file in files if self.length(world, file)])
        bits = self.dice.choice([self.dice.randrange(1, 256), 1 << self.dice.randrange(8)])
        in_row = kind.startswith("catalog ") or kind == "catalog"
        place = self.place_in_row(world) if in_row and self.dice.random() < 0.6 else self.place(self.length(world, file))
        return Case(kind, "flipped byte", [file], place=place, bits=bits)

    def place_in_row(self, world):
        """A byte in use in one of the catalog's tables or their indexes, each as likely: most of its pages hold sketches."""
        path = self.worlds.path(world) / "catalog.sqlite"
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(path, folder)
            catalog = sqlite3.connect(copy)
            pages = [page for (page,) in catalog.execute("SELECT DISTINCT rootpage FROM sqlite_master WHERE rootpage > 0")]
            (size,) = catalog.execute("PRAGMA page_size").fetchone()
            catalog.close()
        first = (self.dice.choice([1, *pages]) - 1) * size
        bytes_ = path.read_bytes()
        return self.dice.choice([at for at in range(first, first + size) if bytes_[at]])

    def cut(self, kind, world, files):
        file = self.dice.choice([file for file in files if self.length(world, file)])
        return Case(kind, "cut off", with_sums(kind, file), place=self.place(self.length(world, file)))

    def swaps(self, kind, world, files):
        """With the other files of the database, and with those of the other database."""
        pairs = [(world, one, two) for one in files for two in files if one != two]
        other = f"other-{world}"
        pairs += [(other, one, two) for one in files for two in files_of(self.worlds.path(other), kind) if one == two]
        pairs = [(name, one, two) for name, one, two in pairs if not self.same(world, one, name, two)]
        return [Case(kind, "swapped", with_sums(kind, one), (name, with_sums(kind, two))) for name, one, two in pairs]

    def earlier(self, kind, world, files):
        """The versions that a file had; for files that are never changed, those that its table had before it."""
        found = []
        worlds = sorted(path.name for path in self.worlds.folder.iterdir() if path.name.startswith(f"{world}-"))
        if is_killed(kind):
            worlds.append("base")
        for name in worlds:
            old = files_of(self.worlds.path(name), kind)
            for file in files:
                ones = [file] if file in old else [one for one in old if pathlib.Path(one).parent == pathlib.Path(file).parent]
                ones = [one for one in ones if not self.same(world, file, name, one)]
                found += [Case(kind, "older", with_sums(kind, file), (name, with_sums(kind, one))) for one in ones]
        return found

    def same(self, world, file, old_world, old_file):
        new, old = self.worlds.path(world) / file, self.worlds.path(old_world) / old_file
        return new.read_bytes() == old.read_bytes()


def apply(case, worlds, world, db):
    """Damages the copy."""
    for number, file in enumerate(case.files):
        path = db / file
        if case.damage == "flipped byte":
            bytes_ = bytearray(path.read_bytes())
            bytes_[case.place] ^= case.bits
            path.write_bytes(bytes_)
        elif case.damage == "cut off":
            os.truncate(path, min(case.place, path.stat().st_size - 1))
        elif case.damage == "emptied":
            os.truncate(path, 0)
        elif case.damage == "deleted":
            path.unlink()
        else:
            name, sources = case.source
            if name == world and case.damage == "swapped":
                shutil.copyfile(worlds.path(world) / file, db / sources[number])
            shutil.copyfile(worlds.path(name) / sources[number], path)


def contents(db):
    """A digest of every file, to find those that are gone."""
    return {str(path.relative_to(db)): hashlib.md5(path.read_bytes()).digest() for path in db.rglob("*") if path.is_file()}


def gone(before, after):
    """Data, sums and index files whose bytes were there and are nowhere."""
    kept = set(after.values())
    ours = [name for name in before if pathlib.Path(name).suffix in (".vortex", ".crc", ".elf")]
    return [name for name in ours if before[name] not in kept]


class Runner:
    def __init__(self, program, worlds, keep):
        self.program, self.worlds, self.keep = program, worlds, keep
        self.asked = {killed: questions(killed) for killed in (False, True)}
        self.right = {killed: self.answers(killed) for killed in (False, True)}

    def answers(self, killed):
        """The right answers; with and without indexes they must be the same."""
        with tempfile.TemporaryDirectory(dir=self.worlds.folder) as folder:
            db = pathlib.Path(folder) / "db"
            shutil.copytree(self.worlds.path("killed" if killed else "base"), db)
            answers, run = self.program.ask(db, self.asked[killed])
        if any(isinstance(answer, str) for answer in answers) or run.code != 0:
            raise SystemExit(f"the sound database does not answer: {run.out[-2000:]}")
        for question in set(self.asked[killed]):
            both = [answer for asked, answer in zip(self.asked[killed], answers) if asked == question]
            assert both[0] == both[-1], f"the indexes answer otherwise than the scan: {question}"
        check_rows(answers[3][1:], 3 * ROWS_PER_FILE + (100 if killed else 0))
        return answers

    def run(self, number, case):
        """The outcome of a case and what was seen."""
        killed = is_killed(case.kind)
        world = "killed" if killed else "base"
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"case-{number}-", dir=self.worlds.folder))
        db = folder / "db"
        shutil.copytree(self.worlds.path(world), db)
        apply(case, self.worlds, world, db)
        shutil.copytree(db, folder / "damaged")
        outcome, notes = self.judge(case, killed, db)
        if outcome in BAD:
            kept = self.keep / f"{number}-{outcome}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(folder / "damaged", kept)
            notes["kept"] = str(kept)
        shutil.rmtree(folder)
        return outcome, notes

    def judge(self, case, killed, db):
        before = contents(db)
        runs = {}
        if case.verify_first:
            runs["verify"] = self.program.verify(db)
        answers, runs["shell"] = self.program.ask(db, self.asked[killed])
        if not case.verify_first:
            runs["verify"] = self.program.verify(db)
        refused, wrong = self.compare(answers, killed)
        after = contents(db)
        mended = after.get(case.files[0]) != before.get(case.files[0])
        notes = {"wrong": wrong, "refused": refused[:2], "verify": (runs["verify"].out + runs["verify"].words).strip()[-300:]}
        help_ = self.help(case, killed, db, refused, runs["verify"], notes)
        # Once damaged index files are built again, the old ones may go.
        lost = gone(before, after if case.kind == "index file" else contents(db))
        if lost:
            notes["gone"] = lost
        crashes = [run for run in [*runs.values(), *help_] if run.is_crash()]
        hangs = [run for run in [*runs.values(), *help_] if run.code is None]
        if crashes:
            notes["crash"] = (crashes[0].out + crashes[0].words)[-500:]
        found = {
            "wrong": wrong or notes.get("wrong after repair"),
            "deleted": lost,
            "panic": crashes,
            "hang": hangs,
            "error": refused,
            "repaired": mended and runs["verify"].code == 0 and case.kind != "LOCK",
            "seen": runs["verify"].code != 0,
        }
        return next((name for name in OUTCOMES if found.get(name)), "harmless"), notes

    def compare(self, answers, killed):
        """Errors, and questions whose answer is not right."""
        refused, wrong = [], []
        for question, answer, right in zip(self.asked[killed], answers, self.right[killed]):
            if isinstance(answer, str):
                refused.append(answer)
            elif answer != right:
                differ = [line for line in answer if line not in right][:2]
                wrong.append(f"{question}: {len(answer) - 1} rows, {differ}")
        return refused, wrong

    def help(self, case, killed, db, refused, verify, notes):
        """Repairs what can be; the runs of it."""
        if case.kind not in DATA and (refused or verify.code != 0):
            run = self.program.run("repair", "--db", db)
            notes["repair"] = (run.out + run.words).strip()[-600:]
        elif case.kind == "index file" and verify.code != 0:
            run = self.program.sql(db, "OPTIMIZE TABLE t; OPTIMIZE TABLE u")
        else:
            return []
        answers, again = self.program.ask(db, self.asked[killed])
        check = self.program.verify(db)
        refused, wrong = self.compare(answers, killed)
        notes["helped"] = not refused and not wrong and check.code == 0
        # What a repair could not know it must say.
        if wrong and run.code == 0 and not run.words.strip():
            notes["wrong after repair"] = wrong
        elif wrong:
            notes["differs after repair"] = wrong[:3]
        return [run, again, check]


def check_rows(lines, count):
    """The rows of table t, computed here."""
    assert len(lines) == count, f"{len(lines)} rows instead of {count}"
    for number, line in enumerate(lines, 1):
        x = "" if number % 11 == 0 else number * 0.25
        found = line.split(",")
        assert found[:4] == [str(number), str(number * 7919 % 101), str(number % 77), f"text {number * 31 % 977}"], line
        assert (found[4] == "") if x == "" else float(found[4]) == x, line


def table(results):
    """The counts as Markdown: kinds and damages down, outcomes across."""
    counts, helped, tried = collections.Counter(), collections.Counter(), collections.Counter()
    for case, outcome, notes in results:
        counts[case.kind, case.damage, outcome] += 1
        helped[case.kind, case.damage] += notes.get("helped", False)
        tried[case.kind, case.damage] += "helped" in notes
    lines = [f"| file | damage | places | {' | '.join(OUTCOMES)} | right again after repair |", "|---" * (len(OUTCOMES) + 4) + "|"]
    for kind in SHARES:
        for damage in DAMAGES:
            numbers = [counts[kind, damage, outcome] for outcome in OUTCOMES]
            if sum(numbers):
                again = f"{helped[kind, damage]} of {tried[kind, damage]}" if tried[kind, damage] else ""
                lines.append(f"| {kind} | {damage} | {sum(numbers)} | {' | '.join(str(n or '') for n in numbers)} | {again} |")
    sums = [sum(n for (_, _, one), n in counts.items() if one == outcome) for outcome in OUTCOMES]
    lines.append(f"| **all** | | {sum(sums)} | {' | '.join(map(str, sums))} | {sum(helped.values())} of {sum(tried.values())} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", "--command", required=True, help="the binary")
    parser.add_argument("--places", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="kinds of files with this in their name")
    parser.add_argument("--work", type=pathlib.Path, help="folder for the copies, 300 MB")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the damaged databases that failed, and log.jsonl")
    arguments = parser.parse_args()
    arguments.keep = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="hotshelf-fault-matrix-"))
    arguments.keep.mkdir(parents=True, exist_ok=True)
    dice = random.Random(arguments.seed)
    program = faults.Program(arguments.hotshelf)
    with tempfile.TemporaryDirectory(prefix="hotshelf-faults-", dir=arguments.work) as folder:
        worlds = Worlds(program, pathlib.Path(folder))
        plan = Plan(worlds, dice)
        kinds = [kind for kind in SHARES if arguments.only in kind]
        cases = [case for kind in kinds for case in plan.cases(kind, round(SHARES[kind] * arguments.places))]
        dice.shuffle(cases)
        runner = Runner(program, worlds, arguments.keep)
        results, started = [], time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool, open(arguments.keep / "log.jsonl", "w") as log:
            for case, (outcome, notes) in zip(cases, pool.map(runner.run, range(len(cases)), cases)):
                results.append((case, outcome, notes))
                log.write(json.dumps({"case": case.words(), "outcome": outcome, **notes}) + "\n")
                log.flush()
                if outcome in BAD:
                    print(f"{outcome.upper()} {case.words()} {notes}", flush=True)
    print(table(results))
    print(f"\n{len(results)} places in {time.monotonic() - started:.0f} s; each one is in {arguments.keep}/log.jsonl")
    raise SystemExit(any(outcome in BAD for _, outcome, _ in results))


if __name__ == "__main__":
    main()
