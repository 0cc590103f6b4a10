#!/usr/bin/env python3
"""Cuts the power of a machine that writes to a database, and looks at what is there after the next boot.

    python3 benchmarks/vm_database.py --hotshelf target/release/hotshelf --cuts 30

QEMU runs Linux with an ext4 file system on a virtual disk. In it `hotshelf shell` appends rows, merges files (OPTIMIZE TABLE) and makes
and drops indexes, and prints what was acknowledged on the serial console. The host kills QEMU at a random moment and boots
again. Then every acknowledged append must be there as a whole, once; the one statement that was running may be there as a whole or
not at all; answers with and without indexes are equal, `verify` is content, and the folder holds nothing that the catalog does not name.

    python3 benchmarks/vm_database.py --hotshelf target/release/hotshelf --shelf dax:/pmem --cuts 20 --controls 0

With `--shelf` the leaves of the indexes are on an NVDIMM with ext4 and DAX, or on a memory-only node (`node:1`), both *emulated*. The table begins
with `--rows` rows, and cuts are aimed at CREATE INDEX, the copying of leaves, the publication of the copy, and DROP INDEX. After the next boot
the copies must become whole again. Then one is damaged while the machine is off: bytes are overwritten, the pool is cut off or removed, or
the NVDIMM is taken away. The boot after that must give the same answers.

With QEMU, the guest's page cache is gone. The disk is a fresh qcow2 overlay whose tables QEMU keeps in memory until the guest
flushes: what was written to new places of the disk and not flushed is gone, too, as with a disk that has a volatile cache.

`--controls` cuts follow with fsync and fdatasync turned into nothing inside the guest: at least one of those must fail. What is
missing on the host is named; the kernel's Debian package is downloaded into `--work`.
"""

import argparse
import contextlib
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
import vm_shelf

MODULES = ["virtio_pci", "virtio_blk", "crc32c_generic", "libcrc32c", "ext4"]
DISK_BYTES = 1 << 30
MEMORY = "1536M"
BOOT_SECONDS_MAX = 300
IDS = 10_000_000
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
WRITE = "{shelf}{preload} /tools/hotshelf shell --db /mnt/db --budget 256MB </statements 2>&1\n"
CHECK = """
echo ANSWERS
/tools/hotshelf sql --db /mnt/db --budget 256MB --format csv -c "{questions}" 2>&1
echo "ENDED $?"
"""
VERIFY = """
echo VERIFY; /tools/hotshelf verify --db /mnt/db >/tmp/verify 2>&1; code=$?; tail -n 20 /tmp/verify; echo "ENDED $code"
"""
COUNT = (
    f"SELECT 'append' AS row, id / {IDS} AS a, count(*) AS n, count(DISTINCT id) AS d, sum(id) AS s, sum(k) AS k"
    " FROM t WHERE id >= 0 AND k >= 0 GROUP BY 2 ORDER BY 2"
)


def asked(how):
    return f"SELECT 'asked {how}' AS mark; SET hotshelf.elf = '{how}'; {COUNT};"


class Statements:
    """What the guest runs: statements, each followed by one that acknowledges it, and the rows of the appends."""

    KINDS = {"append": 6, "OPTIMIZE": 2, "index": 2, "clustered": 0.5, "drop": 1}

    def __init__(self, seed, count=600):
        dice = random.Random(seed)
        self.appends, self.kinds, lines = {}, [], ["\\format csv"]
        for number in range(count):
            sql = self.first() if number == 0 else self.draw(number, dice)
            lines += [f"{sql};", f"SELECT concat('ack ', {number}, ' now') AS mark;"]
        self.text = "\n".join(lines) + "\n"

    def first(self):
        return "CREATE TABLE t (id BIGINT, k BIGINT, s TEXT)"

    def draw(self, number, dice):
        kind = self.kind(dice)
        self.kinds.append(kind)
        return self.append(number, dice.choice([1, 100, 5000, 20_000])) if kind == "append" else self.sql(kind, dice)

    def kind(self, dice):
        return dice.choices(list(self.KINDS), self.KINDS.values())[0]

    def append(self, number, rows):
        self.appends[number] = rows
        values = f"{number * IDS} + value, value * 7919 % 1009, concat('text ', value % 977)"
        return f"INSERT INTO t SELECT {values} FROM generate_series(0, {rows - 1})"

    def sql(self, kind, dice):
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

    def numbers(self, kind):
        """Statements of a kind."""
        return [i + 1 for i, one in enumerate(self.kinds) if one == kind]

    def moment(self, dice):
        """When to cut: a name, whether what was said is enough, and how many seconds more."""
        wanted = dice.randrange(3, 16)
        return "any", lambda text: len(acknowledged(text)) >= wanted, dice.uniform(0, 1.0)


