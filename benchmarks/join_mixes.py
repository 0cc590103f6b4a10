"""One budget for cached columns and for operators: `auto` beside nine fixed splits of the same bytes, over TPC-H at scale 10.

    python join_mixes.py --program target/release/hotshelf --db DIR --db2 COPY --budget 512MB --out result.json
    python join_mixes.py --program … --db DIR --mixes 'mostly skewed scans' --splits 1 5 9 --limit-statements 6

A mix is a list of statements, the same in every run: scans, which sum columns, and joins or aggregations, whose hash tables
have a given share of the budget. `auto` is one shell that answers all of it. A fixed split of k tenths is two shells that take
turns: one has k tenths of the budget and answers the scans, the other has the rest and answers the joins, so that neither can
take from the other. A database is open in one process only; the second shell has a copy of it, COPY, which is made if it does
not exist. Without `--db2` the copy is temporary, beside the database.

Every shell answers its statements twice; the seconds of the second pass count. Each repeat has new shells and reverses the
order, with `auto` in the middle of the splits; figures are medians over the repeats. The best of nine is chosen by what was
measured: with one repeat, noise favours it. Bytes are those of the second pass. All answers must be equal.

Reads and writes are capped (`--storage-bandwidth`), so that neither the device nor the page cache matters. Aggregations of the
engine spill past the cap, through the page cache: these bytes are `uncapped` (`--setting 'hotshelf.operators = always'` has none).
"""

import argparse
import contextlib
import datetime
import json
import random
import shlex
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from limits import default_threads
from shell import Shell

AUTO = "auto"
# Columns to sum, of each table; skewed scans prefer the earlier ones.
COLUMNS = {
    "lineitem": [f"l_{name}" for name in "suppkey quantity partkey extendedprice orderkey discount tax linenumber".split()],
    "orders": ["o_totalprice", "o_custkey", "o_orderkey"],
    "partsupp": ["ps_supplycost", "ps_suppkey", "ps_availqty"],
}
TABLE_WEIGHTS = {"lineitem": 14, "orders": 4, "partsupp": 2}
# The chance of the n-th column of a skewed scan is that of the first over n to this power.
SKEW = 1.5
# Keys go from 1 to this at scale 10; a quarter of the order keys is used.
ORDER_KEYS, PART_KEYS = 60_000_000, 2_000_000
FIRST_DAY, LINES_A_DAY = datetime.date(1992, 1, 2), 23_700


@dataclass
class Mix:
    scans: int
    columns: tuple  # how many a scan sums, at least and at most
    skewed: bool
    joins: dict  # kind -> how many, and the least and most share of the budget that their hash tables have


MIXES = {
    "mostly skewed scans": Mix(16, (2, 4), True, {"orders": (2, 0.1, 0.3), "groups": (2, 0.1, 0.3)}),
    "mostly uniform scans": Mix(16, (2, 6), False, {"orders": (2, 0.3, 0.6), "lineitem": (2, 0.1, 0.3)}),
    "half scans and small joins": Mix(
        10, (2, 4), True, {"orders": (4, 0.1, 0.3), "partsupp": (2, 0.1, 0.2), "lineitem": (2, 0.1, 0.2), "groups": (2, 0.1, 0.3)}
    ),
    "half scans and large joins": Mix(11, (2, 4), False, {"orders": (7, 0.4, 0.9), "wide orders": (2, 1.0, 2.0)}),
    "mostly joins": Mix(
        5, (2, 3), True, {"orders": (10, 0.1, 0.9), "partsupp": (2, 0.1, 0.4), "wide orders": (1, 0.8, 1.6), "lineitem": (2, 0.1, 0.3)}
    ),
    "mostly groups": Mix(7, (2, 4), False, {"groups": (8, 0.2, 0.8), "orders": (5, 0.2, 0.5)}),
}


def scan(chosen, mix):
    """Sums of a few columns of one table."""
    table = chosen.choices(list(TABLE_WEIGHTS), TABLE_WEIGHTS.values())[0]
    remaining, columns = list(COLUMNS[table]), []
    for _ in range(min(chosen.randint(*mix.columns), len(remaining))):
        weights = [(COLUMNS[table].index(column) + 1) ** -SKEW if mix.skewed else 1 for column in remaining]
        columns.append(chosen.choices(remaining, weights)[0])
        remaining.remove(columns[-1])
    return f"SELECT {', '.join(f'sum({column})' for column in columns)} FROM {table}"


def key_range(chosen, table_bytes, bytes_per_key, keys):
    """First and last of as many keys in a row as fill a hash table of this many bytes."""
    many = min(int(table_bytes / bytes_per_key), keys)
    first = chosen.randint(1, keys - many + 1)
    return first, first + many - 1


