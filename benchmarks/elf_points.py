#!/usr/bin/env python3
"""Small questions to an index of five columns that does not fit in memory: Hotshelf, SQLite, LMDB and DuckDB.

    python3 benchmarks/elf_points.py load --duckdb tpch10.duckdb --out FOLDER
    python3 benchmarks/elf_points.py run --out FOLDER --lab target/release/hotshelf-lab --db mydb --limit 200MB

`load` takes lineitem from a DuckDB file and writes questions and the rivals' files: LMDB and SQLite get the five columns as
integers and the row's number as one sorted key, DuckDB a table with an ART index. `run` asks the same questions of each in a
process of its own in a memory control group (version 1), after the page cache was dropped: the first one, 10 000 points, 1 000
boxes of two percent in each column. Hotshelf's database needs a table `li` with an Elf index over the five columns.
"""

import argparse
import json
import os
import pathlib
import random
import sqlite3
import struct
import subprocess
import sys
import time

from shell import Shell

COLUMNS = "l_shipdate, l_discount, l_quantity, l_suppkey, l_partkey"
INTEGERS = "l_shipdate - DATE '1992-01-01' AS d, CAST(l_discount * 100 AS INT) AS c, CAST(l_quantity AS INT) AS q, l_suppkey AS s, l_partkey AS p"
POINT = "SELECT count(*) FROM li WHERE l_shipdate = $1 AND l_discount = $2 AND l_quantity = $3 AND l_suppkey = $4 AND l_partkey = $5"
BOX = (
    "SELECT count(*) FROM li WHERE l_shipdate BETWEEN $1 AND $2 AND l_discount BETWEEN $3 AND $4 AND l_quantity BETWEEN $5 AND $6 "
    "AND l_suppkey BETWEEN $7 AND $8 AND l_partkey BETWEEN $9 AND $10"
)
KEY = struct.Struct(">HBBIII")
# Two percent of each column's values: days, hundredths, pieces, suppliers, parts.
WIDTHS = [51, 1, 1, 2000, 40000]


def questions(con):
    rows = con.execute(f"SELECT {COLUMNS} FROM lineitem USING SAMPLE reservoir(11000 ROWS) REPEATABLE (7)").fetchall()
    random.Random(7).shuffle(rows)
    import datetime

    points = [[str(d), str(c), str(q), s, p] for d, c, q, s, p in rows[:10000]]
    boxes = []
    for day, c, q, s, p in rows[10000:]:
        ends = [str(day), str(day + datetime.timedelta(WIDTHS[0] - 1)), str(c), str(c), str(q), str(q)]
        boxes.append(ends + [s, s + WIDTHS[3] - 1, p, p + WIDTHS[4] - 1])
    return points, boxes


def load(args):
    import duckdb
    import lmdb

    args.out.mkdir(parents=True, exist_ok=True)
    con = duckdb.connect(str(args.duckdb), read_only=True)
    con.execute("SET memory_limit = '8GB'")
    points, boxes = questions(con)
    for name, lines in [("points", points), ("boxes", boxes)]:
        (args.out / f"{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = f"SELECT {INTEGERS}, row_number() OVER () AS tid FROM lineitem ORDER BY d, c, q, s, p, tid"
    if "lmdb" in args.only:
        env = lmdb.open(str(args.out / "lmdb"), map_size=1 << 34, writemap=True)
        with env.begin(write=True) as transaction:
            cursor = transaction.cursor()
            result = con.execute(rows)
            while chunk := result.fetchmany(200_000):
                cursor.putmulti([(KEY.pack(*row), b"") for row in chunk], append=True)
        env.close()
    if "sqlite" in args.only:
        lite = sqlite3.connect(args.out / "li.sqlite")
        lite.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA page_size = 4096;"
            "CREATE TABLE li (d INT, c INT, q INT, s INT, p INT, tid INT, PRIMARY KEY (d, c, q, s, p, tid)) WITHOUT ROWID;"
        )
        result = con.execute(rows)
        while chunk := result.fetchmany(200_000):
            lite.executemany("INSERT INTO li VALUES (?, ?, ?, ?, ?, ?)", chunk)
        lite.commit()
        lite.close()
    if "duckdb" in args.only:
        own = duckdb.connect(str(args.out / "li.duckdb"))
        own.execute("SET memory_limit = '16GB'")
        own.execute(f"ATTACH '{args.duckdb}' AS source (READ_ONLY)")
        own.execute(f"CREATE TABLE li AS SELECT {COLUMNS} FROM source.lineitem")
        own.execute(f"CREATE INDEX five ON li ({COLUMNS})")
        own.close()