class ShelfStatements(Statements):
    """Indexes come and go on a shelf, and queries begin to copy their leaves."""

    KINDS = {"append": 5, "ask": 3, "index": 4, "drop": 2, "OPTIMIZE": 0.4, "clustered": 0.2}

    def __init__(self, seed, shelf, rows):
        self.shelf, self.rows = shelf, rows
        # Whether the index exists after each statement.
        self.exists = [False]
        super().__init__(seed)

    def first(self):
        """The table is there from the beginning."""
        self.append(0, self.rows)
        return "SELECT 1"

    def kind(self, dice):
        kind, exists = super().kind(dice), self.exists[-1]
        kind = {("ask", False): "index", ("drop", False): "index", ("index", True): "ask"}.get((kind, exists), kind)
        self.exists.append({"index": True, "drop": False}.get(kind, exists))
        return kind

    def sql(self, kind, dice):
        if kind == "index":
            cache = dice.choice(["", ", cache = 'none'", ", cache = 'none'"])
            return f"CREATE INDEX i ON t USING elf (k, id) WITH (shelf = '{self.shelf.word}'{cache}); {self.ask(dice)}"
        return self.ask(dice) if kind == "ask" else "DROP INDEX i" if kind == "drop" else super().sql(kind, dice)

    def ask(self, dice):
        """The same of the table and of the index."""
        first, wide = dice.randrange(1000), dice.choice([0, 20, 900])
        answer = "SELECT concat('answer ', count(*), ' ', sum(id), ' ', sum(k)) AS mark"
        question = f"{answer} FROM t WHERE id >= 0 AND k BETWEEN {first} AND {first + wide}"
        return f"SET hotshelf.elf = 'off'; {question}; SET hotshelf.elf = 'always'; {question}"

    def moment(self, dice):
        aim, nth = dice.choice(["build", "copy", "copied", "drop", "any"]), dice.randrange(2)
        if aim in ("copy", "copied") and self.shelf.is_dax:
            pattern = vm_shelf.SAID[aim]
            return aim, lambda text: len(re.findall(pattern, text)) > nth, dice.uniform(0, 2.0 if aim == "copy" else 0.1)
        # The copying begins while the index's first question runs.
        kind, most_s = {"build": ("index", 8.0), "drop": ("drop", 0.5), "any": ("append", 2.0)}.get(aim, ("index", 0.0))
        number = self.numbers(kind)[nth]
        after = number if most_s == 0.0 else number - 1
        return aim, lambda text: max(acknowledged(text), default=-1) >= after, dice.uniform(0, most_s or 3.0)


