"""The catalog: every remote segment and its state, in SQLite; a cache of the bucket that can be made again.

One connection under one lock, usable from any thread. Each writing method is one durable commit
(0.1 ms measured, ARCHITECTURE.md), so a power cut leaves whole steps only. On a full disk it raises DiskFull.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.view import RemotePartition
from tierd.storage.database import meanings, open_database, transaction
from tierd.storage.view import SegmentView
from tierd.tiering import lifecycle
from tierd.tiering.accepted import AcceptedGaps
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.options import TopicState
from tierd.tiering.rows import (
    ADOPTED,
    COLUMNS,
    SCHEMA,
    TRANSFORMS,
    CatalogPartition,
    CatalogSegment,
    from_row,
    to_row,
)
from tierd.tiering.segments import RemoteSegment

GAPS = "accepted_gaps"
_MARKS = ", ".join("?" * len(COLUMNS.split(",")))
_SELECT = f"SELECT {COLUMNS} FROM segments "  # noqa: S608 (names of columns, no input)
_VIEWS = "SELECT base, next_base, size_bytes, largest_timestamp_ms, append_ms FROM segments "
_OF = "WHERE topic_id = ? AND partition = ? "
_READABLE = f"AND state = {int(CopyState.COPY_FINISHED)} "


class Catalog:
    """Rows of segments, partitions and topics. Also the SegmentSource of the reader."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._db = connection
        self._path = path
        self._lock = threading.Lock()
        self.gaps = AcceptedGaps(self.get(GAPS), lambda text: self.put(GAPS, text))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create. Raises DatabaseDamaged, DiskFull, OSError, StartRefused (see `open_database`)."""
        return cls(open_database(path, (SCHEMA, TRANSFORMS, ADOPTED), "catalog"), path)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _commit(self) -> Iterator[sqlite3.Connection]:
        with self._lock, transaction(self._db, self._path) as db:
            yield db

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock, meanings(self._path):
            return self._db.execute(query, values).fetchall()

    def _segments(self, where: str, values: Sequence[Any] = ()) -> list[CatalogSegment]:
        return [from_row(row) for row in self._rows(_SELECT + where, values)]

    # --- small facts -------------------------------------------------------------------------------------------------
    def get(self, key: str) -> str | None:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def put(self, key: str, value: str) -> None:
        with self._commit() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def facts(self) -> dict[str, str]:
        """All of them."""
        return {key: value for key, value in self._rows("SELECT key, value FROM meta")}

    # --- look-ups of readers (SegmentSource) -------------------------------------------------------------------------
    def covering(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        found = self._segments(
            _OF + _READABLE + "AND base <= ? AND next_base > ? ORDER BY base DESC LIMIT 1",
            (*_key(part), offset, offset),
        )
        return found[0].remote if found else None

    def next_after(self, part: PartitionId, offset: int) -> RemoteSegment | None:
        found = self._segments(_OF + _READABLE + "AND base >= ? ORDER BY base LIMIT 1", (*_key(part), offset))
        return found[0].remote if found else None

    def in_range(self, part: PartitionId, start: int, stop: int) -> Sequence[RemoteSegment]:
        where = _OF + _READABLE + "AND base < ? AND next_base > ? ORDER BY base"
        return [one.remote for one in self._segments(where, (*_key(part), stop, start))]

    # --- segments ----------------------------------------------------------------------------------------------------
    def segments(self, part: PartitionId, state: CopyState | None = None) -> list[CatalogSegment]:
        """All rows of a partition, ascending."""
        if state is None:
            return self._segments(_OF + "ORDER BY base", _key(part))
        return self._segments(_OF + "AND state = ? ORDER BY base", (*_key(part), int(state)))

    def views(self, part: PartitionId) -> list[SegmentView]:
        """What planners ask of the committed segments, ascending: a tenth of the work of whole rows."""
        rows = self._rows(_VIEWS + _OF + _READABLE + "ORDER BY base", _key(part))
        return [
            SegmentView(base=base, next_base=stop, size_bytes=size, largest_timestamp_ms=largest, append_ms=append_ms)
            for base, stop, size, largest, append_ms in rows
        ]

    def in_state(self, state: CopyState) -> list[CatalogSegment]:
        return self._segments(f"WHERE state = {int(state)} ORDER BY topic_id, partition, base")

    def segment(self, part: PartitionId, base: int, segment_id: Uuid) -> CatalogSegment | None:
        found = self._segments(_OF + "AND base = ? AND segment_id = ?", (*_key(part), base, segment_id.raw))
        return found[0] if found else None

    def last(self, part: PartitionId) -> CatalogSegment | None:
        """The committed segment with the highest base, released or not."""
        found = self._segments(_OF + _READABLE + "ORDER BY base DESC LIMIT 1", _key(part))
        return found[0] if found else None

    def key_uses(self) -> dict[str, tuple[int, int]]:
        """By id of a key: how many segments are encrypted under it, and the bytes of their `.log`. Deletes that have
        begun do not count."""
        query = (
            "SELECT key_id, count(*), coalesce(sum(stored_bytes), 0) FROM segments"  # noqa: S608
            f" WHERE key_id IS NOT NULL AND state <> {int(CopyState.DELETE_STARTED)} GROUP BY key_id"
        )
        return {key_id: (segments, size_bytes) for key_id, segments, size_bytes in self._rows(query)}

    def stored(self) -> list[tuple[str, int, int]]:
        """By topic: how many segments have objects in the bucket, and the bytes of these."""
        query = (
            "SELECT topic, count(*), sum(coalesce(stored_bytes, size_bytes) + indexes_bytes + manifest_bytes)"  # noqa: S608
            f" FROM segments WHERE state <> {int(CopyState.COPY_STARTED)} AND size_bytes > 0 GROUP BY topic"
        )
        return sorted(self._rows(query))

    def under_other_keys(self, key_id: str) -> list[CatalogSegment]:
        """Committed segments that are encrypted under another key than this one, by partition."""
        where = f"WHERE key_id IS NOT NULL AND key_id <> ? {_READABLE}ORDER BY topic_id, partition, base"
        return self._segments(where, (key_id,))

    def rewrapped(self, segment: CatalogSegment, key_id: str, manifest_bytes: int) -> None:
        """The manifest names another key now; the head has to follow."""
        key = (*_key(segment.remote.part), segment.remote.base, segment.remote.segment_id.raw)
        with self._commit() as db:
            query = f"UPDATE segments SET key_id = ?, manifest_bytes = ? {_OF} AND base = ? AND segment_id = ?"  # noqa: S608
            db.execute(query, (key_id, manifest_bytes, *key))
            _touch_head(db, segment.remote.part)

    def started(self, segment: CatalogSegment) -> None:
        """COPY_STARTED, durable before the first byte leaves."""
        lifecycle.check(segment.remote.stem, CopyState.COPY_STARTED, segment.state)
        with self._commit() as db:
            _insert(db, replace(segment, state=CopyState.COPY_STARTED))

    def finished(self, *segments: CatalogSegment) -> None:
        """COPY_FINISHED with all facts; the copied end moves up to the last one's. New rows are fine (taken in)."""
        with self._commit() as db:
            for segment in segments:
                _check_row(db, segment, CopyState.COPY_FINISHED)
                _insert(db, replace(segment, state=CopyState.COPY_FINISHED, due_ms=None))
                _raise_copied(db, segment.remote)

    def deleting(self, *segments: CatalogSegment, due_ms: int | None = None) -> None:
        """DELETE_STARTED; no object is touched before *due_ms* (server clock). New rows are fine (losers)."""
        with self._commit() as db:
            for segment in segments:
                _check_row(db, segment, CopyState.DELETE_STARTED)
                _insert(db, replace(segment, state=CopyState.DELETE_STARTED, due_ms=due_ms))
                _touch_head(db, segment.remote.part)

    def never_sent(self, segment: CatalogSegment) -> None:
        """A COPY_STARTED of which the bucket has taken nothing is as if it had not been."""
        key = (*_key(segment.remote.part), segment.remote.base, segment.remote.segment_id.raw)
        started = int(CopyState.COPY_STARTED)
        with self._commit() as db:
            db.execute(f"DELETE FROM segments {_OF} AND base = ? AND segment_id = ? AND state = {started}", key)  # noqa: S608

    def deleted(self, *segments: CatalogSegment) -> None:
        """DELETE_FINISHED: every object is confirmed gone, the rows go too."""
        with self._commit() as db:
            for segment in segments:
                _check_row(db, segment, CopyState.DELETE_FINISHED)
                key = (*_key(segment.remote.part), segment.remote.base, segment.remote.segment_id.raw)
                db.execute(f"DELETE FROM segments {_OF} AND base = ? AND segment_id = ?", key)  # noqa: S608

    def release(self, part: PartitionId, log_start: int, now_ms: int) -> int:
        """Note the time at which log start passed segments; give how many are new. Deleting begins after the delay."""
        with self._commit() as db:
            query = f"UPDATE segments SET released_ms = ? {_OF} {_READABLE} AND next_base <= ? AND released_ms IS NULL"  # noqa: S608
            return db.execute(query, (now_ms, *_key(part), log_start)).rowcount

    def releases(self) -> list[PartitionId]:
        """Partitions with released segments that are not being deleted yet."""
        query = "SELECT DISTINCT topic_id, partition FROM segments WHERE released_ms IS NOT NULL " + _READABLE  # noqa: S608
        return [PartitionId(Uuid(raw), number) for raw, number in self._rows(query)]

    def released_before(self, part: PartitionId, limit_ms: int) -> list[CatalogSegment]:
        return self._segments(_OF + _READABLE + "AND released_ms <= ? ORDER BY base", (*_key(part), limit_ms))

    # --- partitions --------------------------------------------------------------------------------------------------
    def partitions(self) -> list[CatalogPartition]:
        query = "SELECT topic_id, partition, topic, copied_to, log_start, delete_delay_ms, head_dirty"
        return [_partition(row) for row in self._rows(query + " FROM partitions ORDER BY topic, partition")]

    def partition(self, part: PartitionId) -> CatalogPartition | None:
        query = "SELECT topic_id, partition, topic, copied_to, log_start, delete_delay_ms, head_dirty"
        rows = self._rows(f"{query} FROM partitions {_OF}", _key(part))
        return _partition(rows[0]) if rows else None

    def know(self, part: PartitionId, topic: str, delete_delay_ms: int | None = None) -> None:
        """Make the partition's row; a known one keeps its offsets."""
        with self._commit() as db:
            db.execute(
                "INSERT INTO partitions (topic_id, partition, topic, delete_delay_ms) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET topic = excluded.topic,"
                " delete_delay_ms = coalesce(excluded.delete_delay_ms, delete_delay_ms)",
                (*_key(part), topic, delete_delay_ms),
            )

    def set_log_start(self, part: PartitionId, log_start: int) -> bool:
        """Move log start up, never down; True when it moved (the head then has to follow)."""
        with self._commit() as db:
            query = f"UPDATE partitions SET log_start = ?, head_dirty = 1 {_OF} AND coalesce(log_start, -1) < ?"  # noqa: S608
            return db.execute(query, (log_start, *_key(part), log_start)).rowcount > 0

    def set_copied_to(self, part: PartitionId, copied_to: int) -> None:
        """Raise the copied end to what the bucket's head says, though no segment is left to show it."""
        with self._commit() as db:
            query = f"UPDATE partitions SET copied_to = ? {_OF} AND coalesce(copied_to, -1) < ?"  # noqa: S608
            db.execute(query, (copied_to, *_key(part), copied_to))

    def dirty_heads(self) -> list[PartitionId]:
        rows = self._rows("SELECT topic_id, partition FROM partitions WHERE head_dirty = 1")
        return [PartitionId(Uuid(raw), number) for raw, number in rows]

    def touch_head(self, part: PartitionId) -> None:
        with self._commit() as db:
            _touch_head(db, part)

    def touch_heads(self) -> None:
        """Every head has to follow: a new run brings them all to its epoch."""
        with self._commit() as db:
            db.execute("UPDATE partitions SET head_dirty = 1")

    def head_taken(self, part: PartitionId) -> None:
        """What is in the catalog now is on its way into the head; later changes make it dirty again."""
        with self._commit() as db:
            db.execute(f"UPDATE partitions SET head_dirty = 0 {_OF}", _key(part))  # noqa: S608

    def drop_partition(self, part: PartitionId) -> None:
        self.gaps.drop(part)
        with self._commit() as db:
            db.execute(f"DELETE FROM partitions {_OF}", _key(part))  # noqa: S608

    def remote_partition(self, part: PartitionId) -> RemotePartition:
        """What the bucket has of *part*; released and deleting segments count only in `deleting_bytes`."""
        row = self.partition(part)
        finished, deleting = int(CopyState.COPY_FINISHED), int(CopyState.DELETE_STARTED)
        live = f"state = {finished} AND released_ms IS NULL"
        query = (
            f"SELECT min(CASE WHEN {live} THEN base END), coalesce(sum(CASE WHEN {live} THEN size_bytes END), 0),"  # noqa: S608
            f" coalesce(sum(CASE WHEN state = {deleting} OR (state = {finished} AND released_ms IS NOT NULL)"
            f" THEN size_bytes END), 0) FROM segments {_OF}"
        )
        ((start, size, going),) = self._rows(query, _key(part))
        last = self.last(part)
        epochs = last.remote.epochs if last else ()
        return RemotePartition(
            id=part,
            start=start,
            copied_to=row.copied_to if row else None,
            log_start=row.log_start if row else None,
            size_bytes=size,
            leader_epoch=epochs[-1].epoch if epochs else None,
            deleting_bytes=going,
        )

    # --- topics ------------------------------------------------------------------------------------------------------
    def set_topic(self, state: TopicState) -> bool:
        """Keep what the registry says; True when the bucket's topic file has to follow."""
        old = self.topic(state.topic_id)
        if old is not None and (old[0] == state or old[0].deleted_ms is not None):
            return old[1]
        with self._commit() as db:
            db.execute(f"INSERT OR REPLACE {_INTO_TOPICS}, 1)", _topic_row(state))
        return True

    def take_topic(self, state: TopicState) -> None:
        """A topic file of the bucket: kept when the registry has said nothing yet; a tombstone always counts."""
        insert = f"INSERT {_INTO_TOPICS}, 0) ON CONFLICT DO "
        with self._commit() as db:
            if state.deleted_ms is None:
                db.execute(insert + "NOTHING", _topic_row(state))
            else:
                db.execute(insert + "UPDATE SET deleted_ms = ?, dirty = 0", (*_topic_row(state), state.deleted_ms))

    def adopt_topic(self, state: TopicState) -> None:
        """The bucket's settings are newer than the registry's: they count, and the file is not behind."""
        with self._commit() as db:
            db.execute(f"INSERT OR REPLACE {_INTO_TOPICS}, 0)", _topic_row(state))

    def topic(self, topic_id: Uuid) -> tuple[TopicState, bool] | None:
        """The topic, and whether its file in the bucket is behind."""
        rows = self._rows(_TOPICS + "WHERE topic_id = ?", (topic_id.raw,))
        return (_topic(rows[0]), bool(rows[0][7])) if rows else None

    def topics(self, *, dirty: bool = False) -> list[TopicState]:
        return [_topic(row) for row in self._rows(_TOPICS + ("WHERE dirty = 1" if dirty else ""))]

    def is_dirty(self, topic_id: Uuid) -> bool:
        found = self.topic(topic_id)
        return found is not None and found[1]

    def topic_written(self, state: TopicState) -> None:
        """The bucket has this state; a newer one that came meanwhile stays dirty."""
        with self._commit() as db:
            db.execute(
                "UPDATE topics SET dirty = 0 WHERE topic_id = ? AND config = ? AND partitions = ? AND deleted_ms IS ?",
                (state.topic_id.raw, json.dumps(state.config, sort_keys=True), state.partitions, state.deleted_ms),
            )


