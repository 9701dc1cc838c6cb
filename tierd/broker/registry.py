"""The registry: topics, their ids and settings, and single values; the truth, durable before a client hears of it.

SQLite, WAL, `synchronous=FULL`, one connection; any thread, writes one after the other.
"""

import json
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tierd.base.errors import StartRefused
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.config.resolve import TopicDefaults
from tierd.config.topic import TopicSettings
from tierd.storage.database import DatabaseDamaged, meanings, open_database, transaction

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    partitions INTEGER NOT NULL,
    config TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    adopted INTEGER NOT NULL DEFAULT 0,
    deleted_ms INTEGER
) WITHOUT ROWID;
CREATE UNIQUE INDEX live_names ON topics (name) WHERE deleted_ms IS NULL;
"""
_SCHEMA_2 = """
CREATE TABLE placements (
    topic BLOB NOT NULL,
    partition INTEGER NOT NULL,
    directory TEXT NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE moves (
    topic BLOB NOT NULL,
    partition INTEGER NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    folder TEXT NOT NULL,
    swapped INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
"""
_SCHEMA_3 = """
CREATE TABLE acls (
    kind INTEGER NOT NULL,
    pattern INTEGER NOT NULL,
    name TEXT NOT NULL,
    principal TEXT NOT NULL,
    host TEXT NOT NULL,
    operation INTEGER NOT NULL,
    permission INTEGER NOT NULL,
    PRIMARY KEY (kind, pattern, name, principal, host, operation, permission)
) WITHOUT ROWID;
CREATE TABLE quotas (
    entity TEXT NOT NULL,
    key TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (entity, key)
) WITHOUT ROWID;
"""
_SCHEMA_4 = """
CREATE TABLE passwords (
    user TEXT NOT NULL,
    mechanism INTEGER NOT NULL,
    salt BLOB NOT NULL,
    iterations INTEGER NOT NULL,
    stored_key BLOB NOT NULL,
    server_key BLOB NOT NULL,
    PRIMARY KEY (user, mechanism)
) WITHOUT ROWID;
"""
_STEPS = (_SCHEMA, _SCHEMA_2, _SCHEMA_3, _SCHEMA_4)
"""What makes the schema of each version out of the one before."""
SCHEMA_VERSION = len(_STEPS)
_MODE = 0o600
_OTHERS = 0o007
PasswordRow = tuple[str, int, bytes, int, bytes, bytes]
"""User, mechanism and what `sasl/scram.py` makes a Credential of."""

AclRow = tuple[int, int, str, str, str, int, int]
"""What `security/acls.py` makes an Acl of; numbers as on the wire."""
QuotaRow = tuple[str, str, float]
"""Whose (`security/quota_entities.py`), which limit, how much."""

_COLUMNS = "SELECT id, name, partitions, created_ms, config, adopted, deleted_ms FROM topics "
_LIVE = _COLUMNS + "WHERE deleted_ms IS NULL ORDER BY name"
_DELETED = _COLUMNS + "WHERE deleted_ms IS NOT NULL ORDER BY name, id"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic as the registry has it. *config* holds only what a client set, under Kafka's names."""

    id: Uuid
    name: str
    partitions: int
    created_ms: int
    config: Mapping[str, str] = field(default_factory=dict)
    adopted: bool = False
    """Found in a data directory that Kafka wrote; its unset settings keep everything."""
    deleted_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRow:
    """A partition on its way from one data directory to another; both by directory id."""

    part: PartitionId
    source: str
    target: str
    folder: str
    """Name of the copy in the target until it gets the partition's."""
    swapped: bool = False
    """The target's copy is whole and may have the partition's name: where both are found, the target's counts."""


class Registry:
    """Open registry. Every write is durable when the method returns; DiskFull when there is no room for it."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._write = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> "Registry":
        """Open or create *path*. Raises DiskFull, OSError, and StartRefused when it is damaged, locked or newer."""
        _keep_from_others(path)
        try:
            return cls(open_database(path, _STEPS, "registry"), path)
        except DatabaseDamaged as error:
            raise StartRefused(
                f"{error}: the registry is damaged; restore it from a copy, or move it away and start with the same "
                "--data: topics are then adopted from their directories"
            ) from error

    def close(self) -> None:
        self._db.close()

    def get(self, key: str) -> str | None:
        rows = self._read("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def put(self, key: str, value: str) -> None:
        with self._writing():
            self._db.execute("INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = ?2", (key, value))

    def topics(self) -> list[TopicRow]:
        """Topics that are not deleted, by name."""
        return self._rows(_LIVE)

    def deleted(self) -> list[TopicRow]:
        """Deleted topics whose tombstone is not yet known to lie in the bucket."""
        return self._rows(_DELETED)

    def add(self, row: TopicRow) -> None:
        """Add a topic; sqlite3.IntegrityError when the name lives or the id is known (the caller looked)."""
        with self._writing():
            self._db.execute(
                "INSERT INTO topics VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    row.id.raw,
                    row.name,
                    row.partitions,
                    json.dumps(dict(row.config), sort_keys=True),
                    row.created_ms,
                    int(row.adopted),
                    row.deleted_ms,
                ),
            )

    def set_config(self, topic_id: Uuid, config: Mapping[str, str]) -> None:
        with self._writing():
            self._db.execute(
                "UPDATE topics SET config = ? WHERE id = ?",
                (json.dumps(dict(config), sort_keys=True), topic_id.raw),
            )

    def made_here(self, topic_id: Uuid) -> None:
        """It was not found on a disk that Kafka wrote: the registry that knew it was lost."""
        with self._writing():
            self._db.execute("UPDATE topics SET adopted = 0 WHERE id = ?", (topic_id.raw,))

    def set_partitions(self, topic_id: Uuid, partitions: int) -> None:
        with self._writing():
            self._db.execute("UPDATE topics SET partitions = ? WHERE id = ?", (partitions, topic_id.raw))

    def mark_deleted(self, topic_id: Uuid, deleted_ms: int) -> None:
        """From here on the name is free; the id stays until `forget`."""
        with self._writing():
            self._db.execute(
                "UPDATE topics SET deleted_ms = ? WHERE id = ? AND deleted_ms IS NULL", (deleted_ms, topic_id.raw)
            )

    def forget(self, topic_id: Uuid) -> None:
        """Drop a deleted topic; a live one stays, and one of which an offline directory still has partitions."""
        with self._writing():
            self._db.execute(
                "DELETE FROM topics WHERE id = ?1 AND deleted_ms IS NOT NULL"
                " AND NOT EXISTS (SELECT 1 FROM placements WHERE topic = ?1)",
                (topic_id.raw,),
            )

    # Which data directory has which partition.

    def placements(self) -> dict[PartitionId, str]:
        """The id of the directory of every partition that was ever found or made."""
        found = self._read("SELECT topic, partition, directory FROM placements")
        return {PartitionId(Uuid(raw), number): directory for raw, number, directory in found}

    def place(self, rows: Mapping[PartitionId, str]) -> None:
        """Note where partitions are now."""
        if rows:
            with self._writing():
                self._db.executemany(
                    "INSERT INTO placements VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET directory = excluded.directory",
                    [(part.topic_id.raw, part.partition, directory) for part, directory in rows.items()],
                )

    def unplace(self, parts: Iterable[PartitionId]) -> None:
        """These are nowhere any more."""
        rows = [(part.topic_id.raw, part.partition) for part in parts]
        if rows:
            with self._writing():
                self._db.executemany("DELETE FROM placements WHERE topic = ? AND partition = ?", rows)

    def moves(self) -> list[MoveRow]:
        found = self._read("SELECT topic, partition, source, target, folder, swapped FROM moves")
        return [
            MoveRow(
                part=PartitionId(Uuid(raw), number),
                source=source,
                target=target,
                folder=folder,
                swapped=bool(swapped),
            )
            for raw, number, source, target, folder, swapped in found
        ]

    def note_move(self, row: MoveRow) -> None:
        """Begin a move, or say how far it has come."""
        part = row.part
        with self._writing():
            self._db.execute(
                "INSERT OR REPLACE INTO moves VALUES (?, ?, ?, ?, ?, ?)",
                (part.topic_id.raw, part.partition, row.source, row.target, row.folder, int(row.swapped)),
            )

    def end_move(self, part: PartitionId) -> None:
        with self._writing():
            self._db.execute("DELETE FROM moves WHERE topic = ? AND partition = ?", (part.topic_id.raw, part.partition))

    # Who may do what, and how much of it.

    def acls(self) -> list[AclRow]:
        return self._read("SELECT kind, pattern, name, principal, host, operation, permission FROM acls")

    def change_acls(self, added: Iterable[AclRow], removed: Iterable[AclRow]) -> None:
        """All of it or nothing; to add what is there, or to remove what is not, changes nothing."""
        with self._writing():
            self._db.executemany("INSERT OR IGNORE INTO acls VALUES (?, ?, ?, ?, ?, ?, ?)", added)
            self._db.executemany(
                "DELETE FROM acls WHERE kind = ? AND pattern = ? AND name = ? AND principal = ? AND host = ?"
                " AND operation = ? AND permission = ?",
                removed,
            )

    def quotas(self) -> list[QuotaRow]:
        return self._read("SELECT entity, key, value FROM quotas")

    def change_quotas(self, added: Iterable[QuotaRow], removed: Iterable[tuple[str, str]]) -> None:
        """All of it or nothing. *removed*: entity and key."""
        with self._writing():
            self._db.executemany("DELETE FROM quotas WHERE entity = ? AND key = ?", removed)
            self._db.executemany("INSERT OR REPLACE INTO quotas VALUES (?, ?, ?)", added)

    # What is kept of users' passwords.

    def passwords(self, user: str | None = None) -> list[PasswordRow]:
        """Of one user or of all."""
        query = "SELECT user, mechanism, salt, iterations, stored_key, server_key FROM passwords"
        return self._read(query) if user is None else self._read(f"{query} WHERE user = ?", (user,))

    def change_passwords(self, kept: Iterable[PasswordRow], dropped: Iterable[tuple[str, int]]) -> None:
        """All of it or nothing. *dropped*: user and mechanism."""
        with self._writing():
            self._db.executemany("DELETE FROM passwords WHERE user = ? AND mechanism = ?", dropped)
            self._db.executemany("INSERT OR REPLACE INTO passwords VALUES (?, ?, ?, ?, ?, ?)", kept)

    def _read(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with meanings(self._path):
            return self._db.execute(query, values).fetchall()

    def _rows(self, query: str) -> list[TopicRow]:
        return [
            TopicRow(
                id=Uuid(raw),
                name=name,
                partitions=partitions,
                created_ms=created_ms,
                config=json.loads(config),
                adopted=bool(adopted),
                deleted_ms=deleted_ms,
            )
            for raw, name, partitions, created_ms, config, adopted, deleted_ms in self._read(query)
        ]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._write, transaction(self._db, self._path):
            yield


def settings_for(registry: Registry, defaults: TopicDefaults) -> Callable[[TopicPartition], TopicSettings]:
    """The settings in force for a partition that a data directory holds; what `LogDirectory.open` asks for."""
    rows = {row.name: row for row in registry.topics()}
    known: dict[str, TopicSettings] = {}

    def resolve(partition: TopicPartition) -> TopicSettings:
        settings = known.get(partition.topic)
        if settings is None:
            row = rows.get(partition.topic)
            settings = (
                defaults.resolve(partition.topic, adopted=True)
                if row is None
                else defaults.resolve(row.name, row.config, adopted=row.adopted)
            )
            known[partition.topic] = settings
        return settings

    return resolve


def topic_id_for(registry: Registry) -> Callable[[TopicPartition], Uuid | None]:
    """The topic id of a partition whose `partition.metadata` is gone, as far as the registry knows it."""
    ids = {row.name: row.id for row in registry.topics()}
    return lambda partition: ids.get(partition.topic)


def _keep_from_others(path: Path) -> None:
    """What is kept of passwords can be tried against by whoever reads it. A group may have been let in on purpose."""
    if not path.exists():
        with suppress(OSError):  # SQLite comes next and says it better
            os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC, _MODE))
    for one in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if one.exists() and (mode := one.stat().st_mode) & _OTHERS and one.stat().st_uid == os.geteuid():
            one.chmod(stat.S_IMODE(mode) & ~_OTHERS)
