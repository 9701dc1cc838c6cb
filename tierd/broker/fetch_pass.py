"""One pass over the partitions of a fetch: what can be answered now, what the bucket must be asked for.

One byte budget over both tiers; the first batch of the first partition that has data always comes whole. An error of
one partition stays there.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tierd.base.errors import RemoteUnavailable, TierdError
from tierd.broker.counters import Counters
from tierd.broker.fetch_sessions import Asked
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.remote_reads import RemoteReads, RemoteWant
from tierd.broker.topic_table import name_of
from tierd.storage.errors import OffsetOutOfRange, Repairing
from tierd.storage.view import LogSlice
from tierd.wire.errors import ErrorCode
from tierd.wire.fetch import FetchPartition, PartitionFetched
from tierd.wire.primitives import TopicKey

MOST_REMOTE = 16
"""Partitions that one request reads from the bucket at a time; the next one asks for the others."""
ROWS_A_TURN = 100
"""Partitions of one request looked at before others get their turn."""


@dataclass(slots=True)
class Round:
    """One pass over the partitions of a request: what can be answered now."""

    left_bytes: int
    rows: list[list[PartitionFetched]] = field(default_factory=list)
    slices: dict[tuple[int, int], LogSlice] = field(default_factory=dict)
    """Records by place in `rows`."""
    remote: list[tuple[int, int, RemoteWant]] = field(default_factory=list)
    """Places whose data is in the bucket, and what to read; their bytes are taken off `left_bytes` at once."""
    tried: int = 0
    """Reads begun although the bucket is away."""
    got_bytes: int = 0
    failed: bool = False

    def put(self, place: tuple[int, int], row: PartitionFetched, found: LogSlice) -> None:
        topic, index = place
        self.rows[topic][index] = row
        self.slices[place] = found
        self.got_bytes += found.length
        self.left_bytes -= found.length

    def release(self) -> None:
        for found in self.slices.values():
            found.release()
        self.slices.clear()


class FetchPass:
    """Looks at partitions. Loop thread only."""

    def __init__(self, partitions: Partitions, reads: RemoteReads | None, counters: Counters) -> None:
        self._partitions = partitions
        self._reads = reads
        self._counters = counters

    def once(self, asked: Asked) -> Round:
        request = asked.request
        done = Round(request.max_bytes)
        for topic, (_, wanted) in enumerate(request.topics):
            done.rows.append([])
            self._pass_some(done, topic, wanted, asked)
        return done

    async def in_turns(self, asked: Asked) -> Round:
        """The same, in turns when there is very much to look at."""
        request = asked.request
        if request.rows <= ROWS_A_TURN:
            return self.once(asked)
        done = Round(request.max_bytes)
        handled = 0
        try:
            for topic, (_, wanted) in enumerate(request.topics):
                done.rows.append([])
                for at in range(0, len(wanted), ROWS_A_TURN):
                    some = wanted[at : at + ROWS_A_TURN]
                    self._pass_some(done, topic, some, asked)
                    handled += len(some)
                    if handled >= ROWS_A_TURN:
                        handled = 0
                        await asyncio.sleep(0)
        except BaseException:
            done.release()
            raise
        return done

    def watched(self, asked: Asked) -> list[Partition]:
        """The partitions that are there."""
        names = self._partitions.names
        return [
            partition
            for topic, wanted in asked.request.topics
            if (name := name_of(topic, names)) is not None
            for want in wanted
            if (partition := self._partitions.get(name, want.partition)) is not None
        ]

    def _pass_some(self, done: Round, topic: int, wanted: Sequence[FetchPartition], asked: Asked) -> None:
        rows = done.rows[topic]
        key = asked.request.topics[topic][0]
        name = name_of(key, self._partitions.names)
        if name is None:
            done.failed = True
            rows += [PartitionFetched(want.partition, self._unknown(key, want.partition, asked)) for want in wanted]
            return
        if asked.may_read is not None and not asked.may_read(name):
            done.failed = True
            rows += [PartitionFetched(want.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for want in wanted]
            return
        for want in wanted:
            partition = self._partitions.get(name, want.partition)
            place = (topic, len(rows))
            rows.append(_EMPTY)
            if partition is None:
                done.failed = True
                rows[-1] = PartitionFetched(want.partition, self._partitions.missing(name, want.partition))
            else:
                rows[-1] = self._read(done, place, partition, want, asked.request.isolation == 1)

    def _unknown(self, key: TopicKey, index: int, asked: Asked) -> ErrorCode:
        """What is said of a partition whose topic's id nobody knows; in a session it may have known its name."""
        cached = None if asked.session is None else asked.session.partitions.get((key, index))
        if cached is None or cached.name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if asked.may_read is not None and not asked.may_read(cached.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        anew = self._partitions.get(cached.name, index) is not None
        return ErrorCode.INCONSISTENT_TOPIC_ID if anew else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _read(
        self, done: Round, place: tuple[int, int], partition: Partition, want: FetchPartition, committed: bool
    ) -> PartitionFetched:
        refusal = _refusal(partition, want)
        if refusal:
            done.failed = True
            return PartitionFetched(want.partition, refusal)
        logged = partition.log
        if want.offset < logged.local_start and self._reads is not None:
            return self._plan_remote(done, place, partition, want, committed)
        if done.left_bytes <= 0 and (done.got_bytes > 0 or done.remote):
            return _row(partition, want, committed, None)
        try:
            found = logged.read(want.offset, min(want.max_bytes, done.left_bytes), committed=committed)
        except Repairing:
            return _row(partition, want, committed, None)  # the partition wakes whoever waits
        except OffsetOutOfRange:
            # Not out of range of the whole log (see _refusal): the bucket has it, but none was given to this daemon.
            done.failed = True
            return PartitionFetched(want.partition, ErrorCode.KAFKA_STORAGE_ERROR)
        except (TierdError, OSError) as error:
            return self._unreadable(done, partition, want, error)
        return self._include(done, place, partition, want, committed, found)

    def _unreadable(
        self, done: Round, partition: Partition, want: FetchPartition, error: TierdError | OSError
    ) -> PartitionFetched:
        done.failed = True
        code = self._partitions.met(partition, error, "local read failed", at=want.offset)
        return PartitionFetched(want.partition, code)

    def _include(
        self,
        done: Round,
        place: tuple[int, int],
        partition: Partition,
        want: FetchPartition,
        committed: bool,
        found: LogSlice,
    ) -> PartitionFetched:
        """Take *found* unless it breaks the budget; only the first data of a request may."""
        if found.length == 0 or (done.got_bytes > 0 and found.length > min(want.max_bytes, done.left_bytes)):
            found.release()
            return _row(partition, want, committed, None)
        row = _row(partition, want, committed, found)
        done.put(place, row, found)
        return row

    def _plan_remote(
        self, done: Round, place: tuple[int, int], partition: Partition, want: FetchPartition, committed: bool
    ) -> PartitionFetched:
        assert self._reads is not None
        if self._reads.away(partition):
            # Still try, so that it is noticed when the bucket is back.
            done.failed = True
            if done.tried < MOST_REMOTE:
                done.tried += 1
                self._leave(RemoteWant(partition, want.offset, want.max_bytes, partition.log.local_start, committed))
            return PartitionFetched(want.partition, ErrorCode.KAFKA_STORAGE_ERROR)
        limit = max(min(want.max_bytes, done.left_bytes), 0)
        if len(done.remote) < MOST_REMOTE and (limit > 0 or not (done.remote or done.got_bytes)):
            stop = partition.log.local_start
            if committed:
                stop = min(stop, partition.log.last_stable)
            done.remote.append((*place, RemoteWant(partition, want.offset, limit, stop, committed)))
            done.left_bytes -= limit
        return _row(partition, want, committed, None)

    def _leave(self, want: RemoteWant) -> None:
        assert self._reads is not None
        self._reads.leave(want, self._reads.begin(want))

    def landed(
        self,
        done: Round,
        place: tuple[int, int],
        want: RemoteWant,
        asked: FetchPartition,
        committed: bool,
        task: "asyncio.Task[LogSlice]",
    ) -> PartitionFetched | None:
        """The row for a finished remote read; None when the bucket did not answer."""
        try:
            found = task.result()
        except RemoteUnavailable:
            return None
        except (TierdError, OSError):  # `RemoteReads` has said it
            done.failed = True
            return PartitionFetched(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR)
        partition = want.partition
        if found.length == 0 and want.stop > want.offset:
            # Compacted away up to the seam: go on behind it.
            found.release()
            beyond = FetchPartition(asked.partition, want.stop, asked.max_bytes)
            return self._read_beyond(done, place, partition, beyond, committed)
        self._counters.fetched_remote_bytes += found.length
        if committed and found.stop is not None:
            # The bytes are in the bucket, but the marker that aborts them may still be on the disk only.
            try:
                local = partition.log.aborted(asked.offset, found.stop)
            except Repairing:
                found.release()
                return _row(partition, asked, committed, None)
            except (TierdError, OSError) as error:
                found.release()
                return self._unreadable(done, partition, asked, error)
            found.aborted = tuple(dict.fromkeys((*found.aborted, *local)))
        return self._include(done, place, partition, asked, committed, found)

    def _read_beyond(
        self, done: Round, place: tuple[int, int], partition: Partition, want: FetchPartition, committed: bool
    ) -> PartitionFetched:
        if want.offset < partition.log.local_start:
            return _row(partition, want, committed, None)  # Evicted meanwhile: the next fetch finds it in the bucket.
        return self._read(done, place, partition, want, committed)


_EMPTY = PartitionFetched(-1)


def _refusal(partition: Partition, want: FetchPartition) -> ErrorCode:
    if partition.deleted:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    logged = partition.log
    known = want.current_leader_epoch
    if known is not None and known != logged.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH if known < logged.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
    if not logged.log_start <= want.offset <= logged.log_end:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def _row(partition: Partition, want: FetchPartition, committed: bool, found: LogSlice | None) -> PartitionFetched:
    logged = partition.log
    aborted = (found.aborted if found is not None else ()) if committed else None
    length = 0 if found is None else found.length
    return PartitionFetched(
        want.partition, 0, logged.high_watermark, logged.last_stable, logged.log_start, aborted, length
    )
