"""Every name under a data directory, made and parsed here and nowhere else (storage/FORMAT.md, "Names").

Kafka refuses to start on a folder it does not know, so nothing but these names is ever made there.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from tierd.base.ids import TopicPartition

# In each data directory:
LOCK = ".lock"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"

# In each partition directory:
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

TMP = ".tmp"
"""Half-written file on its way to its name (tierd.base.disk.publish); swept at start."""

MAX_OFFSET = 2**63 - 1
_NAME_MOST = 255
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SEGMENT_FILE = re.compile(r"(\d{20})(\.[a-z]+)(\.deleted|\.cleaned|\.swap)?")
_MARKED_DIRECTORY = re.compile(r"(\S+)-(\d+)\.([0-9a-f]{32})-(delete|future|stray)")


class Suffix(StrEnum):
    """The files of a segment, each named by an offset: the segment's base, or for a snapshot the one it is for."""

    LOG = ".log"
    INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class Mark(StrEnum):
    """A second suffix: the file is on its way out, or (compaction) on its way in."""

    NONE = ""
    DELETED = ".deleted"
    CLEANED = ".cleaned"
    SWAP = ".swap"


class DirectoryMark(StrEnum):
    """Why a partition directory is not served under its plain name."""

    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    offset: int
    suffix: Suffix
    mark: Mark = Mark.NONE


@dataclass(frozen=True, slots=True)
class MarkedDirectory:
    topic: str
    """Cut short when the whole name would pass 255 bytes."""
    partition: int
    id: str
    mark: DirectoryMark


_SUFFIXES = {str(suffix): suffix for suffix in Suffix}
_MARKS = {str(mark): mark for mark in Mark}
"""A start looks at every name: looking an enumeration's member up by its value takes ten times as long."""


def segment_file(offset: int, suffix: Suffix, mark: Mark = Mark.NONE) -> str:
    """`00000000000000000050.log`, `00000000000000000050.index.deleted`, ..."""
    return f"{offset:020d}{suffix}{mark}"


def log_file(base: int) -> str:
    return segment_file(base, Suffix.LOG)


def index_file(base: int) -> str:
    return segment_file(base, Suffix.INDEX)


def time_index_file(base: int) -> str:
    return segment_file(base, Suffix.TIME_INDEX)


def txn_index_file(base: int) -> str:
    return segment_file(base, Suffix.TXN_INDEX)


def snapshot_file(offset: int) -> str:
    return segment_file(offset, Suffix.SNAPSHOT)


def parse_segment_file(name: str) -> SegmentFile | None:
    """None when *name* is none of ours (another file of the partition, or a foreign one)."""
    found = _SEGMENT_FILE.fullmatch(name)
    if not found or not name.isascii():
        return None
    offset, suffix = int(found[1]), _SUFFIXES.get(found[2])
    if suffix is None or offset > MAX_OFFSET:
        return None
    return SegmentFile(offset, suffix, _MARKS[found[3] or ""])


def is_topic(name: str) -> bool:
    """Whether Kafka allows a topic of this name (and so a directory for it)."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")


def partition_directory(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """None when *name* is no plain partition directory (marked ones have a parser of their own)."""
    topic, dash, number = name.rpartition("-")
    if not dash or not is_topic(topic) or not re.fullmatch("0|[1-9][0-9]{0,9}", number):
        return None
    return TopicPartition(topic, int(number))


def marked_directory(tp: TopicPartition, id: UUID, mark: DirectoryMark) -> str:
    """`<topic>-<partition>.<32 hex>-delete` and the like; *id* makes it unique."""
    end = f"-{tp.partition}.{id.hex}-{mark}"
    return tp.topic[: _NAME_MOST - len(end)] + end


def parse_marked_directory(name: str) -> MarkedDirectory | None:
    found = _MARKED_DIRECTORY.fullmatch(name)
    if not found or not is_topic(found[1]):
        return None
    return MarkedDirectory(found[1], int(found[2]), found[3], DirectoryMark(found[4]))
