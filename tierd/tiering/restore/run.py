"""A restore: segments side by side, partitions one after the other, what an earlier run has made is not made again."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.errors import CorruptFile, DiskFull, StartRefused
from tierd.base.ids import TopicPartition
from tierd.remote.errors import NotFound
from tierd.remote.heads import Gap, read_head
from tierd.remote.open import Bucket
from tierd.storage import names
from tierd.storage.checkpoints import encode_checkpoint
from tierd.storage.identity import topic_id_of
from tierd.storage.metadata import encode_clean_shutdown
from tierd.tiering.restore.journal import Journal
from tierd.tiering.restore.partition import Folder, Restored
from tierd.tiering.restore.plan import PartitionPlan, Plan
from tierd.tiering.restore.segment import fetch_segment, is_made

log = logging.getLogger(__name__)

_NO_BROKER_EPOCH = -1
_ROOM_BYTES = 64 * 1024 * 1024
"""For what a plan does not count: checkpoints, directories, blocks that are not full."""


@dataclass(frozen=True, slots=True)
class Progress:
    segments_done: int
    segments: int
    bytes_done: int
    bytes: int
    """Of the logs that this run is to bring."""
    detail: str


@dataclass(frozen=True, slots=True)
class _Turn:
    """One segment of a partition, or (None) the partition's end."""

    folder: Folder
    base: int | None
    work: Future[str | None] | None


@dataclass(slots=True)
class Restore:
    """One `run`. The caller holds the lock of *root* and has made it."""

    bucket: Bucket
    disk: Disk
    root: Path
    plan: Plan
    journal: Journal
    threads: int
    report: Callable[[Progress], None]
    beside: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Ends of partitions that the caller has made."""
    _todo: list[tuple[Folder, list[int]]] = field(default_factory=list)
    _segments: int = 0
    _bytes: int = 0
    _done: int = 0
    _came: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> list[Restored]:
        """Every partition of the plan. Raises KeyMissing, RemoteUnavailable, DiskFull, OSError: another run goes on
        from there. StartRefused when a partition directory of another topic is in the way."""
        self._look()
        restored = [self._finished(folder) for folder in self._folders()]
        self._checkpoints(restored)
        return restored

    def _look(self) -> None:
        """What is to be done, and whether there is room for it."""
        needed = 0
        for one in self.plan.partitions:
            folder = Folder(self.root, one, self.journal.new_id(one.source.topic_id))
            there = folder.final.exists()
            if there and topic_id_of(folder.final) != folder.topic_id:
                raise StartRefused(f"{folder.final} is of another topic that had this name: restore to another place")
            missing = [at for at, two in enumerate(one.pieces) if not there and not is_made(folder.path, two)]
            self._todo.append((folder, missing))
            self._segments += len(missing)
            self._bytes += sum(one.segments[at].size_bytes for at in missing)
            needed += sum(one.segments[at].size_bytes + one.segments[at].indexes_bytes for at in missing)
        free = self.disk.free_bytes(self.root)
        if needed and needed + _ROOM_BYTES > free:
            raise DiskFull(f"{self.root} has {free} bytes free, {needed} bytes are to come: make room, or use --topic")

    def _folders(self) -> Iterator[Folder]:
        """Each once all of its segments have been tried; a few segments are always on their way."""
        ahead: deque[_Turn] = deque()
        with ThreadPoolExecutor(self.threads, "restore") as pool:
            try:
                for turn in self._turns(pool):
                    ahead.append(turn)
                    if len(ahead) > 2 * self.threads:
                        yield from self._settle(ahead.popleft())
                while ahead:
                    yield from self._settle(ahead.popleft())
            finally:
                for turn in ahead:
                    if turn.work is not None:
                        turn.work.cancel()

    def _turns(self, pool: ThreadPoolExecutor) -> Iterator[_Turn]:
        for folder, missing in self._todo:
            if not folder.final.exists():
                self.disk.mkdir(folder.path)
            for at in missing:
                yield _Turn(folder, folder.plan.pieces[at].base, pool.submit(self._fetch, folder, at))
            yield _Turn(folder, None, None)

    def _settle(self, turn: _Turn) -> Iterable[Folder]:
        if turn.base is None or turn.work is None:
            return [turn.folder]
        failed = turn.work.result()
        if failed is not None:
            turn.folder.failed[turn.base] = failed
        return []

    def _fetch(self, folder: Folder, at: int) -> str | None:
        """Why the bucket does not have it."""
        came = 0

        def count(some: int) -> None:
            nonlocal came
            came += some
            self._tell(folder.plan, some)

        try:
            try:
                fetch_segment(self.bucket, self.disk, folder.path, folder.plan.pieces, at, count)
            except CorruptFile as error:  # it may have been damaged on the way
                log.warning("a segment is fetched once more: %s", error)
                self._tell(folder.plan, -came)
                fetch_segment(self.bucket, self.disk, folder.path, folder.plan.pieces, at, count)
        except (NotFound, CorruptFile) as error:
            return str(error)
        self._tell(folder.plan, 0, done=1)
        return None

    def _tell(self, plan: PartitionPlan, some: int, *, done: int = 0) -> None:
        with self._lock:
            self._came += some
            self._done += done
            self.report(Progress(self._done, self._segments, self._came, self._bytes, str(plan.name)))

    def _finished(self, folder: Folder) -> Restored:
        if not folder.final.exists():
            folder.finish(self.disk)
        found = folder.result(())
        return folder.result(self._accepted(folder.plan)) if found.lost else found

    def _accepted(self, plan: PartitionPlan) -> tuple[Gap, ...]:
        try:
            stored = read_head(
                self.bucket.store, self.bucket.keys, plan.source_topic, plan.source.topic_id, plan.name.partition
            )
        except CorruptFile:  # the survey has said so
            return ()
        return () if stored is None else stored.head.gaps

    def _checkpoints(self, restored: list[Restored]) -> None:
        """With them a broker takes all as a clean stop leaves it, and reads nothing again."""
        ends = {one.plan.name: one.log_end for one in restored} | dict(self.beside)
        starts: dict[TopicPartition, int] = dict.fromkeys(self.beside, 0) | {
            one.plan.name: one.log_start for one in restored
        }
        for name, offsets in (
            (names.LOG_START_CHECKPOINT, starts),
            (names.REPLICATION_CHECKPOINT, ends),
            (names.RECOVERY_POINT_CHECKPOINT, ends),
        ):
            publish(self.disk, self.root / name, encode_checkpoint(offsets))
        publish(self.disk, self.root / names.CLEAN_SHUTDOWN, encode_clean_shutdown(_NO_BROKER_EPOCH))
