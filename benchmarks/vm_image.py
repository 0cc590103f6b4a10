"""What a virtual machine of `vm.py` boots: a Debian kernel, unpacked and never installed, and an initial RAM disk.

The kernel starts as the plain ELF file inside its bzImage: without hardware virtualization, decompressing it in the guest
takes longer than all the rest of the boot. The RAM disk is two archives, one behind the other: tools and kernel modules, the
same for all boots, and the script of one job.
"""

import gzip
import lzma
import pathlib
import re
import shutil
import subprocess

# Loaded before any job; what they depend on is added. File systems want their checksums by name.
MODULES = ["crc32c_generic", "libcrc32c", "nfit", "nd_pmem", "dax_pmem", "device_dax", "ext4", "xfs"]
# Loaded by the jobs that want them.
MODULES_ON_DEMAND = ["kmem", "cxl_acpi", "cxl_pci", "cxl_mem", "cxl_pmem", "cxl_port"]
TOOLS = ["ndctl", "mke2fs", "mkfs.xfs"]
SYSTEM_FOLDERS = "/usr/sbin:/usr/bin:/sbin:/bin"

MEMORY_ONLY_NODE = 1
MEMORY_ONLY_BYTES = 256 << 20
NVDIMM_NODE = 2
# A job that makes a file system on the NVDIMM, which jobs find again as long as its file is kept.
FORMAT_NVDIMM = """
await /dev/pmem0 || ends 1
/tools/ndctl create-namespace -f -e namespace0.0 -m fsdax --map=mem >/dev/null && await /dev/pmem0 || ends 1
%s /dev/pmem0
"""
MAKE = {
    "ext4": "/tools/mke2fs -q -F -t ext4 -b 4096 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard",
    "xfs": "/tools/mkfs.xfs -q -f -K -m reflink=0",
}

# Debian package of each program that is called here or by vm.py.
PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "dpkg-deb": "dpkg",
    "zstd": "zstd",
    "ndctl": "ndctl",
    "mke2fs": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "ldd": "libc-bin",
}

INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
load() { for m in $(cat /modules/$1.list); do [ -e /modules/loaded/$m ] || insmod /modules/$m && : >/modules/loaded/$m; done; }
await() { for i in $(seq 100); do [ -e $1 ] && return 0; sleep 0.1; done; echo "no $1"; return 1; }
ends() { echo "JOB ends $1 after $(cut -d' ' -f1 /proc/uptime) s"; cd /; sync; umount /mnt 2>/dev/null; poweroff -f; }
mkdir -p /mnt /tmp /modules/loaded
load order
. /job
ends $?
"""


def nodes(fast, cpus="0"):
    """QEMU's words for: CPUs with fast memory; memory without a CPU; an empty node for the NVDIMM, far from both."""
    hmat = []
    for node, latency_ns, bandwidth in [(0, 90, "100G"), (MEMORY_ONLY_NODE, 300, "30G"), (NVDIMM_NODE, 400, "12G")]:
        to = f"hmat-lb,initiator=0,target={node},hierarchy=memory"
        hmat += ["-numa", f"{to},data-type=access-latency,latency={latency_ns}"]
        hmat += ["-numa", f"{to},data-type=access-bandwidth,bandwidth={bandwidth}"]
    return [
        *["-object", f"memory-backend-ram,id=fast,size={fast}"],
        *["-object", f"memory-backend-ram,id=slow,size={MEMORY_ONLY_BYTES}"],
        *["-numa", f"node,nodeid=0,cpus={cpus},memdev=fast", "-numa", "node,nodeid=1,memdev=slow,initiator=0"],
        *["-numa", "node,nodeid=2,initiator=0", "-numa", "dist,src=0,dst=1,val=30"],
        *["-numa", "dist,src=0,dst=2,val=40", "-numa", "dist,src=1,dst=2,val=50", *hmat],
    ]


def nvdimm(path, size_bytes):
    """QEMU's words for an NVDIMM that is a file of the host: what the guest stored is in it, whenever QEMU ends."""
    backend = f"memory-backend-file,id=nv,share=on,pmem=off,mem-path={path},size={size_bytes},align=2M"
    return ["-object", backend, "-device", f"nvdimm,memdev=nv,node={NVDIMM_NODE}"]


def program(name):
    return shutil.which(name, path=SYSTEM_FOLDERS)


def check_programs(names=tuple(PACKAGES)):
    """Ends the program, with what to install, unless all of them are there."""
    missing = sorted({PACKAGES[name] for name in names if not program(name)})
    if missing:
        raise SystemExit(f"needed, and not here: apt-get install --no-install-recommends {' '.join(missing)}")


def is_static(path):
    """Whether an ELF file asks for no loader: nothing but itself goes into the guest."""
    bytes_ = path.read_bytes()
    start, size, count = (int.from_bytes(bytes_[at : at + width], "little") for at, width in [(32, 8), (54, 2), (56, 2)])
    kinds = [int.from_bytes(bytes_[start + i * size :][:4], "little") for i in range(count)]
    return bytes_[:4] == b"\x7fELF" and 3 not in kinds


