"""Topics that only the disk knows: what is told when they are adopted, and which can only be read."""

import logging
from collections.abc import Container, Iterable, Iterator, Mapping

from tierd.base.errors import StartRefused
from tierd.broker.registry import TopicRow
from tierd.config.resolve import is_internal
from tierd.storage.directory import LogDirectory
from tierd.storage.log import Log

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
