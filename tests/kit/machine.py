"""One computer that runs a whole tierd, and its power switch; the bucket is a directory elsewhere, which stays on.

The broker's process runs in this one, over a ModelDisk; the tierer is a process of its own. What SQLite has committed
survives every cut (both databases are outside the model), what was not fsynced below the machine's root does not.
"""

import asyncio
import os
import shutil
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from kit.clock import FakeClock
from kit.model_disk import ModelDisk, PowerCut
from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.base.exits import Exit
from tierd.broker.broker import Broker
from tierd.config.listeners import Listener
from tierd.config.model import Remote, Settings
from tierd.config.places import HostPort
from tierd.config.state_files import CACHE, CATALOG, SET_ASIDE
from tierd.daemon.parts import Opened, assemble
from tierd.daemon.verbs import Verbs
from tierd.storage.log import Log
from tierd.tiering.link import TierLink

Result = TypeVar("Result")

_TIERER = Path(__file__).with_name("mortal_tierer.py")
_WAIT_S = 90


@dataclass
class Machine:
    """What stays from boot to boot."""

    place: Path
    topics: dict[str, str]
    """Topic settings, as with --set."""
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        self.root = self.place / "machine"
        self.root.mkdir()
        self.bucket = self.place / "bucket"
        self.data, self.state = self.root / "data", self.root / "data.tierd"
        self.dark = self.place / "dark"
        """There while the power is off."""

    @property
    def settings(self) -> Settings:
        return Settings(
            data_dirs=(self.data,),
            state_dir=self.state,
            listener=Listener(address=HostPort("127.0.0.1", 0)),
            remote=Remote(url=f"file:{self.bucket}", head_interval_ms=200, groups_interval_ms=200),
            set_overrides=self.topics,
            retention_check_ms=200,
            disk_reserve_bytes=0,
        )

    def not_ours(self, path: Path) -> bool:
        """Databases and cache: not written through the broker's disk."""
        return self.state in path.parents and self.state / SET_ASIDE not in path.parents

    @property
    def catalog(self) -> Path:
        return self.state / CATALOG

    def spoil_cache(self, dice: Random) -> None:
        """The tierer's read cache was not fsynced: sizes have survived, a part of the bytes has not."""
        for path in sorted((self.state / CACHE).rglob("*")):
            if path.is_file() and dice.random() < 0.5:
                size = path.stat().st_size
                with path.open("r+b") as file:
                    file.truncate(dice.randint(0, size))
                    file.truncate(size)

    def save_catalog(self, copy: Path) -> bool:
        """A consistent copy, the tierer running or not; False when there is none yet."""
        if not self.catalog.exists():
            return False
        copy.unlink(missing_ok=True)
        with sqlite3.connect(f"file:{self.catalog}?mode=ro", uri=True) as source, sqlite3.connect(copy) as target:
            source.backup(target)
        source.close()
        target.close()
        return True

    def save_data(self, copy: Path) -> None:
        """The machine is off."""
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.data, copy)

    def restore_data(self, copy: Path) -> None:
        """The machine is off: an older content comes back into the same directory."""
        for stale in self.data.iterdir():
            shutil.rmtree(stale) if stale.is_dir() else stale.unlink()
        shutil.copytree(copy, self.data, dirs_exist_ok=True)

    def restore_catalog(self, copy: Path | None) -> None:
        """The machine is off: an older catalog comes back, or with None there is no catalog at all."""
        for stale in self.state.glob(f"{CATALOG}*"):
            stale.unlink()
        if copy is not None:
            shutil.copy(copy, self.catalog)


