"""Memory and read-bandwidth limits for child processes, by control groups version 1 (needs root)."""

import os
from pathlib import Path

MEMORY_ROOT = Path("/sys/fs/cgroup/memory")
BLOCK_ROOT = Path("/sys/fs/cgroup/blkio")


class LimitError(Exception):
    """A limit was asked for that this machine cannot set."""


def device_of(path):
    """`major:minor` of the whole disk that holds `path`: throttling works on disks, not on partitions."""
    number = os.stat(path).st_dev
    name = f"{os.major(number)}:{os.minor(number)}"
    node = Path("/sys/dev/block") / name
    if not node.exists():
        raise LimitError(f"{path} lies on no block device ({name}); --read-bps needs one")
    node = node.resolve()
    if (node / "partition").exists():
        return (node.parent / "dev").read_text().strip()
    return name


class Limits:
    """A pair of control groups. The page cache that its processes fill counts against the memory limit."""

    def __init__(self, name, memory_bytes=None, read_bps=None, data_path=None):
        self.groups = []
        try:
            if memory_bytes is not None:
                self.memory = self._create(MEMORY_ROOT, name)
                self._write(self.memory / "memory.limit_in_bytes", str(memory_bytes))
            if read_bps is not None:
                block = self._create(BLOCK_ROOT, name)
                rule = f"{device_of(data_path)} {read_bps}"
                self._write(block / "blkio.throttle.read_bps_device", rule)
        except LimitError:
            self.close()
            raise

    def _create(self, root, name):
        if not (root / "cgroup.procs").exists():
            raise LimitError(f"{root} is not a control group hierarchy (version 1)")
        group = root / f"hotshelf-rivals-{os.getpid()}-{name}"
        try:
            group.mkdir()
        except OSError as error:
            raise LimitError(f"{group}: {error.strerror}; limits need root") from error
        self.groups.append(group)
        return group

    @staticmethod
    def _write(file, text):
        try:
            file.write_text(text)
        except OSError as error:
            raise LimitError(f"{file}: {error.strerror} (writing {text})") from error

    def join(self):
        """Moves the calling process in; for `preexec_fn`."""
        for group in self.groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self):
        """Most memory ever charged, page cache included; None without a memory limit."""
        if not any(group.is_relative_to(MEMORY_ROOT) for group in self.groups):
            return None
        return int((self.memory / "memory.max_usage_in_bytes").read_text())

    def close(self):
        """Removes the groups; their processes must have ended."""
        for group in self.groups:
            if group.is_relative_to(MEMORY_ROOT):
                (group / "memory.force_empty").write_text("0")
            group.rmdir()
        self.groups = []


def evict(paths):
    """Drops the files' clean pages from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def files_below(path):
    """The file itself or all files below the folder."""
    path = Path(path)
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


def default_threads():
    return len(os.sched_getaffinity(0))
