#!/usr/bin/env python3
"""Presses Ctrl-C at random moments and measures how long the program takes to end.

    HS=target/release/hotshelf python3 benchmarks/interrupts.py [--runs 100] [--only join] [--seed 1]

Makes a database of 3 million rows, then runs statements of twenty kinds with 1, 2 and 8 threads and sends SIGINT 0.3 to 3 s
after the start. A run is right if the program ends with exit code 130 within the limit (200 ms), says `interrupted` and leaves
nothing in its folder for temporary files. Statements that end before the signal are run again with an earlier one. At the end the
database must verify clean and hold its rows. The exit code is 1 if anything was wrong.
"""

import argparse
import os
import pathlib
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

FAR = 1_000_000_000_000

# Every statement takes longer than three seconds, or is run again with an earlier signal.
SQL = {
    "scan": "SELECT count(*) FROM generate_series(1, 1000) AS g(n), big WHERE s LIKE concat('%', n, '%')",
    "aggregate": "SELECT a, s, count(*), sum(v) FROM generate_series(1, 200), big GROUP BY a, s ORDER BY 3 LIMIT 5",
    "generate_series": f"SELECT count(DISTINCT value) FROM generate_series(1, {FAR})",
    "series cross join": "SELECT sum(x.value * y.value) FROM generate_series(1, 1000000) AS x, generate_series(1, 1000000) AS y",
    "hash join": "SELECT count(*) FROM big x JOIN big y ON x.k = y.k",
    "hash join, skewed key": "SELECT count(*) FROM big x JOIN big y ON x.skewed = y.skewed",
    "hash join, nothing left": "SELECT count(*) FROM big x JOIN big y ON x.k = y.k AND x.v + y.v < -1",
    "hash join, then group": "SELECT x.a, count(*) FROM big x JOIN big y ON x.k = y.k GROUP BY x.a ORDER BY 2 LIMIT 3",
    "full join": "SELECT count(*) FROM big x FULL JOIN big y ON x.skewed = y.skewed AND x.v < y.v",
    "cross join": "SELECT sum(x.v * y.v) FROM big x, big y",
    "nested loops, output": "SELECT count(*) FROM big x, big y WHERE x.v > y.v",
    "nested loops, no output": "SELECT count(*) FROM big x, big y WHERE x.v + y.v < -1",
    "sort": "SELECT b.*, n FROM generate_series(1, 100) AS g(n), big b ORDER BY s, v, n",
    "window": "SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY k ORDER BY v) r FROM generate_series(1, 30), big)",
    "distinct": "SELECT count(*) FROM (SELECT DISTINCT id, n FROM generate_series(1, 100) AS g(n), big)",
    "union": "SELECT count(*) FROM (SELECT id * n FROM generate_series(1, 50) AS g(n), big UNION SELECT a * n FROM generate_series(1, 50) AS g(n), big)",
    "recursive": "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 100000000) SELECT count(*) FROM r",
    "create table": "CREATE OR REPLACE TABLE made AS SELECT b.*, n FROM generate_series(1, 50) AS g(n), big b",
    "create index": "CREATE INDEX i{run}_{try} ON big USING elf (a, k, id)",
    "copy": "COPY (SELECT b.*, n FROM generate_series(1, 50) AS g(n), big b) TO '{folder}/copy-{run}.parquet' STORED AS PARQUET",
    "count distinct": "SELECT count(DISTINCT id * n), count(DISTINCT s) FROM generate_series(1, 50) AS g(n), big",
    "star join": "SELECT d.name, e.name, sum(v) FROM generate_series(1, 500), big JOIN dim d ON big.k = d.id JOIN dim e ON big.a = e.id GROUP BY 1, 2",
    "median": "SELECT k, median(v * n) FROM generate_series(1, 50) AS g(n), big GROUP BY k",
    "text": "SELECT max(length(replace(reverse(upper(concat(s, s))), 'A', 'bb'))), max(regexp_replace(s, '(\\d+)', 'x\\1')) FROM generate_series(1, 200), big",
}
MAKE = """
CREATE TABLE big AS SELECT value AS id, value * 7919 % 100003 AS a, value % 1000 AS k,
    CASE WHEN value % 10 < 9 THEN 0 ELSE value END AS skewed, (value * 104729 % 1000003) / 1000003.0 AS v,
    concat('text ', value * 31 % 50021) AS s FROM generate_series(1, {rows});
CREATE TABLE dim AS SELECT value AS id, concat('name ', value % 17) AS name FROM generate_series(0, 100003);
"""


