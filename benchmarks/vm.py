#!/usr/bin/env python3
"""Persistent and slow memory in a virtual machine: no such hardware and no KVM is needed.

    RUSTFLAGS='-C target-feature=+crt-static' cargo build --release --target x86_64-unknown-linux-gnu \\
        -p hotshelf-tier --example power_cut
    python3 benchmarks/vm.py --program target/x86_64-unknown-linux-gnu/release/examples/power_cut --cuts 20

QEMU emulates an NVDIMM, a memory-only NUMA node with HMAT figures, and a CXL device. In each of them the access layer must work:
ext4 and xfs with DAX, a devdax device, the same device as a NUMA node, a memory-only node, a CXL region. Then the power is
cut: the guest publishes states of a pool and says which; the host kills QEMU at a random moment, boots again, and every state
that was acknowledged must be there and whole. Two writers that are wrong on purpose must be caught: `cache` never syncs, `early`
publishes before it writes. Prints a table; the exit status says whether all held.

The NVDIMM is a shared mapping of a file, so every store the guest executed survives the cut and everything in the guest's page
cache is gone. The emulated CPU has no cache: a missing flush or fence cannot be seen here, only by enumerating crash states.

Nothing is installed. What is missing is named; the kernel's Debian package is downloaded into `--work` and unpacked there.
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys
import time

import vm_image
from vm_image import MAKE, MEMORY_ONLY_NODE, NVDIMM_NODE

NVDIMM_BYTES = 512 << 20
# A boot that takes longer hangs.
BOOT_SECONDS_MAX = 180
# Seconds between the first acknowledged state and the cut.
CUT_AFTER = (0.3, 2.3)

CHECK_FILES = """
await /dev/pmem0 || ends 1
mount -t {fs} -o dax=always /dev/pmem0 /mnt || ends 1
guest check fsdax /mnt/a || ends 1
umount /mnt && mount -t {fs} -o dax=never /dev/pmem0 /mnt || ends 1
rm /mnt/a; echo "without DAX:"; guest check plain /mnt/b
"""
CHECK_DEVICE = """
await /dev/pmem0 || ends 1
echo "domain $(cat /sys/bus/nd/devices/region0/persistence_domain)"
/tools/ndctl create-namespace -f -e namespace0.0 -m devdax >/dev/null && await /dev/dax0.0 || ends 1
guest check devdax /dev/dax0.0
"""
CHECK_KMEM = """
await /dev/pmem0 || ends 1
/tools/ndctl create-namespace -f -e namespace0.0 -m devdax >/dev/null && await /dev/dax0.0 || ends 1
load kmem
echo dax0.0 >/sys/bus/dax/drivers/device_dax/unbind
echo dax0.0 >/sys/bus/dax/drivers/kmem/new_id || ends 1
for block in /sys/devices/system/memory/memory*; do
    [ "$(cat $block/state)" = offline ] && echo online_movable >$block/state