# The bytes per key, row or part below are the most that operators held in memory, with two threads, over the number of these.
def orders(chosen, table_bytes, bytes_per_key=16, more=""):
    first, last = key_range(chosen, table_bytes, bytes_per_key, ORDER_KEYS)
    where = f"o_orderkey BETWEEN {first} AND {last} AND l_orderkey BETWEEN {first} AND {last}"
    sums = f"count(*), sum(o_custkey), sum(o_totalprice), sum(l_suppkey){more}"
    return f"SELECT {sums} FROM orders JOIN lineitem ON o_orderkey = l_orderkey WHERE {where} AND l_shipdate < DATE '1996-01-01'"


def wide_orders(chosen, table_bytes):
    return orders(chosen, table_bytes, 23.5, ", max(o_clerk)")


def lineitem(chosen, table_bytes):
    """Few days of lineitem, which are the build side, beside all orders."""
    days = datetime.timedelta(max(1, int(table_bytes / 31 / LINES_A_DAY)))
    first = FIRST_DAY + datetime.timedelta(chosen.randint(120, 1800))
    where = f"l_shipdate >= DATE '{first}' AND l_shipdate < DATE '{first + days}'"
    return f"SELECT count(*), sum(o_custkey), sum(l_suppkey) FROM orders JOIN lineitem ON o_orderkey = l_orderkey WHERE {where}"


def partsupp(chosen, table_bytes):
    first, last = key_range(chosen, table_bytes, 140, PART_KEYS)
    where = f"ps_partkey BETWEEN {first} AND {last} AND l_partkey BETWEEN {first} AND {last} AND l_shipdate < DATE '1993-01-01'"
    joined = "partsupp JOIN lineitem ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey"
    return f"SELECT count(*), sum(ps_availqty), sum(l_suppkey) FROM {joined} WHERE {where}"


def groups(chosen, table_bytes):
    first, last = key_range(chosen, table_bytes, 57 / 4, ORDER_KEYS)
    counted = f"SELECT l_orderkey, count(*) AS n FROM lineitem WHERE l_orderkey BETWEEN {first} AND {last} GROUP BY l_orderkey"
    return f"SELECT count(*), max(n) FROM ({counted}) x"


JOINS = {"orders": orders, "wide orders": wide_orders, "lineitem": lineitem, "partsupp": partsupp, "groups": groups}


def statements(name, budget):
    """Pairs of whether it is a scan and the text, in the order of the mix."""
    mix, chosen = MIXES[name], random.Random(name)
    listed = [(True, scan(chosen, mix)) for _ in range(mix.scans)]
    for kind, (count, least, most) in mix.joins.items():
        # Shares at equal distances, so that every mix has those from the least to the most.
        shares = [least + (most - least) * (idx + 0.5) / count for idx in range(count)]
        listed += [(False, JOINS[kind](chosen, share * budget)) for share in shares]
    chosen.shuffle(listed)
    return listed


@contextlib.contextmanager
def opened(args, db, budget):
    words = [args.program, "shell", "--db", db, "--budget", budget, "--threads", args.threads]
    shell = Shell(shlex.join(map(str, [*words, "--storage-bandwidth", args.storage_bandwidth])))
    try:
        for setting in args.setting:
            # SET has no rows to wait for.
            shell.ask(f"SET {setting}; SELECT 1")
        yield shell
    finally:
        if shell.process:
            shell.process.stdin.close()
            shell.process.wait()


def bytes_moved(shells):
    """Bytes that were read and written under the cap, and those that passed it through the page cache, of all shells."""
    rows = [list(map(int, shell.ask("SELECT device_bytes, written_bytes FROM io_stats()")[1][0])) for shell in shells]
    for shell, row in zip(shells, rows):
        counters = dict(line.split(": ") for line in Path(f"/proc/{shell.process.pid}/io").read_text().splitlines())
        # Reads under the cap go through io_uring, which these do not count; writes under it are among them.
        row.append(int(counters["rchar"]) + int(counters["wchar"]) - row[1])
    return [sum(column) for column in zip(*rows)]