def command(arguments, place, name, threads, run, attempt):
    """The call for a statement, or for an import."""
    shared = ["--db", str(place / "db"), "--threads", str(threads), "--budget", arguments.budget]
    if name == "import":
        return [arguments.hotshelf, "import", *shared, "imported", str(place / "rows.csv"), "--replace"]
    sql = SQL[name].replace("{run}", str(run)).replace("{try}", str(attempt)).replace("{folder}", str(place / "out"))
    return [arguments.hotshelf, "sql", *shared, "--format", "csv", "-c", sql]


def press(call, environment, delay):
    """Runs a call, presses Ctrl-C after `delay` seconds; seconds to the end (None: it ended before), exit code, words."""
    with subprocess.Popen(
        call, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as child:
        try:
            child.wait(delay)
            return None, child.returncode, child.stderr.read()
        except subprocess.TimeoutExpired:
            pass
        pressed = time.monotonic()
        child.send_signal(signal.SIGINT)
        # `wait` with a timeout looks every 50 ms.
        ended = os.pidfd_open(child.pid)
        if not select.select([ended], [], [], 30)[0]:
            child.kill()
        seconds = time.monotonic() - pressed
        os.close(ended)
        return seconds, child.wait(), child.stderr.read()


def wrong(seconds, code, words, temporary, limit):
    """What is wrong with a run, in words."""
    found = []
    if code != 130:
        found.append(f"exit code {code}")
    if "interrupted" not in words:
        found.append(f"it says {words.strip()[:200]!r}")
    if seconds * 1000 > limit:
        found.append(f"more than {limit} ms")
    remaining = [str(path.relative_to(temporary)) for path in temporary.rglob("*")]
    if remaining:
        found.append(f"{len(remaining)} entries remain: {remaining[:3]}")
    return ", ".join(found)


def one_run(arguments, place, name, threads, run, dice):
    """A run until a signal has met the statement; seconds and what is wrong, or None if it always ended before."""
    temporary = place / "tmp"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    delay = dice.uniform(0.3, 3.0)
    for attempt in range(4):
        seconds, code, words = press(command(arguments, place, name, threads, run, attempt), environment, delay)
        for made in (place / "out").iterdir():
            made.unlink()
        if seconds is not None and not (code == 0 and seconds < 0.05):
            problem = wrong(seconds, code, words, temporary, arguments.limit_ms)
            subprocess.run(["rm", "-rf", *map(str, temporary.iterdir())], check=True)
            return delay, seconds, problem
        if seconds is None and code != 0:
            return delay, 0.0, f"failed before the signal: {words.strip()[:300]}"
        delay /= 3
    return None


def prepare(arguments, place):
    """The database, and a file to import."""
    for folder in ("tmp", "out"):
        (place / folder).mkdir()
    sql = MAKE.format(rows=arguments.rows)
    subprocess.run([arguments.hotshelf, "sql", "--db", place / "db", "-c", sql], check=True, capture_output=True)
    rows = ["sql", "--db", place / "db", "--output", place / "rows.csv", "-c", "SELECT * FROM big"]
    subprocess.run([arguments.hotshelf, *rows], check=True)


def check_database(arguments, place):
    """Nothing that was interrupted has changed the tables."""
    subprocess.run([arguments.hotshelf, "verify", "--db", place / "db"], check=True)
    ask = ["sql", "--db", place / "db", "--format", "csv", "-c", "SELECT count(*) FROM big"]
    rows = subprocess.run([arguments.hotshelf, *ask], check=True, capture_output=True, text=True).stdout
    return rows.split()[-1] == str(arguments.rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", default=os.environ.get("HS", "target/release/hotshelf"))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--budget", default="1GB")
    parser.add_argument("--limit-ms", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="statements with this in their name")
    arguments = parser.parse_args()
    arguments.hotshelf = str(pathlib.Path(arguments.hotshelf).resolve())
    dice = random.Random(arguments.seed)
    names = [name for name in [*SQL, "import"] if arguments.only in name]
    times, problems = [], 0
    with tempfile.TemporaryDirectory(prefix="interrupts-") as folder:
        place = pathlib.Path(folder)
        prepare(arguments, place)
        for run in range(arguments.runs):
            name, threads = names[run % len(names)], (1, 2, 8)[run // len(names) % 3]
            met = one_run(arguments, place, name, threads, run, dice)
            if met is None:
                print(f"{name:26} {threads} threads: always ended before the signal", flush=True)
                continue
            delay, seconds, problem = met
            times.append(seconds * 1000)
            problems += bool(problem)
            print(f"{name:26} {threads} threads, after {delay:.2f} s: {seconds * 1000:6.1f} ms  {problem}", flush=True)
        kept = check_database(arguments, place)
    if times:
        print(f"{len(times)} interrupted: median {statistics.median(times):.1f} ms, longest {max(times):.1f} ms; {problems} wrong")
    print("the table is as it was" if kept else "the table has CHANGED")
    sys.exit(1 if problems or not kept or not times else 0)


if __name__ == "__main__":
    main()