done
guest check node %d
"""
# A region is what `cxl create-region` makes; that program is not in every distribution.
CHECK_CXL = """
load cxl
sleep 1
cd /sys/bus/cxl/devices || ends 1
endpoint=$(basename $(ls -d endpoint*/decoder* | head -1))
bytes=$(cat mem0/pmem/size)
region=$(cat decoder0.0/create_pmem_region)
echo $region >decoder0.0/create_pmem_region
echo 256 >$region/interleave_granularity
echo 1 >$region/interleave_ways
cat /proc/sys/kernel/random/uuid >$region/uuid
echo $bytes >$region/size
echo pmem >$endpoint/mode
echo $bytes >$endpoint/dpa_size
echo $endpoint >$region/target0 && echo 1 >$region/commit || ends 1
echo $region >/sys/bus/cxl/drivers/cxl_region/bind || ends 1
sleep 1
cd /
nvdimm_region=$(basename $(ls -d /sys/bus/nd/devices/region* | tail -1))
echo "domain $(cat /sys/bus/nd/devices/$nvdimm_region/persistence_domain)"
/tools/ndctl create-namespace -r $nvdimm_region -m fsdax --map=mem >/dev/null || ends 1
sleep 1
device=$(ls /dev/pmem* | head -1)
%s $device || ends 1
mount -t ext4 -o dax=always $device /mnt || ends 1
guest check fsdax /mnt/a
"""
# The file exists with its whole size before anything is published, so that a verdict is about the pool.
MOUNT_LOG = "await /dev/pmem0 && mount -t ext4 -o dax=%s /dev/pmem0 /mnt || ends 1\n"


def nvdimm(path):
    return ["-machine", "pc,nvdimm=on,hmat=on,nvdimm-persistence=mem-ctrl", *vm_image.nodes("512M"), *vm_image.nvdimm(path, NVDIMM_BYTES)]


def cxl(path):
    """One device below two root ports: with a single one, QEMU 7.2 loses what is written."""
    label = path.with_suffix(".label")
    for file, size in [(path, NVDIMM_BYTES), (label, 1 << 20)]:
        file.unlink(missing_ok=True)
        with open(file, "wb") as out:
            out.truncate(size)
    return [
        *["-machine", "q35,cxl=on,cxl-fmw.0.targets.0=cxl.1,cxl-fmw.0.size=4G"],
        *["-object", f"memory-backend-file,id=memory,share=on,mem-path={path},size={NVDIMM_BYTES}"],
        *["-object", f"memory-backend-file,id=label,share=on,mem-path={label},size=1M"],
        *["-device", "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.1"],
        *["-device", "cxl-rp,port=0,bus=cxl.1,id=port0,chassis=0,slot=2"],
        *["-device", "cxl-rp,port=1,bus=cxl.1,id=port1,chassis=0,slot=3"],
        *["-device", "cxl-type3,bus=port0,memdev=memory,lsa=label,id=device"],
    ]


class Machine:
    def __init__(self, work):
        self.work = work

    def start(self, job, devices, log):
        """Starts a guest that runs the job's script; what it prints goes to the log."""
        job_file = self.work / "initrd-job"
        job_file.write_bytes((self.work / "initrd").read_bytes())
        with open(job_file, "ab") as out:
            out.write(b"\0" * (-out.tell() % 4) + vm_image.archive({"job": job.encode()}))
        kernel_words = (
            "console=ttyS0 quiet loglevel=4 panic=-1 tsc=reliable no_timer_check nokaslr mitigations=off "
            "rcupdate.rcu_expedited=1 random.trust_cpu=on"
        )
        command = [
            *[vm_image.program("qemu-system-x86_64"), "-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1"],
            *["-m", "768M,slots=2,maxmem=4G", *devices, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"],
            *["-serial", "stdio", "-kernel", self.work / "vmlinux", "-initrd", job_file, "-append", kernel_words],
        ]  # fmt: skip
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def boot(self, name, job, devices):
        """Runs a job to its end: its exit status (None if the guest hung or died), what it printed, and seconds."""
        path, started = self.work / f"{name}.log", time.monotonic()
        with open(path, "wb") as log:
            guest = self.start(job, devices, log)
            try:
                guest.wait(BOOT_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                guest.kill()
                guest.wait()
        text = path.read_text(errors="replace").replace("\r", "")
        found = re.search(r"^JOB ends (\d+)", text, re.M)
        return int(found[1]) if found else None, text, time.monotonic() - started

    def image(self, kind):
        """A file for the NVDIMM: empty, or with a file system, which must be made by a guest and is kept for the next one."""
        path = self.work / "nvdimm.img"
        path.unlink(missing_ok=True)
        if kind == "empty":
            with open(path, "wb") as out:
                out.truncate(NVDIMM_BYTES)
            return path
        template = self.work / f"{kind}.img"
        if not template.exists():
            self.image("empty")
            status, text, _ = self.boot(f"format-{kind}", vm_image.FORMAT_NVDIMM % MAKE[kind], nvdimm(path))
            if status != 0:
                raise SystemExit(f"cannot make an {kind} file system:\n{text}")
            path.rename(template)
        subprocess.run(["cp", "--sparse=always", template, path], check=True)
        return path

    def cut(self, how, after_s):
        """Publishes, cuts the power, boots again. Gives back the state acknowledged last and the verdict on what is there."""
        image = self.image("ext4")
        mount = MOUNT_LOG % ("never" if how == "cache" else "always")
        path = self.work / f"write-{how}.log"
        with open(path, "wb") as log:
            writer = self.start(f"{mount} guest write /mnt/pool {how}", nvdimm(image), log)
            started = time.monotonic()
            while b"\nACK " not in path.read_bytes():
                time.sleep(0.05)
                if writer.poll() is not None or time.monotonic() - started > BOOT_SECONDS_MAX:
                    writer.kill()
                    writer.wait()
                    raise SystemExit(f"the writer publishes nothing: {path}")
            time.sleep(after_s)
            writer.kill()
            writer.wait()
        # The last line may be cut off in the middle.
        acked = int(re.findall(rb"\nACK (\d+)\r?\n", path.read_bytes())[-1])
        _, text, _ = self.boot(f"verify-{how}", f"{mount} guest verify /mnt/pool {acked}", nvdimm(image))
        verdict = re.findall(r"^VERIFY (.*)$", text, re.M)
        return acked, verdict[-1] if verdict else "no verdict"


def said(text):
    """The lines of a job that say what was found, without the kernel's and the tools'."""
    return [line for line in text.splitlines() if re.match(r"(VERIFY|domain|without|node \d|FsDax|PageCache|DevDax)", line)]


def check(machine):
    """Every kind of memory through the access layer; whether all passed."""
    slow_node = f"guest check node {MEMORY_ONLY_NODE}"
    jobs = [
        ("ext4-dax", CHECK_FILES.format(fs="ext4"), "ext4"),
        ("xfs-dax", CHECK_FILES.format(fs="xfs"), "xfs"),
        ("devdax", CHECK_DEVICE, "empty"),
        ("devdax as node", CHECK_KMEM % NVDIMM_NODE, "empty"),
        ("memory-only node", slow_node, "empty"),
        ("CXL region", CHECK_CXL % MAKE["ext4"], None),
    ]
    passed = True
    print(f"{'memory':18} {'verdict':8} {'boot, s':>7}  what the access layer says")
    for name, job, image in jobs:
        devices = cxl(machine.work / "cxl.img") if image is None else nvdimm(machine.image(image))
        status, text, seconds = machine.boot(name.replace(" ", "-"), job, devices)
        passed &= status == 0
        lines = said(text) or text.splitlines()[-5:] or [""]
        print(f"{name:18} {'passed' if status == 0 else 'FAILED':8} {seconds:7.1f}  {lines[0]}")
        for line in lines[1:]:
            print(f"{'':36} {line}")
        sys.stdout.flush()
    return passed


def cut_power(machine, cuts, controls):
    """Cuts of the right writer, which must all hold, and of the wrong ones, each of which must be caught at least once."""
    print(f"\n{'writer':8} {'cut':>4} {'after, s':>8} {'acknowledged':>12}  found")
    passed, held = True, {}
    for how, count in [("dax", cuts), ("cache", controls), ("early", controls)]:
        for cut_idx in range(count):
            after_s = random.uniform(*CUT_AFTER)
            acked, verdict = machine.cut(how, after_s)
            held.setdefault(how, []).append(verdict.endswith("HELD"))
            print(f"{how:8} {cut_idx + 1:4} {after_s:8.2f} {acked:12}  {verdict}", flush=True)
    for how, verdicts in held.items():
        right = all(verdicts) if how == "dax" else not all(verdicts)
        passed &= right
        verdict = "as it must be" if right else "WRONG"
        print(f"{how}: held {sum(verdicts)} of {len(verdicts)}, {verdict}")
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, required=True, help="the static power_cut example")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path.home() / ".cache/hotshelf/vm", help="1.5 GB")
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--controls", type=int, default=2, help="cuts of each writer that is wrong on purpose")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-checks", action="store_true", help="only cut the power")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    arguments.work.mkdir(parents=True, exist_ok=True)
    release = vm_image.build(arguments.work, arguments.program)
    print(f"Linux {release} in QEMU, emulated without KVM\n", flush=True)
    machine = Machine(arguments.work)
    passed = arguments.no_checks or check(machine)
    passed &= cut_power(machine, arguments.cuts, arguments.controls)
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
