#!/usr/bin/env python3
"""`hotshelf probe` beside other tools that measure the same, alternating, in one run.

    python3 benchmarks/probe_references.py --hotshelf target/release/hotshelf --folder /data --rounds 3

Memory: a STREAM-like sum over an array by all cores, `likwid-bench` if it is there, and a pointer chase through one
random cycle of cache lines (both written in C below, compiled here). Files: `fio` reads the very file that the probe wrote and
left, with the same block size and depth, also past the page cache, for the same time; point by point, the order changes. `fio` runs a
second time with its buffers in huge pages, as the engine's are, if some are set aside: a large block is then one piece of memory to the
device and not hundreds. And a third time with huge pages and in batches, as the engine submits: the kernel then makes one request of
neighbouring blocks. Figures are medians of the rounds.
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

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, by_size);
    return values[count / 2];
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
        double took[21];
        for (int run = 0; run < 21; run++) {
            pthread_barrier_wait(&barrier);
            double start = now();
            pthread_barrier_wait(&barrier);
            took[run] = now() - start;
        }
        printf("%.6e\n", bytes / median(took + 1, 20));
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
    double took[5];
    uint64_t at = 0;
    for (int run = 0; run < 5; run++) {
        double start = now();
        for (int i = 0; i < 1000000; i++) at = words[at];
        took[run] = (now() - start) / 1e6;
    }
    sink = at;
    printf("%.6e\n", median(took, 5) * 1e9);
    return 0;
}
"""


# Pattern, block size and depth.
FILE_POINTS = [
    ("sequential", 1 << 20, 16), ("sequential", 1 << 20, 4), ("sequential", 65536, 16), ("random", 1 << 20, 16),
    ("random", 65536, 16), ("random", 4096, 16), ("random", 4096, 4), ("random", 4096, 1),
]  # fmt: skip


def output(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, capture_output=True, **options).stdout


def compiled(folder):
    source, program = folder / "reference.c", folder / "reference"
    source.write_text(SOURCE)
    output("cc", "-O3", "-march=native", "-ffast-math", "-pthread", "-o", program, source)
    return program


def probe(hotshelf, folder, tier, *more):
    out = folder / "probe.json"
    output(hotshelf, "probe", "--quick", "--fresh", "--tier", tier, "--out", out, *more)
    return json.loads(out.read_text())


def row(rows, **wanted):
    """The row with these fields, and none of the fields that are there only when something is special."""
    plain = {"beside_threads": None, "range_bytes": None, "on_dram": None, "queue_depth": None, "grouping": "individual"}
    wanted = {**plain, "operation": "read", "placement": "near", **wanted}
    fits = [found for found in rows if all(found.get(name) == value for name, value in wanted.items())]
    return max(fits, key=lambda found: found["bandwidth_bytes_per_s"])


def likwid(threads, working_set_bytes):
    """Its arrays lie in small pages."""
    if not shutil.which("likwid-bench"):
        return None
    try:
        text = output("likwid-bench", "-t", "load_avx512", "-w", f"S0:{working_set_bytes // 10**6}MB:{threads}")
    except subprocess.CalledProcessError:
        return None
    found = re.search(r"MByte/s:\s*([\d.]+)", text)
    return float(found[1]) * 1e6 if found else None


def huge_pages(wanted_bytes):
    """Whether the system has this many bytes in huge pages set aside (`sysctl vm.nr_hugepages=64`)."""
    fields = dict(line.split(":") for line in open("/proc/meminfo"))
    page_bytes = int(fields["Hugepagesize"].split()[0]) << 10
    return int(fields["HugePages_Free"]) * page_bytes >= 2 * wanted_bytes


def fio(path, pattern, block, depth, *more):
    rw = {"sequential": "read", "random": "randread"}[pattern]
    text = output(
        "fio", "--name=reference", f"--filename={path}", f"--rw={rw}", f"--bs={block}", f"--iodepth={depth}", "--direct=1",
        "--readonly", "--norandommap", "--randrepeat=0", "--ioengine=io_uring", "--runtime=1", "--time_based",
        "--output-format=json", *more,
    )  # fmt: skip
    return json.loads(text)["jobs"][0]["read"]["bw_bytes"]


