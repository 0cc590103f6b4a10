#!/usr/bin/env python3
"""Kills imports at random moments and checks what is left.

    python3 benchmarks/crash.py --hotshelf target/release/hotshelf --kills 200

Each round appends the same file to a table with `hotshelf import --append` and kills the process after a
random time. Then the database must open, hold every acknowledged append wholly and nothing in part,
verify clean, and its folder must hold exactly the files the catalog names.
"""

import argparse
import pathlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import time


def count_rows(hotshelf, db):
    """Rows of the table, through a fresh process; None where the table does not exist."""
    ask = "SELECT count(*) AS n, count(DISTINCT a) AS d FROM t"
    run = subprocess.run([hotshelf, "sql", "--db", db, "--format", "csv", "-c", ask], capture_output=True, text=True)
    if run.returncode != 0:
        if "'t' does not exist" in run.stderr:
            return 0, 0
        raise SystemExit(f"the database does not answer:\n{run.stderr}")
    rows, distinct = run.stdout.splitlines()[1].split(",")
    return int(rows), int(distinct)


def orphans(db):
    """Files below `data` that the catalog does not name, and names without files."""
    catalog = sqlite3.connect(f"file:{db}/catalog.sqlite?mode=ro", uri=True)
    named = set()
    for folder, number in catalog.execute(
        "SELECT folder, number FROM tables JOIN files ON tables.id = files.table_id"
    ):
        named.add(f"{folder}/{number}.vortex")
        named.add(f"{folder}/sums/{number}.crc")
    data = pathlib.Path(db) / "data"
    found = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    return sorted(found ^ named)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True, help="the binary")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    folder = tempfile.mkdtemp(prefix="hotshelf-crash-")
    db, source = f"{folder}/db", f"{folder}/rows.csv"
    with open(source, "w") as out:
        out.write("a,b\n")
        out.writelines(f"{i},text {i % 977}\n" for i in range(arguments.rows))
    command = [arguments.hotshelf, "import", "--db", db, "t", source, "--append"]

    acknowledged, uncertain, killed, appends = 0, 0, 0, 0
    whole = 1.0
    while killed < arguments.kills:
        if acknowledged + uncertain >= 5:
            # A growing table would only make the counting slow.
            subprocess.run(["rm", "-rf", db], check=True)
            acknowledged, uncertain = 0, 0
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            code = process.wait(timeout=chance.uniform(0, whole * 1.05))
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code == 0:
            acknowledged += 1
            appends += 1
            whole = time.monotonic() - start
        else:
            killed += 1
        rows, distinct = count_rows(arguments.hotshelf, db)
        parts, rest = divmod(rows, arguments.rows)
        # A kill between the commit and the exit leaves a whole append that nobody was told of.
        uncertain += max(0, min(1, parts - acknowledged - uncertain))
        problems = []
        if rest or parts != acknowledged + uncertain or distinct not in (0, arguments.rows):
            problems.append(f"{rows} rows, {acknowledged} acknowledged appends")
        if orphans(db):
            problems.append(f"orphans: {orphans(db)}")
        if killed % 20 == 0 or problems:
            check = subprocess.run([arguments.hotshelf, "verify", "--db", db], capture_output=True, text=True)
            if check.returncode != 0:
                problems.append(check.stdout + check.stderr)
        if problems:
            raise SystemExit(f"after {killed} kills: {'; '.join(problems)} (kept in {folder})")
    print(
        f"{killed} kills of imports that take {whole:.2f} s, {appends} appends acknowledged: "
        "nothing lost, nothing half-done, no orphan"
    )
    subprocess.run(["rm", "-rf", folder], check=True)


if __name__ == "__main__":
    sys.exit(main())
