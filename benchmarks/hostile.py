#!/usr/bin/env python3
"""Runs hostile statements through `hotshelf sql` and reports what a database must not do.

    HS=target/release/hotshelf python3 benchmarks/hostile.py [COUNT [SEED]]

Each statement runs in a process of its own over one database, with a budget of 64 MB. Reported are: processes that a
signal ended, hangs over 10 s that Ctrl-C does not end within 2 s, peaks of resident memory above the budget plus
300 MB, and failures without words. Not part of CI.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

HS = os.environ.get("HS", "target/release/hotshelf")
BUDGET_MB = 64
SLACK_MB = 300
TIME_MAX_S = float(os.environ.get("TIME_MAX_S", 10))
STOP_MAX_S = 2


def chain(count, between, part):
    return between.join(part(n) for n in range(count))


def nested(depth, opening, inside, closing):
    return opening * depth + inside + closing * depth


def families():
    """Name and a function of a size that makes a statement; sizes in comments are the largest used."""
    wheres = {
        "or": lambda n: chain(n, " OR ", lambda i: f"a = {i}"),
        "and": lambda n: chain(n, " AND ", lambda i: f"a <> {i}"),
        "or-of-and": lambda n: chain(n, " OR ", lambda i: f"(a = {i} AND b < {i})"),
        "in": lambda n: "a IN (" + chain(n, ",", str) + ")",
        "not": lambda n: nested(n, "NOT ", "a = 1", ""),
        "between": lambda n: chain(n, " OR ", lambda i: f"a BETWEEN {i} AND {i + 1}"),
        "like": lambda n: "s LIKE '" + "%a" * n + "'",
        "regexp": lambda n: f"regexp_like(s, '(x{{1,{min(n, 1000)}}})+$')",
    }
    for name, make in wheres.items():
        yield name, lambda n, make=make: f"SELECT count(*) FROM t WHERE {make(n)}"
    values = {
        "plus": lambda n: chain(n, "+", lambda _: "a"),
        "ones": lambda n: chain(n, "+", lambda _: "1"),
        "text": lambda n: chain(n, "||", lambda _: "s"),
        "parentheses": lambda n: nested(n, "(", "1", ")"),
        "minus": lambda n: nested(n, "- ", "1", ""),
        "case": lambda n: nested(n, "CASE WHEN a > 1 THEN ", "a", " END"),
        "when": lambda n: "CASE a " + chain(n, " ", lambda i: f"WHEN {i} THEN {i + 1}") + " END",
        "function": lambda n: nested(n, "abs(", "a", ")"),
        "list": lambda n: nested(n, "[", "1", "]"),
        "elements": lambda n: "[" + chain(n, ",", str) + "]",
        "cast": lambda n: "1" + "::BIGINT" * n,
        "scalar": lambda n: nested(n, "(SELECT ", "1", ")"),
        "literal": lambda n: "'" + "y" * (n * 100) + "'",
        "repeat": lambda n: f"length(repeat('x', {n * 200_000}))",
        "repeat-rows": lambda n: f"length(repeat('x', {n * 100} + a))",
        "lpad": lambda n: f"length(lpad(s, {n * 1000}))",
        "range": lambda n: f"cardinality(range(0, {n * 100_000}))",
        "array_repeat": lambda n: f"cardinality(array_repeat(a, {n * 1000}))",
        "replace": lambda n: f"length(replace(repeat('x', {n * 10}), 'x', repeat('y', 100)))",
        "concat": lambda n: "length(concat(" + chain(n, ",", lambda _: "s") + f", repeat('x', {n})))",
    }
    for name, make in values.items():
        yield name, lambda n, make=make: f"SELECT max({make(n)}) FROM t"
    whole = {
        "union-all": lambda n: chain(n, " UNION ALL ", lambda i: f"SELECT {i}"),
        "union": lambda n: chain(n, " UNION ", lambda i: f"SELECT {i}"),
        "except": lambda n: chain(n, " EXCEPT ", lambda i: f"SELECT {i}"),
        "columns": lambda n: "SELECT " + chain(n, ",", lambda i: f"{i} AS c{i}"),
        "joins": lambda n: "SELECT count(*) FROM t t0 " + chain(n, " ", lambda i: f"JOIN t t{i + 1} ON t{i + 1}.a = t{i}.a"),
        "subqueries": lambda n: nested(n, "SELECT * FROM (", "SELECT a FROM t", ")") + " LIMIT 3",
        "ctes": lambda n: "WITH " + chain(n, ",", lambda i: f"c{i} AS (SELECT {i} AS x)") + " SELECT * FROM c0",
        "cte-chain": lambda n: "WITH c0 AS (SELECT 1 AS x)" + "".join(f", c{i + 1} AS (SELECT x + 1 AS x FROM c{i})" for i in range(n)) + f" SELECT * FROM c{n}",
        "values": lambda n: "SELECT count(*) FROM (VALUES " + chain(n, ",", lambda i: f"({i}, 'v')") + ") v",
        "group-by": lambda n: "SELECT count(*) FROM t GROUP BY " + chain(n, ",", lambda i: f"a % {i + 1}"),
        "order-by": lambda n: "SELECT a FROM t ORDER BY " + chain(n, ",", lambda i: f"a % {i + 1}") + " LIMIT 3",
        "aggregates": lambda n: "SELECT " + chain(n, ",", lambda i: f"sum(a + {i})") + " FROM t",
        "windows": lambda n: "SELECT " + chain(min(n, 500), ",", lambda i: f"lag(a, {i}) OVER (ORDER BY a)") + " FROM t LIMIT 3",
        "string_agg": lambda n: f"SELECT length(string_agg(repeat('x', {n}), ',')) FROM big",
        "array_agg": lambda n: f"SELECT cardinality(array_agg(repeat('x', {n}))) FROM big",
        "cross": lambda n: f"SELECT count(*) FROM big x, big y WHERE x.a + y.a = {-n}",
        "equal-keys": lambda n: f"SELECT count(*) FROM big x JOIN big y ON x.a % {n % 7 + 1} = y.a % {n % 7 + 1}",
        "semi": lambda n: f"SELECT count(*) FROM big x WHERE EXISTS (SELECT 1 FROM big y WHERE y.one = x.one AND y.a * x.a < -{n})",
        "sort-cross": lambda n: f"SELECT x.a FROM big x, big y ORDER BY x.a * y.a + {n}",
        "series": lambda n: f"SELECT count(*) FROM generate_series(1, {n} * 1000000000)",
        "recursive": lambda n: f"WITH RECURSIVE r(n) AS (SELECT {n} UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
        "doubling": lambda n: f"WITH RECURSIVE r(n) AS (SELECT {n} UNION ALL SELECT x.n FROM r x CROSS JOIN (VALUES (1), (2)) v(k)) SELECT count(*) FROM r",
        "growing-text": lambda n: "WITH RECURSIVE r(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM r) SELECT max(length(s)) FROM r",
        "unnest": lambda n: f"SELECT count(*) FROM (SELECT unnest(range(0, {n})) FROM big x CROSS JOIN big y)",
        "open": lambda n: "SELECT " + "(" * n,
        "quotes": lambda n: "SELECT " + "'" * (2 * n + 1),
        "garbage": lambda n: "".join(random.Random(n).choices("SELECT FROM(),;'\"*+-?$%0159abc\n\t\\", k=n)),
    }
    yield from whole.items()


SIZES = [3, 50, 400, 1_000, 4_000, 10_000, 30_000]


def prepare(folder):
    for table, rows in [("t", 1_000), ("big", 1_000_000)]:
        sql = (
            f"CREATE TABLE {table} AS SELECT value AS a, value % 7 AS b, concat('x', value) AS s, 1 AS one "
            f"FROM generate_series(1, {rows}) AS g(value)"
        )
        subprocess.run([HS, "sql", "--db", folder, "-c", sql], check=True, capture_output=True)


def run(folder, sql):
    """Exit code, seconds, standard error, peak in MB, and whether it had to be stopped and how long that took."""
    with tempfile.TemporaryFile("w+") as text, tempfile.TemporaryFile("w+", errors="replace") as errors:
        text.write(sql)
        text.seek(0)
        begin = time.monotonic()
        child = subprocess.Popen(
            [HS, "sql", "--db", folder, "--budget", f"{BUDGET_MB}MB", "--threads", "2", "--format", "csv"],
            stdin=text, stdout=subprocess.DEVNULL, stderr=errors,
        )
        stopped, usage, status = None, None, None
        while usage is None:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            usage = None
            time.sleep(0.01)
            now = time.monotonic()
            if stopped is None and now - begin > TIME_MAX_S:
                stopped = now
                os.kill(child.pid, signal.SIGINT)
            elif stopped is not None and now - stopped > 30:
                os.kill(child.pid, signal.SIGKILL)
        end = time.monotonic()
        child.returncode = 0
        errors.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return code, end - begin, errors.read(), usage.ru_maxrss / 1024, None if stopped is None else end - stopped


def complaints(code, errors, peak_mb, stopping_s):
    if code < 0:
        yield f"signal {-code}"
    if code not in (0, 1, 2, 130) and code >= 0:
        yield f"exit code {code}"
    if stopping_s is not None and stopping_s > STOP_MAX_S:
        yield f"stopped only {stopping_s:.1f} s after Ctrl-C"
    if peak_mb > BUDGET_MB + SLACK_MB:
        yield f"peak {peak_mb:.0f} MB"
    if code == 1 and len(errors.partition("error: ")[2].strip()) < 10:
        yield f"no words: {errors[:80]!r}"
    if "panicked" in errors and "hint:" not in errors:
        yield "a panic without a hint"


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    cases = [(name, size, make) for name, make in families() for size in SIZES]
    cases += [(name, rng.randrange(1, 20_000), make) for name, make in families() for _ in range(10)]
    rng.shuffle(cases)
    bad = answered = refused = cancelled = 0
    with tempfile.TemporaryDirectory() as parent:
        folder = os.path.join(parent, "db")
        prepare(folder)
        for name, size, make in cases[:count]:
            code, seconds, errors, peak_mb, stopping_s = run(folder, make(size))
            answered += code == 0
            refused += code in (1, 2)
            cancelled += code == 130
            for complaint in complaints(code, errors, peak_mb, stopping_s):
                bad += 1
                print(f"{name} {size}: {complaint} ({seconds:.1f} s)", flush=True)
    print(f"{min(count, len(cases))} statements: {answered} answered, {refused} refused, {cancelled} cancelled; {bad} complaints")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
