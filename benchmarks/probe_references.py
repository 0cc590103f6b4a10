#!/usr/bin/env python3
"""`hotshelf probe` beside other tools that measure the same, alternating, in one run.

    python3 benchmarks/probe_references.py --hotshelf target/release/hotshelf --folder /data --rounds 3

Memory: a STREAM-like sum over an array by all cores, `likwid-bench` if it is there, and a pointer chase through one
random cycle of cache lines (both written in C below, compiled here). Files: `fio` with the same block size and depth,
also past the page cache. Figures are medians of the rounds.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *memory(size_t bytes) {
    char *p = mmap(0, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p = (char *)(((uintptr_t)p + (2 << 20) - 1) & ~(uintptr_t)((2 << 20) - 1));
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static double *array;
static size_t count;
static int threads;
static pthread_barrier_t barrier;
static volatile double sink;

static void *sum(void *arg) {
    size_t part = count / threads, from = part * (size_t)arg;
    for (int run = 0; run < 21; run++) {
        double s = 0;
        pthread_barrier_wait(&barrier);
        for (size_t i = from; i < from + part; i++) s += array[i];
        sink = s;
        pthread_barrier_wait(&barrier);
    }
    return 0;
}

int main(int argc, char **argv) {
    size_t bytes = strtoull(argv[2], 0, 10);
    if (!strcmp(argv[1], "stream")) {
        threads = atoi(argv[3]);
        count = bytes / sizeof(double);
        array = memory(bytes);
        for (size_t i = 0; i < count; i++) array[i] = i;
        pthread_barrier_init(&barrier, 0, threads + 1);
        pthread_t id;
        for (long t = 0; t < threads; t++) pthread_create(&id, 0, sum, (void *)t);
        double best = 1e9;
        for (int run = 0; run < 21; run++) {
            pthread_barrier_wait(&barrier);
            double start = now();
            pthread_barrier_wait(&barrier);
            double took = now() - start;
            if (run > 0 && took < best) best = took;
        }
        printf("%.6e\n", bytes / best);
        return 0;
    }
    size_t lines = bytes / 64;
    uint64_t *words = memory(bytes), seed = 88172645463325252u;
    uint32_t *order = malloc(lines * sizeof *order);
    for (size_t i = 0; i < lines; i++) order[i] = i;
    for (size_t i = lines - 1; i > 0; i--) {
        seed ^= seed << 13; seed ^= seed >> 7; seed ^= seed << 17;
        size_t j = seed % i;
        uint32_t t = order[i]; order[i] = order[j]; order[j] = t;
    }
    for (size_t i = 0; i < lines; i++) words[i * 8] = (uint64_t)order[i] * 8;
    double best = 1e9;
    uint64_t at = 0;
    for (int run = 0; run < 5; run++) {
        double start = now();
        for (int i = 0; i < 2000000; i++) at = words[at];
        double took = (now() - start) / 2e6;
        if (took < best) best = took;
    }
    sink = at;
    printf("%.6e\n", best * 1e9);
    return 0;
}
"""


def output(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, capture_output=True, **options).stdout


def compiled(folder):
    source, program = folder / "reference.c", folder / "reference"
    source.write_text(SOURCE)
    output("cc", "-O3", "-march=native", "-ffast-math", "-pthread", "-o", program, source)
    return program


def probe(hotshelf, folder, tier):
    out = folder / "probe.json"
    output(hotshelf, "probe", "--quick", "--fresh", "--tier", tier, "--out", out)
    return json.loads(out.read_text())["rows"]


def row(rows, **wanted):
    """The row with these fields, and none of the fields that are there only when something is special."""
    plain = {"beside_threads": None, "range_bytes": None, "on_dram": None, "queue_depth": None, "grouping": "individual"}
    wanted = {**plain, "operation": "read", "placement": "near", **wanted}
    fits = [found for found in rows if all(found.get(name) == value for name, value in wanted.items())]
    return max(fits, key=lambda found: found["bandwidth_bytes_per_s"])


def likwid(threads):
    if not shutil.which("likwid-bench"):
        return None
    try:
        text = output("likwid-bench", "-t", "load_avx512", "-w", f"S0:512MB:{threads}")
    except subprocess.CalledProcessError:
        return None
    found = re.search(r"MByte/s:\s*([\d.]+)", text)
    return float(found[1]) * 1e6 if found else None


def fio(path, pattern, block, depth):
    rw = {"sequential": "read", "random": "randread"}[pattern]
    text = output(
        "fio", "--name=reference", f"--filename={path}", f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}", "--direct=1",
        "--ioengine=io_uring", "--runtime=1", "--time_based", "--output-format=json",
    )  # fmt: skip
    return json.loads(text)["jobs"][0]["read"]["bw_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="on the device whose files are read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("--files-only", action="store_true")
    arguments = parser.parse_args()
    cores = os.cpu_count()
    pairs = {}

    def compare(name, ours, reference):
        if reference is not None:
            pairs.setdefault(name, []).append((ours, reference))

    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        scratch = pathlib.Path(scratch)
        program = compiled(scratch)
        file = scratch / "fio.dat"
        if not arguments.memory_only:
            with open(file, "wb") as out:
                block = os.urandom(4 << 20)
                for _ in range(64):
                    out.write(block)
                os.fsync(out.fileno())
        for _ in range(arguments.rounds):
            if not arguments.files_only:
                rows = probe(arguments.hotshelf, scratch, "dram")
                ours = row(rows, pattern="sequential", threads=cores)["bandwidth_bytes_per_s"]
                stream = float(output(program, "stream", 512 << 20, cores))
                compare("sequential read, GB/s; STREAM-like sum", ours / 1e9, stream / 1e9)
                load = likwid(cores)
                compare("sequential read, GB/s; likwid-bench load", ours / 1e9, load and load / 1e9)
                ours = row(rows, pattern="dependent", access_bytes=64)["latency_ns"]
                compare("random read, ns; pointer chase", ours, float(output(program, "chase", 128 << 20)))
            if not arguments.memory_only:
                rows = probe(arguments.hotshelf, scratch, f"file:{scratch}")
                for pattern, block, depth in [
                    ("sequential", 1 << 20, 16), ("sequential", 1 << 20, 4), ("sequential", 65536, 16), ("random", 1 << 20, 16),
                    ("random", 65536, 16), ("random", 4096, 16), ("random", 4096, 1),
                ]:  # fmt: skip
                    fields = {"pattern": pattern, "access_bytes": block, "queue_depth": depth, "threads": 1}
                    ours = row(rows, **fields)["bandwidth_bytes_per_s"]
                    name = f"file, {pattern}, {block >> 10} KiB, depth {depth}, MB/s; fio"
                    compare(name, ours / 1e6, fio(file, pattern, block, depth) / 1e6)
    print(f"{'what; beside what':56} {'probe':>9} {'reference':>9} {'ratio':>6}  rounds")
    for name, values in pairs.items():
        ours, reference = (statistics.median(column) for column in zip(*values))
        ratios = ", ".join(f"{a / b:.2f}" for a, b in values)
        print(f"{name:56} {ours:9.1f} {reference:9.1f} {ours / reference:6.2f}  {ratios}")


if __name__ == "__main__":
    main()