_TOPICS = "SELECT topic_id, topic, partitions, config, created_ms, deleted_ms, adopted, dirty FROM topics "
_INTO_TOPICS = (
    "INTO topics (topic_id, topic, partitions, config, created_ms, deleted_ms, adopted, dirty)"
    " VALUES (?, ?, ?, ?, ?, ?, ?"
)


def _key(part: PartitionId) -> tuple[bytes, int]:
    return part.topic_id.raw, part.partition


def _insert(db: sqlite3.Connection, segment: CatalogSegment) -> None:
    db.execute(f"INSERT OR REPLACE INTO segments ({COLUMNS}) VALUES ({_MARKS})", to_row(segment))  # noqa: S608


def _check_row(db: sqlite3.Connection, segment: CatalogSegment, new: CopyState) -> None:
    key = (*_key(segment.remote.part), segment.remote.base, segment.remote.segment_id.raw)
    query = f"SELECT state FROM segments {_OF} AND base = ? AND segment_id = ?"  # noqa: S608
    for (old,) in db.execute(query, key).fetchall():
        lifecycle.check(segment.remote.stem, CopyState(old), new)


def _raise_copied(db: sqlite3.Connection, remote: RemoteSegment) -> None:
    db.execute(
        "INSERT INTO partitions (topic_id, partition, topic, copied_to, head_dirty) VALUES (?, ?, ?, ?, 1)"
        " ON CONFLICT DO UPDATE SET copied_to = max(coalesce(copied_to, 0), excluded.copied_to), head_dirty = 1",
        (*_key(remote.part), remote.topic, remote.next_base),
    )


def _touch_head(db: sqlite3.Connection, part: PartitionId) -> None:
    db.execute(f"UPDATE partitions SET head_dirty = 1 {_OF}", _key(part))  # noqa: S608


def _partition(row: tuple[Any, ...]) -> CatalogPartition:
    return CatalogPartition(
        part=PartitionId(Uuid(row[0]), row[1]),
        topic=row[2],
        copied_to=row[3],
        log_start=row[4],
        delete_delay_ms=row[5],
        head_dirty=bool(row[6]),
    )


def _topic_row(state: TopicState) -> tuple[Any, ...]:
    config = json.dumps(state.config, sort_keys=True)
    times = state.created_ms, state.deleted_ms
    return state.topic_id.raw, state.topic, state.partitions, config, *times, state.adopted


def _topic(row: tuple[Any, ...]) -> TopicState:
    return TopicState(
        topic_id=Uuid(row[0]),
        topic=row[1],
        partitions=row[2],
        config=json.loads(row[3]),
        created_ms=row[4],
        deleted_ms=row[5],
        adopted=None if row[6] is None else bool(row[6]),
    )