class Machine:
    PROCESSORS = "2"
    # Programs beside the database's, by their names in the guest.
    others = {}

    def __init__(self, work, hotshelf, accelerator, shelf, rows):
        self.work, self.accelerator, self.shelf, self.rows = work, accelerator, shelf, rows
        self.build(hotshelf)
        if shelf:
            shelf.make_template(self.run)

    def build(self, hotshelf):
        """The kernel, the RAM disk, the disk with the program, and an empty file system."""
        package, tree = vm_image.kernel_package(self.work), self.work / "kernel"
        if not tree.exists():
            subprocess.run([vm_image.program("dpkg-deb"), "-x", package, tree], check=True)
        [bzimage] = (tree / "boot").glob("vmlinuz-*")
        if not (self.work / "vmlinux").exists():
            (self.work / "vmlinux").write_bytes(vm_image.elf_of(bzimage.read_bytes()))
        modules = vm_image.Modules(tree)
        order = modules.in_order(MODULES + (vm_shelf.MODULES if self.shelf else []))
        files = {
            "init": INIT.encode(),
            "bin/busybox": pathlib.Path(vm_image.program("busybox")).read_bytes(),
            **{f"modules/{name}": modules.content(name) for name in order},
            "modules/order.list": " ".join(order).encode(),
        }
        folders = {name: None for name in ["bin", "dev", "proc", "sys"]}
        (self.work / "database-initrd").write_bytes(gzip.compress(vm_image.archive({**folders, **vm_image.with_folders(files)}), 1))
        self.make_tools(hotshelf)
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            if self.rows:
                self.make_table(hotshelf, pathlib.Path(folder))
            self.make_file_system(self.work / "empty.img", DISK_BYTES, folder)

    def make_table(self, hotshelf, folder):
        """The table that is there when the machine starts."""
        fill = Statements(0, 0).append(0, self.rows)
        program = faults.Program(hotshelf, 120)
        program.must(program.sql(folder / "db", f"CREATE TABLE t (id BIGINT, k BIGINT, s TEXT); {fill}"))

    def make_tools(self, hotshelf):
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            folder = pathlib.Path(folder)
            of_shelf = {name: vm_image.program(name) for name in (vm_shelf.PROGRAMS if self.shelf else [])}
            programs = {"hotshelf": hotshelf, **of_shelf, **self.others}
            for name, program in programs.items():
                shutil.copy(program, folder / name)
            for library in [library for program in programs.values() for library in vm_image.libraries(program)]:
                target = folder / library.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
            source = folder / "no_sync.c"
            source.write_text(NO_SYNC)
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "no_sync.so", source], check=True)
            size = sum(path.stat().st_size for path in map(pathlib.Path, [hotshelf, *self.others.values()]))
            self.make_file_system(self.work / "tools.img", size + (64 << 20), folder)

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

    def statements(self, seed):
        return ShelfStatements(seed, self.shelf, self.rows) if self.shelf else Statements(seed)

    def start(self, job, files, log, disk, memory, throttle=""):
        """Starts a guest that runs the job's script; what it prints goes to the log."""
        job_file = self.work / "database-initrd-job"
        job_file.write_bytes((self.work / "database-initrd").read_bytes())
        with open(job_file, "ab") as out:
            files = {name: text.encode() for name, text in {"job": job, **files}.items()}
            out.write(b"\0" * (-out.tell() % 4) + vm_image.archive(files))
        words = "console=ttyS0 quiet loglevel=3 panic=-1 no_timer_check nokaslr mitigations=off rcupdate.rcu_expedited=1 random.trust_cpu=on"
        command = [
            *[vm_image.program("qemu-system-x86_64"), "-accel", self.accelerator, "-cpu", "max", "-smp", self.PROCESSORS, *memory],
            *["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"],
            *["-drive", f"if=virtio,format=raw,readonly=on,file={self.work / 'tools.img'}"],
            *["-drive", f"if=virtio,format=qcow2,cache=writeback,l2-cache-size=16M,cache-clean-interval=0,file={disk}{throttle}"],
            *["-kernel", self.work / "vmlinux", "-initrd", job_file, "-append", words],
        ]  # fmt: skip
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def memory(self):
        return self.shelf.devices() if self.shelf else ["-m", MEMORY]

    def run(self, job, files=(), disk=None, memory=None):
        """Boots, runs a job to its end and gives back what it said."""
        path = self.work / "check.log"
        with open(path, "wb") as log:
            guest = self.start(job, dict(files), log, disk or self.new_disk(), memory or self.memory())
            try:
                guest.wait(BOOT_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                guest.kill()
                guest.wait()
        return path.read_text(errors="replace").replace("\r", "")

    def write_until_cut(self, statements, preload, dice):
        """Writes and kills the machine at some moment; the disk, what was said, and what the cut was meant to hit."""
        disk, path = self.new_disk(), self.work / "write.log"
        aim, reached, more_s = statements.moment(dice)
        shelf, throttle = "", ""
        if self.shelf:
            self.shelf.renew()
            shelf, throttle = self.shelf.mount + self.shelf.watch, f",throttling.bps-read={vm_shelf.READ_BYTES_PER_S}"
        with open(path, "wb") as log:
            job = WRITE.format(shelf=shelf, preload=preload)
            guest = self.start(job, {"statements": statements.text}, log, disk, self.memory(), throttle)
            started = time.monotonic()
            while not reached(path.read_text(errors="replace")):
                time.sleep(0.02)
                if guest.poll() is not None or time.monotonic() - started > BOOT_SECONDS_MAX:
                    guest.kill()
                    guest.wait()
                    raise SystemExit(f"the guest does not come to what should be cut ({aim}): {path}")
            time.sleep(more_s)
            guest.kill()
            guest.wait()
        return disk, path.read_text(errors="replace").replace("\r", ""), aim

    def look(self, disk, memory=None, tries=100):
        """What the next boot finds, as it says it."""
        if not self.shelf:
            return self.run(CHECK.format(questions=asked("off") + asked("always")) + VERIFY, (), disk)
        files = {"questions": asked("off") + asked("on") + asked("always"), "copies": vm_shelf.COPIES, "last": asked("always")}
        return self.run(self.shelf.check(tries) + VERIFY + self.shelf.listing, files, disk, memory)

    @contextlib.contextmanager
    def database(self, disk):
        """The database, copied to the host."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            raw = pathlib.Path(folder) / "raw"
            subprocess.run(["qemu-img", "convert", "-O", "raw", disk, raw], check=True)
            dump = [vm_image.program("debugfs"), "-R", f"rdump /db {folder}", raw]
            subprocess.run(dump, check=True, capture_output=True)
            raw.unlink()
            yield pathlib.Path(folder) / "db"


def acknowledged(text):
    """Numbers of the acknowledged statements. The last line may be cut off."""
    return [int(number) for number in re.findall(r"^ack (\d+) now\r?\n", text, re.M)]


def judge(statements, acked, text):
    """What is wrong after a cut; nothing if all is right."""
    answers = re.findall(r"^ANSWERS\n(.*?)^ENDED (\d+)", text, re.M | re.S)
    verified = re.search(r"^VERIFY\n(.*?)^ENDED (\d+)", text, re.M | re.S)
    if not answers or not verified:
        return ["the machine says nothing: " + text[-800:]]
    if failed := [said for said, code in answers if code != "0" or re.search("^error", said, re.M)]:
        return [f"no answer: {failed[0].strip()[-400:]}"]
    # The same each time: without and with indexes.
    parts = [part for said, _ in answers for part in re.split(r"^asked \w+$", said, flags=re.M)[1:]]
    found = [re.findall(r"^append,(\d+),(\d+),(\d+),(-?\d+),(-?\d+)$", part, re.M) for part in parts]
    wrong = [] if all(one == found[0] for one in found) else ["the indexes answer otherwise than the scan"]
    if verified[2] != "0":
        wrong.append(f"verify: {verified[1].strip()[-300:]}")
    rows = {int(number): [int(one) for one in numbers] for number, *numbers in found[0]}
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
    """One cut: what was acknowledged, what was running and what else is worth saying, and what is wrong."""
    statements, dice = machine.statements(seed), random.Random(seed)
    disk, said, aim = machine.write_until_cut(statements, preload, dice)
    acked = acknowledged(said)
    last = max(acked)
    running = statements.kinds[last] if last < len(statements.kinds) else "nothing"
    text = machine.look(disk)
    wrong, notes = judge(statements, acked, text), ""
    if machine.shelf and not wrong:
        exists = statements.exists[last] if statements.exists[last] == statements.exists[last + 1] else None
        wrong, notes = on_shelf(machine, (statements, acked, exists), disk, (aim, said, text), dice)
    # Leftovers count only in a database that answers as it should.
    if not wrong:
        with machine.database(disk) as database:
            wrong = [f"nothing names {name}" for name in faults.leftovers(database)]
    appended = len([number for number in statements.appends if number <= last])
    return f"{len(acked):3} statements acknowledged, {appended:3} appends; cut in {running:9}{notes}", wrong


def on_shelf(machine, expected, disk, words, dice):
    """What is wrong with the copies after a cut, and after damage to one of them; and notes."""
    (statements, acked, exists), (aim, said, text), shelf = expected, words, machine.shelf
    wrong, notes = shelf.judge(text, exists), f" ({aim}; {shelf.state(said)}; {shelf.sessions(text)})"
    wrong += vm_shelf.unequal(said)
    if not shelf.is_dax or wrong:
        return wrong, notes
    with machine.database(disk) as database:
        own, strange = shelf.own_and_strange(text, database)
    notes += f"; files of former indexes: {sum('.tmp' not in one for one in strange)} pools, {sum('.tmp' in one for one in strange)} unfinished"
    if not own:
        return wrong, notes
    kind = dice.choice(vm_shelf.DAMAGES)
    what = shelf.damage(kind, own, dice)
    if kind == "device":
        text = machine.look(disk, shelf.devices(is_there=False), 5)
    else:
        text = machine.look(disk)
        wrong += shelf.judge(text, exists)
    wrong += judge(statements, acked, text)
    return [f"{what}: {one}" for one in wrong], f"{notes}; then {what}: {shelf.sessions(text)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hotshelf", type=pathlib.Path, required=True, help="the binary")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path.home() / ".cache/hotshelf/vm-database", help="2 GB")
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--controls", type=int, default=2, help="cuts without fsync")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shelf", help=f"dax:{vm_shelf.FOLDER} or node:{vm_image.MEMORY_ONLY_NODE}")
    parser.add_argument("--rows", type=int, default=600_000, help="of the table that an index is made of, with a shelf")
    parser.add_argument("--accelerator", default="tcg", help="kvm where there is one")
    arguments = parser.parse_args()
    vm_image.check_programs(["qemu-system-x86_64", "busybox", "dpkg-deb", "mke2fs", "ldd", *(vm_shelf.PROGRAMS if arguments.shelf else [])])
    arguments.work.mkdir(parents=True, exist_ok=True)
    shelf = vm_shelf.Shelf(arguments.shelf, arguments.work) if arguments.shelf else None
    machine = Machine(arguments.work, arguments.hotshelf, arguments.accelerator, shelf, arguments.rows if shelf else 0)
    passed = True
    for name, preload, count in [("fsync", "", arguments.cuts), ("no fsync", "LD_PRELOAD=/tools/no_sync.so", arguments.controls)]:
        held = 0
        for number in range(count):
            seed = arguments.seed * 1000 + number
            what, wrong = cut(machine, seed, preload)
            held += not wrong
            if wrong:
                for log in ["write", "check"]:
                    shutil.copy(arguments.work / f"{log}.log", arguments.work / f"failed-{seed}-{log}.log")
            words = "held" if not wrong else "FAILED: " + "; ".join(wrong)[:600]
            print(f"{name:8} seed {seed}: {what}: {words}", flush=True)
        right = held == count if not preload else held < count
        passed &= right or not count
        print(f"{name}: held {held} of {count}, {'as it must be' if right or not count else 'WRONG'}", flush=True)
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
