"""The tierer's process where the bucket is only read: looks and reads, and nothing that writes or claims.

First message: Configure, second: OpenArchive; then NextArchive, reads and look-ups by time in any order.
"""

import asyncio
from dataclasses import replace
from typing import Any

from tierd.base.errors import TierdError
from tierd.base.ids import PartitionId
from tierd.config.state_files import CACHE, CATALOG, TIERER_LOCK, USAGE
from tierd.ipc.calls import failed
from tierd.remote.keyring import load_ring
from tierd.remote.open import Bucket, limits_of, open_store
from tierd.remote.readonly import ReadOnlyStore
from tierd.remote.watched import WatchedStore
from tierd.tiering import messages as m
from tierd.tiering.archive.keeper import Keeper
from tierd.tiering.archive.survey import Survey
from tierd.tiering.catalog import Catalog
from tierd.tiering.process import Process, open_catalog, reader_options, take_lock
from tierd.tiering.reader import RemoteReader
from tierd.tiering.usage import Usage


class ArchiveProcess(Process):
    """See the module."""

    _keeper: Keeper | None = None
    _catalog: Catalog | None = None
    _looking: "asyncio.Task[None] | None" = None

    async def _call(self, message: Any) -> None:
        match message:
            case m.OpenArchive():
                work = self._open_archive(message)
            case m.NextArchive():
                work = self._next(message)
            case _:
                await super()._call(message)
                return
        try:
            reply = await work
        except (TierdError, OSError) as error:
            reply = failed(message.call, error)
        self._send(reply)

    async def _configure(self, message: m.Configure) -> m.Message:
        options = message.options
        assert options.remote.url is not None
        ring = load_ring(options.remote.encryption.key_files)
        self._lock_fd = await take_lock(options.state_dir / TIERER_LOCK, options.lock_wait_ms, self._clock)
        self._catalog = catalog = open_catalog(options.state_dir / CATALOG)
        self._usage = usage = Usage.begin(options.state_dir / USAGE, self._clock, options.remote.url)
        limits = limits_of(options.remote, self._clock)
        plain = open_store(
            options.remote.url, options.remote, disk=self._disk, clock=self._clock, meter=usage.meter, limits=limits
        )
        self._store = WatchedStore(ReadOnlyStore(plain.store), self._clock)
        limits.told.append(self._store.calls.went_on)
        bucket = Bucket(self._store, plain.keys, plain.url, ring)
        reading = replace(reader_options(options), pass_gaps=True)
        self._reader = reader = RemoteReader(
            self._store, catalog, options.state_dir / CACHE, self._clock, reading, ring
        )
        self._keeper = Keeper(
            Survey(bucket, catalog),
            options.remote.refresh_interval_ms,
            forget=reader.forget,
            rearranged=reader.rearranged,
        )
        return m.Done(message.call)

    async def _open_archive(self, message: m.OpenArchive) -> m.Message:
        keeper = self._open_keeper()
        topics = await keeper.open()
        self._looking = asyncio.create_task(keeper.run())
        self._looking.add_done_callback(self._looked)
        return m.ArchiveOpened(message.call, topics)

    def _looked(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            self.fatal(task.exception())

    async def _next(self, message: m.NextArchive) -> m.Message:
        return m.ArchiveNews(message.call, *await self._open_keeper().news())

    def _open_keeper(self) -> Keeper:
        if self._keeper is None:
            raise TierdError("the tierer is not configured yet")
        return self._keeper

    def _suspect(self, part: PartitionId, key: str) -> None:
        """The next look shows what is left of the partition."""

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._store is not None:
            self._store.close()
        await super().close()
        if self._catalog is not None:
            self._catalog.close()
