"""Archives: a bucket served read-only, in this process or as `tierd archive`, and recorded buckets as directories."""

import asyncio
import shutil
import sys
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kit.daemon import Daemon
from kit.golden import golden
from kit.ports import free_ports
from kit.tiers import until
from tierd.broker.broker import Broker
from tierd.config.load import Options, load
from tierd.daemon.parts import Opened, assemble_archive
from tierd.storage.batch import walk
from tierd.tiering.link import TierLink

if TYPE_CHECKING:
    from broker.client import Client

T = TypeVar("T")


def aiven_bucket(folder: Path, *variants: str) -> Path:
    """A directory with all that Kafka and Aiven's plugin wrote into the recorded buckets of these *variants*."""
    for variant in variants:
        shutil.copytree(golden("aiven") / f"bucket-{variant}" / "tier", folder, dirs_exist_ok=True)
    return folder


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Everything in *folder*: modification times and contents."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


class Serving:
    """An archive's broker on a loop in a thread, its tierer a process as always."""

    def __init__(self, remote: str, state: Path, sets: dict[str, Any]) -> None:
        given = [f"{key}={value}" for key, value in sets.items()]
        options = Options(state=state, remote=remote, mode="archive", listen="127.0.0.1:0", sets=tuple(given))
        self.settings = load(options, need_data=True)
        self.broker: Broker
        self.link: TierLink
        self.address = ("", 0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="archive", daemon=True)
        self._opened = Opened(self.settings)
        self._assembled = False

    def start(self) -> None:
        self._thread.start()
        self._opened.open()
        self.run(self._start())

    async def _start(self) -> None:
        self.broker, self.link = await assemble_archive(self._opened)
        self._assembled = True
        self.address = await self.broker.start()

    def stop(self) -> None:
        try:
            if self._assembled:
                self.run(self.broker.stop())
                self.run(self.link.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._opened.close(clean=True)

    def run(self, work: Awaitable[T]) -> T:
        async def waited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(waited(), self._loop).result(60)

    def status(self) -> dict[str, Any]:
        return self.run(self.broker.status())

    def row(self, topic: str, partition: int = 0) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.status()["partitions"]
        return next(row for row in rows if (row["topic"], row["partition"]) == (topic, partition))


@contextmanager
def serving(bucket: Path | str, state: Path, **sets: Any) -> Iterator[Serving]:
    """*bucket*: a directory, or a URL. *sets*: settings by their dotted names, `__` for a dot."""
    remote = bucket if isinstance(bucket, str) else f"file:{bucket}"
    started = Serving(remote, state, {key.replace("__", "."): value for key, value in sets.items()})
    try:
        started.start()
        yield started
    finally:
        started.stop()


@dataclass
class ArchiveDaemon(Daemon):
    """`tierd archive`. `data` only says where its log of lines lies; `state` must be given."""

    def command(self) -> list[str]:
        assert self.state is not None
        assert self.remote is not None
        listen = self.address or f"127.0.0.1:{free_ports(1)[0]}"
        words = [sys.executable, "-m", "tierd", "archive", "--state", str(self.state), "--remote", self.remote]
        return [*words, "--listen", listen, *self.extra]

    @property
    def place(self) -> list[str]:
        return ["--state", str(self.state)]


def local(variant: str, topic: str, stop: int) -> bytes:
    """What the broker that wrote the bucket had below offset *stop*."""
    folder = golden("aiven") / f"local-{variant}" / f"{topic}-0"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")) if int(path.stem) < stop)


def fetched(client: "Client", topic: str, offset: int, **how: Any) -> Any:
    """One answer with records; a fetch that the bucket is too slow for is sent again, as clients do."""

    def look() -> Any:
        got = client.fetch(topic, offset, max_wait=500, **how)
        return got if got.records else None

    return until(f"{topic} at {offset}", look)


def read_on(client: "Client", topic: str, stop: int, **how: Any) -> bytes:
    data, offset = b"", 0
    while offset < stop:
        records = bytes(fetched(client, topic, offset, **how).records)
        data += records
        *_, (_, last) = walk(records)
        offset = last.next_offset
    return data
