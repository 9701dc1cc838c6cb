"""SQLite as every database here is opened, and what its errors mean: damage, a full disk, or somebody in the way."""

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tierd.base.errors import DiskFull, StartRefused, TierdError
from tierd.storage import ballast

_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_HELD = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SHUT = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
_DISK = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""What a full disk shows as, too: the files beside the database cannot be made or grown."""
_BESIDE = ("-wal", "-shm")
BUSY_S = 5.0


class DatabaseDamaged(TierdError):
    """The file is no database, or a broken one; no try will help."""


def open_database(path: Path, steps: Sequence[str], what: str) -> sqlite3.Connection:
    """Open or create *path* in WAL mode, every commit durable; for any thread, under the caller's lock.

    *steps* make the schema of each version out of the one before. Raises DatabaseDamaged, DiskFull, OSError, and
    StartRefused when a newer tierd wrote it, or somebody is in the way.
    """
    with meanings(path, opening=True):
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, path, steps, what)
        except BaseException:
            db.close()
            raise
        return db


def _prepare(db: sqlite3.Connection, path: Path, steps: Sequence[str], what: str) -> None:
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise StartRefused(
            f"{path}: {what} of a newer tierd (schema version {version}, this one knows {len(steps)}); "
            "start the newer tierd that wrote it"
        )
    if version < len(steps):
        db.execute("BEGIN IMMEDIATE")
        for statement in ";".join(steps[version:]).split(";"):
            if statement.strip():
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(steps)}")
        db.execute("COMMIT")


@contextmanager
def transaction(db: sqlite3.Connection, path: Path) -> Iterator[sqlite3.Connection]:
    """One durable commit, or nothing. Raises what `meanings` does, and sqlite3.IntegrityError."""
    with meanings(path):
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # a full disk has rolled it back already
                db.execute("ROLLBACK")
            raise


@contextmanager
def meanings(path: Path, *, opening: bool = False) -> Iterator[None]:
    """Turn SQLite's errors into DatabaseDamaged, DiskFull, StartRefused or OSError; others pass as they are.

    A full disk loses the ballast beside the database, so that the next try has room.
    """
    try:
        yield
    except sqlite3.Error as error:
        meant = _meaning(path, error, opening)
        if meant is None:
            raise
        if isinstance(meant, DiskFull):
            ballast.release(path.parent)
        raise meant from error


def _meaning(path: Path, error: sqlite3.Error, opening: bool) -> TierdError | OSError | None:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF  # without what extends it
    if code == sqlite3.SQLITE_FULL or (code in _DISK and ballast.is_full(path.parent)):
        return DiskFull(f"{path}: no room for it ({error}); free space on this file system")
    if code in _DAMAGE or (opening and code == sqlite3.SQLITE_ERROR):  # tables of somebody else
        return DatabaseDamaged(f"{path} cannot be read ({error})")
    if code in _HELD:
        return StartRefused(f"{path}: another program has it open and keeps it locked ({error}); end that one first")
    if code in _SHUT:
        return StartRefused(f"{path}: {error}; see that this user may read and write it, and its directory")
    if code == sqlite3.SQLITE_IOERR:
        return OSError(errno.EIO, f"{os.strerror(errno.EIO)} ({error})", str(path))
    return None


def set_aside(path: Path, mark: str = "broken") -> Path:
    """Rename a database that is damaged, or another one that is not used any more (*mark*), with the files beside it;
    where it lies now. Raises OSError."""
    broken = path.with_name(f"{path.name}.{mark}-{os.getpid()}")
    for beside in _BESIDE:  # first: a new database must never meet them
        if (old := path.with_name(path.name + beside)).exists():
            old.replace(broken.with_name(broken.name + beside))
    path.replace(broken)
    return broken