def compare_memory(arguments, scratch, compare):
    """Medians on both sides, over as much memory: caches hold a part of it, and so do the caches of translated addresses."""
    program, threads = compiled(scratch), os.cpu_count()
    wanted = [f"read {1 << 20} bytes, sequential, {threads} threads", "read 64 bytes, dependent, 1 threads"]
    only = [word for text in wanted for word in ("--only", text)]
    for _ in range(arguments.rounds):
        report = probe(arguments.hotshelf, scratch, "dram", *only)
        rows, working_set_bytes = report["rows"], report["working_set_bytes"]
        ours = row(rows, pattern="sequential", access_bytes=1 << 20, threads=threads)["bandwidth_bytes_per_s"]
        stream = float(output(program, "stream", working_set_bytes, threads))
        compare("sequential read, GB/s; STREAM-like sum", ours / 1e9, stream / 1e9)
        load = likwid(threads, working_set_bytes)
        compare("sequential read, GB/s; likwid-bench load", ours / 1e9, load and load / 1e9)
        ours = row(rows, pattern="dependent", access_bytes=64, threads=1)["latency_ns"]
        compare("random read, ns; pointer chase", ours, float(output(program, "chase", working_set_bytes)))


def compare_files(arguments, scratch, compare):
    """The rounds of one point of a quick probe take as long as `fio`: eight of 125 ms."""
    tier = f"file:{scratch}"

    def ours(pattern, block, depth):
        only = f"read {block} bytes, {pattern}, 1 threads, depth {depth}"
        rows = probe(arguments.hotshelf, scratch, tier, "--keep-file", "--only", only)["rows"]
        return row(rows, pattern=pattern, access_bytes=block, queue_depth=depth, threads=1)["bandwidth_bytes_per_s"]

    ours(*FILE_POINTS[0])
    [file] = scratch.glob("hotshelf-probe-read*")
    for round_idx in range(arguments.rounds):
        for point_idx, point in enumerate(FILE_POINTS):
            pattern, block, depth = point
            name = f"file, {pattern}, {block >> 10} KiB, depth {depth}, MB/s;"
            sides = {"probe": lambda: ours(*point), "fio": lambda: fio(file, *point)}
            if huge_pages(block * depth):
                sides["fio, huge pages"] = lambda: fio(file, *point, "--iomem=mmaphuge")
                batches = [f"--iodepth_batch_submit={depth}", f"--iodepth_batch_complete_max={depth}"]
                if depth > 1:
                    sides["fio, huge pages, batches"] = lambda: fio(file, *point, "--iomem=mmaphuge", *batches)
            order = list(sides)
            first = (round_idx + point_idx) % len(order)
            found = {side: sides[side]() / 1e6 for side in order[first:] + order[:first]}
            for side in order[1:]:
                compare(f"{name} {side}", found["probe"], found[side])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="on the device whose files are read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("--files-only", action="store_true")
    arguments = parser.parse_args()
    pairs = {}

    def compare(name, ours, reference):
        if reference is not None:
            pairs.setdefault(name, []).append((ours, reference))

    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        scratch = pathlib.Path(scratch)
        if not arguments.files_only:
            compare_memory(arguments, scratch, compare)
        if not arguments.memory_only:
            compare_files(arguments, scratch, compare)
    print(f"{'what; beside what':64} {'probe':>9} {'reference':>9} {'ratio':>6}  rounds")
    for name, values in pairs.items():
        ours, reference = (statistics.median(column) for column in zip(*values))
        rounds = ", ".join(f"{a:.1f}/{b:.1f}" for a, b in values)
        print(f"{name:64} {ours:9.1f} {reference:9.1f} {ours / reference:6.2f}  {rounds}")


if __name__ == "__main__":
    main()
