#!/usr/bin/env python3
"""Cuts the power of a machine that writes to a database, and looks at what is there after the next boot.

    python3 benchmarks/vm_database.py --hotshelf target/release/hotshelf --cuts 30

QEMU runs Linux with an ext4 file system on a virtual disk. In it `hotshelf shell` appends rows, merges files (OPTIMIZE TABLE) and makes
and drops indexes, and prints what was acknowledged on the serial console. The host kills QEMU at a random moment and boots
again. Then every acknowledged append must be there as a whole, once; the one statement that was running may be there as a whole or
not at all; answers with and without indexes are equal, `verify` is content, and the folder holds nothing that the catalog does not name.

With QEMU, the guest's page cache is gone. The disk is a fresh qcow2 overlay whose tables QEMU keeps in memory until the guest
flushes: what was written to new places of the disk and not flushed is gone, too, as with a disk that has a volatile cache.

`--controls` cuts follow with fsync and fdatasync turned into nothing inside the guest: at least one of those must fail. What is
missing on the host is named; the kernel's Debian package is downloaded into `--work`.
"""

import argparse
import gzip
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import time

import faults
import vm_image

MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "libcrc32c", "ext4"]
DISK_BYTES = 1 << 30
MEMORY = "1536M"
BOOT_SECONDS_MAX = 300
IDS = 1_000_000
NO_SYNC = """
int fsync(int fd) { return 0; }
int fdatasync(int fd) { return 0; }
int msync(void *at, unsigned long bytes, int flags) { return 0; }
int sync_file_range(int fd, long from, long bytes, unsigned flags) { return 0; }
int syncfs(int fd) { return 0; }
"""
INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in $(cat /modules/order.list); do insmod /modules/$m; done
ends() { echo "JOB ends $1 after $(cut -d' ' -f1 /proc/uptime) s"; cd /; sync; umount /mnt; poweroff -f; }
await() { for i in $(seq 100); do [ -e $1 ] && return 0; sleep 0.1; done; echo "no $1"; ends 1; }
await /dev/vda; await /dev/vdb
mkdir -p /mnt /tools /tmp
mount -t ext4 -o ro /dev/vda /tools || ends 1
ln -s /tools/lib64 /lib64; ln -s /tools/lib /lib
export RUST_LOG=error HOTSHELF_HISTORY=/dev/null TMPDIR=/tmp
mount -t ext4 /dev/vdb /mnt || ends 1
. /job
ends $?
"""
WRITE = "{preload} /tools/hotshelf shell --db /mnt/db --budget 256MB </statements 2>&1\n"
CHECK = """
echo ANSWERS
/tools/hotshelf sql --db /mnt/db --budget 256MB --format csv -c "SET hotshelf.elf = 'off'; {count}; SET hotshelf.elf = 'always'; {count}" 2>&1
echo "ENDED $?"
echo VERIFY; /tools/hotshelf verify --db /mnt/db >/tmp/verify 2>&1; code=$?; tail -n 20 /tmp/verify; echo "ENDED $code"
"""
COUNT = f"SELECT 'append' AS row, id / {IDS} AS a, count(*) AS n, count(DISTINCT id) AS d, sum(id) AS s, sum(k) AS k FROM t WHERE id >= 0 AND k >= 0 GROUP BY 2 ORDER BY 2"


class Statements:
    """What the guest runs: statements, each followed by one that acknowledges it, and the rows of the appends."""

    def __init__(self, seed, count=600):
        dice = random.Random(seed)
        self.appends, self.kinds, lines = {}, [], ["\\format csv"]
        for number in range(count):
            sql = "CREATE TABLE t (id BIGINT, k BIGINT, s TEXT)" if number == 0 else self.draw(number, dice)
            lines += [f"{sql};", f"SELECT concat('ack ', {number}, ' now') AS mark;"]
        self.text = "\n".join(lines) + "\n"

    def draw(self, number, dice):
        kind = dice.choices(["append", "OPTIMIZE", "index", "clustered", "drop"], [6, 2, 2, 0.5, 1])[0]
        self.kinds.append(kind)
        if kind == "append":
            rows = dice.choice([1, 100, 5000, 20_000])
            self.appends[number] = rows
            values = f"{number * IDS} + value, value * 7919 % 1009, concat('text ', value % 977)"
            return f"INSERT INTO t SELECT {values} FROM generate_series(0, {rows - 1})"
        return {
            "OPTIMIZE": "OPTIMIZE TABLE t",
            "index": "CREATE INDEX IF NOT EXISTS i ON t USING elf (k, id)",
            "clustered": "CREATE INDEX IF NOT EXISTS c ON t USING elf (s) WITH (clustered = true)",
            "drop": f"DROP INDEX IF EXISTS {dice.choice('iic')}",
        }[kind]

    def right(self, number):
        """What COUNT answers of an append."""
        rows = self.appends[number]
        numbers = [number * IDS * rows + rows * (rows - 1) // 2, sum(i * 7919 % 1009 for i in range(rows))]
        return [rows, rows, *numbers]


class Machine:
    def __init__(self, work, hotshelf, accelerator):
        self.work, self.accelerator = work, accelerator
        self.build(hotshelf)

    def build(self, hotshelf):
        """The kernel, the RAM disk, the disk with the program, and an empty file system."""
        package, tree = vm_image.kernel_package(self.work), self.work / "kernel"
        if not tree.exists():
            subprocess.run([vm_image.program("dpkg-deb"), "-x", package, tree], check=True)
        [bzimage] = (tree / "boot").glob("vmlinuz-*")
        if not (self.work / "vmlinux").exists():
            (self.work / "vmlinux").write_bytes(vm_image.elf_of(bzimage.read_bytes()))
        modules = vm_image.Modules(tree)
        order = modules.in_order(MODULES)
        files = {
            "init": INIT.encode(),
            "bin/busybox": pathlib.Path(vm_image.program("busybox")).read_bytes(),
            **{f"modules/{name}": modules.content(name) for name in order},
            "modules/order.list": " ".join(order).encode(),
        }
        folders = {name: None for name in ["bin", "dev", "proc", "sys"]}
        (self.work / "database-initrd").write_bytes(gzip.compress(vm_image.archive({**folders, **vm_image.with_folders(files)}), 1))
        self.make_tools(hotshelf)
        self.make_file_system(self.work / "empty.img", DISK_BYTES)

    def make_tools(self, hotshelf):
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            folder = pathlib.Path(folder)
            shutil.copy(hotshelf, folder / "hotshelf")
            libraries = subprocess.run([vm_image.program("ldd"), hotshelf], capture_output=True, text=True, check=True).stdout
            for library in re.findall(r"/\S+", libraries):
                target = folder / library.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
            source = folder / "no_sync.c"
            source.write_text(NO_SYNC)
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "no_sync.so", source], check=True)
            self.make_file_system(self.work / "tools.img", folder.joinpath("hotshelf").stat().st_size + (64 << 20), folder)

    def make_file_system(self, path, size, folder=None):
        path.unlink(missing_ok=True)
        with open(path, "wb") as out:
            out.truncate(size)
        fill = ["-d", folder] if folder else []
        options = ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]
        subprocess.run([vm_image.program("mke2fs"), *options, *fill, path], check=True)

    def new_disk(self):
        """An empty file system below an overlay that takes all that is written."""
        disk = self.work / "disk.qcow2"
        disk.unlink(missing_ok=True)
        base = ["-b", (self.work / "empty.img").resolve(), "-F", "raw"]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *base, disk], check=True)
        return disk

    def start(self, job, statements, disk, log):
        job_file = self.work / "database-initrd-job"
        job_file.write_bytes((self.work / "database-initrd").read_bytes())
        with open(job_file, "ab") as out:
            out.write(b"\0" * (-out.tell() % 4) + vm_image.archive({"job": job.encode(), "statements": statements.encode()}))
        words = "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check nokaslr mitigations=off rcupdate.rcu_expedited=1 random.trust_cpu=on"
        command = [
            *[vm_image.program("qemu-system-x86_64"), "-accel", self.accelerator, "-cpu", "max", "-smp", "2", "-m", MEMORY],
            *["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"],
            *["-drive", f"if=virtio,format=raw,readonly=on,file={self.work / 'tools.img'}"],
            *["-drive", f"if=virtio,format=qcow2,cache=writeback,l2-cache-size=16M,cache-clean-interval=0,file={disk}"],
            *["-kernel", self.work / "vmlinux", "-initrd", job_file, "-append", words],
        ]  # fmt: skip
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def write_until_cut(self, statements, preload, dice):
        """Writes and kills the machine after some acknowledged statements and a moment; the disk and what was said."""
        disk, path = self.new_disk(), self.work / "write.log"
        wanted, more = dice.randrange(3, 16), dice.uniform(0, 1.0)
        with open(path, "wb") as log:
            guest = self.start(WRITE.format(preload=preload), statements.text, disk, log)
            started = time.monotonic()
            while len(acknowledged(path.read_text(errors="replace"))) < wanted:
                time.sleep(0.02)
                if guest.poll() is not None or time.monotonic() - started > BOOT_SECONDS_MAX:
                    guest.kill()
                    guest.wait()
                    raise SystemExit(f"the guest acknowledges nothing: {path}")
            time.sleep(more)
            guest.kill()
            guest.wait()
        return disk, path.read_text(errors="replace").replace("\r", "")

    def look(self, disk):
        """What the next boot finds, as it says it; and the database, copied to the host."""
        path = self.work / "check.log"
        with open(path, "wb") as log:
            guest = self.start(CHECK.format(count=COUNT), "", disk, log)
            try:
                guest.wait(BOOT_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                guest.kill()
                guest.wait()
        return path.read_text(errors="replace").replace("\r", "")

    def leftovers(self, disk):
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            raw = pathlib.Path(folder) / "raw"
            subprocess.run(["qemu-img", "convert", "-O", "raw", disk, raw], check=True)
            dump = [vm_image.program("debugfs"), "-R", f"rdump /db {folder}", raw]
            subprocess.run(dump, check=True, capture_output=True)
            return faults.leftovers(pathlib.Path(folder) / "db")


def acknowledged(text):
    """Numbers of the acknowledged statements. The last line may be cut off."""
    return [int(number) for number in re.findall(r"^ack (\d+) now\r?\n", text, re.M)]


def judge(statements, acked, text):
    """What is wrong after a cut; nothing if all is right."""
    answers = re.search(r"^ANSWERS\n(.*?)^ENDED (\d+)", text, re.M | re.S)
    verified = re.search(r"^VERIFY\n(.*?)^ENDED (\d+)", text, re.M | re.S)
    if not answers or not verified:
        return ["the machine says nothing: " + text[-800:]]
    if answers[2] != "0":
        return [f"no answer: {answers[1].strip()[-400:]}"]
    # Twice the same: without and with indexes.
    found = re.findall(r"^append,(\d+),(\d+),(\d+),(-?\d+),(-?\d+)$", answers[1], re.M)
    half = len(found) // 2
    wrong = [] if found[:half] == found[half:] else ["the indexes answer otherwise than the scan"]
    if verified[2] != "0":
        wrong.append(f"verify: {verified[1].strip()[-300:]}")
    rows = {int(number): [int(one) for one in numbers] for number, *numbers in found[:half]}
    return wrong + compare(statements, acked, rows)


def compare(statements, acked, found):
    """Acknowledged appends must be there; the statement after the last acknowledged one may be."""
    last = max(acked, default=-1)
    must = {number for number in statements.appends if number <= last}
    may = must | ({last + 1} & statements.appends.keys())
    wrong = [f"append {number} is lost" for number in sorted(must - found.keys())]
    wrong += [f"append {number} was never run" for number in sorted(found.keys() - may)]
    broken = [number for number in found.keys() & may if found[number] != statements.right(number)]
    return wrong + [f"append {number}: {found[number]}, right is {statements.right(number)}" for number in sorted(broken)]


def cut(machine, seed, preload):
    """One cut: what was acknowledged, what was running, and what is wrong."""
    statements, dice = Statements(seed), random.Random(seed)
    disk, said = machine.write_until_cut(statements, preload, dice)
    acked = acknowledged(said)
    last = max(acked)
    running = statements.kinds[last] if last < len(statements.kinds) else "nothing"
    wrong = judge(statements, acked, machine.look(disk))
    # Leftovers count only in a database that answers as it should.
    if not wrong:
        wrong = [f"nothing names {name}" for name in machine.leftovers(disk)]
    return len([number for number in statements.appends if number <= last]), len(acked), running, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", type=pathlib.Path, required=True, help="the binary")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path.home() / ".cache/hotshelf/vm-database", help="2 GB")
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--controls", type=int, default=2, help="cuts without fsync")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--accelerator", default="tcg", help="kvm where there is one")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    machine = Machine(arguments.work, arguments.hotshelf, arguments.accelerator)
    passed = True
    for name, preload, count in [("fsync", "", arguments.cuts), ("no fsync", "LD_PRELOAD=/tools/no_sync.so", arguments.controls)]:
        held = 0
        for number in range(count):
            appended, acked, running, wrong = cut(machine, arguments.seed * 1000 + number, preload)
            held += not wrong
            words = "held" if not wrong else "FAILED: " + "; ".join(wrong)[:600]
            print(f"{name:8} cut {number + 1:3}: {acked:3} statements acknowledged, {appended:3} appends; cut in {running:9}: {words}", flush=True)
        right = held == count if not preload else held < count
        passed &= right or not count
        print(f"{name}: held {held} of {count}, {'as it must be' if right or not count else 'WRONG'}", flush=True)
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
