"""Kills Hotshelf while it moves a table from shelf to shelf, and looks at what is left.

    python shelf_crash.py --program hotshelf --rounds 100 --folder FOLDER

Each round begins a move (to one of two disks, a mapped folder, or home) or adds rows, kills the program at a random
moment, opens the database again and compares the rows with those that were acknowledged; `verify` must find nothing. At
the end the table goes home: no data file may remain on a shelf, nothing in `lost+found`, and the program must say so
itself. Folders stand in for disks.
"""

import argparse
import random
import shutil
import subprocess
import time
from pathlib import Path

ROWS = "SELECT value AS id, value * 7919 % 1000003 AS k, 'text ' || value AS text FROM range({rows})"


class Killed(Exception):
    pass


def run(program, db, sql, kill_after_s=None):
    """Output of statements, or `Killed`."""
    process = subprocess.Popen(
        [program, "sql", "--db", db, "--budget", "128MB", "--format", "csv", "-c", sql], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        out, error = process.communicate(timeout=kill_after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise Killed from None
    if process.returncode:
        raise SystemExit(f"{sql}: {error}")
    return out


def sums(program, db):
    return run(program, db, "SELECT count(*), sum(id), sum(k), min(text), max(text) FROM t")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, required=True, help="a folder for all this; it is emptied")
    settings = parser.parse_args()
    random.seed(settings.seed)
    shutil.rmtree(settings.folder, ignore_errors=True)
    db = settings.folder / "db"
    disks = [settings.folder / name for name in ("one", "two", "pmem")]
    for disk in disks:
        disk.mkdir(parents=True)
    shelves = [f"file:{disks[0]}", f"file:{disks[1]}", f"dax:{disks[2]}", "file"]
    run(settings.program, db, f"CREATE TABLE t AS {ROWS.format(rows=settings.rows)}")
    begun = time.perf_counter()
    run(settings.program, db, f"ALTER TABLE t SET (shelf = '{shelves[0]}')")
    whole_s = time.perf_counter() - begun
    known, killed = sums(settings.program, db), 0
    for number in range(settings.rounds):
        adds = random.random() < 0.2
        statement = f"INSERT INTO t {ROWS.format(rows=10_000)}" if adds else f"ALTER TABLE t SET (shelf = '{random.choice(shelves)}')"
        try:
            run(settings.program, db, statement, random.random() * 1.2 * whole_s)
            known = sums(settings.program, db) if adds else known
        except Killed:
            killed += 1
        found = sums(settings.program, db)
        if adds and found != known:
            known = found  # not acknowledged, and there: as whole as if it had been
            rows = int(found.splitlines()[1].split(",")[0])
            assert rows % 10_000 == 0, found
        assert found == known, f"round {number}: {statement}: {found} instead of {known}"
        subprocess.run([settings.program, "verify", "--db", db], check=True, capture_output=True)
    run(settings.program, db, "ALTER TABLE t SET (shelf = 'file')")
    assert sums(settings.program, db) == known
    left = [str(path) for disk in disks for path in disk.rglob("*.vortex*")]
    lost = list((db / "lost+found").glob("*")) if (db / "lost+found").exists() else []
    print(f"{settings.rounds} rounds, {killed} killed: rows as acknowledged, verify finds nothing; left on shelves {len(left)}, lost+found {len(lost)}")
    print("\n".join(left + [str(path) for path in lost]))


if __name__ == "__main__":
    main()
