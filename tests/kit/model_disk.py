"""A disk whose power can be cut at any step, and that forgets what was not fsynced.

The files are real ones below one folder, so readers need no seam. Beside them the model keeps what tells what would
survive: of each file its size at its last fsync and the bytes below it that were overwritten since, and the names of
each folder at its last fsync. Steps are counted from 1; step `dies_at` raises PowerCut (a write gets half done first),
and so does every later one.

`kill -9` is a PowerCut without `lose_unsynced`; a power cut is one with it. Several threads may use one disk.
"""

import os
import shutil
import tempfile
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
    durable_bytes: int = 0
    """Its size at the last fsync; 0 when it was never fsynced."""
    overwritten: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(position, length, bytes up to the last that is not zero) that an fsync had made durable and that were written
    over or cut off since, in this order. Zeros are room in an index, megabytes of it."""
    paths: set[Path] = field(default_factory=set)
    """Its names now."""
    lost: bytes | None = None
    """Its durable content, but for zeros at the end, once it has no name any more."""

    def keep(self, fd: int, position: int, stop: int) -> None:
        """Before [position, stop) changes: remember what of it is durable."""
        stop = min(stop, self.durable_bytes)
        if position < stop and (old := os.pread(fd, stop - position, position)):
            self.overwritten.append((position, len(old), old.rstrip(b"\0")))

    def synced(self, size_bytes: int) -> None:
        self.durable_bytes = size_bytes
        self.overwritten.clear()

    def restore(self, fd: int) -> None:
        """Give the file its durable content back."""
        for position, length, old in reversed(self.overwritten):
            if position + length >= self.durable_bytes:
                os.ftruncate(fd, position)
                os.pwrite(fd, old, position)
            else:
                os.pwrite(fd, old + bytes(length - len(old)), position)
        os.ftruncate(fd, self.durable_bytes)

    def drop(self, path: Path) -> None:
        """*path*, the last name, is about to go; readers may hold the file, so it stays as it is."""
        raw = bytearray(path.read_bytes()) if self.durable_bytes else bytearray()
        for position, length, old in reversed(self.overwritten):
            raw.extend(bytes(max(0, position + length - len(raw))))
            raw[position : position + length] = old + bytes(length - len(old))
        self.lost = bytes(raw[: self.durable_bytes]).rstrip(b"\0")


@dataclass(frozen=True, slots=True)
class _Change:
    """Names that change at once: what goes and what comes."""

    gone: tuple[Path, ...]
    made: tuple[tuple[Path, Node], ...]

    def touches(self, folder: Path) -> bool:
        return folder in self.folders

    @property
    def folders(self) -> set[Path]:
        return {path.parent for path in (*self.gone, *(path for path, _ in self.made))}


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
        raw = memoryview(data).cast("B")
        try:
            self._disk.step("pwrite")
        except PowerCut:
            if self._disk.dying:
                self._write(raw[: len(raw) // 2], position)
            raise
        self._disk.use(len(raw), lambda room: self._write(raw[:room], position))
        self._write(raw, position)

    def _write(self, raw: memoryview, position: int) -> None:
        with self._disk.lock:
            self._node.keep(self.fd, position, position + len(raw))
            self._file.pwrite(raw, position)

    def truncate(self, size_bytes: int) -> None:
        self._disk.step("truncate")
        with self._disk.lock:
            self._node.keep(self.fd, size_bytes, self._node.durable_bytes)
            self._file.truncate(size_bytes)

    def fsync(self) -> None:
        self._disk.step("fsync")
        with self._disk.lock:
            self._node.synced(os.fstat(self.fd).st_size)

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
        self.lock = threading.RLock()
        self._names: dict[Path, Node] = {}
        for folder, _, files in os.walk(self.root):
            self._names[Path(folder)] = Node(folder=True)
            for path in (Path(folder, name) for name in files):
                if not self.foreign(path):
                    self._names[path] = Node(durable_bytes=path.stat().st_size, paths={path})
        self._durable = dict(self._names)
        self._journal: list[_Change] = []

    def step(self, what: str) -> None:
        """Count one step; raise PowerCut when it is the last, or when the power is off already."""
        with self.lock:
            self.dying = False
            self.steps += 1
            self.trace.append(what)
            if self.dies_at is not None and self.steps >= self.dies_at:
                self.dying = self.steps == self.dies_at
                self._tell()
                raise PowerCut(f"step {self.steps}: {what}")

    def power_on(self, dies_after: int | None = None, on_cut: Callable[[], None] | None = None) -> None:
        """Steps count from 1 again; what was not fsynced may still be lost."""
        with self.lock:
            self.dies_at, self.on_cut = dies_after, on_cut
            self.steps, self.trace = 0, []

    def cut(self) -> None:
        """The power goes now, between two steps."""
        with self.lock:
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
        with self.lock:
            if create and path not in self._names:
                self.step(f"create {path.name}")
                self.use(0)
                self._change(made=((path, Node()),))
            return ModelFile(self, self._real.open(path, create=create), self._names[path])

    def write_new(self, path: Path, data: Buffer) -> None:
        with self.lock:
            raw = bytes(memoryview(data))
            self.step(f"write_new {path.name}")
            self.use(len(raw))
            if path not in self._names:
                self._change(made=((path, Node()),))
            else:
                self._keep_all(path)
            self._real.write_new(path, raw)

    def fsync_file(self, path: Path) -> None:
        with self.lock:
            self.step(f"fsync {path.name}")
            size = path.stat().st_size  # FileNotFoundError, as the real one
            self._names[path].synced(size)

    def fsync_dir(self, path: Path) -> None:
        with self.lock:
            self.step(f"fsync_dir {path.name}")
            done = [change for change in self._journal if change.touches(path)]
            self._journal = [change for change in self._journal if not change.touches(path)]
            for change in done:
                _apply(change, self._durable)
            if any(gone not in self._names for change in done for gone in change.gone):
                self._forget_folders()

    def _forget_folders(self) -> None:
        """Drop what is known of folders that have gone for good: nothing in them can come back."""
        gone = {path.parent for path in self._durable if path != self.root} - self._durable.keys()
        gone -= self._names.keys()
        self._durable = {path: node for path, node in self._durable.items() if path.parent not in gone}
        self._journal = [change for change in self._journal if not change.folders <= gone]

    def _keep_all(self, path: Path) -> None:
        """Before the file at *path* is written anew."""
        fd = os.open(path, os.O_RDONLY)
        try:
            self._names[path].keep(fd, 0, self._names[path].durable_bytes)
        finally:
            os.close(fd)

    def _keep_last(self, path: Path) -> None:
        """Before *path* goes as a name: when it is the last of its file, what is durable of that is read."""
        node = self._names.get(path)
        if node is not None and not node.folder and node.paths == {path}:
            node.drop(path)

    def replace(self, source: Path, target: Path) -> None:
        with self.lock:
            self.step(f"replace {source.name} {target.name}")
            self._keep_last(target)
            self._real.replace(source, target)
            moved = {source: self._names[source]}
            if moved[source].folder:
                moved |= {path: node for path, node in self._names.items() if source in path.parents}
            made = tuple((target / path.relative_to(source), node) for path, node in moved.items())
            self._change(gone=tuple(moved), made=made)

    def link_new(self, source: Path, target: Path) -> None:
        with self.lock:
            self.step(f"link {target.name}")
            self._real.link_new(source, target)
            self._change(made=((target, self._names[source]),))

    def unlink(self, path: Path) -> None:
        with self.lock:
            self.step(f"unlink {path.name}")
            self._keep_last(path)
            self._real.unlink(path)
            self._change(gone=(path,))

    def mkdir(self, path: Path) -> None:
        with self.lock:
            self.step(f"mkdir {path.name}")
            missing = [folder for folder in (path, *path.parents) if not folder.exists()]
            self._real.mkdir(path)
            for folder in reversed(missing):
                self._change(made=((folder, Node(folder=True)),))

    def rmdir(self, path: Path) -> None:
        with self.lock:
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
        for path in (*gone, *(path for path, _ in made)):
            if (before := self._names.get(path)) is not None:
                before.paths.discard(path)
        _apply(change, self._names)
        for path, node in made:
            node.paths.add(path)
        self._journal.append(change)

    def lose_unsynced(self, chance: Random | None = None) -> None:
        """Put the folder back to what survives a power cut; this disk is not for use any more.

        Without *chance* nothing that was not fsynced survives. With it a random part does: the first few changes of
        names (file systems with a journal keep their order), and of each file a part of what was written, then zeros.
        """
        names = dict(self._durable)
        if chance is not None:
            for change in self._journal[: chance.randint(0, len(self._journal))]:
                _apply(change, names)
        names = {path: node for path, node in names.items() if self._reachable(path, names)}
        with tempfile.TemporaryDirectory(dir=self.root.parent) as beside:
            kept = self._surviving(names, Path(beside), chance)
            for path in sorted(self._names, reverse=True):
                if path not in names or not self._names[path].folder:
                    _remove(path)
            for path in sorted(path for path, node in names.items() if node.folder):
                path.mkdir(parents=True, exist_ok=True)
            for path, copy in kept.items():
                os.link(copy, path)

    def _surviving(self, names: dict[Path, Node], beside: Path, chance: Random | None) -> dict[Path, Path]:
        """Where each file of *names* lies now, with the content that it will have."""
        copies: dict[int, Path] = {}
        for node in names.values():
            if node.folder or id(node) in copies:
                continue
            copy = copies[id(node)] = beside / str(len(copies))
            if node.paths:
                os.link(min(node.paths), copy)
                _cut(node, copy, chance)
            else:
                copy.write_bytes(node.lost or b"")
                os.truncate(copy, node.durable_bytes)
        return {path: copies[id(node)] for path, node in names.items() if not node.folder}

    def _reachable(self, path: Path, names: dict[Path, Node]) -> bool:
        """Whether every folder above it has survived, too."""
        return all(folder in names for folder in path.parents if self.root in folder.parents)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _apply(change: _Change, names: dict[Path, Node]) -> None:
    for path in change.gone:
        names.pop(path, None)
    names.update(change.made)


def _cut(node: Node, path: Path, chance: Random | None) -> None:
    """Leave in the file what survives."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if chance is None or (size <= node.durable_bytes and chance.random() < 0.5):
            node.restore(file.fileno())
        elif size > node.durable_bytes:
            kept = chance.randint(node.durable_bytes, size)
            file.truncate(kept)
            file.truncate(chance.randint(kept, size))
