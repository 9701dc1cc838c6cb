"""Real small disks for tests: one that gets full, and one that fails with EIO when it is told to.

Both need to mount (root); where that is not possible the test is skipped, and with CI=true that is a failure.
"""

import fcntl
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN = _IOR('X', 125, u32)
_NO_FLUSH = 2


def _run(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount here: {' '.join(map(str, command))}: {done.stderr.strip()}")


@contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[Path]:
    """A file system in memory of *size_bytes* at *path*."""
    path.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tierd-test", path)
    try:
        yield path
    finally:
        _unmount(path)


@dataclass
class Ext4:
    """ext4 in a file; `mount` and `unmount` as often as wanted."""

    image: Path
    path: Path

    def mount(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        _run("mount", "-o", "loop", self.image, self.path)

    def unmount(self) -> None:
        _unmount(self.path)

    def fail(self) -> None:
        """As if the disk had gone: every read and write from now on gives EIO, also of open files."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_FLUSH))
        finally:
            os.close(fd)


@contextmanager
def ext4(path: Path, size_bytes: int = 48 << 20) -> Iterator[Ext4]:
    """Mounted at *path*; the file beside it."""
    image = path.with_name(path.name + ".ext4")
    image.parent.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(size_bytes)
    _run("mkfs.ext4", "-q", "-m", "0", image)
    disk = Ext4(image, path)
    disk.mount()
    try:
        yield disk
    finally:
        disk.unmount()
        image.unlink()


def fill(disk: Path) -> Path:
    """Not one byte is left; the file that has them all."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 65536, 4096, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
    return filler


def _unmount(path: Path) -> None:
    while os.path.ismount(path):
        if subprocess.run(["umount", str(path)], capture_output=True, check=False).returncode:
            subprocess.run(["umount", "-l", str(path)], check=True)
