"""Logs for tests: a data directory in a temporary folder, batches to put in, and golden topics with their settings."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from kit.clock import FakeClock
from kit.golden import golden
from tierd.base.disk import Disk
from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage.batch import encode_batch, walk
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.storage.log import Log
from tierd.storage.progress import OnProgress, no_progress
from tierd.storage.records import Record
from tierd.storage.timelookup import Result, Search
from tierd.storage.view import TimestampOffset

T0 = 1_700_000_000_000
TP = TopicPartition("t", 0)
TOPIC_ID = Uuid(bytes(range(16)))
SMALL = TopicSettings(
    internal_segment_bytes=4096, index_interval_bytes=256, segment_index_bytes=2048, remote_storage_enable=False
)
"""Segments of a few batches each."""

_KEYS = {
    "internal.segment.bytes": "internal_segment_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "segment.index.bytes": "segment_index_bytes",
    "message.timestamp.type": "message_timestamp_type",
    "message.timestamp.after.max.ms": "message_timestamp_after_max_ms",
    "preallocate": "preallocate",
}


@cache
def golden_settings(topic: str) -> TopicSettings:
    """What the topic of the recordings was created with."""
    rows = json.loads((golden("kafka") / "topics.json").read_text())
    given = dict(rows.pop("common"))
    for names, config in rows.items():
        if names != "note" and any(_names(pattern, topic) for pattern in names.split(",")[0].split("|")):
            given |= config
    policy = frozenset(given.get("cleanup.policy", "delete").split(","))
    if topic.startswith("logappend"):
        given["message.timestamp.type"] = "LogAppendTime"  # the recording leaves it out for logappend-plain
    settings = TopicSettings(cleanup_policy=policy, remote_storage_enable=False)
    return replace(settings, **{_KEYS[key]: value for key, value in given.items() if key in _KEYS})


def _names(pattern: str, topic: str) -> bool:
    pattern = pattern.split("(")[0]
    if pattern in ("gzip", "snappy", "lz4", "zstd"):
        pattern = f"codec-{pattern}"
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


@dataclass
class Place:
    """A data directory that can be opened, closed and opened again."""

    root: Path
    settings: TopicSettings = SMALL
    clock: FakeClock = field(default_factory=FakeClock)
    disk: Disk = field(default_factory=PosixDisk)
    reserve_bytes: int = 0

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def set_aside(self) -> Path:
        return self.root / "state" / "set-aside"

    def open(
        self,
        *,
        settings: TopicSettings | None = None,
        node_id: int = 1,
        cluster_id: str | None = None,
        on_progress: OnProgress = no_progress,
        topic_id: Uuid | None = None,
    ) -> LogDirectory:
        """*settings*: of every topic that is there; *topic_id*: of topics whose own directory does not say it."""
        return LogDirectory.open(
            self.data,
            self.disk,
            self.clock,
            settings_for=self._settings_for if settings is None else lambda _: settings,
            node_id=node_id,
            cluster_id=cluster_id,
            set_aside=self.set_aside,
            on_progress=on_progress,
            topic_id_for=lambda _: topic_id,
            reserve_bytes=self.reserve_bytes,
        )

    def _settings_for(self, tp: TopicPartition) -> TopicSettings:
        return self.settings if tp == TP else golden_settings(tp.topic)

    def new_log(self, directory: LogDirectory, epoch: int = 0) -> Log:
        log = directory.create(TP, TOPIC_ID, self.settings)
        log.begin(epoch, 0)
        return log

    def adopt(self, recording: str, *topics: str) -> LogDirectory:
        """Open a copy of a golden data directory, all of it or only some topics."""
        copy_recording(recording, self.data, *topics)
        return self.open()

    def set_aside_files(self) -> list[str]:
        return sorted(path.name for path in self.set_aside.rglob("*") if path.is_file())


@dataclass
class Opened:
    """An open place with one log."""

    place: Place
    directory: LogDirectory
    log: Log

    def again(self, *, clean: bool = True) -> Log:
        """Close and open it."""
        self.directory.close(clean=clean)
        self.directory = self.place.open()
        self.log = self.directory.logs[TP]
        return self.log


def copy_recording(recording: str, target: Path, *topics: str) -> None:
    source = golden("kafka") / recording
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, target / path.name)
        elif not topics or path.name.rpartition("-")[0] in topics:
            shutil.copytree(path, target / path.name)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def batch(
    count: int = 1,
    *,
    size: int = 20,
    at_ms: int = T0,
    producer: tuple[int, int, int] | None = None,
    attributes: int = 0,
    codec: int = 0,
    fill: bytes = b"v",
    key: bytes | None = b"k",
) -> memoryview:
    """A writable client batch of *count* records with values of *size* bytes, a millisecond apart.

    *producer* is (id, epoch, first sequence).
    """
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    records = [Record(i, at_ms + i, key, fill * size) for i in range(count)]
    raw = encode_batch(
        records,
        base_offset=0,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
        leader_epoch=-1,
    )
    return memoryview(bytearray(raw))


def fill(log: Log, batches: int, *, size: int = 100) -> None:
    """*batches* of two records."""
    for i in range(batches):
        log.append(batch(2, size=size), now_ms=T0 + i)


def golden_batches(directory: Path) -> Iterator[memoryview]:
    """The batches of a golden partition in order, each in a buffer of its own."""
    for path in sorted(directory.glob("*.log")):
        raw = path.read_bytes()
        for position, header in walk(raw):
            yield memoryview(bytearray(raw[position : position + header.size_bytes]))


def slice_bytes(log: Log, offset: int, max_bytes: int = 1 << 20, *, committed: bool = False) -> bytes:
    """What a read would send."""
    found = log.read(offset, max_bytes, committed=committed)
    try:
        return b"".join(os.pread(span.fd, span.length, span.position) for span in found.spans)
    finally:
        found.release()


def log_bytes(log: Log) -> bytes:
    """Everything in the local log, by reading on and on."""
    out, offset = [], log.local_start
    while offset < log.log_end:
        piece = slice_bytes(log, offset, 3000)
        assert piece, f"nothing to read at {offset}, the log ends at {log.log_end}"
        for _, header in walk(piece):
            offset = header.next_offset
        out.append(piece)
    return b"".join(out)


def searched(search: Search[Result]) -> Result:
    """What a search by time comes to, its scans run here."""
    try:
        scan = next(search)
        while True:
            with closing(scan):
                found = scan.run()
            scan = search.send(found)
    except StopIteration as end:
        result: Result = end.value
        return result


def by_time(log: Log, timestamp_ms: int, *, committed: bool = False) -> TimestampOffset | None:
    return searched(log.by_time(timestamp_ms, committed=committed))


def largest_timestamp(log: Log, *, committed: bool = False) -> TimestampOffset | None:
    return searched(log.largest_timestamp(committed=committed))
