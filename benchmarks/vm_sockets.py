#!/usr/bin/env python3
"""Two sockets with memory of their own, *emulated*: where threads run and where bytes lie.

    python3 benchmarks/vm_sockets.py --hotshelf target/release/hotshelf --lab target/release/hotshelf-lab

Linux in QEMU has two sockets of two processors, each with a NUMA node. Emulated memory has no far and near: that all
paths run, are right and put threads and bytes where they should be is looked at here, times say nothing.

`hotshelf-lab ssb --handcrafted` runs the 13 queries with every step of the paper's table 1, by columns, rows and the
engine that knows nothing of the memory, beside the product: answers must be equal, and no step may say that the machine
cannot show it. Then the product places `lineorder` on node 1, with a profile by which far memory is slow and two
writers are best: while the table is copied and read, /proc says where its threads may run and do run. Writers and
workers must be on node 1's processors, the bytes in its memory, and the answers as in the database's folder, where
workers run anywhere. What is missing on the host is named; the kernel's Debian package is downloaded into `--work`.
"""

import argparse
import csv
import json
import pathlib
import re
import shutil

import vm_image
import vm_tables

NODE_MIB = 1024
NODES = {0: "0-1", 1: "2-3"}
STEPS = ["one-thread", "all-threads", "two-sockets", "numa", "pinning"]
# How often the queries are asked while /proc is looked at.
ROUNDS = 12
LAB = """
/tools/hotshelf-lab ssb --handcrafted --db /mnt/db --scale {scale} --contender engine,columns,rows,unaware \\
    --look-ups {look_ups} --step {steps} --threads 4 --runs 1 --format csv >/tmp/out 2>/tmp/err; code=$?
echo "BEGIN lab-{look_ups}"; cat /tmp/out; [ $code = 0 ] || cat /tmp/err; echo "ENDED $code"
"""
# The machine's description is that of a probe; what it measured is replaced.
PROBE = """
/tools/hotshelf probe --tier node:1 --quick --only 'random, 1 threads' --working-set 16MB --out /tmp/probe.json >/tmp/out 2>&1
{ sed '/"rows": \\[/q' /tmp/probe.json; cat /rows.json; echo '], "refused": [] }'; } >/tmp/rows.json
/tools/hotshelf probe --db /mnt/db --from /tmp/rows.json --explain >>/tmp/out 2>&1; code=$?
echo "BEGIN probe"; cat /tmp/out; echo "ENDED $code"
"""
# Each piece that a writer of copies writes, and where the writer may run.
PIECES = "warn,hotshelf_store::data_file::filling=trace"
# What a thread may use, and what it runs on if it runs.
WATCHED = """
may() {{ while read word value; do [ $word = Cpus_allowed_list: ] && allowed=$value; done <$1/status; }}
RUST_LOG={log} /tools/hotshelf shell --db /mnt/db --budget 256MB --threads 4 </{name} >/tmp/out 2>&1 & pid=$!
echo "BEGIN threads-{name}"
while [ -d /proc/$pid/task ] && ! grep -q '^all asked' /tmp/out; do
    for task in /proc/$pid/task/*; do
        may $task; before=$allowed
        read comm <$task/comm && read stat <$task/stat || continue
        may $task; [ $before = $allowed ] || continue
        set -- ${{stat##*) }}
        echo "$comm $1 $allowed ${{37}}"
    done 2>/dev/null | sort | uniq -c | grep -v ' S '
    cat /proc/$pid/numa_maps >/tmp/maps.new 2>/dev/null; grep -q 'bind:1.* N[01]=' /tmp/maps.new && mv /tmp/maps.new /tmp/maps
done
echo "ENDED 0"
wait $pid; code=$?
echo "BEGIN maps-{name}"; grep -o 'bind:1.* N[01]=.*' /tmp/maps; echo "ENDED 0"
echo "BEGIN {name}"; cat /tmp/out; echo "ENDED $code"
"""


class Machine(vm_tables.Machine):
    """A machine of two sockets, whose disk has the tables of the benchmark."""

    PROCESSORS = "4,sockets=2,cores=2,threads=1"

    def __init__(self, settings):
        self.others = {"hotshelf-lab": settings.lab}
        super().__init__(settings)

    def shelf_of(self, settings):
        return None

    def memory(self):
        words = ["-machine", "pc", "-m", f"{2 * NODE_MIB}M"]
        for node, processors in NODES.items():
            words += ["-object", f"memory-backend-ram,id=node{node},size={NODE_MIB}M"]
            words += ["-numa", f"node,nodeid={node},cpus={processors},memdev=node{node}"]
        return [*words, "-numa", "dist,src=0,dst=1,val=21"]


def rows():
    """Measurements as those of two sockets are: far memory is read half as fast, and two writers are best."""

    def row(operation, threads, placement, bytes_per_s):
        return {
            **{"tier": "node:1", "emulated": False, "operation": operation, "pattern": "sequential", "access_bytes": 4096},
            **{"threads": threads, "grouping": "individual", "pinning": "none", "placement": placement},
            **{"bandwidth_bytes_per_s": bytes_per_s, "spread": 0.0},
        }

    reads = [row("read", threads, place, threads * 1e9 * near) for threads in (1, 2) for place, near in [("near", 1), ("far", 0.5)]]
    writes = [row("write", threads, "near", rate) for threads, rate in [(1, 1e9), (2, 2e9), (4, 1e9)]]
    return ",".join(json.dumps(one) for one in reads + writes)


