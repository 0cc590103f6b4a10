#!/usr/bin/env python3
"""Tables on persistent memory and on a memory-only node, *emulated*: equal answers, and power cuts that lose nothing.

    python3 benchmarks/vm_tables.py --hotshelf target/release/hotshelf --shelf dax:/pmem --cuts 20
    python3 benchmarks/vm_tables.py --hotshelf target/release/hotshelf --shelf node:1 --cuts 20

The host makes the tables of the Star Schema Benchmark and answers its 13 queries. Linux in QEMU gets that database on
a virtual disk. First all tables are placed on the shelf: the queries must be answered as on the host, without a read
of the disk if loads read the shelf, `hotshelf_tables()` must say where the tables are, and `verify` must be content.
Then the machine starts without the shelf's memory (tables whose files are on it are unavailable, and not damaged; of
others there were copies, and the files are read) and with it again.

Then the power is cut: `hotshelf shell` places tables back and forth, creates and drops one on the shelf, adds rows
and merges files, and says on the serial console what was acknowledged. The host kills QEMU at a random moment and
boots again. Every acknowledged row must be there once, the 13 answers must be equal, tables must be where they were
placed last, `verify` is content, and nothing may be left that nothing names. Cuts count if a placement was running;
others are judged, too.

`--shelf dax:/dev/dax0.0` makes a devdax namespace; `file:/mnt/other` is a folder of the same disk. The disk forgets
what was not flushed (see vm_database.py). The NVDIMM does not, and the emulated CPU has no cache: a missing flush of
it cannot be seen here. `--controls` cuts follow with fsync turned into nothing, of which at least one must fail. What
is missing on the host is named; the kernel's Debian package is downloaded into `--work`.
"""

import argparse
import pathlib
import random
import re
import shutil

import faults
import results
import vm_database
import vm_image
import vm_shelf

KEYS = {
    "lineorder": "lo_orderkey",
    "customer": "c_custkey",
    "supplier": "s_suppkey",
    "part": "p_partkey",
    "date": "d_datekey",
}
TABLES = list(KEYS)
# This one stays on the shelf from the first statement on: folders of shelves that no table is on are not looked at.
ANCHOR = "supplier"
# This one comes and goes, on the shelf, as a copy of another.
MADE, MODEL = "made", "date"
MOVED = ["lineorder", "lineorder", "lineorder", "customer", "part", "date"]
# Rows that are added belong to no day, so that no query of the benchmark counts them.
COUNT = (
    f"SELECT 'append' AS row, lo_orderkey / {vm_database.IDS} AS a, count(*) AS n, count(DISTINCT lo_orderkey) AS d,"
    " sum(lo_orderkey) AS s, sum(lo_custkey) AS k FROM lineorder WHERE lo_orderdate = 0 GROUP BY 2 ORDER BY 2"
)
FIRST = "SELECT count(*) AS n FROM lineorder WHERE lo_orderdate > 0"
WHERE = "SELECT table_name, shelf, bytes, shelf_bytes, rows FROM hotshelf_tables() ORDER BY 1"
READ = "SELECT device_bytes FROM io_stats()"
MISSING = "its shelf is not there"
# As many as have numbers that fit into `lo_orderkey`.
STATEMENTS = 200
# A placement is cut at most so long after the statement before it.
PLACING_SECONDS_MAX = 0.3
PLACEMENTS = ("place", "create")
DEVDAX_MODULES = ["dax_pmem", "device_dax"]
FORMAT_DEVDAX = """
await /dev/pmem0 || ends 1
/tools/ndctl create-namespace -f -e namespace0.0 -m devdax >/dev/null && await /dev/dax0.0
"""
MOUNT_DEVDAX = "[ ! -e /sys/firmware/acpi/tables/NFIT ] || await /dev/dax0.0\n"
SESSION = """
RUST_LOG=warn /tools/hotshelf shell --db /mnt/db --budget 256MB {options} </{name} >/tmp/out 2>&1; code=$?
echo "BEGIN {name}"; cat /tmp/out; echo "ENDED $code"
"""
VERIFY = """
/tools/hotshelf verify --db /mnt/db >/tmp/out 2>&1; code=$?
echo "BEGIN verify"; tail -n 20 /tmp/out; echo "ENDED $code"
"""
LIST = """
echo "BEGIN {name}"; find /mnt/db/data {folder} -type f; echo "ENDED $?"
"""


