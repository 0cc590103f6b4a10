"""Damages thousands of input files and reads each with `hotshelf import` and with `SELECT … FROM 'file'`.

    HS=target/release/hotshelf python damaged_inputs.py --count 2000

Every input must be read or refused with words: no signal, no hang over ten seconds, no more memory than the budget and 300 MB.
Queries go through one shell, which is started again when it ends; imports are a process each. Bombs come last: small files that
claim to be, or become, far larger than the budget.
"""

import argparse
import gzip
import multiprocessing
import os
import queue
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

HS = os.environ.get("HS", "hotshelf")
BUDGET_MB = 64
HEADROOM_MB = 300
HANG_S = 10
LENGTHS = [0, 1 << 31, 1 << 40, (1 << 62), (1 << 63) - 1, (1 << 64) - 1]


def rows(count):
    numbers = list(range(count))
    return pa.table(
        {
            "a": numbers,
            "b": [n * 0.5 for n in numbers],
            "c": [f"text number {n % 7}" for n in numbers],
            "d": [None if n % 3 == 0 else n for n in numbers],
            "l": [[n, n + 1] for n in numbers],
        }
    )


def write_arrow(path, table, compression, stream):
    options = pa.ipc.IpcWriteOptions(compression=compression)
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=100)


def write_originals(folder):
    """Small good files: path by format."""
    table = rows(300)
    flat = table.drop_columns(["l"])
    pyarrow.csv.write_csv(flat, folder / "plain.csv")
    (folder / "packed.csv.gz").write_bytes(gzip.compress((folder / "plain.csv").read_bytes()))
    lines = "".join(f'{{"a": {n}, "b": {n / 2}, "c": "text {n % 7}", "l": [{n}]}}\n' for n in range(300))
    (folder / "plain.ndjson").write_text(lines)
    (folder / "packed.ndjson.gz").write_bytes(gzip.compress(lines.encode()))
    for compression in ["none", "snappy", "zstd"]:
        pq.write_table(table, folder / f"{compression}.parquet", compression=compression, row_group_size=100)
    for compression in [None, "lz4", "zstd"]:
        for stream in [False, True]:
            write_arrow(folder / f"{compression}-{'stream' if stream else 'file'}.arrow", table, compression, stream)
    endings = {"csv": "*.csv*", "ndjson": "*.ndjson*", "parquet": "*.parquet", "arrow": "*.arrow"}
    return {name: sorted(folder.glob(pattern)) for name, pattern in endings.items()}


