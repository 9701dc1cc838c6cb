"""Reads from the bucket for fetches: they outlive the fetch that gave up on them, and their silence is remembered.

A fetch waits at most its max wait. The read goes on; the next fetch of the same range takes its result, and when
nobody comes for it, it is released: after a while, or at once when descriptors are short.
"""

import asyncio
import logging
from dataclasses import dataclass

from tierd.base import descriptors
from tierd.base.clock import Clock
from tierd.base.errors import Archived, CorruptFile, DiskFull, RemoteUnavailable, TierdError
from tierd.base.logs import Doubling
from tierd.broker.counters import Counters
from tierd.broker.descriptor_room import A_READ, DescriptorRoom
from tierd.broker.partition import AWAY_MS, Partition
from tierd.broker.ports import RemoteTier
from tierd.storage.view import LogSlice

log = logging.getLogger(__name__)

KEEP_S = 5.0
"""A result that nobody has come for is let go after this."""

Key = tuple[Partition, int, int, bool]


@dataclass(frozen=True, slots=True)
class RemoteWant:
    """What one partition of one fetch needs of the bucket."""

    partition: Partition
    offset: int
    max_bytes: int
    stop: int
    committed: bool


class RemoteReads:
    """Loop thread only."""

    def __init__(self, tier: RemoteTier, clock: Clock, counters: Counters) -> None:
        self._tier = tier
        self._clock = clock
        self._counters = counters
        self._left: dict[Key, asyncio.Task[LogSlice]] = {}
        self._failing = Doubling()
        self.room = DescriptorRoom(descriptors.for_remote_reads(), self._let_go_oldest)

    def begin(self, want: RemoteWant) -> "asyncio.Task[LogSlice]":
        """The read of *want*: one that an earlier fetch left behind, or a new one. The caller takes or leaves it."""
        left = self._left.pop(_key(want), None)
        if left is not None and not (left.done() and (left.cancelled() or left.exception())):
            want.partition.tried_ms = self._clock.monotonic_ms()  # asked for again, though one read goes on
            return left
        return asyncio.get_running_loop().create_task(self._read(want))

    def leave(self, want: RemoteWant, task: "asyncio.Task[LogSlice]") -> None:
        """The fetch gives up: keep the read for the next one."""
        key = _key(want)
        if key in self._left:
            task.add_done_callback(_release)
            return
        self._left[key] = task
        task.add_done_callback(lambda done: self._expire_later(key, done))

    def away(self, partition: Partition) -> bool:
        """Whether the bucket has not answered reads of this partition for 30 s."""
        return partition.reads_refused(self._clock.monotonic_ms())

    async def close(self) -> None:
        """Cancel and release what is left."""
        left, self._left = self._left, {}
        for task in left.values():
            task.cancel()
            task.add_done_callback(_release)
        await asyncio.gather(*left.values(), return_exceptions=True)

    async def _read(self, want: RemoteWant) -> LogSlice:
        self._note_try(want.partition)
        await self.room.take()
        try:
            slice_ = await self._ask(want)
        except BaseException:
            self.room.give(A_READ)
            raise
        self._count(slice_)
        return slice_

    def _count(self, slice_: LogSlice) -> None:
        """Of what was set aside for the read, its descriptors stay out until it is released."""
        out, on_release = len({span.fd for span in slice_.spans}), slice_.on_release
        self.room.give(A_READ - out)
        if on_release is None:
            return

        def release() -> None:
            on_release()
            self.room.give(out)

        slice_.on_release = release

    async def _ask(self, want: RemoteWant) -> LogSlice:
        partition = want.partition
        try:
            slice_ = await self._tier.read(
                partition.id, want.offset, max_bytes=want.max_bytes, stop=want.stop, committed=want.committed
            )
        except RemoteUnavailable as error:
            self._failed(want, logging.WARNING, "remote read failed", error)
            raise
        except DiskFull as error:
            self._failed(want, logging.WARNING, "no room for what was read", error)
            raise
        except CorruptFile as error:
            partition.silent_ms = None
            partition.unreadable = (want.offset, str(error))
            self._failed(want, logging.ERROR, "remote data is corrupt", error)
            raise
        except Archived as error:  # of this segment only; it may be thawed meanwhile
            partition.silent_ms = None
            partition.unreadable = (want.offset, str(error))
            self._failed(want, logging.ERROR, "what is asked for is archived", error)
            raise
        except TierdError as error:  # the disk of the read cache, say
            self._failed(want, logging.ERROR, "remote read failed", error)
            raise
        partition.silent_ms = None
        if partition.unreadable is not None and partition.unreadable[0] == want.offset:
            partition.unreadable = None
        self._failing.well((partition.id, want.offset))
        return slice_

    def _failed(self, want: RemoteWant, level: int, what: str, error: TierdError) -> None:
        """Clients ask for the same again and again: not every time is worth a line."""
        self._counters.remote_reads_failed += 1
        times = self._failing.failed((want.partition.id, want.offset))
        if times is not None:
            facts = {"partition": str(want.partition), "offset": want.offset, "times": times, "why": str(error)}
            log.log(level, what, extra=facts)

    def _note_try(self, partition: Partition) -> None:
        now = self._clock.monotonic_ms()
        if partition.silent_ms is None or now - partition.tried_ms > AWAY_MS:
            partition.silent_ms = now  # An old failure that nobody followed up says nothing about now.
        partition.tried_ms = now

    def _let_go_oldest(self) -> bool:
        for key, task in self._left.items():
            if task.done():
                self._expire(key, task)
                return True
        return False

    def _expire_later(self, key: Key, task: "asyncio.Task[LogSlice]") -> None:
        if self.room.short:
            self._expire(key, task)
            return
        task.get_loop().call_later(KEEP_S, self._expire, key, task)

    def _expire(self, key: Key, task: "asyncio.Task[LogSlice]") -> None:
        if self._left.get(key) is task:
            del self._left[key]
            _release(task)


def _key(want: RemoteWant) -> Key:
    return (want.partition, want.offset, want.max_bytes, want.committed)


def _release(task: "asyncio.Task[LogSlice]") -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().release()