class TableShelf(vm_shelf.Shelf):
    """What tables are placed on: as for indexes, and a devdax device, and a folder of the disk."""

    def __init__(self, word, work):
        super().__init__(word, work)
        kind, _, place = word.partition(":")
        self.is_devdax = place.startswith("/dev/")
        # Files are moved to a folder; everywhere else there are copies of them.
        self.folder = place if kind in ("dax", "file") and not self.is_devdax else None
        self.watch, self.is_read = "", kind == "file"
        if self.is_devdax:
            self.mount, self.template = MOUNT_DEVDAX, work / "nvdimm-devdax.img"
            vm_shelf.MODULES += DEVDAX_MODULES
        elif kind == "file" and place.startswith("/mnt/"):
            self.mount = f"mkdir -p {place}\n"
        elif word not in (f"dax:{vm_shelf.FOLDER}", f"node:{vm_image.MEMORY_ONLY_NODE}"):
            raise SystemExit(f"there is no such shelf in the machine: {word}")
        # What was removed and not synced comes back: the shelf's own file system commits late.
        self.mount = self.mount.replace("dax=always", "dax=always,commit=60")

    def make_template(self, run):
        super().make_template((lambda _: run(FORMAT_DEVDAX)) if self.is_devdax else run)

    def list_files(self, name):
        return LIST.format(name=name, folder=self.folder or "")

    def without(self):
        """QEMU's words for the machine when the shelf's memory has been taken away."""
        return self.devices(is_there=False) if self.is_dax else ["-m", vm_database.MEMORY]


class Placements(vm_database.Statements):
    """Tables are placed back and forth, and rows are added between."""

    KINDS = {"place": 6, "create": 1, "append": 3, "drop": 0.5, "OPTIMIZE": 1}

    def __init__(self, seed, shelf):
        self.places = [shelf.word, "file", f"node:{vm_image.MEMORY_ONLY_NODE}" if shelf.folder else "dram"]
        # Where the tables are, now and after each statement.
        self.shelves, self.history = {**dict.fromkeys(TABLES, "file"), MADE: None}, []
        super().__init__(seed, STATEMENTS)

    def first(self):
        sql = self.place(ANCHOR, self.places[0])
        self.history.append(dict(self.shelves))
        return sql

    def draw(self, number, dice):
        sql = super().draw(number, dice)
        self.history.append(dict(self.shelves))
        return sql

    def place(self, table, shelf):
        self.shelves[table] = shelf
        return place(table, shelf)

    def append(self, number, rows):
        self.appends[number] = rows
        return add(number * vm_database.IDS, rows)

    def sql(self, kind, dice):
        if kind == "OPTIMIZE":
            return "OPTIMIZE TABLE lineorder"
        if kind == "drop":
            self.shelves[MADE] = None
            return f"DROP TABLE IF EXISTS {MADE}"
        if kind == "create":
            self.shelves[MADE] = self.places[0]
            return f"CREATE OR REPLACE TABLE {MADE} WITH (shelf = '{self.places[0]}') AS SELECT * FROM \"{MODEL}\""
        table = dice.choice(MOVED)
        return self.place(table, dice.choice([one for one in self.places if one != self.shelves[table]]))

    def moment(self, dice):
        number = dice.choice(sorted(self.numbers("place") + self.numbers("create"))[3:15])
        return (
            "place",
            lambda text: max(vm_database.acknowledged(text), default=-1) >= number - 1,
            dice.uniform(0, PLACING_SECONDS_MAX),
        )

    def running(self, last):
        """The statement after the last acknowledged one: its kind, and words for it."""
        kind = self.kinds[last]
        changed = [
            f"{table} to {shelf or 'nowhere'}"
            for table, shelf in self.history[last + 1].items()
            if shelf != self.history[last][table]
        ]
        return kind, " ".join([kind, *changed])


class Machine(vm_database.Machine):
    """A machine whose disk has the tables of the benchmark."""

    def __init__(self, settings):
        self.program = faults.Program(settings.hotshelf, 300)
        self.queries = [" ".join(sql.split()).rstrip(";") for sql in results.load_queries("ssb").values()]
        self.scale = settings.scale
        super().__init__(settings.work, settings.hotshelf, settings.accelerator, self.shelf_of(settings), rows=True)

    def shelf_of(self, settings):
        return TableShelf(settings.shelf, settings.work)

    def make_table(self, hotshelf, folder):
        """The tables that are there when the machine starts, and the host's answers."""
        db = folder / "db"
        self.program.must(self.program.run("generate", "ssb", "--scale", self.scale, "--db", db))
        answers, run = self.program.ask(db, [FIRST, *self.queries])
        self.program.must(run)
        self.first_rows, self.answers = answers[0], answers[1:]

    def statements(self, seed):
        return Placements(seed, self.shelf)

    def session(self, name, questions, files, options=""):
        """A job that asks questions, which become one of its files."""
        files[name] = script(questions)
        return SESSION.format(name=name, options=options)

    def equal(self, found, what):
        """What is wrong with answers to the 13 queries."""
        names = list(results.load_queries("ssb"))
        return [
            f"{what}: {name} is {str(mine)[:200]}"
            for name, mine, right in zip(names, found, self.answers, strict=True)
            if mine != right
        ]


