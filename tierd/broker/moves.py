"""Moves partitions to other data directories while they serve, one at a time (AlterReplicaLogDirs).

A copy is made in a `-future` folder of the target and follows the log. When little is missing the rest is copied on
the loop, so that nothing comes in between; the copy gets the partition's name, the log goes on there, and the old
folder is dropped. The registry says at each step which of the two counts (settling.py): a stop at any of them leaves
one whole copy. What lies in the bucket is known by the topic's id and does not move.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from tierd.base.errors import CorruptFile, DiskFull
from tierd.base.ids import PartitionId
from tierd.broker.homes import Home
from tierd.broker.ongoing import Ongoing
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.broker.registry import MoveRow
from tierd.storage import names
from tierd.storage.folder_copy import CopyStopped, FolderCopy

log = logging.getLogger(__name__)

_Result = TypeVar("_Result")

SWAP_BYTES = 2 * 1024 * 1024
"""So little may be missing when the last round runs on the loop: a few milliseconds of writing."""
_CLEANING_S = 1.0
"""How often a move looks whether a compaction that holds it up is over."""


@dataclass(slots=True, eq=False)
class Move:
    """One partition on its way, or waiting for its turn."""

    partition: Partition
    target: Home
    copy: FolderCopy | None = None
    cancelled: bool = False

    @property
    def copied_bytes(self) -> int:
        return 0 if self.copy is None else self.copy.size_bytes


class Moves:
    """Loop thread only, but for the rounds of a copy."""

    def __init__(self, partitions: Partitions, tier: RemoteTier | None, *, swap_bytes: int = SWAP_BYTES) -> None:
        self._partitions = partitions
        self._tier = tier
        self._swap_bytes = swap_bytes
        self._moves: dict[PartitionId, Move] = {}
        self.idle = asyncio.Event()
        """Set while no partition is on its way or waits for its turn."""
        self.idle.set()
        self._queue: asyncio.Queue[Move] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "move")
        self._noting = asyncio.Lock()
        """Held while it is decided what the registry's row of a move becomes, and until that is written."""
        self._ongoing = Ongoing()
        self._stopping = False
        self._stopped = asyncio.Event()

    def __iter__(self) -> Iterator[Move]:
        return iter(list(self._moves.values()))

    def of(self, part: PartitionId) -> Move | None:
        return self._moves.get(part)

    async def resume(self) -> None:
        """Begin anew what a stop interrupted."""
        for part, target in self._partitions.outages.unfinished:
            partition = self._partitions.by_id(part)
            if partition is not None and target.online:
                await self.begin(partition, target)

    async def begin(self, partition: Partition, target: Home) -> None:
        """Move *partition* to *target*, where it may be or go already; any other move of it ends. Raises DiskFull."""
        await self._ongoing.whole(self._begin(partition, target))

    async def _begin(self, partition: Partition, target: Home) -> None:
        async with self._noting:
            known = self._moves.get(partition.id)
            if known is not None and known.target is target:
                return
            if known is not None:
                self._forget(known)
                if known.copy is None:
                    await asyncio.to_thread(self._partitions.registry.end_move, partition.id)
            source = self._partitions.homes.of(partition.log)
            if source is target:
                return
            assert source.id is not None
            assert target.id is not None
            folder = names.marked_directory(partition.name, UUID(int=0), names.DirectoryMark.FUTURE)  # none yet
            row = MoveRow(part=partition.id, source=source.id, target=target.id, folder=folder)
            await asyncio.to_thread(self._partitions.registry.note_move, row)
            move = self._moves[partition.id] = Move(partition, target)
            target.moving_in += 1
            self.idle.clear()
            self._queue.put_nowait(move)

    def _forget(self, move: Move) -> None:
        move.cancelled = True
        move.target.moving_in -= 1
        del self._moves[move.partition.id]
        if not self._moves:
            self.idle.set()

    async def run(self) -> None:
        """Until `stop`. Moves that are not done then begin anew at the next start."""
        try:
            while (move := await self._next()) is not None:
                if not move.cancelled:
                    await self._move(move)
        finally:
            await self._ongoing.settle()
            self._thread.shutdown(wait=True)

    def stop(self) -> None:
        self._stopping = True
        self._stopped.set()

    async def _next(self) -> Move | None:
        waiting = asyncio.ensure_future(self._queue.get())
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not self._stopping:
            return waiting.result()
        waiting.cancel()
        return None

    # One move.

    def _ended(self, move: Move) -> bool:
        """Whether there is no sense in going on; asked by the copying thread, too."""
        return self._stopping or move.cancelled or move.partition.deleted or move.partition.offline

    async def _move(self, move: Move) -> None:
        partition, homes = move.partition, self._partitions.homes
        source = homes.of(partition.log)
        if self._ended(move) or not move.target.online or source.directory is None:
            if self._moves.get(partition.id) is move:
                self._forget(move)  # the next start looks at its row again
            return
        assert move.target.directory is not None
        assert source.id is not None
        assert move.target.id is not None
        copy = move.copy = move.target.directory.copy_of(partition.log, source.directory)
        row = MoveRow(part=partition.id, source=source.id, target=move.target.id, folder=copy.target.name)
        facts = {"partition": str(partition), "from": str(source.path), "to": str(move.target.path)}
        log.info("move begun", extra=facts)
        try:
            await self._note(move, row)
            await self._follow(move, copy)
            if self._ended(move):
                raise CopyStopped(f"move of {partition} given up")
            self._swap(move, copy, source, row)
        except CopyStopped:
            await self._give_up(move, row)
        except (DiskFull, CorruptFile, OSError) as error:
            log.error("move given up", extra={**facts, "why": str(error)})
            await self._give_up(move, row)
        else:
            log.info("moved", extra={**facts, "bytes": partition.log.size_bytes})
            self._forget(move)

    async def _note(self, move: Move, row: MoveRow) -> None:
        async with self._noting:
            if self._ended(move):
                raise CopyStopped(f"move of {move.partition} given up")
            await asyncio.to_thread(self._partitions.registry.note_move, row)

    async def _follow(self, move: Move, copy: FolderCopy) -> None:
        """Rounds in a thread, until little is missing and nothing but appends changes the files."""
        logged = move.partition.log
        await self._in_thread(copy.begin)
        while True:
            name, size_bytes = logged.active_log()
            repairs = logged.repairs
            await self._in_thread(lambda n=name, s=size_bytes: copy.round(n, s, lambda: self._ended(move)))  # type: ignore[misc]
            busy = logged.compaction.running or logged.repairing
            same = logged.repairs == repairs  # else what was cut would be copied anew on the loop
            if same and not busy and logged.size_bytes - copy.size_bytes <= self._swap_bytes:
                return
            if self._ended(move):
                return
            if busy:
                await asyncio.sleep(_CLEANING_S)

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _swap(self, move: Move, copy: FolderCopy, source: Home, row: MoveRow) -> None:
        """Nothing else runs while this does. Raises DiskFull, OSError: then the log is where it was."""
        partition, registry = move.partition, self._partitions.registry
        logged = partition.log
        assert source.directory is not None
        assert move.target.directory is not None
        logged.settle_files()
        copy.round(*logged.active_log())
        registry.note_move(replace(row, swapped=True))
        try:
            move.target.directory.take_in(logged, copy)
        except (DiskFull, OSError):
            registry.note_move(row)  # before the next append: from here on only the source has all
            raise
        try:
            source.directory.let_go(partition.name)
            registry.place({partition.id: row.target})
            registry.end_move(partition.id)
        except (DiskFull, OSError) as error:
            # The next start finds the row of the move, and does it.
            log.error("old place not forgotten yet", extra={"partition": str(partition), "why": str(error)})
        partition.tell(self._tier)

    async def _give_up(self, move: Move, row: MoveRow) -> None:
        """Drop the copy, also at a stop, after which the move begins anew: a Kafka that opens the directory would take
        it for whole. What cannot be dropped now is dropped at the next start, for the row of the move stays."""
        async with self._noting:
            current = self._moves.get(row.part)
            directory = move.target.directory
            if directory is not None and move.target.online:
                try:
                    directory.discard(move.partition.name, row.folder)
                    if current is None or (current is move and not self._stopping):
                        await asyncio.to_thread(self._partitions.registry.end_move, row.part)
                except (DiskFull, OSError) as error:
                    log.error("a copy stays for now", extra={"folder": row.folder, "why": str(error)})
            if current is move:
                self._forget(move)
