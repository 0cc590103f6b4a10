"""Times Hotshelf and DuckDB (native format) against each other, query by query, in one go.

    python star.py ssb --hotshelf 'hotshelf shell --db DIR --budget 8GB --threads 2 --policy all' \\
        --duckdb FILE --repeats 7 --threads 2 --out result.json
    python star.py ssb --cold --hotshelf 'hotshelf shell --db DIR --budget 1GB --threads 2 --policy none' ...

Both engines stay open; each repeat runs every query in both, in an order that alternates. Figures are medians. In memory
both have run every query before. With `--cold` our policy has to be `none` (reads pass the page cache), and DuckDB gets a
new process and an evicted file for every query.

Encoded bytes are what our scans read for the query (`EXPLAIN ANALYZE`), decoded bytes the rows of the largest table
times the widths of its columns that the query names. Bandwidths of memory and device are measured before and after.
"""

import argparse
import json
import mmap
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from limits import default_threads, evict, files_below
from results import load_queries

WORKER = Path(__file__).resolve().parent / "worker.py"
UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}
# Bytes per decoded value of the largest tables' columns; all others have four.
DECODED_BYTES = {"l_extendedprice": 16, "l_discount": 16, "l_tax": 16, "l_quantity": 16, "l_returnflag": 1, "l_linestatus": 1}
LARGEST = {"ssb": ("lineorder", "lo_"), "tpch": ("lineitem", "l_")}


class Shell:
    """A Hotshelf shell that statements are piped to."""

    def __init__(self, command):
        environment = {**os.environ, "HOTSHELF_HISTORY": os.devnull}
        self.process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.process.stdin.write("\\format csv\n")

    def run(self, sql):
        """Seconds until the answer is written."""
        start = time.perf_counter()
        self.process.stdin.write(" ".join(sql.rstrip().rstrip(";").split()) + ";\n")
        self.process.stdin.flush()
        while not re.search(r", [0-9.]+ s$", line := self.process.stderr.readline().rstrip()):
            if not line or line.startswith("error"):
                raise SystemExit(f"hotshelf: {line} {self.process.stderr.readline()}")
        return time.perf_counter() - start

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Duck:
    """DuckDB in a process of its own."""

    def __init__(self, path, threads):
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), "duckdb-native", path, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, sql):
        self.process.stdin.write(json.dumps({"name": "", "sql": sql}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise SystemExit(f"duckdb: {answer['error']}")
        return answer["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def encoded_bytes(command, sql):
    """Bytes that our scans read for a query, wherever from."""
    text = "SET datafusion.explain.format = 'indent'; EXPLAIN ANALYZE " + " ".join(sql.rstrip().rstrip(";").split())
    base = shlex.split(command)
    base[base.index("shell")] = "sql"
    run = subprocess.run([*base, "--format", "csv", "-c", text], capture_output=True, text=True, check=True)
    found = re.findall(r"bytes_(?:cache|storage|shared)=([0-9.]+) ?([KMB]?)", run.stdout)
    return sum(float(number) * UNITS[unit] for number, unit in found)


def memory_bandwidth(threads):
    """Bytes per second that summing arrays far larger than the caches reads."""
    import numpy

    arrays = [numpy.ones(1 << 26) for _ in range(threads)]
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(numpy.add.reduce, arrays))
            best = max(best, sum(array.nbytes for array in arrays) / (time.perf_counter() - start))
    return best


def device_bandwidth(folder, bytes_max=1 << 30, depth=16, grain=1 << 20):
    """Bytes per second of direct reads of a folder's files, `depth` at a time."""
    ranges = []
    for file in sorted(files_below(folder), key=lambda file: -os.path.getsize(file)):
        ranges += [(file, at) for at in range(0, os.path.getsize(file) - grain, grain)]
    ranges = ranges[: bytes_max // grain]
    handles = {file: os.open(file, os.O_RDONLY | os.O_DIRECT) for file, _ in ranges}

    def read(one):
        buffer = mmap.mmap(-1, grain)
        return os.preadv(handles[one[0]], [buffer], one[1])

    with ThreadPoolExecutor(depth) as pool:
        start = time.perf_counter()
        total = sum(pool.map(read, ranges))
        seconds = time.perf_counter() - start
    for handle in handles.values():
        os.close(handle)
    return total / seconds


def decoded_bytes(benchmark, sql, rows):
    prefix = LARGEST[benchmark][1]
    columns = set(re.findall(rf"\b{prefix}[a-z0-9]+", sql))
    return rows * sum(DECODED_BYTES.get(column, 4) for column in columns)


def measure(settings, queries):
    times = {name: ([], []) for name in queries}
    ours = Shell(settings.hotshelf)
    theirs = None if settings.cold else Duck(settings.duckdb, settings.threads)
    for sql in queries.values() if not settings.cold else []:
        ours.run(sql)
        theirs.run(sql)

    def run_theirs(sql):
        if theirs:
            return theirs.run(sql)
        evict([settings.duckdb])
        fresh = Duck(settings.duckdb, settings.threads)
        try:
            return fresh.run(sql)
        finally:
            fresh.close()

    for repeat in range(settings.repeats):
        for idx, (name, sql) in enumerate(queries.items()):
            for side in (0, 1) if (repeat + idx) % 2 == 0 else (1, 0):
                times[name][side].append(run_theirs(sql) if side else ours.run(sql))
    ours.close()
    if theirs:
        theirs.close()
    return times


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=sorted(LARGEST))
    parser.add_argument("--hotshelf", required=True, help="the shell with its database, budget, threads and policy")
    parser.add_argument("--duckdb", required=True, help="DuckDB's own database file")
    parser.add_argument("--rows", type=int, default=59_986_052, help="of the largest table")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--queries", nargs="*")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main():
    settings = parse_arguments()
    queries = load_queries(settings.benchmark)
    if settings.queries:
        queries = {name: queries[name] for name in settings.queries}
    command = shlex.split(settings.hotshelf)
    folder = command[command.index("--db") + 1]
    memory = memory_bandwidth(settings.threads)
    device = device_bandwidth(folder) if settings.cold else None
    times = measure(settings, queries)
    memory = max(memory, memory_bandwidth(settings.threads))
    rows = {}
    print("| query | hotshelf s | DuckDB s | ratio | encoded MB | encoded GB/s | decoded GB/s | of memory |")
    print("|---|---|---|---|---|---|---|---|")
    for name, sql in queries.items():
        mine, duck = (statistics.median(side) for side in times[name])
        encoded = encoded_bytes(settings.hotshelf, sql)
        decoded = decoded_bytes(settings.benchmark, sql, settings.rows)
        rows[name] = {"hotshelf_s": mine, "duckdb_s": duck, "encoded_bytes": encoded, "decoded_bytes": decoded, "all_s": times[name]}
        print(
            f"| {name} | {mine:.3f} | {duck:.3f} | {mine / duck:.2f} | {encoded / 1e6:.0f} | {encoded / mine / 1e9:.1f} "
            f"| {decoded / mine / 1e9:.1f} | {encoded / mine / memory:.0%} |"
        )
    mine, duck = (sum(row[side] for row in rows.values()) for side in ("hotshelf_s", "duckdb_s"))
    print(f"| sum | {mine:.3f} | {duck:.3f} | {mine / duck:.2f} | | | | |")
    print(f"memory {memory / 1e9:.1f} GB/s with {settings.threads} threads" + (f", device {device / 1e9:.2f} GB/s" if device else ""))
    if settings.out:
        document = {"memory_bytes_per_s": memory, "device_bytes_per_s": device, "queries": rows}
        settings.out.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