def place(table, shelf):
    return f"ALTER TABLE \"{table}\" SET (shelf = '{shelf}')"


def add(first, rows):
    """Rows of no day; what `Statements.right` expects of key and customer."""
    others = ", ".join(
        ["1 AS a, 1 AS b, 0 AS day, 'x' AS c, '0' AS d", *[f"1 AS e{i}" for i in range(7)], "0 AS f, 'text' AS g"]
    )
    counted = f"{first} + value AS key, 1 AS line, value * 7919 % 1009 AS k"
    return f"INSERT INTO lineorder SELECT {counted}, {others} FROM generate_series(0, {rows - 1})"


def script(questions):
    return "\\format csv\n" + "".join(
        f"{sql};\nSELECT '{faults.MARK} {i}' AS mark;\n" for i, sql in enumerate(questions)
    )


def part(text, name):
    """What a part of a job said, without warnings, and its exit code."""
    found = re.search(rf"^BEGIN {name}\n(.*?)^ENDED (\d+)$", text, re.M | re.S)
    if not found:
        return "", None
    return re.sub(r"^.*\bWARN\b.*\n", "", found[1], flags=re.M), int(found[2])


def answers(text, name, count):
    """Answers of a session: lists of lines, or the error as a text."""
    said, code = part(text, name)
    run = faults.Run(code, said, said)
    return [faults.section(run, i) for i in range(count)]


def rows_of(answer):
    """The rows of an answer without its header."""
    return [line.split(",") for line in answer[1:]] if isinstance(answer, list) else []


def verified(text):
    said, code = part(text, "verify")
    return [] if code == 0 else [f"verify ({code}): {said.strip()[-300:]}"]


def strange(machine, disk, text):
    """What nothing names, in the database's folder and on the shelf, and what is named and not there."""
    on_shelf = {
        line
        for line in part(text, "after")[0].splitlines()
        if machine.shelf.folder and line.startswith(machine.shelf.folder)
    }
    targets = set()
    with machine.database(disk) as database:
        for link in [path for path in database.rglob("*") if path.is_symlink()]:
            targets.add(str(link.readlink()))
            link.unlink()
            link.touch()
        wrong = [name for name in faults.leftovers(database) if not is_sample(database, name)]
    wrong = [f"nothing names {name}, or it is not there" for name in wrong]
    wrong += [f"nothing names {name}" for name in sorted(on_shelf - targets)]
    return wrong + [f"there is no {name}" for name in sorted(targets - on_shelf)]


def is_sample(database, name):
    """Whether a file is the sample of a data file that is there."""
    path = database / name
    return path.suffix == ".sample" and (path.parent.parent / f"{path.stem}.vortex").exists()


def look(machine, text, name, has_shelf, is_on_shelf=True):
    """What is wrong with three rounds of the queries, the last of which may have to read nothing; and words for it."""
    count = len(machine.queries)
    found = answers(text, name, 3 * count + 3)
    rounds = [found[:count], found[count : 2 * count], found[2 * count + 1 : -2]]
    wrong = [one for i in range(3) for one in machine.equal(rounds[i], f"round {i + 1}")]
    before, after, where = (rows_of(found[at]) for at in (2 * count, -2, -1))
    if not (before and after and where):
        return [*wrong, f"{name}: no figures: {found[-2:]}"[:400]], ""
    read = int(after[0][0]) - int(before[0][0])
    tables = {table: (shelf, int(size), int(lies)) for table, shelf, size, lies, _ in where if table in TABLES}
    word = machine.shelf.word if is_on_shelf else "file"
    wrong += [f"{table} is on {shelf}" for table, (shelf, _, _) in tables.items() if shelf != word]
    lies = sum(one for _, _, one in tables.values())
    is_loaded = has_shelf and is_on_shelf and not machine.shelf.is_read
    if is_loaded != (read == 0) or is_loaded != (lies > 0):
        wrong.append(f"{read} bytes read by 13 queries, {lies} bytes are read by loads")
    size = sum(size for _, size, _ in tables.values())
    return (
        wrong,
        f"13 queries three times; the last 13 read {read} bytes of the disk; {lies} of {size} bytes read by loads",
    )