def days(text):
    import datetime

    return (datetime.date.fromisoformat(text) - datetime.date(1992, 1, 1)).days


def integers(point):
    return [days(point[0]), round(float(point[1]) * 100), round(float(point[2])), point[3], point[4]]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Lmdb:
    def __init__(self, out):
        import lmdb

        self.env = lmdb.open(str(out / "lmdb"), readonly=True, map_size=1 << 34, lock=False, readahead=False)
        self.cursor = self.env.begin().cursor()

    def point(self, point):
        key, found = integers(point), 0
        prefix = KEY.pack(*key, 0)[:-4]
        if self.cursor.set_range(prefix):
            while self.cursor.key().startswith(prefix):
                found += 1
                if not self.cursor.next():
                    break
        return found

    def box(self, box):
        lo, hi = integers(box[0::2]), integers(box[1::2])
        found = 0
        for day in range(lo[0], hi[0] + 1):
            # Discount and quantity have one value: suppliers are a range of keys.
            ok = self.cursor.set_range(KEY.pack(day, lo[1], lo[2], lo[3], 0, 0))
            while ok:
                d, c, q, s, p, _ = KEY.unpack(self.cursor.key())
                if (d, c, q) != (day, lo[1], lo[2]) or s > hi[3]:
                    break
                found += lo[4] <= p <= hi[4]
                ok = self.cursor.next()
        return found


class Sqlite:
    def __init__(self, out):
        self.con = sqlite3.connect(f"file:{out / 'li.sqlite'}?mode=ro", uri=True)
        self.con.execute("PRAGMA cache_size = -64000")

    def point(self, point):
        sql = "SELECT count(*) FROM li WHERE d = ? AND c = ? AND q = ? AND s = ? AND p = ?"
        return self.con.execute(sql, integers(point)).fetchone()[0]

    def box(self, box):
        lo, hi = integers(box[0::2]), integers(box[1::2])
        # One range of keys a day, as a careful user would write it; one BETWEEN over days reads the whole range.
        sql = "SELECT count(*) FROM li WHERE d = ? AND c = ? AND q = ? AND s BETWEEN ? AND ? AND p BETWEEN ? AND ?"
        rest = [lo[1], lo[2], lo[3], hi[3], lo[4], hi[4]]
        return sum(self.con.execute(sql, [day] + rest).fetchone()[0] for day in range(lo[0], hi[0] + 1))


class Duckdb:
    def __init__(self, out):
        import duckdb

        self.con = duckdb.connect(str(out / "li.duckdb"), read_only=True)
        self.con.execute("SET memory_limit = '120MB'; SET threads = 2")

    def point(self, point):
        return self.con.execute(POINT, point).fetchone()[0]

    def box(self, box):
        return self.con.execute(BOX, box).fetchone()[0]


class AnyVersion:
    """Any version of Hotshelf, by its shell: each question is planned anew."""

    def __init__(self, command):
        self.shell = Shell(command)

    def ask(self, sql, values):
        for number in range(len(values), 0, -1):
            value = values[number - 1]
            sql = sql.replace(f"${number}", f"'{value}'" if isinstance(value, str) else str(value))
        _, [[count]], _ = self.shell.ask(sql)
        return int(count)

    def point(self, point):
        return self.ask(POINT, point)

    def box(self, box):
        return self.ask(BOX, box)


