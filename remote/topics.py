"""Topic files: settings and partition count of a topic in the bucket, and its tombstone when it was deleted.

The bucket explains itself with them; the registry stays the source of truth while there is one. A tombstone is final:
no later write takes it back (ids are never used again).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tierd.base.ids import Uuid
from tierd.remote.documents import Document, Id
from tierd.remote.errors import ClaimLost, NotFound, PreconditionFailed
from tierd.remote.keys import Keys, TopicFileKey
from tierd.remote.store import ObjectStore

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFile:
    """`tierd/topics/<topic>-<id>.json`."""

    topic: str
    topic_id: Id
    partitions: int
    config: Mapping[str, str]
    """What was set for this topic, under Kafka's names; not the defaults."""
    created_ms: int
    deleted_ms: int | None = None
    """None: alive."""
    epoch: int
    """Leader epoch of the writer."""
    adopted: bool | None = None
    """Found in a directory that Kafka wrote: what is not set keeps everything. None: an older writer did not say."""


TOPIC = Document(TopicFile)


def read_topic(store: ObjectStore, keys: Keys, topic: str, topic_id: Uuid) -> TopicFile | None:
    """None when the bucket has no file of this topic."""
    try:
        return TOPIC.get(store, keys.topic_file(topic, topic_id))[0]
    except NotFound:
        return None


def put_topic(store: ObjectStore, keys: Keys, file: TopicFile) -> TopicFile:
    """Create or update by CAS; gives what is stored now. Writing the same again costs one GET.

    A tombstone there stays one, and the partition count never shrinks. Raises ClaimLost when a later epoch wrote it.
    """
    key = keys.topic_file(file.topic, file.topic_id)
    for _ in range(_TRIES):
        try:
            stored, etag = TOPIC.get(store, key)
        except NotFound:
            stored, etag = None, None
        merged = _merge(stored, file, key)
        if merged == stored:
            return merged
        try:
            TOPIC.put(store, key, merged, if_none_match=etag is None, if_match=etag)
        except PreconditionFailed:
            continue
        return merged
    raise ClaimLost(f"{key}: somebody else keeps writing it")


def _merge(stored: TopicFile | None, file: TopicFile, key: str) -> TopicFile:
    if stored is None:
        return file
    if stored.epoch > file.epoch:
        raise ClaimLost(f"{key} was written by epoch {stored.epoch}, above our {file.epoch}")
    if stored.deleted_ms is not None:
        return stored
    return replace(file, partitions=max(file.partitions, stored.partitions))


def list_topic_keys(store: ObjectStore, keys: Keys) -> list[TopicFileKey]:
    """Which topics have a file, deleted ones too."""
    found = (keys.parse(info.key) for info in store.list(keys.topics_folder))
    return [key for key in found if isinstance(key, TopicFileKey)]
