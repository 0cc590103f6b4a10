"""What `vm_database.py` needs for indexes on a shelf: the machine's memory, what it must say, and damage to it.

The NVDIMM is a file of the host, mapped shared: *emulated* persistent memory. Whatever the guest stored in it survives a cut. The
emulated CPU has no cache, so a missing flush cannot be seen here; a wrong order of files, their sizes and their names can.
"""

import re
import struct
import subprocess

import vm_image

FOLDER = "/pmem"
MODULES = ["nfit", "nd_pmem"]
PROGRAMS = ["ndctl", "mke2fs"]
NVDIMM_BYTES = 512 << 20
# ndctl's description of the namespace lies before the file system.
FILE_SYSTEM_OFFSET = 2 << 20
BLOCK_BYTES = 4096
FAST_MIB = 1536
# The disk is slow while statements run, so that copying leaves takes a while.
READ_BYTES_PER_S = 4 << 20
# The part of an index file's first block that has the number in its pool's name.
IDENTITY_AT = 80
# An NVDIMM that is away leaves no folder. One that is there may take a moment.
MOUNT = f"""
if [ -e /sys/firmware/acpi/tables/NFIT ]; then
    await /dev/pmem0; mkdir {FOLDER}; mount -t ext4 -o dax=always /dev/pmem0 {FOLDER} || ends 1
fi
"""
# Says what is in the folder whenever that changes; nearly all of it is built into the shell, so that it is quick.
WATCH = f"""
(cd {FOLDER} && while :; do set -- hotshelf*; [ "$*" = "$last" ] || {{ last="$*"; echo "SHELF $last"; }}; usleep 5000; done) &
"""
# What WATCH says when a copy has begun, and when one has been published.
SAID = {"copy": r"\nSHELF .*\.tmp", "copied": r"\nSHELF .*\.tmp.*\n(?:(?!SHELF).*\n)*SHELF (?!.*\.tmp).*\.pool"}
LIST = f"""
for file in {FOLDER}/hotshelf*; do [ -f $file ] && echo "FOUND $(basename $file) $(stat -c %s $file)"; done
"""
# Asks until all copies are there. A copy that turns out damaged is made again by the next opening: so three sessions.
CHECK = """
trap '' PIPE
session() {
    rm -f /tmp/in /tmp/out; mkfifo /tmp/in; : >/tmp/out
    RUST_LOG=warn /tools/hotshelf shell --db /mnt/db --budget 256MB </tmp/in >/tmp/out 2>&1 &
    pid=$!
    exec 3>/tmp/in
    { echo '\\format csv'; cat /questions; } >&3
    for try in $(seq %d); do
        cat /copies >&3
        while [ $(grep -c '^copies' /tmp/out) -lt $try ] && kill -0 $pid; do sleep 0.1; done
        tail -n 4 /tmp/out | grep -q '^copies whole' && break
    done
    cat /last >&3
    exec 3>&-
    wait $pid; code=$?
    echo ANSWERS; cat /tmp/out; echo "ENDED $code"
    grep '^copies' /tmp/out | tail -n 1 | grep -q '^copies whole'
}
session || session || session
"""
COPIES = (
    "SELECT concat('copies ', CASE WHEN bool_and(on_shelf) IS NOT FALSE THEN 'whole' ELSE 'wanting' END, ' ', count(*), ' ',"
    " coalesce(sum(storage_blocks), 0)) AS mark FROM elf_stats() WHERE shelf <> 'file';\n"
)
WARNINGS = {"damaged": "is damaged; its file is read", "made again": "is made again", "no shelf": "cannot be put on its shelf"}
DAMAGES = ["bytes", "header", "short", "missing", "device"]