RIVALS = {"lmdb": Lmdb, "sqlite": Sqlite, "duckdb": Duckdb, "shell": AnyVersion}


def device_reads():
    """Reads and bytes of this process's storage so far, over all block devices."""
    reads = sectors = 0
    for line in pathlib.Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if not fields[2].startswith(("loop", "ram")) and not fields[2][-1:].isdigit():
            reads, sectors = reads + int(fields[3]), sectors + int(fields[5])
    return reads, sectors * 512


def rival(args):
    asked = RIVALS[args.rival](args.shell if args.rival == "shell" else args.out)
    for kind in ["points", "boxes"]:
        todo = lines(args.out / f"{kind}.ndjson")[: args.count]
        ask = asked.point if kind == "points" else asked.box
        begun = time.perf_counter()
        ask(todo[0])
        first = time.perf_counter() - begun
        for turn in range(2):
            before, times, total = device_reads(), [], 0
            deadline = time.perf_counter() + args.seconds
            for one in todo:
                begun = time.perf_counter()
                total += ask(one)
                times.append(time.perf_counter() - begun)
                if begun > deadline:
                    break
            after = device_reads()
            report(args.rival, kind, turn, first, times, total, [b - a for a, b in zip(before, after)])


def report(who, kind, turn, first, times, total, device):
    count, ordered = len(times), sorted(times)
    print(json.dumps({
        "who": who, "kind": kind, "round": turn, "statements": count, "found": total, "first_s": round(first, 6),
        "per_s": round(count / sum(times), 1), "p50_us": round(ordered[count // 2] * 1e6, 1),
        "p99_us": round(ordered[min(count - 1, int(count * 0.99))] * 1e6, 1),
        "device_reads": round(device[0] / count, 3), "device_bytes": round(device[1] / count, 1),
    }), flush=True)


def bounded(command, limit):
    """Runs a command in a memory control group of its own, with nothing of the files in memory."""
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    group = pathlib.Path("/sys/fs/cgroup/memory/hotshelf-points")
    group.mkdir(exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(str(limit))
    enter = lambda: (group / "cgroup.procs").write_text(str(os.getpid()))
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=enter)


def run(args):
    limit = int(args.limit.removesuffix("MB")) * 1_000_000
    for who in args.only:
        if who in RIVALS:
            command = [sys.executable, __file__, "rival", "--rival", who, "--out", str(args.out), "--seconds", str(args.seconds)]
            command += ["--count", str(args.count), "--shell", args.shell]
            commands = [command]
        else:
            lab = [args.lab, "points", "--db", str(args.db), "--budget", args.budget, "--rounds", "2", "--values"]
            commands = [lab + [str(args.out / f"{kind}.ndjson"), sql] for kind, sql in [("points", POINT), ("boxes", BOX)]]
        for command in commands:
            done = bounded(command, limit)
            print(f"# {who}: exit {done.returncode} {done.stderr[-300:]}" if done.returncode else f"# {who}", flush=True)
            print(done.stdout, end="", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["load", "run", "rival"])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of questions and the rivals' files")
    parser.add_argument("--duckdb", type=pathlib.Path, help="DuckDB file with lineitem")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["hotshelf", "lmdb", "sqlite", "duckdb"])
    parser.add_argument("--rival", choices=RIVALS)
    parser.add_argument("--lab", default="target/release/hotshelf-lab")
    parser.add_argument("--shell", default="", help="with --only shell: a shell with its database and budget, of any version")
    parser.add_argument("--db", type=pathlib.Path, help="Hotshelf's database")
    parser.add_argument("--budget", default="64MB", help="Hotshelf's budget")
    parser.add_argument("--limit", default="200MB", help="memory of each process, its page cache included")
    parser.add_argument("--seconds", type=float, default=60, help="give up a rival's round after this long")
    parser.add_argument("--count", type=int, default=10000, help="questions of each kind at most")
    args = parser.parse_args()
    {"load": load, "run": run, "rival": rival}[args.what](args)


if __name__ == "__main__":
    main()
