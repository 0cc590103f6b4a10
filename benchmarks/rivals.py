"""Times a benchmark's queries in several engines under equal limits of memory and read bandwidth.

    python rivals.py ssb --engine duckdb-native=ssb.duckdb --engine duckdb-parquet=FOLDER \\
        --command 'hotshelf=hotshelf sql --db DIR --budget 256MB --timing' \\
        --memory-limit 800M --read-bps 400M --repeats 3 --warmups 1 --out result.json

A repeat runs one pass of every engine, in an order that rotates; a pass is a fresh process in fresh control groups that
runs all queries once per warm-up and then once measured. Before a pass the engine's files leave the page cache. Figures
are medians over repeats. With `--sequence FILE` (from `hotshelf-lab hpcache --sequence NAME --list --format json`) a pass is
that sequence once, from a cold start. A `--command` reads the pass's statements from standard input and reports each one's time in
a line on standard error that `--timing-pattern` matches.
"""

import argparse
import contextlib
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from limits import LimitError, Limits, default_threads, evict, files_below
from results import load_queries
from worker import ENGINES

WORKER = Path(__file__).resolve().parent / "worker.py"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text):
    """Bytes from `800M` or `1G` (powers of two)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 800M or 1G")
    return int(float(match[1]) * UNITS[match[2].upper()])


def named(text):
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def worker_pass(engine, path, queries, settings, limits):
    """Runs one pass in a worker process; a dict of answers of the measured round by query."""
    command = [sys.executable, str(WORKER), engine, path, str(settings.threads)]
    if settings.memory_limit:
        command.append(str(int(settings.memory_limit * settings.duckdb_memory_share)))
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=limits.join
    )
    answers = {}
    try:
        for _ in range(settings.warmups + 1):
            for name, sql in queries.items():
                answers[name] = ask(process, name, sql)
    finally:
        # What was not written to a process that was killed is lost.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    return answers


def ask(process, name, sql):
    try:
        process.stdin.write(json.dumps({"name": name, "sql": sql}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except BrokenPipeError:
        line = ""
    if not line:
        return {"name": name, "error": "the process ended, most likely killed for lack of memory"}
    return json.loads(line)


def command_pass(command, queries, settings, limits):
    """Runs one pass of a command that reads SQL from standard input."""
    script = "".join(f"{sql.rstrip().rstrip(';')};\n" for sql in queries.values()) * (settings.warmups + 1)
    run = subprocess.run(
        shlex.split(command), input=script, capture_output=True, text=True, preexec_fn=limits.join
    )
    found = re.findall(settings.timing_pattern, run.stderr, re.MULTILINE)
    expected = len(queries) * (settings.warmups + 1)
    if run.returncode != 0 or len(found) != expected:
        reason = f"exit code {run.returncode}, {len(found)} of {expected} times: {run.stderr.strip()[-300:]}"
        return {name: {"name": name, "error": reason} for name in queries}
    last = [float(seconds) for seconds in found[-len(queries) :]]
    return {name: {"name": name, "seconds": seconds} for name, seconds in zip(queries, last)}


def run_pass(engine, value, kind, queries, settings):
    data = settings.command_data.get(engine, value) if kind == "command" else value
    if Path(data).exists() and not settings.keep_page_cache:
        evict(files_below(data))
    limits = Limits(engine, settings.memory_limit, settings.read_bps, data)
    try:
        run = command_pass if kind == "command" else worker_pass
        arguments = (value,) if kind == "command" else (engine, value)
        answers = run(*arguments, queries, settings, limits)
        return answers, limits.peak_bytes()
    finally:
        limits.close()


def summary(passes):
    """Medians over an engine's passes."""
    queries = {}
    for name in passes[0][0]:
        answers = [answers[name] for answers, _ in passes]
        errors = [answer["error"] for answer in answers if "error" in answer]
        if errors:
            queries[name] = {"error": errors[0]}
            continue
        seconds = [answer["seconds"] for answer in answers]
        queries[name] = {"median_s": statistics.median(seconds), "all_s": seconds}
        if all("read_bytes" in answer for answer in answers):
            queries[name]["median_read_bytes"] = statistics.median(a["read_bytes"] for a in answers)
    whole = [entry["median_s"] for entry in queries.values() if "median_s" in entry]
    peaks = [peak for _, peak in passes if peak is not None]
    return {
        "queries": queries,
        "sum_of_medians_s": sum(whole) if len(whole) == len(queries) else None,
        "peak_charged_bytes": max(peaks) if peaks else None,
    }