def lab(text, look_ups):
    """What is wrong with the steps by hand, and words for them."""
    said, code = vm_tables.part(text, f"lab-{look_ups}")
    if code != 0:
        return [f"ended with {code}: {said[-500:]}"], ""
    found = list(csv.DictReader(line for line in said.splitlines() if "," in line))
    wrong = []
    for contender in ("columns", "rows", "unaware"):
        for step in STEPS:
            own = [one for one in found if (one["contender"], one["step"]) == (contender, step)]
            if len(own) != 13 or any(one["not_shown"] for one in own):
                wrong.append(f"{contender}, {step}: {len(own)} queries, {own[:1]}")
    threads = {one["step"]: one["threads"] for one in found if one["contender"] == "rows"}
    return wrong, f"{len(found)} runs, all answers equal; threads {threads}"


def threads_of(text, name):
    """How often threads were seen running, by name, the processors they may use, and the one they were on."""
    seen = {}
    for line in vm_tables.part(text, f"threads-{name}")[0].splitlines():
        if found := re.match(r" *(\d+) (\S+) R (\S+) (\d+)$", line):
            key = (found[2], found[3], int(found[4]))
            seen[key] = seen.get(key, 0) + int(found[1])
    return seen


def placed(machine, text):
    """What is wrong with the table on node 1, and words for where threads ran."""
    count = len(machine.queries)
    wrong, words = [], []
    for name, first in [("home", 0), ("node", 1)]:
        found = vm_tables.answers(text, name, first + ROUNDS * count)[first:]
        for number in range(ROUNDS):
            wrong += machine.equal(found[number * count : (number + 1) * count], f"{name}, round {number + 1}")
    home, node = threads_of(text, "home"), threads_of(text, "node")
    workers = {key: times for key, times in node.items() if key[0] == "hotshelf"}
    near = sum(times for (_, allowed, cpu), times in workers.items() if allowed == NODES[1] and cpu in (2, 3))
    said = re.sub(r"\x1b\[[0-9;]*m", "", vm_tables.part(text, "node")[0])
    pieces = re.findall(r"cpus=(\S.*?) about\.writer=(\d+) .*len_bytes=(\d+)", said)
    wrong += [] if pieces else ["no piece of a copy was written"]
    wrong += [f"a writer may run on {cpus}" for cpus, _, _ in pieces if cpus != "Some([2, 3])"][:1]
    writers = sorted({writer for _, writer, _ in pieces})
    wrong += [f"writers: {writers}"] if writers != ["0", "1"] else []
    far = [key for key in workers if key[1] == NODES[1] and key[2] not in (2, 3)]
    # Between two looks at what a thread may use it can have been elsewhere.
    elsewhere = sum(workers[key] for key in far)
    wrong += [f"near threads run on {far}"] if elsewhere * 4 > near else []
    wrong += ["no worker was seen near the table"] if near == 0 else []
    pinned = [key for key in home if key[0] == "hotshelf" and key[1] != "0-3"]
    wrong += [f"of a table in the folder workers run on {pinned}"] if pinned else []
    pages = {node: 0 for node in NODES}
    for node_pages in re.findall(r"N([01])=(\d+)", vm_tables.part(text, "maps-node")[0]):
        pages[int(node_pages[0])] += int(node_pages[1])
    wrong += [f"pages of the copies by node: {pages}"] if pages[0] or not pages[1] else []
    everywhere = sorted({cpu for (comm, _, cpu) in home if comm == "hotshelf"})
    words.append(f"in the folder workers run on processors {everywhere}")
    words.append(f"on node 1: workers seen near {near} of {sum(workers.values())} times (the rest is not reading)")
    sizes = [int(size) for _, _, size in pieces]
    words.append(f"{len(writers)} writers wrote {len(pieces)} pieces of at most {max(sizes, default=0)} bytes, all from node 1")
    words.append(f"{pages[1]} pages of the copies on node 1, {pages[0]} elsewhere")
    return wrong, "; ".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", type=pathlib.Path, required=True, help="the binary")
    parser.add_argument("--lab", type=pathlib.Path, required=True, help="that of the experiments")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path.home() / ".cache/hotshelf/vm-sockets", help="2 GB")
    parser.add_argument("--scale", type=float, default=0.01, help="of the benchmark")
    parser.add_argument("--look-ups", nargs="*", default=["dash", "unchained"], help="of the queries by hand")
    parser.add_argument("--accelerator", default="tcg", help="kvm where there is one")
    settings = parser.parse_args()
    vm_image.check_programs(["qemu-system-x86_64", "busybox", "dpkg-deb", "mke2fs", "ldd"])
    settings.work.mkdir(parents=True, exist_ok=True)
    machine = Machine(settings)
    passed = True

    def judge(name, wrong, words):
        nonlocal passed
        passed &= not wrong
        print(f"{name:24} {vm_tables.verdict(wrong)}: {words}", flush=True)
        if wrong:
            shutil.copy(settings.work / "check.log", settings.work / f"failed-{name.replace(' ', '-')}.log")

    for look_ups in settings.look_ups:
        text = machine.run(LAB.format(scale=settings.scale, look_ups=look_ups, steps=",".join(STEPS)))
        judge(f"by hand, {look_ups}", *lab(text, look_ups))
    questions = machine.queries * ROUNDS
    files = {
        "rows.json": rows(),
        "home": vm_tables.script(questions) + "SELECT 'all asked' AS mark;\n",
        "node": vm_tables.script([vm_tables.place("lineorder", "node:1"), *questions]) + "SELECT 'all asked' AS mark;\n",
    }
    text = machine.run(PROBE + WATCHED.format(name="home", log="warn") + WATCHED.format(name="node", log=PIECES) + vm_tables.VERIFY, files)
    said, code = vm_tables.part(text, "probe")
    wrong, words = placed(machine, text) if code == 0 else ([f"probe ({code}): {said[-500:]}"], "")
    judge("lineorder on node 1", wrong + vm_tables.verified(text), words)
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
