"""Runs every query of a benchmark at several budgets, each in a process of its own: does it end, is it right, how long
does it take, and how much memory does the process hold?

    python budgets.py answers.json --program hotshelf --db DIR --budgets 64MB 256MB 1GB --out result.json

`answers.json` comes from answers.py over the same data. Exit code 1 if a query fails or an answer differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results import QUERY_FOLDER, compare, load_queries, parse_csv


def run(command, timeout_s):
    """Exit code (None after the timeout), output, errors, seconds, and the most memory held, in bytes."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        ended, status, usage = 0, 0, None
        while ended == 0:
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended == 0 and time.monotonic() - start > timeout_s:
                process.kill()
                ended, _, usage = os.wait4(process.pid, 0)
                status = None
            elif ended == 0:
                time.sleep(0.005)
        seconds = time.monotonic() - start
        process.returncode = 0  # it was waited for here
        output.seek(0)
        errors.seek(0)
        code = None if status is None else os.waitstatus_to_exitcode(status)
        return code, output.read(), errors.read(), seconds, usage.ru_maxrss * 1024


def measure(arguments, benchmark, name, sql, expected, budget):
    query = QUERY_FOLDER / benchmark / f"{name}.sql"
    command = [arguments.program, "sql", "--db", str(arguments.db), "--budget", budget]
    command += ["--threads", str(arguments.threads), "--format", "csv", "-f", str(query)]
    code, output, errors, seconds, rss_bytes = run(command, arguments.timeout)
    row = {"query": name, "budget": budget, "seconds": round(seconds, 3), "rss_bytes": rss_bytes}
    if code is None:
        return row | {"verdict": f"not ended after {arguments.timeout} s"}
    if code != 0:
        return row | {"verdict": f"failed: {errors.strip()[-300:]}"}
    found = compare(expected, *parse_csv(output), sql)
    return row | {"verdict": f"different: {found[0]}" if found else "equal"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--program", required=True, help="the binary hotshelf")
    parser.add_argument("--db", type=Path, required=True)
    parser.add_argument("--budgets", nargs="+", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one query")
    parser.add_argument("--queries", nargs="*", help="only these")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()

    document = json.loads(arguments.answers.read_text())
    benchmark = document["benchmark"]
    texts = load_queries(benchmark)
    rows = []
    for budget in arguments.budgets:
        for name in arguments.queries or list(document["queries"]):
            row = measure(arguments, benchmark, name, texts[name], document["queries"][name], budget)
            rows.append(row)
            shown = f"{row['seconds']:8.2f} s {row['rss_bytes'] / 1e6:7.0f} MB"
            print(f"{budget:>8} {name:5} {shown}  {row['verdict']}", flush=True)
        mine = [row for row in rows if row["budget"] == budget]
        right = sum(row["verdict"] == "equal" for row in mine)
        most = max(row["rss_bytes"] for row in mine) / 1e6
        total = sum(row["seconds"] for row in mine)
        print(f"{budget:>8} {right} of {len(mine)} equal, {total:.1f} s, at most {most:.0f} MB", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1))
    sys.exit(0 if all(row["verdict"] == "equal" for row in rows) else 1)


if __name__ == "__main__":
    main()