def elf_of(bzimage):
    """The kernel inside a bzImage; its header says where it lies and its first bytes how it is packed."""

    def word(at):
        return int.from_bytes(bzimage[at : at + 4], "little")

    start = (bzimage[0x1F1] + 1) * 512 + word(0x248)
    packed = bzimage[start : start + word(0x24C)]
    if packed.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(packed)
    if packed.startswith(b"\x28\xb5\x2f\xfd"):
        # The packed kernel is followed by its length, which is not part of the stream.
        return subprocess.run([program("zstd"), "-dcq"], input=packed[:-4], capture_output=True, check=True).stdout
    if packed.startswith(b"\x1f\x8b"):
        return gzip.decompress(packed[:-4])
    raise SystemExit(f"the kernel is packed in an unknown way: {packed[:4].hex()}")


class Modules:
    """Kernel modules by name, with what they depend on, read from the modules themselves."""

    def __init__(self, tree):
        found = [path for path in tree.rglob("*") if re.search(r"\.ko(\.[xz]z|\.zst)?$", path.name)]
        self.paths = {path.name.split(".ko")[0].replace("-", "_"): path for path in found}

    def content(self, name):
        path = self.paths[name]
        packed = path.read_bytes()
        if path.name.endswith(".xz"):
            return lzma.decompress(packed)
        if path.name.endswith(".zst"):
            return subprocess.run([program("zstd"), "-dcq"], input=packed, capture_output=True, check=True).stdout
        return packed

    def in_order(self, wanted, known=()):
        """The wanted modules and their dependencies, each after what it needs; built-in ones are left out."""
        order = list(known)

        def add(name):
            name = name.replace("-", "_")
            if name in order or name not in self.paths:
                return
            for needed in re.search(rb"\0?depends=([^\0]*)\0", self.content(name))[1].decode().split(","):
                add(needed)
            order.append(name)

        for name in wanted:
            add(name)
        return order[len(known) :]


def archive(entries):
    """A cpio archive: {path: content}; None is a folder."""
    whole = bytearray()

    def add(path, mode, content):
        name = path.encode() + b"\0"
        fields = [0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0]
        whole.extend(b"070701" + b"".join(b"%08x" % field for field in fields) + name)
        whole.extend(b"\0" * (-len(whole) % 4) + content)
        whole.extend(b"\0" * (-len(whole) % 4))

    for path, content in entries.items():
        add(path, 0o040755 if content is None else 0o100755, content or b"")
    add("TRAILER!!!", 0, b"")
    return bytes(whole)


def libraries(path):
    """What a program of the host needs to run, its loader included."""
    said = subprocess.run([program("ldd"), path], capture_output=True, text=True, check=True).stdout
    return re.findall(r"/\S+", said)


def tools():
    """Programs of the host with their libraries, by their paths in the guest."""
    found = {}
    for name in TOOLS:
        path = pathlib.Path(program(name))
        found[f"tools/{name}"] = path.read_bytes()
        for library in libraries(path):
            found[library.lstrip("/")] = pathlib.Path(library).read_bytes()
    configuration = pathlib.Path("/etc/mke2fs.conf")
    if configuration.exists():
        found["etc/mke2fs.conf"] = configuration.read_bytes()
    return found


def with_folders(files):
    """The same entries, each behind the folders it lies in."""
    entries = {}
    for path, content in files.items():
        for folder in reversed(pathlib.PurePosixPath(path).parents):
            if str(folder) != ".":
                entries.setdefault(str(folder), None)
        entries[path] = content
    return entries


def kernel_package(folder):
    """The Debian package of a kernel: one that lies in the folder, or else a download into it."""
    if not (found := sorted(folder.glob("linux-image-*.deb"))):
        text = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True).stdout
        name = re.search(r"Depends: (linux-image-\S+)", text)
        if not name:
            raise SystemExit(f"put the Debian package of a kernel (linux-image-*.deb) into {folder}")
        print(f"downloading {name[1]} into {folder}", flush=True)
        subprocess.run(["apt-get", "download", name[1]], cwd=folder, check=True, capture_output=True)
        found = sorted(folder.glob("linux-image-*.deb"))
    return found[-1]


def build(folder, guest_program):
    """Makes `vmlinux` and `initrd` in the folder; the kernel only if it is not there yet. Gives back the kernel's release."""
    check_programs()
    if not is_static(guest_program):
        raise SystemExit(f"{guest_program} is not statically linked: see --help")
    package, tree = kernel_package(folder), folder / "kernel"
    if not tree.exists():
        subprocess.run([program("dpkg-deb"), "-x", package, tree], check=True)
    [bzimage] = (tree / "boot").glob("vmlinuz-*")
    if not (folder / "vmlinux").exists():
        (folder / "vmlinux").write_bytes(elf_of(bzimage.read_bytes()))
    modules = Modules(tree)
    first = modules.in_order(MODULES)
    later = modules.in_order(MODULES_ON_DEMAND, first)
    lists = {"order": first, "kmem": modules.in_order(["kmem"], first), "cxl": [name for name in later if name != "kmem"]}
    files = {
        "init": INIT.encode(),
        "bin/busybox": pathlib.Path(program("busybox")).read_bytes(),
        "bin/guest": guest_program.read_bytes(),
        **{f"modules/{name}": modules.content(name) for name in first + later},
        **{f"modules/{name}.list": " ".join(names).encode() for name, names in lists.items()},
        **tools(),
    }
    folders = {name: None for name in ["bin", "dev", "proc", "sys", "mnt", "tmp"]}
    (folder / "initrd").write_bytes(gzip.compress(archive({**folders, **with_folders(files)}), 1))
    return bzimage.name.removeprefix("vmlinuz-")