def asked(machine):
    return machine.queries + machine.queries + [READ] + machine.queries + [READ, WHERE]


def check(machine):
    """All tables on the shelf, whose memory goes and comes back: yields what was tried, what is wrong, and words."""
    disk, shelf, files = machine.new_disk(), machine.shelf, {}
    shelf.renew()
    moves = [place(table, shelf.word) for table in TABLES] + ["CREATE TABLE home AS SELECT 7 AS one"]
    job = (
        shelf.mount
        + machine.session("control", asked(machine), files, "--policy none")
        + machine.session("moves", moves, files)
    )
    finish = machine.session("asked", asked(machine), files, "--policy none") + VERIFY + shelf.list_files("after")
    text = machine.run(job + finish, files, disk)
    yield "in the folder", *look(machine, text, "control", has_shelf=True, is_on_shelf=False)
    if failed := [one for one in answers(text, "moves", len(moves)) if not isinstance(one, list)]:
        raise SystemExit(f"tables cannot be placed there: {failed[0]}")
    yield "on the shelf", *judged(machine, text, disk)
    if shelf.folder and not shelf.is_dax:
        return
    yield "memory away", *away(machine, disk)
    text = machine.run(shelf.mount + finish, files, disk)
    yield "memory back", *judged(machine, text, disk)


def judged(machine, text, disk):
    wrong, words = look(machine, text, "asked", has_shelf=True)
    wrong += verified(text)
    wrong = wrong or strange(machine, disk, text)
    return wrong, f"{words}; verify: {part(text, 'verify')[0].strip()}{warned(text)}"


def warned(text):
    """Words for the warnings of a boot."""
    warnings = {re.sub(r"^\S+ +WARN ", "", line.strip()) for line in re.findall(r"^.*\bWARN\b.*", text, re.M)}
    return "".join(f"; warning: {one[:300]}" for one in sorted(warnings)[:2])


def away(machine, disk):
    """The machine without the shelf's memory: tables with files there are unavailable, not damaged; others answer."""
    shelf, files = machine.shelf, {}
    if not shelf.folder:
        job = shelf.mount + machine.session("asked", asked(machine), files, "--policy none") + VERIFY
        text = machine.run(job, files, disk, shelf.without())
        wrong, words = look(machine, text, "asked", has_shelf=False)
        return wrong + verified(text), words + warned(text)
    count = [f'SELECT count(*) AS n, sum("{column}") AS total FROM "{table}"' for table, column in KEYS.items()]
    questions = ["SELECT one FROM home", *count, *machine.queries, add(0, 10), "SELECT one + 1 AS two FROM home"]
    text = machine.run(shelf.mount + machine.session("asked", questions, files) + VERIFY, files, disk, shelf.without())
    first, *others, last = answers(text, "asked", len(questions))
    wrong = [] if (first, last) == (["one", "7"], ["two", "8"]) else [f"the other table says {first}, {last}"]
    wrong += [
        f"{sql[:80]}: {said}"[:400] for sql, said in zip(questions[1:-1], others, strict=True) if not is_away(said)
    ]
    said, code = part(text, "verify")
    wrong += [f"verify ({code}): {said}"[:400]] if code == 0 or not is_away(said) else []
    refused = sum(is_away(one) for one in others)
    return wrong, f"{refused} statements: {MISSING}; another table answers; verify names the shelf"


def is_away(said):
    """Whether an error names the missing shelf, and no damage."""
    return MISSING in str(said) and "damage" not in str(said).replace("nothing is damaged", "")


def cut(machine, seed, preload=""):
    """One cut: the kind of the statement that was running, words for all, and what is wrong."""
    statements, shelf, files = machine.statements(seed), machine.shelf, {}
    disk, said, _ = machine.write_until_cut(statements, preload, random.Random(seed))
    acked = vm_database.acknowledged(said)
    last = max(acked)
    kind, running = statements.running(last)
    questions = [COUNT, FIRST, *machine.queries, COUNT, WHERE]
    job = (
        shelf.mount
        + shelf.list_files("before")
        + machine.session("questions", questions, files)
        + VERIFY
        + shelf.list_files("after")
    )
    text = machine.run(job, files, disk)
    added, first, *found, again, where = answers(text, "questions", len(questions))
    wrong = [f"before the cut: {error}" for error in re.findall("^error.*", said, re.M)]
    if not isinstance(added, list) or added != again or first != machine.first_rows:
        return kind, running, [*wrong, f"rows: {added}, {again}, {first}; {text[-800:]}"]
    rows = {int(number): [int(one) for one in numbers] for _, number, *numbers in rows_of(added)}
    wrong += vm_database.compare(statements, acked, rows) + machine.equal(found, "after the cut") + verified(text)
    may = [statements.history[last], statements.history[last + 1]]
    placed = {table: place for table, place, *_ in rows_of(where)}
    wrong += [
        f"{table} is on {placed.get(table)}" for table in may[0] if placed.get(table) not in [one[table] for one in may]
    ]
    sizes = {table: rows for table, _, _, _, rows in rows_of(where)}
    wrong += [f"{MADE} has {sizes[MADE]} rows"] if sizes.get(MADE, sizes[MODEL]) != sizes[MODEL] else []
    wrong = wrong or strange(machine, disk, text)
    before, after = (left(text, name) for name in ("before", "after"))
    appends = sum(one <= last for one in statements.appends)
    words = f"{len(acked):3} acknowledged, {appends:2} appends, cut in {running:32} files {before}, then {after}"
    return kind, words + warned(text), wrong


