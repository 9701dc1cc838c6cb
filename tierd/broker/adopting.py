"""Topics that only the disk knows: what is told when they are adopted, and which can only be read."""

import logging
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

from tierd.base.errors import CorruptFile, StartRefused
from tierd.base.ids import PartitionId, TopicPartition
from tierd.broker.homes import Homes
from tierd.broker.registry import Registry, TopicRow
from tierd.config.resolve import is_internal
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.directory import LogDirectory
from tierd.storage.header import HEADER_BYTES
from tierd.storage.log import Log
from tierd.storage.names import RECOVERY_POINT_CHECKPOINT, Mark, Suffix, parse_segment_file

log = logging.getLogger(__name__)


def say_what_is_missing(topic: str, logs: Mapping[int, Log]) -> None:
    """Without a registry and without a bucket nobody knows whether the rest of an adopted topic lies somewhere."""
    above = [f"{topic}-{number} from {one.local_start}" for number, one in sorted(logs.items()) if one.local_start]
    if above:
        log.error(
            "partitions begin above offset 0, and no registry says why: if what is below lies in a bucket, "
            "stop, and start with --remote and the --state that belongs to this --data",
            extra={"partitions": ", ".join(above)},
        )


def refuse_copies(rows: Mapping[str, TopicRow], found: Mapping[str, Mapping[int, Log]]) -> None:
    """Raises StartRefused when a directory that was *found* has the id of a topic of another name: somebody has copied
    or renamed it, and two logs must not go to one place in the bucket."""
    names = {row.id: name for name, row in rows.items()}
    for topic, logs in found.items():
        for logged in logs.values():
            other = names.setdefault(logged.topic_id, topic)
            if other != topic:
                raise StartRefused(
                    f"{logged.directory} has the id of topic {other} ({logged.topic_id}): it is a copy, or "
                    "was renamed: move it out of the data directory, or give it its own name back"
                )


def listed(directory: LogDirectory, file: str) -> frozenset[TopicPartition]:
    """The partitions that checkpoint *file* of the directory lists."""
    path = directory.path / file
    try:
        return frozenset(parse_checkpoint(path.read_bytes(), str(path)))
    except (FileNotFoundError, CorruptFile):
        return frozenset()  # The directory has reported it.


def refuse_strangers(registry: Registry, homes: Homes, found: Mapping[str, Mapping[int, Log]]) -> None:
    """Raises StartRefused when somebody has copied a partition directory under another number of its topic: the topic
    would have more partitions for good, and each key another one of them.

    All of a topic's partitions have its id. What tells is where nobody knows a directory: the registry has no place of
    it, and of a topic that is adopted now its data directory's recovery points do not list it. Such a one is refused
    when it has the records of one that is known, or leaves a hole behind the numbers of a topic that was made here.
    Other strangers may have come from another broker of a Kafka cluster, where holes are usual.
    """
    rows = {row.name: row for row in registry.topics()}
    placed = registry.placements()
    points = {home.path: listed(home.directory, RECOVERY_POINT_CHECKPOINT) for home in homes if home.directory}
    for topic, logs in found.items():
        row = rows.get(topic)
        known: dict[int, Log] = {}
        strangers: dict[int, Log] = {}
        for number, one in logs.items():
            at_home = one.name in points[homes.of(one).path] if row is None else PartitionId(row.id, number) in placed
            (known if at_home else strangers)[number] = one
        if not strangers:
            continue
        originals = _Originals(known.values())
        hole = _hole(row, logs) if row is not None and not homes.offline else None
        for number, one in sorted(strangers.items()):
            if (other := originals.of(one)) is not None:
                _refuse(homes, one, f"the records of {other.directory}")
            if hole is not None and number > hole:
                _refuse(homes, one, f"a number that leaves out {topic}-{hole}, and the registry does not know it")


def _hole(row: TopicRow, logs: Mapping[int, Log]) -> int | None:
    """The first number behind those of a topic made here that no directory has; None when none is behind them, as in
    a topic whose making was cut off."""
    return None if row.adopted else next((n for n in range(row.partitions, max(logs) + 2) if n not in logs), None)


def _refuse(homes: Homes, stranger: Log, why: str) -> None:
    directory = homes.of(stranger).directory
    assert directory is not None
    directory.logs.pop(stranger.name).close()  # nor is it known for the checkpoints that this start's end writes
    raise StartRefused(
        f"{stranger.directory} has {why}: if it is a copy, move it out of the data directory; if not, start with the"
        " --state that knows it"
    )


class _Originals:
    """Logs that a copy may be of: all segments that both have begin with the same batch, whose CRC, times and
    producer's sequence do not come twice, and there is at least one."""

    def __init__(self, logs: Iterable[Log]) -> None:
        self._logs = [(one, _heads(one.directory)) for one in logs]
        self._by_head = {head: one for one in self._logs for head in one[1].items()}

    def of(self, stranger: Log) -> Log | None:
        mine = _heads(stranger.directory)
        for head in mine.items():
            if head in self._by_head:
                other, theirs = self._by_head[head]
                if all(mine[base] == theirs[base] for base in mine.keys() & theirs.keys()):
                    return other
        return None


def _heads(directory: Path) -> dict[int, bytes]:
    """The first batch's header in each segment that is not empty, by base offset."""
    heads = {}
    for path in directory.iterdir():
        name = parse_segment_file(path.name)
        if name is not None and (name.suffix, name.mark) == (Suffix.LOG, Mark.NONE):
            with path.open("rb") as file:
                heads[name.offset] = file.read(HEADER_BYTES)
    return {base: head for base, head in heads.items() if head}


def without_id(
    directories: Iterable[LogDirectory], known: Container[str], now_ms: int
) -> Iterator[tuple[TopicRow, dict[int, Log]]]:
    """Topics of which nobody knows the id, as the registry would have them, with their logs.

    Left out are those that have the name of a topic that is *known*, partitions that two directories have, for nobody
    can say which one counts, and the broker's own topics, which must be written to.
    """
    found: dict[str, dict[int, list[Log]]] = {}
    for directory in directories:
        for name, logged in directory.read_only.items():
            found.setdefault(name.topic, {}).setdefault(name.partition, []).append(logged)
    for topic, numbers in sorted(found.items()):
        logs = {number: claims[0] for number, claims in sorted(numbers.items()) if len(claims) == 1}
        if logs and topic not in known and not is_internal(topic):
            stand_in = next(iter(logs.values())).topic_id
            yield TopicRow(id=stand_in, name=topic, partitions=max(numbers) + 1, created_ms=now_ms, adopted=True), logs
