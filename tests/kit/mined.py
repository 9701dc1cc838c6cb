"""tierd as it is, with a mine in it: at one chosen durable step a SIGKILL hits the broker, the tierer or both.

Run as a program instead of `tierd`: `python -m kit.mined serve ...`; the tierer that it starts is mined, too. A Mine is
laid by writing its JSON to $TIERD_MINE. Each process looks for it at every step of Disk and DiskFile, every commit of
registry and catalog, and every change of the bucket; whoever sets it off leaves `<file>.hit`, which names the step.
"""

import functools
import json
import os
import re
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MINE = "TIERD_MINE"
BROKER, TIERER = "broker", "tierer"
_DISK = ("open", "write_new", "fsync_file", "fsync_dir", "replace", "link_new", "unlink", "mkdir", "rmdir", "set_mtime")
_FILE = ("pwrite", "truncate", "fsync")
_STORE, _UPLOAD = ("put", "begin_upload", "delete"), ("put_part", "complete", "abort")
_REGISTRY = ("add", "mark_deleted", "forget", "put")
_CATALOG = ("put", "started", "finished", "deleting", "deleted", "release", "know", "set_log_start", "set_copied_to",
            "head_taken", "touch_heads", "drop_partition", "set_topic", "take_topic", "topic_written")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Mine:
    """Goes off at the *nth* step of the process *role* that *step* is found in, before or after it is done."""

    role: str
    step: str
    """A regular expression over steps such as `replace /b/t.tmp /b/t`, `catalog.finished`, `bucket.put KEY`."""
    nth: int
    after: bool
    victims: tuple[str, ...]

    def lay(self, file: Path) -> None:
        hit_file(file).unlink(missing_ok=True)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)))
        fresh.replace(file)


def hit_file(file: Path) -> Path:
    return file.with_name(file.name + ".hit")


class Sapper:
    """Watches the steps of this process. Any thread."""

    def __init__(self, role: str, file: Path) -> None:
        self._role = role
        self._file = file
        self._parent = os.getppid()
        self._lock = threading.Lock()
        self._seen = 0
        self._mine: Mine | None = None
        self._laid: tuple[int, int] | None = None

    def step(self, what: str, work: Callable[[], Any]) -> Any:
        """Do *work*, the step *what*, unless it is the process's last. A step that fails is none."""
        mine = self._mine_at(what)
        if mine is None:
            return work()
        if not mine.after:
            self._count(mine, what)
        result = work()
        if mine.after:
            self._count(mine, what)
        return result

    def _mine_at(self, what: str) -> Mine | None:
        try:
            with self._lock:
                mine = self._look()
        except FileNotFoundError:
            return None
        return mine if mine.role == self._role and re.search(mine.step, what) is not None else None

    def _look(self) -> Mine:
        """The mine that is laid now. Raises FileNotFoundError."""
        facts = self._file.stat()
        if self._mine is None or self._laid != (facts.st_ino, facts.st_mtime_ns):
            raw = json.loads(self._file.read_text())
            self._mine = Mine(**{**raw, "victims": tuple(raw["victims"])})
            self._laid = facts.st_ino, facts.st_mtime_ns
            self._seen = 0
        return self._mine

    def _count(self, mine: Mine, what: str) -> None:
        with self._lock:
            self._seen += 1
            if self._seen != mine.nth:
                return
        self._go_off(mine, what)

    def _go_off(self, mine: Mine, what: str) -> None:
        fresh = self._file.with_suffix(".done")
        fresh.write_text(f"{self._role} {'after' if mine.after else 'before'} {what}")
        fresh.replace(hit_file(self._file))
        self._file.unlink(missing_ok=True)
        for role in sorted(mine.victims, key=lambda role: role == self._role):  # oneself last
            for pid in self._pids(role):
                os.kill(pid, signal.SIGKILL)

    def _pids(self, role: str) -> list[int]:
        if role == self._role:
            return [os.getpid()]
        if role == BROKER:
            return [self._parent] if os.getppid() == self._parent else []  # else it is dead already
        return children()


def children() -> list[int]:
    """Processes that this one has started and not buried."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def _mined(sapper: Sapper, owner: type, name: str, say: Callable[[Sequence[Any]], str]) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def step(*args: Any, **kwargs: Any) -> Any:
        return sapper.step(say(args), lambda: real(*args, **kwargs))

    setattr(owner, name, step)


def _paths(name: str) -> Callable[[Sequence[Any]], str]:
    return lambda args: " ".join([name, *(str(arg) for arg in args if isinstance(arg, Path))])


def _file(name: str) -> Callable[[Sequence[Any]], str]:
    return lambda args: f"{name} {args[0]._path}"


def _key(name: str) -> Callable[[Sequence[Any]], str]:
    """Of a store's method the key or keys, of an upload's the key that it is for."""
    return lambda args: " ".join([f"bucket.{name}", *([args[1]] if isinstance(args[1], str) else args[1])])


def _upload_key(name: str) -> Callable[[Sequence[Any]], str]:
    return lambda args: f"bucket.{name} {args[0].key}"


def _named(text: str) -> Callable[[Sequence[Any]], str]:
    return lambda _: text


def lay_wires(sapper: Sapper) -> None:
    """From now on every durable step of this process passes by *sapper*."""
    from tierd.broker.registry import Registry
    from tierd.remote.file import FileStore
    from tierd.remote.file_upload import FileUpload
    from tierd.remote.s3 import S3Store
    from tierd.remote.s3_upload import S3Upload
    from tierd.storage.disk import PosixDisk, PosixFile
    from tierd.tiering.catalog import Catalog

    for name in _DISK:
        _mined(sapper, PosixDisk, name, _paths(name))
    for name in _FILE:
        _mined(sapper, PosixFile, name, _file(name))
    for name in _REGISTRY:
        _mined(sapper, Registry, name, _named(f"registry.{name}"))
    for name in _CATALOG:
        _mined(sapper, Catalog, name, _named(f"catalog.{name}"))
    for store in (FileStore, S3Store):
        for name in _STORE:
            _mined(sapper, store, name, _key(name))
    for upload in (FileUpload, S3Upload):
        for name in _UPLOAD:
            _mined(sapper, upload, name, _upload_key(name))


def main() -> None:
    role = TIERER if sys.argv[1] == TIERER else BROKER
    lay_wires(Sapper(role, Path(os.environ[MINE])))
    if role == TIERER:
        del sys.argv[1]
        runpy.run_module("tierd.tiering", run_name="__main__", alter_sys=True)
        return
    from tierd.tiering import link

    link.COMMAND = link.TierLink.__init__.__kwdefaults__["command"] = (sys.executable, "-m", "kit.mined", TIERER)
    from tierd.__main__ import main as tierd  # now: others take COMMAND over when they are imported

    tierd()


if __name__ == "__main__":
    main()
