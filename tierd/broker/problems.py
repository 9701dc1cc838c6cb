"""The one list of what is wrong with what is served: status, /health and the metrics all show what it has."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.storage.directory import NO_TOPIC_ID
from tierd.storage.gaps import Gap

_NO_ID = (
    f"{NO_TOPIC_ID}; start with the --state and the --remote that belong to it, or put the file back, or write one "
    '(docs/operating.md, "A topic that nobody knows")'
)


class Kind(StrEnum):
    """What has to be done differs from one to the other (docs/operating.md, "Watching it")."""

    OFFLINE = "offline"
    FAILED = "failed"
    WAITING = "waiting"
    UNREADABLE = "unreadable"
    LOST = "lost"
    UNDECIDED = "undecided"
    LOST_IN_BUCKET = "lost in bucket"
    ROTTEN_HEAD = "rotten head"
    REFUSED = "refused"
    UNCLEANABLE = "uncleanable"
    UNIDENTIFIED = "unidentified"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in one place."""

    kind: Kind
    where: str
    """The partition, or the directory of one whose topic's id nobody knows."""
    detail: str

    def row(self) -> dict[str, str]:
        """As in the JSON of `tierd status`."""
        return {"kind": str(self.kind), "where": self.where, "detail": self.detail}

    def __str__(self) -> str:
        return f"{self.where}: {self.detail}"


def problems(partitions: Partitions) -> list[Problem]:
    """All that is wrong now. Loop thread only; quick, and changes nothing."""
    now_ms = partitions.clock.monotonic_ms()
    served = (*partitions, *partitions.read_only)
    found = chain(chain.from_iterable(_of_partition(one, now_ms) for one in served), _elsewhere(partitions))
    return sorted(found, key=lambda problem: (problem.where, problem.kind))


def _of_partition(partition: Partition, now_ms: int) -> Iterator[Problem]:
    logged, name = partition.log, str(partition)
    if logged.failed is not None:
        yield Problem(Kind.FAILED, name, f"takes no appends: {logged.failed}; restart to recover from the disk")
    if partition.unreadable is not None and partition.unreadable[0] >= logged.log_start:
        yield Problem(Kind.UNREADABLE, name, f"offset {partition.unreadable[0]}: {partition.unreadable[1]}")
    yield from (Problem(Kind.UNREADABLE, name, unread) for unread in partition.unread)
    yield from gap_problems(partition)
    for start, stop in partition.remote.lost if partition.remote is not None else ():
        yield Problem(Kind.LOST_IN_BUCKET, name, _lost_in_bucket(start, stop, partition))
    if partition.remote is not None and (why := partition.remote.rotten_head) is not None:
        yield Problem(Kind.ROTTEN_HEAD, name, f"its head in the bucket cannot be read: {why}; it is written again")
    if partition.reads_refused(now_ms):
        yield Problem(Kind.REFUSED, name, "reads from the bucket have not been answered for 30 s: they are refused")
    if (why := logged.compaction.problem) is not None:
        yield Problem(Kind.UNCLEANABLE, name, f"could not be cleaned: {why}")


def gap_problems(partition: Partition) -> Iterator[Problem]:
    """Of offsets that the disk has lost."""
    found = partition.log.found_gaps
    for start, stop in lost_for_good(partition.log.gaps, found):
        yield Problem(Kind.LOST, str(partition), lost_offsets(start, stop))
    for start, stop in found:
        yield Problem(Kind.UNDECIDED, str(partition), _undecided(start, stop, partition))


def lost_for_good(gaps: Iterable[Gap], found: Iterable[Gap]) -> Iterator[Gap]:
    """What is left of *gaps* without those of which nobody has said yet whether the bucket has them."""
    for start, stop in gaps:
        for begin, end in sorted(found):
            if start <= begin < stop:
                if start < begin:
                    yield start, begin
                start = end
        if start < stop:
            yield start, stop


def _undecided(start: int, stop: int, partition: Partition) -> str:
    """Readers of these offsets wait: what keeps them is to be seen, for it may last."""
    begin, remote = partition.log.local_start, partition.remote
    why = f"the disk has lost offsets {start} to {stop - 1}, and reads there wait until the bucket has been looked at"
    below = [] if remote is None else [one for one in remote.lost if one[0] < stop and begin < one[1]]
    if not below:
        return why
    why += f": of what is given up for it, the bucket has lost offsets {below[0][0]} to {below[0][1] - 1}"
    if partition.log.settings.remote_log_copy_disable:
        return f"{why}, which are not copied again as long as remote.log.copy.disable=true"
    return f"{why}; they are copied again from the disk, where it has them whole"


def lost_offsets(start: int, stop: int) -> str:
    return f"offsets {start} to {stop - 1} are lost"


def _lost_in_bucket(start: int, stop: int, partition: Partition) -> str:
    if partition.archived:
        return f"{lost_offsets(start, stop)} in the bucket: readers go on behind them"
    on_disk = start >= partition.log.local_start
    here = "they are copied again from the disk" if on_disk else "the disk does not have them either"
    return f"offsets {start} to {stop - 1} were copied and are not whole in the bucket any more: {here}"


def _elsewhere(partitions: Partitions) -> Iterator[Problem]:
    for topic in partitions.topics():
        for number, away in topic.offline.items():
            yield Problem(Kind.OFFLINE, f"{topic.name}-{number}", f"is offline: {away.reason}")
    for part in partitions.waiting:
        if (partition := partitions.by_id(part)) is not None:
            yield Problem(Kind.WAITING, str(partition), "takes no appends until the bucket has answered")
    for directory in partitions.directories:
        for name, path in directory.unidentified.items():
            served = partitions.get(name.topic, name.partition)
            opened = served is not None and served.log.directory == path
            yield Problem(Kind.UNIDENTIFIED, str(path), f"{'only read' if opened else 'not opened'}: {_NO_ID}")
