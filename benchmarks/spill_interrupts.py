#!/usr/bin/env python3
"""Ends statements that spill, at random moments, and looks at what remains of what they spilled.

    python3 benchmarks/spill_interrupts.py --program target/release/hotshelf --db DIR [--runs 30] [--budget 64MB]

The database has the tables of TPC-H. Each run begins a join, an aggregation or a sort that spills, waits until it does, and a
random time more; then one of three things happens, in turn:

* `kill`: SIGKILL. When the database has been opened again, no byte may be left in the folder.
* `program`: Ctrl-C of `hotshelf sql`. It counts until the program has ended, which must be with 130; no byte may be left.
* `shell`: Ctrl-C of a statement in a `hotshelf shell` at a terminal. It counts until the next statement is answered and the shell
  holds no file with spilled bytes any more.

The exit code is 1 if bytes remained, a program failed, or no statement was met; how long it took is printed beside the goal (100 ms).
"""

import argparse
import os
import pty
import random
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

JOIN = "SELECT count(*), sum(o_totalprice), max(length(l_comment) + length(o_comment)) FROM lineitem JOIN orders ON l_orderkey = o_orderkey"
GROUPS = "SELECT count(*), sum(n) FROM (SELECT l_comment, count(*) AS n FROM lineitem GROUP BY l_comment) x"
SORT = "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY l_extendedprice, l_orderkey, l_linenumber) AS r FROM lineitem) x"
STATEMENTS = {"join": JOIN, "groups": GROUPS, "sort": SORT}
SMALL = "SELECT count(*) FROM region"


def spilled_bytes(process):
    """What the files without a name hold that a process spills to."""
    total = 0
    try:
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            target = os.readlink(entry)
            if "(deleted)" in target and "spill" in target:
                total += os.stat(entry).st_blocks * 512
    except OSError:
        pass  # It has ended, or closed a file just now.
    return total


def folder_bytes(folder):
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def spills(process, more_seconds, seconds=60):
    """Waits until a process spills, and some seconds more; whether it still runs then."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and process.poll() is None:
        if spilled_bytes(process) > 0:
            time.sleep(more_seconds)
            return process.poll() is None
        time.sleep(0.02)
    return False


def begin(args, folder, words):
    call = [args.program, *words, "--db", args.db, "--budget", args.budget, "--threads", args.threads, "--spill", folder]
    return list(map(str, call))


def ended_program(args, folder, sql, how, more_seconds):
    """Milliseconds from the signal to the end, bytes spilled then, and what is wrong. `None`: it had ended before."""
    call = begin(args, folder, ["sql", "-c", sql])
    with subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        if not spills(process, more_seconds):
            if process.wait() != 0:
                sys.exit(f"{sql}: {process.stderr.read()[-300:]}")
            return None
        spilled, sent = spilled_bytes(process), time.monotonic()
        process.send_signal(how)
        code = process.wait()
        milliseconds = (time.monotonic() - sent) * 1e3
    # A statement may be through just before the signal.
    expected = (-signal.SIGKILL,) if how == signal.SIGKILL else (130, 0)
    return milliseconds, spilled, "" if code in expected else f"exit code {code}"


def read_until(terminal, text, seconds=60):
    """Reads from a terminal until it says this."""
    said, limit = b"", time.monotonic() + seconds
    while text not in said:
        left = limit - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            sys.exit(f"no {text} in {seconds} s after {said[-300:]}")
        said += os.read(terminal, 1 << 16)


def ended_statement(args, folder, sql, more_seconds):
    """Milliseconds from Ctrl-C to the answer of the next statement, bytes spilled at Ctrl-C, and what is wrong."""
    terminal, its_side = pty.openpty()
    environment = {**os.environ, "HOTSHELF_HISTORY": os.devnull, "TERM": "dumb"}
    sides = dict.fromkeys(("stdin", "stdout", "stderr"), its_side)
    process = subprocess.Popen(begin(args, folder, ["shell"]), env=environment, start_new_session=True, **sides)
    os.close(its_side)
    try:
        # What is typed is shown, too, so an answer is told by what is not.
        os.write(terminal, b"SELECT 40 + 2, 'a' || 'b';\n")
        read_until(terminal, b"| ab")
        os.write(terminal, sql.encode() + b";\n")
        if not spills(process, more_seconds):
            return None
        spilled, sent = spilled_bytes(process), time.monotonic()
        process.send_signal(signal.SIGINT)
        os.write(terminal, b"SELECT 'c' || 'd';\n")
        read_until(terminal, b"| cd")
        while (remaining := spilled_bytes(process)) and time.monotonic() < sent + 5:
            time.sleep(0.002)
        milliseconds = (time.monotonic() - sent) * 1e3
        return milliseconds, spilled, f"{remaining} spilled bytes are held" if remaining else ""
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


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
            milliseconds, spilled, problem = ended
            if how == "kill":
                opened = subprocess.run(begin(args, folder, ["sql", "-c", SMALL]), capture_output=True)
                problem = f"opening failed: {opened.stderr[-200:]}" if opened.returncode else problem
            else:
                times[how].append(milliseconds)
            remaining = folder_bytes(folder)
            problem = f"{remaining} bytes remain" if remaining else problem
            problems += bool(problem)
            print(f"{how:8} {name:7} {spilled / 1e6:7.0f} MB spilled, ended in {milliseconds:5.0f} ms  {problem}", flush=True)
    for how, measured in times.items():
        if measured:
            late = sum(one > 100 for one in measured)
            print(f"{how}: {len(measured)} times, median {statistics.median(measured):.0f} ms, longest {max(measured):.0f} ms, {late} above 100 ms")
    print(f"{problems} wrong")
    sys.exit(1 if problems or not all(times.values()) else 0)


if __name__ == "__main__":
    main()
