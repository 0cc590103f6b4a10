#!/usr/bin/env python3
"""Kills imports at random moments and checks what is left.

    python3 benchmarks/crash.py --hotshelf target/release/hotshelf --kills 200 [--indexes]

Each round appends the same file to a table with `hotshelf import --append` and kills the process after a
random time. Then the database must open, hold every acknowledged append wholly and nothing in part,
verify clean, and its folder must hold exactly the files the catalog names.

With `--indexes` the table has a clustered Elf and a plain one, and rounds take turns in appending, merging files (`OPTIMIZE
TABLE`) and making the indexes anew. Every query is asked with and without the indexes.
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
    answers = []
    for use in ("always", "off"):
        probe = f"SET hotshelf.elf = '{use}'; SELECT count(*) AS n, sum(a) AS s FROM t WHERE a % 7 = 3 AND c < 50 AND b > 'text 5'"
        command = [hotshelf, "sql", "--db", db, "--format", "csv", "-c", f"{ask}; {probe}"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            if "'t' does not exist" in run.stderr:
                return 0, 0
            raise SystemExit(f"the database does not answer:\n{run.stderr}")
        answers.append([line for line in run.stdout.splitlines() if line and line[0] in "0123456789"])
    if answers[0] != answers[1]:
        raise SystemExit(f"the indexes answer {answers[0]}, the scan {answers[1]}: {db}")
    rows, distinct = answers[0][0].split(",")
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
    for folder, number, index in catalog.execute(
        "SELECT folder, files.number, index_number FROM tables JOIN files ON tables.id = files.table_id "
        "JOIN index_files ON files.id = index_files.file_id"
    ):
        named.add(f"{folder}/elf/{number}-{index}.elf")
    data = pathlib.Path(db) / "data"
    found = {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}
    found -= {name for name in found if name == "HEAD"}
    found |= {str(path) for path in (pathlib.Path(db) / "lost+found").rglob("*")}
    return sorted(found ^ named)


def file_count(db):
    """Data files in the catalog."""
    catalog = sqlite3.connect(f"file:{db}/catalog.sqlite?mode=ro", uri=True)
    return catalog.execute("SELECT count(*) FROM files").fetchone()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True, help="the binary")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--indexes", action="store_true")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    folder = tempfile.mkdtemp(prefix="hotshelf-crash-")
    db, source = f"{folder}/db", f"{folder}/rows.csv"
    with open(source, "w") as out:
        out.write("a,b,c\n")
        out.writelines(f"{i},text {i % 977},{i * 31 % 101}\n" for i in range(arguments.rows))
    append = [arguments.hotshelf, "import", "--db", db, "t", source, "--append"]

    def statement(sql):
        return [arguments.hotshelf, "sql", "--db", db, "-c", sql]

    make = "CREATE INDEX IF NOT EXISTS i ON t USING elf (b, c) WITH (clustered = true); " \
        "CREATE INDEX IF NOT EXISTS j ON t USING elf (c, a)"
    actions = {"append": append}
    if arguments.indexes:
        actions["merge"] = statement("OPTIMIZE TABLE t")
        actions["clustered index"] = statement(f"DROP INDEX IF EXISTS i; {make}")
        actions["index"] = statement(f"DROP INDEX IF EXISTS j; {make}")
    kills = dict.fromkeys(actions, 0)

    acknowledged, uncertain, killed, appends = 0, 0, 0, 0
    whole = dict.fromkeys(actions, 1.0)
    while killed < arguments.kills:
        if acknowledged + uncertain >= 5:
            # A growing table would only make the counting slow.
            subprocess.run(["rm", "-rf", db], check=True)
            acknowledged, uncertain = 0, 0
        ready = acknowledged + uncertain > 0
        if ready and arguments.indexes and acknowledged + uncertain == 1:
            subprocess.run(statement(make), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        action = chance.choice(list(actions)) if ready else "append"
        while action == "merge" and file_count(db) < 2:
            # There is nothing to merge yet.
            subprocess.run(append, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            acknowledged, appends = acknowledged + 1, appends + 1
        start = time.monotonic()
        process = subprocess.Popen(actions[action], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            code = process.wait(timeout=chance.uniform(0, whole[action] * 1.5))
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code == 0:
            acknowledged += action == "append"
            appends += action == "append"
            whole[action] = time.monotonic() - start
        elif code < 0:
            killed += 1
            kills[action] += 1
        else:
            raise SystemExit(f"{action} failed with {code} after {killed} kills (kept in {folder})")
        rows, distinct = count_rows(arguments.hotshelf, db)
        parts, rest = divmod(rows, arguments.rows)
        # A kill between the commit and the exit leaves a whole append that nobody was told of.
        uncertain += max(0, min(1, parts - acknowledged - uncertain))
        problems = []
        if rest or parts != acknowledged + uncertain or distinct not in (0, arguments.rows):
            problems.append(f"{action}: {rows} rows, {acknowledged} acknowledged appends")
        if orphans(db):
            problems.append(f"orphans: {orphans(db)}")
        if killed % 20 == 0 or problems:
            check = subprocess.run([arguments.hotshelf, "verify", "--db", db], capture_output=True, text=True)
            if check.returncode != 0:
                problems.append(check.stdout + check.stderr)
        if problems:
            raise SystemExit(f"after {killed} kills: {'; '.join(problems)} (kept in {folder})")
    print(
        f"{killed} kills ({', '.join(f'{count} of {name}, which takes {whole[name]:.2f} s' for name, count in kills.items())}), "
        f"{appends} appends acknowledged: nothing lost, nothing half-done, no orphan"
    )
    subprocess.run(["rm", "-rf", folder], check=True)


if __name__ == "__main__":
    sys.exit(main())
