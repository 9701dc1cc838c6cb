"""A disk that gives errors on demand: which, at which steps, below which folder."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Buffer

from tierd.base.errors import DiskFull
from tierd.storage.disk import _FULL, PosixDisk, PosixFile


@dataclass(frozen=True, slots=True)
class Fault:
    code: int
    steps: frozenset[str]
    """Names of methods of Disk and DiskFile; empty: all of them."""
    below: Path
    exactly: bool

    def hits(self, step: str, path: Path) -> bool:
        there = path == self.below if self.exactly else path.is_relative_to(self.below)
        return there and (not self.steps or step in self.steps)


class FailingDisk(PosixDisk):
    """Every durable step asks `_step` first; nothing of a step that fails is done."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def fail(self, code: int, *steps: str, below: Path, exactly: bool = False) -> None:
        """From now on *steps* (all without any) below a folder, or *exactly* there, give the error *code*."""
        self._faults.append(Fault(code, frozenset(steps), below, exactly))

    def heal(self) -> None:
        self._faults.clear()

    def check(self, step: str, *paths: Path) -> None:
        for fault in self._faults:
            for path in paths:
                if fault.hits(step, path):
                    if fault.code in _FULL:
                        raise DiskFull(f"{path}: {os.strerror(fault.code)}")
                    raise OSError(fault.code, os.strerror(fault.code), str(path))

    @contextmanager
    def _step(self, step: str, *paths: Path) -> Iterator[None]:
        self.check(step, *paths)
        yield

    def open(self, path: Path, *, create: bool = False) -> "FailingFile":  # type: ignore[override]
        with self._step("open", path):
            return FailingFile(self, super().open(path, create=create), path)

    def write_new(self, path: Path, data: Buffer) -> None:
        with self._step("write_new", path):
            super().write_new(path, data)

    def fsync_file(self, path: Path) -> None:
        with self._step("fsync_file", path):
            super().fsync_file(path)

    def fsync_dir(self, path: Path) -> None:
        with self._step("fsync_dir", path):
            super().fsync_dir(path)

    def replace(self, source: Path, target: Path) -> None:
        with self._step("replace", source, target):
            super().replace(source, target)

    def unlink(self, path: Path) -> None:
        with self._step("unlink", path):
            super().unlink(path)

    def mkdir(self, path: Path) -> None:
        with self._step("mkdir", path):
            super().mkdir(path)

    def rmdir(self, path: Path) -> None:
        with self._step("rmdir", path):
            super().rmdir(path)

    def set_mtime(self, path: Path, mtime_ms: int) -> None:
        with self._step("set_mtime", path):
            super().set_mtime(path, mtime_ms)

    def free_bytes(self, path: Path) -> int:
        with self._step("free_bytes", path):
            return super().free_bytes(path)


class FailingFile:
    """A DiskFile of a FailingDisk."""

    def __init__(self, disk: FailingDisk, file: PosixFile, path: Path) -> None:
        self._disk = disk
        self._file = file
        self._path = path
        self.fd = file.fd

    def pwrite(self, data: Buffer, position: int) -> None:
        self._disk.check("pwrite", self._path)
        self._file.pwrite(data, position)

    def truncate(self, size_bytes: int) -> None:
        self._disk.check("truncate", self._path)
        self._file.truncate(size_bytes)

    def fsync(self) -> None:
        self._disk.check("fsync", self._path)
        self._file.fsync()

    def close(self) -> None:
        self._file.close()
