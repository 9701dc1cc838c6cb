"""Topic ids of partition directories whose `partition.metadata` is gone: whoever may know is asked, the nearest first.

The registry, the other partitions of the topic, the catalog, the bucket. A name that two living topics have had stands
for neither: a wrong id would join a log with somebody else's segments.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.errors import TierdError
from tierd.base.ids import TopicPartition, Uuid
from tierd.config.model import Remote
from tierd.remote.keys import TopicFileKey
from tierd.remote.open import Bucket, open_store
from tierd.remote.topics import read_topic
from tierd.storage.identity import topic_id_of
from tierd.storage.names import parse_partition_directory
from tierd.tiering.catalog import Catalog

log = logging.getLogger(__name__)

Source = Callable[[str], Iterable[Uuid]]
"""The ids of living topics of a name. Raises TierdError, OSError when it cannot say."""


class TopicIds:
    """What `LogDirectory.load` asks; in any thread."""

    def __init__(self, sources: Sequence[tuple[str, Source]]) -> None:
        """*sources* with their names, for the log."""
        self._sources = sources
        self._lock = threading.Lock()
        self._known: dict[str, Uuid | None] = {}

    def __call__(self, partition: TopicPartition) -> Uuid | None:
        with self._lock:
            if partition.topic not in self._known:
                self._known[partition.topic] = self._find(partition.topic)
            return self._known[partition.topic]

    def _find(self, topic: str) -> Uuid | None:
        for name, source in self._sources:
            try:
                found = set(source(topic))
            except (TierdError, OSError) as error:
                log.warning("no topic id", extra={"topic": topic, "asked": name, "why": str(error)})
                continue
            if len(found) == 1:
                topic_id = found.pop()
                log.info("topic id found", extra={"topic": topic, "topic_id": str(topic_id), "asked": name})
                return topic_id
            if found:
                log.error("several topic ids", extra={"topic": topic, "asked": name, "ids": sorted(map(str, found))})
                return None
        return None


def of_neighbours(data_dirs: Iterable[Path]) -> Source:
    """The ids in the directories of the topic's other partitions."""
    dirs = tuple(data_dirs)

    def ids(topic: str) -> Iterator[Uuid]:
        for directory in (one for path in dirs for one in sorted(path.iterdir()) if one.is_dir()):
            partition = parse_partition_directory(directory.name)
            if partition is not None and partition.topic == topic:
                topic_id = topic_id_of(directory)
                if topic_id is not None:
                    yield topic_id

    return ids


def of_catalog(path: Path) -> Source:
    def ids(topic: str) -> list[Uuid]:
        if not path.exists():
            return []
        catalog = Catalog.open(path)
        try:
            return [one.topic_id for one in catalog.topics() if one.topic == topic and one.deleted_ms is None]
        finally:
            catalog.close()

    return ids


def of_bucket(remote: Remote, disk: Disk, clock: Clock) -> Source:
    """By its topic files. Waits as long as requests to the bucket may take."""

    def ids(topic: str) -> list[Uuid]:
        if remote.url is None:
            return []
        bucket = open_store(remote.url, remote, disk=disk, clock=clock)
        try:
            return list(_living(bucket, topic))
        finally:
            bucket.store.close()

    return ids


def _living(bucket: Bucket, topic: str) -> Iterator[Uuid]:
    for info in bucket.store.list(f"{bucket.keys.topics_folder}{topic}-"):
        key = bucket.keys.parse(info.key)
        if isinstance(key, TopicFileKey) and key.topic == topic:
            file = read_topic(bucket.store, bucket.keys, topic, key.topic_id)
            if file is not None and file.deleted_ms is None:
                yield key.topic_id
