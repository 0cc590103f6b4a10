#!/usr/bin/env python3
"""Ends statements that spill, at random moments, and looks at what remains in the folder they spill to.

    python3 benchmarks/spill_interrupts.py --program target/release/hotshelf --db DIR [--runs 30] [--budget 64MB]

The database has the tables of TPC-H. Each run begins a join, an aggregation or a sort that spills, waits until it does, and a
random time more; then one of three things happens, in turn:

* `kill`: SIGKILL. When the database has been opened again, no byte may be left in the folder.
* `program`: Ctrl-C of `hotshelf sql`. It counts until the program has ended; no byte may be left.
* `shell`: Ctrl-C of a statement in a `hotshelf shell`. It counts until the next statement is answered; no byte may be left.

The exit code is 1 if bytes remained or a program failed; how long it took is printed beside the goal (100 ms).
"""

import argparse
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shell import Shell

JOIN = "SELECT count(*), sum(o_totalprice), max(length(l_comment) + length(o_comment)) FROM lineitem JOIN orders ON l_orderkey = o_orderkey"
GROUPS = "SELECT count(*), sum(n) FROM (SELECT l_comment, count(*) AS n FROM lineitem GROUP BY l_comment) x"
SORT = "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY l_extendedprice, l_orderkey, l_linenumber) AS r FROM lineitem) x"
STATEMENTS = {"join": JOIN, "groups": GROUPS, "sort": SORT}
SMALL = "SELECT count(*) FROM region"


def spilled_bytes(process):
    """What the files without a name hold that a process spills to."""
    total = 0
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            if "(deleted)" in os.readlink(entry) and "spill" in os.readlink(entry):
                total += os.stat(entry).st_blocks * 512
        except OSError:
            continue
    return total


def folder_bytes(folder):
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def wait_until_it_spills(process, more_seconds, seconds=60):
    """Whether it spilled before it ended; how much it had spilled."""
    limit, bytes_at_first = time.monotonic() + seconds, 0
    while time.monotonic() < limit and process.poll() is None:
        bytes_at_first = spilled_bytes(process)
        if bytes_at_first > 0:
            time.sleep(more_seconds)
            return process.poll() is None
        time.sleep(0.02)
    return False


def begin(args, folder, words):
    call = [args.program, *words, "--db", args.db, "--budget", args.budget, "--threads", args.threads, "--spill", folder]
    return list(map(str, call))


def ended_program(args, folder, sql, how, more_seconds):
    """Milliseconds from the signal to the end, and bytes spilled then. `None`: it had ended before."""
    call = begin(args, folder, ["sql", "-c", sql])
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        if not wait_until_it_spills(process, more_seconds):
            process.wait()
            return None
        spilled, sent = spilled_bytes(process), time.monotonic()
        process.send_signal(how)
        process.wait()
        return (time.monotonic() - sent) * 1e3, spilled


def ended_statement(args, folder, sql, more_seconds):
    """Milliseconds from Ctrl-C to the answer of the next statement of a shell, and bytes spilled then."""
    shell = Shell(shlex.join(begin(args, folder, ["shell"])))
    shell.ask(SMALL)
    process = shell.process
    process.stdin.write(sql.encode() + b";\n")
    process.stdin.flush()
    try:
        if not wait_until_it_spills(process, more_seconds):
            return None
        spilled, sent = spilled_bytes(process), time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            shell.ask(SMALL)
        except (ValueError, ChildProcessError):
            # What was interrupted is an error; a shell that reads from a pipe ends with it.
            process.wait(10)
        return (time.monotonic() - sent) * 1e3, spilled
    finally:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the binary hotshelf")
    parser.add_argument("--db", required=True, help="a database with the tables of TPC-H")
    parser.add_argument("--budget", default="64MB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where to spill; on the device that is to be measured")
    args = parser.parse_args()
    chosen, times, problems = random.Random(args.seed), {"program": [], "shell": []}, 0
    with tempfile.TemporaryDirectory(prefix="spill-interrupts-", dir=args.folder) as made:
        folder = Path(made)
        for run in range(args.runs):
            how = ("kill", "program", "shell")[run % 3]
            name = list(STATEMENTS)[run // 3 % 3]
            more_seconds = chosen.uniform(0, 2)
            if how == "shell":
                ended = ended_statement(args, folder, STATEMENTS[name], more_seconds)
            else:
                signal_sent = signal.SIGKILL if how == "kill" else signal.SIGINT
                ended = ended_program(args, folder, STATEMENTS[name], signal_sent, more_seconds)
            if ended is None:
                print(f"{how:8} {name:7} ended before the signal", flush=True)
                continue
            milliseconds, spilled = ended
            remaining, problem = folder_bytes(folder), ""
            if how == "kill":
                opened = subprocess.run(begin(args, folder, ["sql", "-c", SMALL]), capture_output=True)
                remaining = folder_bytes(folder)
                problem = f"opening failed: {opened.stderr[-200:]}" if opened.returncode else ""
            else:
                times[how].append(milliseconds)
            problem = f"{remaining} bytes remain" if remaining else problem
            problems += bool(problem)
            print(f"{how:8} {name:7} {spilled / 1e6:7.0f} MB spilled, ended in {milliseconds:5.0f} ms  {problem}", flush=True)
    for how, measured in times.items():
        if measured:
            late = sum(one > 100 for one in measured)
            print(f"{how}: {len(measured)} times, median {statistics.median(measured):.0f} ms, longest {max(measured):.0f} ms, {late} above 100 ms")
    print(f"{problems} wrong")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