class Life:
    """tierd from boot until the power goes; `end` must follow. Calls raise PowerCut once it is gone."""

    def __init__(
        self,
        machine: Machine,
        *,
        dies_after: int | None = None,
        tierer_dies: str | None = None,
        disk: ModelDisk | None = None,
        recover: bool = False,
    ) -> None:
        """*dies_after*: so many disk steps; *tierer_dies*: `before:N` or `after:N`, the bucket's N-th change.

        *disk*: that of the life before, when only its process was killed. *recover*: the machine is new, and somebody
        says that the one before is lost.
        """
        self.machine = machine
        self.disk = disk or ModelDisk(machine.root, foreign=machine.not_ours)
        self.disk.power_on(dies_after, self._cut)
        self.recover = recover
        self.broker: Broker | None = None
        self.link: TierLink | None = None
        self.on_cut: list[Callable[[], None]] = []
        self._tierer_dies = tierer_dies is not None
        self._off: Future[None] = Future()
        self._problems: list[BaseException | str] = []
        command = [sys.executable, "-P", str(_TIERER), "--unless", str(machine.dark)]
        command += ["--dies", tierer_dies] if tierer_dies else []
        self._opened = Opened(machine.settings, machine.clock, self.disk, tierer=command)
        self._watched: int | None = None
        self._starting: asyncio.Task[Any] | None = None
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._note)
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)

    # -- the power --

    def cut(self) -> None:
        """Now."""
        self.disk.cut()

    @property
    def off(self) -> bool:
        return self._off.done()

    def _cut(self) -> None:
        """In the thread whose step was the last: nothing of this machine goes on."""
        self.machine.dark.touch()
        for pid in _tierers():
            os.kill(pid, signal.SIGKILL)
        self._off.set_result(None)
        for told in self.on_cut:
            told()

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._problems.append(context.get("exception") or context["message"])

    # -- from boot to the end --

    def start(self) -> tuple[str, int]:
        """Boot to the ready line. Raises PowerCut; whatever else is raised is a bug."""
        self.machine.dark.unlink(missing_ok=True)
        self._thread.start()
        self._opened.open()
        try:
            return self.run(self._start())
        except (StartRefused, ProcessLookupError):
            if self._tierer_dies:
                self.cut()
            if self.off:
                raise PowerCut("while tierd started") from None
            raise

    async def _start(self) -> tuple[str, int]:
        self._starting = asyncio.current_task()
        self.broker, self.link = await assemble(self._opened, take_over=self.recover, recover=self.recover)
        assert self.link is not None
        assert self.link.pid is not None
        self._watched = os.pidfd_open(self.link.pid)
        self._loop.add_reader(self._watched, self._tierer_gone)
        return await self.broker.start()

    def _tierer_gone(self) -> None:
        assert self._watched is not None
        self._loop.remove_reader(self._watched)
        self.cut()

    def run(self, work: Awaitable[Result]) -> Result:
        """On the loop. Raises PowerCut when the power goes first, or TimeoutError."""

        async def done() -> Result:
            return await work

        future = asyncio.run_coroutine_threadsafe(done(), self._loop)
        wait(_any(future, self._off), _WAIT_S, FIRST_COMPLETED)
        if future.done() and not self.off and self._tierer_dies and isinstance(future.exception(), RemoteUnavailable):
            self._off.result(_WAIT_S)
        if self.off:
            raise PowerCut("meanwhile")
        return future.result(0)

    def call(self, work: Callable[[], Result]) -> Result:
        async def called() -> Result:
            return work()

        return self.run(called())

    def verb(self, name: str, **request: Any) -> None:
        """`tierd copy` or `tierd evict`, which must succeed."""
        assert self.broker is not None
        handler = Verbs(self.broker, self.link, self.machine.state).handlers()[name]
        answer = self.run(handler({"do": name, **request}, lambda _: None))
        assert answer.exit == Exit.DONE, answer.result

    def end(self, *, clean: bool = False) -> None:
        """Let go of everything in this process. *clean*: as SIGTERM does, the power is on."""
        try:
            if self._thread.is_alive():
                self._stopped_in_time(asyncio.run_coroutine_threadsafe(self._stop(), self._loop))
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
            self._loop.close()
        finally:
            self._opened.close(clean=clean)
            if self._watched is not None:
                os.close(self._watched)
            self._loop.set_exception_handler(None)  # what the loop has left behind must not hold this life
            self.on_cut.clear()
        unexpected = [problem for problem in self._problems if not _is_cut(problem)]
        assert not unexpected, unexpected

    def _stopped_in_time(self, stopping: Future[None]) -> None:
        try:
            stopping.result(_WAIT_S)
        except TimeoutError as error:
            for task in asyncio.all_tasks(self._loop):
                error.add_note(f"{task}")
            raise

    async def _stop(self) -> None:
        if self._starting is not None:
            await asyncio.wait({self._starting})  # it soon finds out that its tierer is gone
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
        if self.broker is not None:
            with suppress(PowerCut):  # housekeeping may have found out first
                await self.broker.stop(quick=True)
        if self.link is not None:
            await self.link.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    # -- looking at it, also when it is over --

    @property
    def epoch(self) -> int:
        assert self.broker is not None
        return self.broker.partitions.epoch

    def logs(self) -> dict[tuple[str, int], Log]:
        if self.broker is None:
            return {}
        return {(one.name.topic, one.name.partition): one.log for one in self.broker.partitions if not one.internal}


def _any(*futures: Future[Any]) -> set[Future[Any]]:
    return set(futures)


def _is_cut(problem: BaseException | str) -> bool:
    while isinstance(problem, BaseException):
        if isinstance(problem, PowerCut):
            return True
        problem = problem.__cause__ or problem.__context__ or ""
    return False


def _tierers() -> list[int]:
    """Our own children that run a tierer."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended; its children are another's
            for pid in (task / "children").read_text().split():
                if str(_TIERER).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


def hang_up(sock: socket.socket) -> None:
    """Let whoever reads from *sock* in another thread find its end."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