class Shelf:
    """The machine's memory that a shelf is on: an NVDIMM, which is kept in a file, or a node without CPUs."""

    def __init__(self, word, work):
        self.word, self.is_dax = word, word.startswith("dax:")
        self.image, self.template = work / "nvdimm.img", work / "nvdimm-ext4.img"
        self.mount, self.watch, self.listing = (MOUNT, WATCH, LIST) if self.is_dax else ("", "", "")

    def devices(self, is_there=True):
        """QEMU's words for all memory of the machine."""
        total = f"{FAST_MIB + (vm_image.MEMORY_ONLY_BYTES >> 20)}M,slots=2,maxmem=4G"
        machine = ["-machine", "pc,nvdimm=on,hmat=on,nvdimm-persistence=mem-ctrl", "-m", total]
        nvdimm = vm_image.nvdimm(self.image, NVDIMM_BYTES) if self.is_dax and is_there else []
        return [*machine, *vm_image.nodes(f"{FAST_MIB}M", "0-1"), *nvdimm]

    def make_template(self, run):
        """An NVDIMM with an empty file system, which only a guest can make."""
        if not self.is_dax or self.template.exists():
            return
        self.image.unlink(missing_ok=True)
        with open(self.image, "wb") as out:
            out.truncate(NVDIMM_BYTES)
        text = run(vm_image.FORMAT_NVDIMM % vm_image.MAKE["ext4"])
        if "JOB ends 0" not in text:
            raise SystemExit(f"cannot make a file system on the NVDIMM:\n{text[-2000:]}")
        self.image.rename(self.template)

    def renew(self):
        if self.is_dax:
            subprocess.run(["cp", "--sparse=always", self.template, self.image], check=True)

    def check(self, tries):
        """A job that asks all questions."""
        return self.mount + self.listing + CHECK % tries

    def debugfs(self, command, *options):
        image = f"{self.image}?offset={FILE_SYSTEM_OFFSET}"
        run = [vm_image.program("debugfs"), *options, "-R", command, image]
        return subprocess.run(run, check=True, capture_output=True, text=True).stdout

    def damage(self, kind, pools, dice):
        """Does something to one of the pools, of names and sizes, while the machine is off; what it was."""
        if kind == "device":
            return "the NVDIMM taken away"
        pool, size_bytes = dice.choice(sorted(pools.items()))
        if kind == "missing":
            self.debugfs(f"rm {pool}", "-w")
            return f"a pool of {size_bytes} bytes removed"
        if kind == "short":
            kept = dice.randrange(1, size_bytes)
            self.debugfs(f"set_inode_field {pool} size {kept}", "-w")
            return f"a pool cut off after {kept} of {size_bytes} bytes"
        blocks = [int(block) for block in self.debugfs(f"blocks {pool}").split()]
        blocks = blocks[:2] if kind == "header" else blocks
        with open(self.image, "r+b") as out:
            for _ in range(40):
                out.seek(FILE_SYSTEM_OFFSET + dice.choice(blocks) * BLOCK_BYTES + dice.randrange(BLOCK_BYTES - 64))
                out.write(dice.randbytes(64))
        return f"40 times 64 bytes of a pool's {'first two blocks' if kind == 'header' else f'{len(blocks)} blocks'} overwritten"

    def judge(self, text, exists):
        """What is wrong with the copies in the end; `exists` is None if the index may be there or not."""
        said = re.findall(r"^copies (\w+) (\d+) (\d+)$", text, re.M)
        if not said or said[-1][0] != "whole":
            return [f"the copies never become whole: {said[-1:]}"]
        count = int(said[-1][1])
        return [f"{count} Elfs on a shelf, and the index is {'there' if exists else 'dropped'}"] if exists not in (None, count > 0) else []

    def sessions(self, text):
        """What the sessions of a check said of the copies."""
        whole = re.findall(r"^copies (\w+) (\d+) (\d+)$", text, re.M)
        warned = [f"{text.count(words)} {name}" for name, words in WARNINGS.items() if words in text]
        count = len(re.findall("^ANSWERS", text, re.M))
        return ", ".join([f"{count} session{'s' * (count > 1)}, {whole[-1][1] if whole else 'no'} Elfs {whole[-1][0] if whole else ''}", *warned])

    def state(self, said):
        """What the folder held at the cut, as far as the guest could say it."""
        lines = re.findall(r"^SHELF (.*)$", said, re.M)
        names = [name for name in (lines[-1].split() if lines else []) if name != "hotshelf*"]
        unfinished = sum(name.endswith(".tmp") for name in names)
        return f"{len(names) - unfinished} pools, {unfinished} unfinished" if self.is_dax else "no pools"

    def found(self, text):
        """Files in the folder at the end of a check, with their sizes."""
        return {name: int(size) for name, size in re.findall(r"^FOUND (\S+) (\d+)$", text[text.rfind("VERIFY") :], re.M)}

    def own_and_strange(self, text, database):
        """Files in the folder that belong to index files of the database, and the others, with their sizes."""
        own = set()
        for path in database.glob("data/*/elf/*.elf"):
            with open(path, "rb") as file:
                own.add(f"hotshelf-{struct.unpack_from('<Q', file.read(IDENTITY_AT + 8), IDENTITY_AT)[0]:016x}.pool")
        found = self.found(text)
        return {name: found[name] for name in found if name in own}, {name: found[name] for name in found if name not in own}


def unequal(said):
    """Questions that table and index answered differently before the cut."""
    answers = re.findall(r"^answer (.*)$", said, re.M)
    pairs = zip(answers[::2], answers[1::2])
    errors = [f"before the cut: {error}" for error in re.findall("^error.*", said, re.M)]
    return errors + [f"before the cut the scan said {one}, the index {other}" for one, other in pairs if one != other]