def left(text, name):
    """How many files a boot found: data files in the database's folder and on the shelf, and unfinished ones."""
    names = [line for line in part(text, name)[0].splitlines() if line.startswith("/")]
    data = [line for line in names if line.endswith(".vortex")]
    home = sum(line.startswith("/mnt/db/") for line in data)
    unfinished = sum(line.endswith((".tmp", ".link")) for line in names)
    return f"{home}+{len(data) - home}" + (f" ({unfinished} unfinished)" if unfinished else "")


def cut_power(machine, settings):
    """Cuts until as many as wanted were in placements; whether all held."""
    placements, held, tried = 0, 0, 0
    while placements < settings.cuts and tried < 3 * settings.cuts:
        seed = settings.seed * 1000 + tried
        kind, words, wrong = cut(machine, seed)
        tried, held, placements = tried + 1, held + (not wrong), placements + (kind in PLACEMENTS)
        if wrong:
            for log in ["write", "check"]:
                shutil.copy(settings.work / f"{log}.log", settings.work / f"failed-{seed}-{log}.log")
        print(f"seed {seed}: {words}: {verdict(wrong)}", flush=True)
    print(f"power cuts: held {held} of {tried}, of which {placements} during a placement, {settings.cuts} wanted")
    return held == tried and placements == settings.cuts


def control(machine, settings):
    """Cuts without fsync; whether any of them was noticed."""
    noticed = 0
    for number in range(settings.controls):
        seed = settings.seed * 1000 + number
        _, words, wrong = cut(machine, seed, "LD_PRELOAD=/tools/no_sync.so")
        noticed += bool(wrong)
        print(f"no fsync, seed {seed}: {words}: {verdict(wrong)[:300]}", flush=True)
    print(f"without fsync: noticed {noticed} of {settings.controls}, {'as it must be' if noticed else 'WRONG'}")
    return noticed > 0


def verdict(wrong):
    return "held" if not wrong else f"FAILED: {'; '.join(wrong)[:1500]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", type=pathlib.Path, required=True, help="the binary")
    parser.add_argument("--shelf", required=True, help="dax:/pmem, node:1, dax:/dev/dax0.0 or file:/mnt/other")
    parser.add_argument(
        "--work",
        type=pathlib.Path,
        default=pathlib.Path.home() / ".cache/hotshelf/vm-tables",
        help="2 GB; one run at a time",
    )
    parser.add_argument("--cuts", type=int, default=3, help="during placements")
    parser.add_argument("--controls", type=int, default=2, help="cuts without fsync")
    parser.add_argument("--scale", type=float, default=0.01, help="of the benchmark")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accelerator", default="tcg", help="kvm where there is one")
    settings = parser.parse_args()
    vm_image.check_programs(["qemu-system-x86_64", "busybox", "dpkg-deb", "mke2fs", "ldd", *vm_shelf.PROGRAMS])
    settings.work.mkdir(parents=True, exist_ok=True)
    machine = Machine(settings)
    print(
        f"{settings.shelf} in QEMU, *emulated*; Star Schema Benchmark at scale {settings.scale}: "
        f"{machine.first_rows[-1]} rows of lineorder\n",
        flush=True,
    )
    passed = True
    for name, wrong, words in check(machine):
        passed &= not wrong
        print(f"{name:13} {verdict(wrong)}: {words}", flush=True)
        if wrong:
            shutil.copy(settings.work / "check.log", settings.work / f"failed-{name.replace(' ', '-')}.log")
    passed &= not settings.cuts or cut_power(machine, settings)
    passed &= not settings.controls or control(machine, settings)
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
