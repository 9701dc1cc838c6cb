"""A broker on a loop in a thread, over real log directories."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from broker.file_tier import FileTier
from tierd.base.clock import Clock, SystemClock
from tierd.base.disk import Disk
from tierd.broker.broker import Broker
from tierd.broker.homes import Home
from tierd.broker.local_tier import LocalLog
from tierd.broker.partitions import Partitions
from tierd.broker.ports import Looker, RemoteTier
from tierd.broker.registry import Registry, settings_for, topic_id_for
from tierd.config.listeners import Listener
from tierd.config.model import Remote, Settings
from tierd.config.places import HostPort
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.storage.log import Log

_T = TypeVar("_T")


def settings(root: Path, *, remote: bool = False, **overrides: Any) -> Settings:
    return Settings(
        data_dirs=overrides.pop("data_dirs", (root / "data",)),
        state_dir=root / "state",
        listener=Listener(address=HostPort("127.0.0.1", 0)),
        remote=Remote(url=f"file:{root / 'bucket'}") if remote else Remote(),
        **overrides,
    )


class Running:
    """The broker and its parts; `on_loop` runs something on its loop and waits for it."""

    def __init__(self, config: Settings, tier: RemoteTier | None, clock: Clock) -> None:
        self.config = config
        self.tier = tier
        self.clock = clock
        self.disk: Disk = PosixDisk()
        self.unusable: list[Home] = []
        self.looker: Looker | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self.problems: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda loop, context: self.problems.append(context))

    def start(self) -> None:
        self._thread.start()
        self.run(self._start())

    async def _start(self) -> None:
        self.config.state_dir.mkdir(parents=True, exist_ok=True)
        self.registry = Registry.open(self.config.state_dir / "registry.sqlite")
        defaults = self.config.topic_defaults
        self.directories = [
            LogDirectory.open(
                path,
                self.disk,
                self.clock,
                settings_for=settings_for(self.registry, defaults),
                topic_id_for=topic_id_for(self.registry),
                node_id=self.config.node_id,
                cluster_id=None,
                set_aside=self.config.state_dir / "set-aside",
                reserve_bytes=0,
            )
            for path in self.config.data_dirs
            if path.absolute() not in [home.path for home in self.unusable]
        ]
        self.partitions = Partitions(self.registry, self.directories, defaults, self.clock, unusable=self.unusable)
        self.partitions.load()
        self.local = LocalLog(self.partitions, self.clock)
        self.local.tier = self.tier
        epoch = 1 + max((p.log.leader_epoch for p in self.partitions), default=-1)
        remotes = {p.id: r for p in self.partitions if self.tier and (r := self.tier.remote_partition(p.id))}
        await self.partitions.begin(epoch, remotes, self.tier)
        self.broker = Broker(
            self.config,
            self.registry,
            self.partitions,
            self.tier,
            self.clock,
            cluster_id=self.directories[0].cluster_id,
            looker=self.looker,
        )
        self.address = await self.broker.start()

    def stop(self, *, clean: bool = True) -> None:
        self.run(self.broker.stop())
        for directory in self.directories:
            self.call(lambda directory=directory: directory.close(clean))  # type: ignore[misc]
        self.registry.close()
        self.end()
        assert not self.problems, self.problems

    def end(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, awaitable: Awaitable[_T]) -> _T:
        async def waited() -> _T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(waited(), self._loop).result(60)

    def call(self, work: Callable[[], _T]) -> _T:
        async def called() -> _T:
            return work()

        return self.run(called())

    def log(self, topic: str, partition: int = 0) -> Log:
        found = self.partitions.get(topic, partition)
        assert found is not None
        return found.log

    def give_to_tier(self, topic: str, stop: int, partition: int = 0) -> None:
        """Hold the segments below *stop* in the bucket and drop them from the disk."""
        assert isinstance(self.tier, FileTier)
        tier = self.tier
        found = self.partitions.get(topic, partition)
        assert found is not None
        remote = self.call(lambda: tier.hold(found.log, stop))
        self.call(lambda: self.local.remote_changed(remote))
        self.run(self.broker.housekeeping.flush([found]))
        assert self.run(self.local.evict(found.id, stop)) == stop


@contextmanager
def running(
    root: Path,
    tier: FileTier | None = None,
    *,
    clock: Clock | None = None,
    looker: Looker | None = None,
    **overrides: Any,
) -> Iterator[Running]:
    broker = Running(settings(root, remote=tier is not None, **overrides), tier, clock or SystemClock())
    broker.looker = looker
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