def load_sequence(path):
    """Query texts of a sequence by position and name (`07 Q2.1`), in order."""
    entries = json.loads(Path(path).read_text())
    return {f"{position:02} {entry['query']}": entry["sql"] for position, entry in enumerate(entries, 1)}


def by_template(queries):
    """Median seconds of each template of a sequence, its first query of all left out: it meets a cold start."""
    times = {}
    for name, entry in list(queries.items())[1:]:
        if "median_s" in entry:
            times.setdefault(name.partition(" ")[2], []).append(entry["median_s"])
    return {template: statistics.median(seconds) for template, seconds in sorted(times.items())}


def machine():
    return {
        "cpus": default_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
    }


def print_table(engines):
    names = list(engines)
    print("query  " + "".join(f"{name:>18}" for name in names))
    for query in engines[names[0]]["queries"]:
        cells = [engines[name]["queries"][query] for name in names]
        print(f"{query:7}" + "".join(f"{c['median_s']:18.3f}" if "median_s" in c else f"{'failed':>18}" for c in cells))
    sums = [engines[name]["sum_of_medians_s"] for name in names]
    print("sum    " + "".join(f"{s:18.3f}" if s is not None else f"{'-':>18}" for s in sums))
    templates = [engines[name].get("by_template", {}) for name in names]
    for template in sorted({template for each in templates for template in each}):
        cells = [each.get(template) for each in templates]
        print(f"{template:7}" + "".join(f"{c:18.3f}" if c is not None else f"{'-':>18}" for c in cells))
    peaks = [engines[name]["peak_charged_bytes"] for name in names]
    if all(peaks):
        print("peak MB" + "".join(f"{peak / 1e6:18.0f}" for peak in peaks))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["ssb", "tpch"])
    parser.add_argument("--engine", type=named, action="append", default=[], help=f"NAME=PATH, NAME one of {list(ENGINES)}")
    parser.add_argument("--command", type=named, action="append", default=[], help="NAME=COMMAND")
    parser.add_argument("--command-data", type=named, action="append", default=[], help="NAME=PATH of a command's data")
    parser.add_argument("--timing-pattern", default=r"([0-9.]+) s$", help="regular expression, group 1 in seconds")
    parser.add_argument("--memory-limit", type=size)
    parser.add_argument("--duckdb-memory-share", type=float, default=0.8, help="of the limit, for DuckDB's own pool")
    parser.add_argument("--read-bps", type=size)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warmups", type=int, default=1)
    parser.add_argument("--keep-page-cache", action="store_true")
    parser.add_argument("--queries", nargs="*")
    parser.add_argument("--sequence", type=Path, help="JSON list of {query, sql}: one cold pass in that order")
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    settings.command_data = dict(settings.command_data)
    if settings.sequence:
        settings.warmups = 0
    for name, path in settings.engine:
        if name not in ENGINES:
            parser.error(f"no engine {name!r}; there are {', '.join(ENGINES)}")
        if not Path(path).exists():
            parser.error(f"{path} does not exist")
    for name, _ in settings.command:
        if settings.read_bps and name not in settings.command_data:
            parser.error(f"--read-bps needs --command-data {name}=PATH to know the disk")
    if not settings.engine and not settings.command:
        parser.error("nothing to run: give --engine or --command")
    return settings


def main():
    settings = parse_arguments()
    queries = load_sequence(settings.sequence) if settings.sequence else load_queries(settings.benchmark)
    if settings.queries:
        queries = {name: queries[name] for name in settings.queries}
    runs = [(name, path, "worker") for name, path in settings.engine]
    runs += [(name, command, "command") for name, command in settings.command]
    passes = {name: [] for name, _, _ in runs}
    for repeat in range(settings.repeats):
        shift = repeat % len(runs)
        for name, value, kind in runs[shift:] + runs[:shift]:
            try:
                passes[name].append(run_pass(name, value, kind, queries, settings))
            except LimitError as error:
                sys.exit(f"error: {error}")
            print(f"repeat {repeat + 1}: {name} done", file=sys.stderr)
    engines = {name: summary(passes[name]) for name in passes}
    if settings.sequence:
        for engine in engines.values():
            engine["by_template"] = by_template(engine["queries"])
    print_table(engines)
    if settings.out:
        shown = {key: str(value) if isinstance(value, Path) else value for key, value in vars(settings).items()}
        document = {"machine": machine(), "settings": shown, "engines": engines}
        settings.out.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
