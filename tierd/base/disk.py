"""The seam for durable file work: `storage/disk.py` is real, the power of `tests/kit/model_disk.py` can be cut.

Whoever writes files that must survive gets a Disk; nobody calls os.write, os.rename or os.unlink beside it.
Reads need no seam: readers open files themselves.
"""

from pathlib import Path
from typing import Protocol

from typing_extensions import Buffer


class DiskFile(Protocol):
    """An open file for writing. Not thread-safe except `fsync`, which may run in a thread beside appends."""

    @property
    def fd(self) -> int:
        """The descriptor, readable with pread; owned by this object."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of *data* at *position*. Raises DiskFull or OSError; a short write is finished or raised."""

    def truncate(self, size_bytes: int) -> None: ...

    def fsync(self) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """Durable file operations; each is one step at which a test can cut the power."""

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; with *create* make the file when missing (its name lasts after fsync_dir)."""

    def write_new(self, path: Path, data: Buffer) -> None:
        """Create or overwrite *path* with *data*; not durable until fsync_file."""

    def fsync_file(self, path: Path) -> None: ...

    def fsync_dir(self, path: Path) -> None: ...

    def replace(self, source: Path, target: Path) -> None: ...

    def link_new(self, source: Path, target: Path) -> None:
        """Hard-link *source* as *target*; FileExistsError when *target* is there (the atomic create-if-absent)."""

    def unlink(self, path: Path) -> None: ...

    def mkdir(self, path: Path) -> None:
        """Make *path* and missing parents; fine when it is there."""

    def rmdir(self, path: Path) -> None: ...

    def set_mtime(self, path: Path, mtime_ms: int) -> None: ...

    def free_bytes(self, path: Path) -> int:
        """Free space for us on the file system that holds *path*."""


def publish(disk: Disk, path: Path, data: Buffer) -> None:
    """Make *path* hold *data* or keep its old content, even across power loss."""
    tmp = path.with_name(path.name + ".tmp")
    disk.write_new(tmp, data)
    disk.fsync_file(tmp)  # content before name
    disk.replace(tmp, path)
    disk.fsync_dir(path.parent)  # the name itself
