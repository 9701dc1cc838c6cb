"""A disk whose power can be cut at any step, and that forgets what was not fsynced.

The files are real ones below one folder, so readers need no seam. Beside them the model keeps what would survive:
the content of each file at its last fsync, and the names of each folder at its last fsync. Steps are counted from 1;
step `dies_at` raises PowerCut (a write gets half done first), and so does every later one.

`kill -9` is a PowerCut without `lose_unsynced`; a power cut is one with it. Several threads may use one disk.
"""

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from typing_extensions import Buffer

from tierd.base.errors import DiskFull
from tierd.storage.disk import PosixDisk, PosixFile


class PowerCut(Exception):
    """The machine is off; nothing after this happens."""


@dataclass(slots=True, eq=False)
class Node:
    """One file, whatever its name is now; a folder has `folder` set."""

    folder: bool = False
    durable: bytes | None = None
    """Content at the last fsync; None when it was never fsynced."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Names that change at once: what goes and what comes."""

    gone: tuple[Path, ...]
    made: tuple[tuple[Path, Node], ...]

    def touches(self, folder: Path) -> bool:
        return any(path.parent == folder for path in (*self.gone, *(path for path, _ in self.made)))


class ModelFile:
    """A DiskFile of a ModelDisk."""

    def __init__(self, disk: "ModelDisk", file: PosixFile, node: Node) -> None:
        self._disk = disk
        self._file = file
        self._node = node

    @property
    def fd(self) -> int:
        return self._file.fd

    def pwrite(self, data: Buffer, position: int) -> None:
        raw = bytes(memoryview(data))
        try:
            self._disk.step("pwrite")
        except PowerCut:
            if self._disk.dying:
                self._file.pwrite(raw[: len(raw) // 2], position)
            raise
        self._disk.use(len(raw), lambda room: self._file.pwrite(raw[:room], position))
        self._file.pwrite(raw, position)

    def truncate(self, size_bytes: int) -> None:
        self._disk.step("truncate")
        self._file.truncate(size_bytes)

    def fsync(self) -> None:
        self._disk.step("fsync")
        size = os.fstat(self._file.fd).st_size
        self._node.durable = os.pread(self._file.fd, size, 0)

    def close(self) -> None:
        self._file.close()


@dataclass(eq=False)
class ModelDisk:
    """See the module. *room_bytes*: how much may still be written before DiskFull; None is without limit."""

    root: Path
    dies_at: int | None = None
    room_bytes: int | None = None
    steps: int = 0
    dying: bool = False
    trace: list[str] = field(default_factory=list)
    on_cut: Callable[[], None] | None = None
    """Called once, in the thread whose step was the last one."""
    foreign: Callable[[Path], bool] = lambda path: False
    """Files that somebody else writes, and that no cut changes."""

    def __post_init__(self) -> None:
        self._real = PosixDisk()
        self._lock = threading.RLock()
        self._names: dict[Path, Node] = {}
        for folder, _, files in os.walk(self.root):
            self._names[Path(folder)] = Node(folder=True)
            for path in (Path(folder, name) for name in files):
                if self.foreign(path):
                    continue
                self._names[path] = Node(durable=path.read_bytes())
        self._durable = dict(self._names)
        self._journal: list[_Change] = []

    def step(self, what: str) -> None:
        """Count one step; raise PowerCut when it is the last, or when the power is off already."""
        with self._lock:
            self.dying = False
            self.steps += 1
            self.trace.append(what)
            if self.dies_at is not None and self.steps >= self.dies_at:
                self.dying = self.steps == self.dies_at
                self._tell()
                raise PowerCut(f"step {self.steps}: {what}")

    def power_on(self, dies_after: int | None = None, on_cut: Callable[[], None] | None = None) -> None:
        """Steps count from 1 again; what was not fsynced may still be lost."""
        with self._lock:
            self.dies_at, self.on_cut = dies_after, on_cut
            self.steps, self.trace = 0, []

    def cut(self) -> None:
        """The power goes now, between two steps."""
        with self._lock:
            self.dies_at = min(self.dies_at or self.steps, self.steps)
            self._tell()

    def _tell(self) -> None:
        tell, self.on_cut = self.on_cut, None
        if tell is not None:
            tell()

    def use(self, size_bytes: int, partly: "object" = None) -> None:
        """Take room, or do what fits with *partly* and raise DiskFull."""
        if self.room_bytes is None:
            return
        if size_bytes > self.room_bytes:
            if callable(partly):
                partly(self.room_bytes)
            raise DiskFull("the model disk is full")
        self.room_bytes -= size_bytes

    def open(self, path: Path, *, create: bool = False) -> ModelFile:
        with self._lock:
            if create and path not in self._names:
                self.step(f"create {path.name}")
                self.use(0)
                self._change(made=((path, Node()),))
            return ModelFile(self, self._real.open(path, create=create), self._names[path])

    def write_new(self, path: Path, data: Buffer) -> None:
        with self._lock:
            raw = bytes(memoryview(data))
            self.step(f"write_new {path.name}")
            self.use(len(raw))
            if path not in self._names:
                self._change(made=((path, Node()),))
            self._real.write_new(path, raw)

    def fsync_file(self, path: Path) -> None:
        with self._lock:
            self.step(f"fsync {path.name}")
            self._names[path].durable = path.read_bytes()

    def fsync_dir(self, path: Path) -> None:
        with self._lock:
            self.step(f"fsync_dir {path.name}")
            left = []
            for change in self._journal:
                if change.touches(path):
                    _apply(change, self._durable)
                else:
                    left.append(change)
            self._journal = left

    def replace(self, source: Path, target: Path) -> None:
        with self._lock:
            self.step(f"replace {source.name} {target.name}")
            self._real.replace(source, target)
            moved = {source: self._names[source]}
            if moved[source].folder:
                moved |= {path: node for path, node in self._names.items() if source in path.parents}
            made = tuple((target / path.relative_to(source), node) for path, node in moved.items())
            self._change(gone=tuple(moved), made=made)

    def link_new(self, source: Path, target: Path) -> None:
        with self._lock:
            self.step(f"link {target.name}")
            self._real.link_new(source, target)
            self._change(made=((target, self._names[source]),))

    def unlink(self, path: Path) -> None:
        with self._lock:
            self.step(f"unlink {path.name}")
            self._real.unlink(path)
            self._change(gone=(path,))

    def mkdir(self, path: Path) -> None:
        with self._lock:
            self.step(f"mkdir {path.name}")
            missing = [folder for folder in (path, *path.parents) if not folder.exists()]
            self._real.mkdir(path)
            for folder in reversed(missing):
                self._change(made=((folder, Node(folder=True)),))

    def rmdir(self, path: Path) -> None:
        with self._lock:
            self.step(f"rmdir {path.name}")
            self._real.rmdir(path)
            self._change(gone=(path,))

    def set_mtime(self, path: Path, mtime_ms: int) -> None:
        self.step(f"set_mtime {path.name}")
        self._real.set_mtime(path, mtime_ms)

    def free_bytes(self, path: Path) -> int:
        return self._real.free_bytes(path) if self.room_bytes is None else self.room_bytes

    def _change(self, gone: tuple[Path, ...] = (), made: tuple[tuple[Path, Node], ...] = ()) -> None:
        change = _Change(gone, made)
        _apply(change, self._names)
        self._journal.append(change)

    def lose_unsynced(self, chance: Random | None = None) -> None:
        """Put the folder back to what survives a power cut.

        Without *chance* nothing that was not fsynced survives. With it a random part does: the first few changes of
        names (file systems with a journal keep their order), and of each file a part of what was written, then zeros.
        """
        names = dict(self._durable)
        if chance is not None:
            for change in self._journal[: chance.randint(0, len(self._journal))]:
                _apply(change, names)
        names = {path: node for path, node in names.items() if self._reachable(path, names)}
        live = {id(node): path for path, node in self._names.items()}
        content = {path: _survives(node, live.get(id(node)), chance) for path, node in names.items() if not node.folder}
        for path in sorted(self._names, reverse=True):
            if path not in names and path.exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in sorted(path for path, node in names.items() if node.folder):
            path.mkdir(parents=True, exist_ok=True)
        for path, data in content.items():
            if path.parent.is_dir():
                path.write_bytes(data)

    def _reachable(self, path: Path, names: dict[Path, Node]) -> bool:
        """Whether every folder above it has survived, too."""
        return all(folder in names for folder in path.parents if self.root in folder.parents)


def _apply(change: _Change, names: dict[Path, Node]) -> None:
    for path in change.gone:
        names.pop(path, None)
    names.update(change.made)


def _survives(node: Node, path: Path | None, chance: Random | None) -> bytes:
    durable = node.durable or b""
    if chance is None or path is None or not path.exists():
        return durable
    now = path.read_bytes()
    if len(now) <= len(durable):
        return chance.choice((durable, now))
    kept = chance.randint(len(durable), len(now))
    size = chance.randint(kept, len(now))
    return now[:kept] + bytes(size - kept)
