#!/usr/bin/env python3
"""What was removed on a shelf stays removed when the power is cut, *emulated*.

    python3 benchmarks/vm_removed.py --hotshelf target/release/hotshelf

The shelf has a file system of its own, which commits by its own clock: a file that is removed and not synced comes back
with a cut, when the catalog may have forgotten it. In a virtual machine with an NVDIMM (see vm_tables.py) tables are put
on it and it is left alone until its file system has committed; then files of theirs are removed, by OPTIMIZE TABLE and by
moving a table home, the catalog changes a few times more, and QEMU is killed. After the next boot nothing may be there that
nothing names.
"""

import argparse
import pathlib
import random

import vm_database
import vm_image
import vm_shelf
import vm_tables

SHELF = "dax:/pmem"
# Some seconds of work.
WAIT = ["SELECT count(*) FROM generate_series(1, 100000000) a"] * 3
LATER = ["INSERT INTO home SELECT value FROM range(10)"] * 3
BEGIN = [vm_tables.place(vm_tables.ANCHOR, SHELF), "CREATE TABLE home AS SELECT 7 AS one"]
ADDED = [vm_tables.add(number * vm_database.IDS, 10) for number in (1, 2)]
CASES = {
    "OPTIMIZE": [vm_tables.place("lineorder", SHELF), *ADDED, *WAIT, "OPTIMIZE TABLE lineorder"],
    "moved home": [vm_tables.place("part", SHELF), *WAIT, vm_tables.place("part", "file")],
}


class Directed:
    """Statements up to a cut after the last of them."""

    appends, kinds = {}, []

    def __init__(self, statements):
        self.count = len(statements)
        acknowledged = [f"{sql};\nSELECT concat('ack ', {i}, ' now') AS mark;" for i, sql in enumerate(statements)]
        busy = "SELECT count(*) FROM generate_series(1, 1000000000) a;"
        self.text = "\n".join(["\\format csv", *acknowledged, *[busy] * 5]) + "\n"

    def moment(self, _):
        return "all", lambda text: max(vm_database.acknowledged(text), default=-1) >= self.count - 1, 0.1


def cut(machine, statements):
    """What nothing names after the cut and two openings."""
    disk, said, _ = machine.write_until_cut(Directed(statements), "", random.Random(1))
    failed = [line for line in said.splitlines() if line.startswith("error")]
    files, shelf = {}, machine.shelf
    job = (
        shelf.mount
        + shelf.list_files("before")
        + machine.session("first", ["SELECT count(*) FROM home"], files)
        + vm_tables.VERIFY
        + machine.session("second", ["SELECT count(*) FROM home"], files)
        + shelf.list_files("after")
    )
    text = machine.run(job, files, disk)
    return failed + vm_tables.verified(text) + vm_tables.strange(machine, disk, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", type=pathlib.Path, required=True, help="the binary")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path.home() / ".cache/hotshelf/vm-tables")
    parser.add_argument("--accelerator", default="tcg", help="kvm where there is one")
    settings = parser.parse_args()
    settings.shelf, settings.scale = SHELF, 0.01
    vm_image.check_programs(["qemu-system-x86_64", "busybox", "dpkg-deb", "mke2fs", "ldd", *vm_shelf.PROGRAMS])
    settings.work.mkdir(parents=True, exist_ok=True)
    machine = vm_tables.Machine(settings)
    passed = True
    for name, statements in CASES.items():
        wrong = cut(machine, [*BEGIN, *statements, *LATER])
        passed &= not wrong
        print(f"{name:12} {vm_tables.verdict(wrong)}", flush=True)
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
