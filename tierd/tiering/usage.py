"""How much the bucket has been used, kept by month: `usage.sqlite`, which nothing needs but who asks what it costs.

The store's meter counts; once a minute, when somebody asks, and at the end what is new is added to the file.
"""

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from tierd.base.clock import Clock
from tierd.base.errors import DiskFull, TierdError
from tierd.remote.keys import Keys
from tierd.remote.meter import Meter, Totals, Used, topic_of
from tierd.remote.open import parse_location
from tierd.storage import ballast
from tierd.storage.database import DatabaseDamaged, open_database, set_aside, transaction

log = logging.getLogger(__name__)

_KEEP_S = 60.0
_SCHEMA = """
CREATE TABLE usage (
    month TEXT NOT NULL, topic TEXT NOT NULL, operation TEXT NOT NULL,
    requests INTEGER NOT NULL, sent_bytes INTEGER NOT NULL, received_bytes INTEGER NOT NULL,
    PRIMARY KEY (month, topic, operation)
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
requests = requests + excluded.requests, sent_bytes = sent_bytes + excluded.sent_bytes,
received_bytes = received_bytes + excluded.received_bytes
"""


@dataclass(frozen=True, slots=True)
class UsageRow:
    month: str
    """`2026-12`, by this machine's clock, UTC."""
    topic: str
    """Empty: no topic's."""
    operation: str
    requests: int
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class StoredRow:
    """What a topic has in the bucket now."""

    topic: str
    segments: int
    bytes: int
    """Of all objects of its segments, until they are deleted. All others are small."""


def month_of(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m")


class UsageBook:
    """The file. Any thread."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Raises DatabaseDamaged, DiskFull, OSError, StartRefused."""
        return cls(open_database(path, (_SCHEMA,), "usage"), path)

    def add(self, month: str, used: Totals) -> None:
        """Raises DiskFull, OSError; then nothing was added."""
        rows = [
            (month, topic, operation, one.requests, one.sent_bytes, one.received_bytes)
            for (topic, operation), one in used.items()
        ]
        with self._lock, transaction(self._db, self._path) as db:
            db.executemany(_ADD, rows)

    def rows(self, month: str) -> list[UsageRow]:
        """By topic and operation."""
        query = "SELECT month, topic, operation, requests, sent_bytes, received_bytes FROM usage WHERE month = ?"
        with self._lock:
            return [UsageRow(*row) for row in self._db.execute(query, (month,)).fetchall()]

    def close(self) -> None:
        with self._lock:
            self._db.close()


class Usage:
    """The meter of a process, and the book that it is written into. Loop thread only."""

    def __init__(self, path: Path, clock: Clock, keys: Keys) -> None:
        self._path = path
        self._clock = clock
        self.meter = Meter(topic_of(keys))
        self._book: UsageBook | None = None
        self._kept: Totals = {}
        self._keeping = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def begin(cls, path: Path, clock: Clock, url: str) -> Self:
        """Of the bucket at *url*. A book that cannot be written stops nothing: it is tried again."""
        usage = cls(path, clock, Keys(parse_location(url).prefix))
        usage._task = asyncio.ensure_future(usage._run())
        return usage

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_KEEP_S)
            await self.keep()

    async def keep(self) -> None:
        """Add what is new; what the disk does not take is added the next time."""
        async with self._keeping:
            now = self.meter.totals
            new = {entry: _less(used, self._kept.get(entry, Used())) for entry, used in now.items()}
            new = {entry: used for entry, used in new.items() if used != Used()}
            try:
                await asyncio.to_thread(self._write, new)
            except (TierdError, OSError) as error:
                log.warning("the use of the bucket is not written down yet: %s", error)
            else:
                self._kept = now

    def _write(self, new: Totals) -> None:
        if ballast.is_scarce(self._path.parent):
            raise DiskFull("the little room that is left is for what is needed")
        if self._book is None:
            self._book = _open(self._path)
        if new:
            self._book.add(month_of(self._clock.now_ms()), new)

    async def rows(self, month: str | None) -> tuple[UsageRow, ...]:
        """Of *month*, by default this one."""
        await self.keep()
        now = month_of(self._clock.now_ms())
        if self._book is None:
            return tuple(self.since_start()) if month in (None, now) else ()
        return tuple(self._book.rows(month or now))

    def since_start(self) -> Iterable[UsageRow]:
        """Of this process."""
        month = month_of(self._clock.now_ms())
        for (topic, operation), used in self.meter.totals.items():
            yield UsageRow(month, topic, operation, used.requests, used.sent_bytes, used.received_bytes)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.keep()
        if self._book is not None:
            self._book.close()


def _open(path: Path) -> UsageBook:
    """A damaged book is kept beside itself, and begun anew."""
    try:
        return UsageBook.open(path)
    except DatabaseDamaged as error:
        kept = set_aside(path)
        log.error("what the bucket was used for is damaged, and begun anew", extra={"why": error, "kept": kept})
        return UsageBook.open(path)


def _less(now: Used, before: Used) -> Used:
    return Used(
        now.requests - before.requests,
        now.sent_bytes - before.sent_bytes,
        now.received_bytes - before.received_bytes,
    )