def damaged(data, dice):
    data = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 5])):
        if not data:
            break
        at = dice.randrange(len(data))
        kind = dice.randrange(6)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            data[at] ^= 1 << dice.randrange(8)
        elif kind == 2:
            data[at] = dice.randrange(256)
        elif kind == 3:
            size = dice.choice([4, 8])
            data[at : at + size] = (dice.choice(LENGTHS) & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif kind == 4:
            del data[at : at + dice.randrange(1, 64)]
        else:
            data[at:at] = data[at : at + dice.randrange(1, 64)]
    return bytes(data)


def write_bombs(folder):
    """Small files that are large when they are read."""
    text = "x" * 1_000_000
    wide = pa.table({"s": [text] * 1000})
    pq.write_table(wide, folder / "plain-pages.parquet", compression="zstd", use_dictionary=False)
    pq.write_table(wide, folder / "dictionary.parquet", compression="zstd", dictionary_pagesize_limit=1 << 30)
    small_pages = {"use_dictionary": False, "data_page_size": 1 << 20, "write_batch_size": 1}
    pq.write_table(wide, folder / "small-pages.parquet", compression="zstd", **small_pages)
    with gzip.open(folder / "one-line.csv.gz", "wb", 6) as file:
        file.write(b"s\n")
        for _ in range(3000):
            file.write(text.encode())
    with gzip.open(folder / "wide-lines.csv.gz", "wb", 6) as file:
        file.write(b"s\n")
        for _ in range(3000):
            file.write(text.encode() + b"\n")
    options = pa.CompressedOutputStream(str(folder / "one-line.ndjson.zst"), "zstd")
    with options as file:
        file.write(b'{"s": "')
        for _ in range(3000):
            file.write(text.encode())
        file.write(b'"}\n')
    write_arrow(folder / "zstd.arrow", wide.slice(0, 600).combine_chunks(), "zstd", False)
    with pa.ipc.new_file(str(folder / "one-batch.arrow"), wide.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(wide.slice(0, 600))


class Tally:
    """What happened, by kind; the first files of each kind that must not be."""

    def __init__(self, keep):
        self.counts = {}
        self.bad = []
        self.keep = keep
        self.peak_mb = 0

    def note(self, way, kind, path, words=""):
        self.counts[way, kind] = self.counts.get((way, kind), 0) + 1
        if kind not in ("read", "refused"):
            kept = self.keep / f"{way}-{kind}-{len(self.bad)}{''.join(path.suffixes)}"
            kept.write_bytes(path.read_bytes())
            self.bad.append(f"{way}: {kind}: {kept} {words[:200]}")

    def note_memory(self, way, peak_kb, path):
        self.peak_mb = max(self.peak_mb, peak_kb / 1024)
        if peak_kb / 1024 > BUDGET_MB + HEADROOM_MB:
            self.note(way, "memory", path, f"{peak_kb / 1024:.0f} MB")


def run_import(database, path, tally):
    command = [HS, "import", "--db", str(database), "--budget", f"{BUDGET_MB}MB", "--replace", "t", str(path)]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        timer = threading.Timer(HANG_S * (30 if path.stat().st_size > 1 << 17 else 1), process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        alive = timer.is_alive()
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        words = errors.read()
    tally.note("import", verdict(process.returncode, words, alive), path, words)
    tally.note_memory("import", usage.ru_maxrss, path)


def verdict(code, words, in_time):
    if not in_time:
        return "hang"
    if code < 0:
        return "signal"
    if code == 0:
        return "read"
    if "panicked" in words:
        return "panic"
    return "refused" if re.search(r"^error: .+", words, re.M) else "silent"


class Shell:
    """Statements to one process, with an answer to each or the news that it ended."""

    def __init__(self, database):
        command = [HS, "shell", "--db", str(database), "--budget", f"{BUDGET_MB}MB"]
        environment = {**os.environ, "HOTSHELF_HISTORY": os.devnull}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self.process = subprocess.Popen(command, text=True, env=environment, errors="replace", **pipes)
        self.lines = queue.Queue()
        self.count = 0
        self.answered = True
        threading.Thread(target=self.read, daemon=True).start()
        self.send("\\format csv")

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def ask(self, sql, seconds):
        """The words of the answer; `None` after `seconds`."""
        self.count += 1
        mark = f"mark {self.count} end"
        words = ""
        self.answered = False
        try:
            self.send(f"{sql};")
            self.send(f"SELECT concat('mark ', {self.count}, ' end');")
            end = time.monotonic() + seconds
            while (line := self.lines.get(timeout=max(end - time.monotonic(), 0.01))) is not None:
                if line.strip().strip('"') == mark:
                    self.answered = True
                    return words
                words += line if len(words) < 10_000 else ""
        except queue.Empty:
            return None
        except BrokenPipeError:
            pass
        return words

    def peak_kb(self):
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0
        found = re.search(r"VmHWM:\s+(\d+)", status)
        return int(found[1]) if found else 0

    def stop(self):
        self.process.kill()
        self.process.wait()

    def ended(self):
        try:
            return self.process.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            return None


def run_query(shell, database, path, tally, seconds):
    words = shell.ask(f"CREATE OR REPLACE TABLE q AS SELECT * FROM '{path}'", seconds)
    peak_kb = shell.peak_kb()
    if words is None:
        kind = "hang"
    elif not shell.answered and shell.ended() is not None:
        kind = "signal" if shell.process.returncode < 0 else "ended"
    elif "panicked" in words:
        kind = "panic"
    else:
        kind = "refused" if "error" in words else "read"
    tally.note("query", kind, path, words or "")
    tally.note_memory("query", peak_kb, path)
    too_large = peak_kb / 1024 > BUDGET_MB + HEADROOM_MB
    if kind in ("hang", "signal", "ended") or too_large:
        shell.stop()
        return Shell(database)
    return shell


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="damaged inputs of each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="*", default=["csv", "ndjson", "parquet", "arrow"])
    parser.add_argument("--no-bombs", action="store_true")
    parser.add_argument("--keep", type=Path, default=Path("damaged_inputs.kept"), help="folder for the inputs that failed")
    settings = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    settings.keep.mkdir(exist_ok=True)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        good, work, bombs = folder / "good", folder / "work", folder / "bombs"
        for path in (good, work, bombs):
            path.mkdir()
        originals = write_originals(good)
        dice = random.Random(settings.seed)
        for name in settings.formats:
            tally = Tally(settings.keep)
            shell = Shell(folder / "queries")
            for number in range(settings.count):
                original = originals[name][number % len(originals[name])]
                path = work / f"{number}-{original.name}"
                path.write_bytes(damaged(original.read_bytes(), dice))
                run_import(folder / "imports", path, tally)
                shell = run_query(shell, folder / "queries", path, tally, HANG_S)
                path.unlink()
            shell.stop()
            failed |= report(name, tally)
        if not settings.no_bombs:
            tally = Tally(settings.keep)
            # In a process of its own: the peak of a child counts from its parent's memory.
            writer = multiprocessing.Process(target=write_bombs, args=[bombs])
            writer.start()
            writer.join()
            for path in sorted(bombs.iterdir()):
                before = tally.peak_mb
                tally.peak_mb = 0
                run_import(folder / "imports", path, tally)
                shell = Shell(folder / "queries")
                run_query(shell, folder / "queries", path, tally, HANG_S * 30).stop()
                print(f"  {path.name}: {path.stat().st_size / 1e3:.0f} KB, peak {tally.peak_mb:.0f} MB", flush=True)
                tally.peak_mb = max(tally.peak_mb, before)
            failed |= report("bombs", tally)
    sys.exit(failed)


def report(name, tally):
    counts = ", ".join(f"{way} {kind} {count}" for (way, kind), count in sorted(tally.counts.items()))
    print(f"{name}: {counts}; peak {tally.peak_mb:.0f} MB", flush=True)
    for line in tally.bad[:20]:
        print(f"  BAD {line}", flush=True)
    return bool(tally.bad)


if __name__ == "__main__":
    main()