def run(args, db2, listed, tenths):
    """Figures of a second pass over the statements with one configuration, and its answers."""
    with contextlib.ExitStack() as stack:
        if tenths == AUTO:
            scans = joins = stack.enter_context(opened(args, args.db, args.budget))
            shells = [scans]
        else:
            share = args.budget * tenths // 10
            scans = stack.enter_context(opened(args, args.db, share))
            joins = stack.enter_context(opened(args, db2, args.budget - share))
            shells = [scans, joins]
        for is_scan, sql in listed:
            (scans if is_scan else joins).ask(sql)
        before = bytes_moved(shells)
        asked = [(scans if is_scan else joins).ask(sql) for is_scan, sql in listed]
        read, written, uncapped = (after - at_first for after, at_first in zip(bytes_moved(shells), before))
    each = [seconds for _, _, seconds in asked]
    scans_s = sum(seconds for (is_scan, _), seconds in zip(listed, each) if is_scan)
    figures = {"seconds": sum(each), "scans_s": scans_s, "read_bytes": read, "written_bytes": written, "uncapped_bytes": uncapped}
    return figures | {"statements_s": each}, [rows for _, rows, _ in asked]


def measure(args, db2, name):
    listed = statements(name, args.budget)[: args.limit_statements]
    middle = len(args.splits) // 2
    order = [*args.splits[:middle], AUTO, *args.splits[middle:]]
    runs, expected = {tenths: [] for tenths in order}, None
    for repeat in range(args.repeats):
        for tenths in order if repeat % 2 == 0 else order[::-1]:
            figures, answers = run(args, db2, listed, tenths)
            runs[tenths].append(figures)
            moved = ", ".join(f"{figures[f'{how}_bytes'] / 1e6:.0f} MB {how}" for how in ("read", "written", "uncapped"))
            parts = f"{figures['scans_s']:.3f} scans, {figures['seconds'] - figures['scans_s']:.3f} joins"
            print(f"{name}, {tenths}: {figures['seconds']:.3f} s ({parts}), {moved}", file=sys.stderr, flush=True)
            expected = expected or answers
            for (_, sql), mine, others in zip(listed, answers, expected):
                if mine != others:
                    sys.exit(f"{name}, {tenths}: {mine} instead of {others}: {sql}")
    seconds = {tenths: statistics.median(figures["seconds"] for figures in of) for tenths, of in runs.items()}
    auto = seconds.pop(AUTO)
    best, median = min(seconds.values()), statistics.median(seconds.values())
    row = {"mix": name, "auto_s": auto, "splits_s": seconds, "best_s": best, "median_s": median}
    row |= {"auto_over_best": auto / best, "median_over_auto": median / auto}
    return row | {"statements": [sql for _, sql in listed], "runs": runs}


def print_row(row):
    splits = [f"{seconds:.2f}" for seconds in row["splits_s"].values()]
    cells = [row["mix"], f"{row['auto_s']:.2f}", *splits, f"{row['best_s']:.2f}", f"{row['median_s']:.2f}"]
    print(f"| {' | '.join(cells)} | {row['auto_over_best']:.3f} | {row['median_over_auto']:.2f} |", flush=True)


@contextlib.contextmanager
def second_database(args):
    """The folder for the shell that joins; what is temporary goes when it is no longer needed."""
    skipped = shutil.ignore_patterns("LOCK")
    if args.db2:
        if not args.db2.exists():
            shutil.copytree(args.db, args.db2, ignore=skipped)
        yield args.db2
        return
    with tempfile.TemporaryDirectory(prefix=f"{args.db.name}-", dir=args.db.resolve().parent) as folder:
        yield Path(shutil.copytree(args.db, Path(folder) / "db", ignore=skipped))


def size(text):
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    return int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the binary hotshelf")
    parser.add_argument("--db", type=Path, required=True, help="the database with the tables of TPC-H")
    parser.add_argument("--db2", type=Path, help="a copy of it, which is made if it does not exist")
    parser.add_argument("--budget", type=size, default=size("512MB"))
    parser.add_argument("--storage-bandwidth", default="900MB/s")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--mixes", nargs="+", default=list(MIXES), choices=list(MIXES), metavar="NAME", help=", ".join(MIXES))
    parser.add_argument("--setting", action="append", default=[], help="for every shell, such as 'hotshelf.operators = always'")
    tenths = range(1, 10)
    parser.add_argument("--splits", nargs="+", type=int, default=list(tenths), choices=tenths, help="tenths that the scans have")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--limit-statements", type=int, help="only this many of every mix")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    return parser.parse_args()


def main():
    args = parse_arguments()
    rows = []
    header = ["mix", "auto s", *(f"{tenths} s" for tenths in args.splits), "best s", "median s", "auto / best", "median / auto"]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}", flush=True)
    with second_database(args) as db2:
        for name in args.mixes:
            rows.append(measure(args, db2, name))
            print_row(rows[-1])
            if args.out:
                args.out.write_text(json.dumps({"budget_bytes": args.budget, "mixes": rows}, indent=1))


if __name__ == "__main__":
    main()
