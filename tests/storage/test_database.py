"""What SQLite's errors are taken for: damage is set aside, a full disk and a lock leave everything where it is."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import mounts
from tierd.base.errors import DiskFull, StartRefused
from tierd.broker.registry import Registry
from tierd.config.state_files import BALLAST
from tierd.config.topic import MIB
from tierd.storage import ballast, database
from tierd.storage.database import DatabaseDamaged, open_database, set_aside, transaction
from tierd.tiering.catalog import Catalog
from tierd.tiering.process import open_catalog

STEPS = ("CREATE TABLE t (a INTEGER, b BLOB)",)
NAME = "db.sqlite"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounts.small_disk(tmp_path / "disk", 8 * MIB) as path:
        yield path


def rows(db: sqlite3.Connection) -> list[int]:
    return [a for (a,) in db.execute("SELECT a FROM t ORDER BY a")]


def write(db: sqlite3.Connection, path: Path, value: int, size_bytes: int = 0) -> None:
    with transaction(db, path):
        db.execute("INSERT INTO t VALUES (?, zeroblob(?))", (value, size_bytes))


def test_a_full_disk_is_that_and_gives_its_ballast(disk: Path) -> None:
    path = disk / NAME
    db = open_database(path, STEPS, "test")
    write(db, path, 1)
    ballast.look(disk)
    held = (disk / BALLAST).stat()
    assert held.st_size == ballast.ballast_bytes(disk) == held.st_blocks * 512
    filler = mounts.fill(disk)
    with pytest.raises(DiskFull, match="no room"):
        write(db, path, 2, 64 << 10)
    assert not (disk / BALLAST).exists()
    write(db, path, 3, 64 << 10)
    assert rows(db) == [1, 3]
    mounts.fill(disk)
    with pytest.raises(DiskFull):
        write(db, path, 4, 64 << 10)
    ballast.look(disk)
    assert not (disk / BALLAST).exists()
    filler.unlink()
    ballast.look(disk)
    assert (disk / BALLAST).stat().st_size == held.st_size
    write(db, path, 5, 64 << 10)
    db.close()
    again = open_database(path, STEPS, "test")
    assert rows(again) == [1, 3, 5]
    again.close()


def test_a_look_releases_it_before_the_disk_is_full(disk: Path) -> None:
    ballast.look(disk)
    with (disk / "filler").open("wb") as file:
        file.write(bytes(7 * MIB + 256 * 1024))
    ballast.look(disk)
    assert not (disk / BALLAST).exists()


@pytest.mark.parametrize("kind", [Registry, Catalog])
def test_nothing_is_set_aside_or_given_up_on_a_full_disk(disk: Path, kind: type[Registry | Catalog]) -> None:
    path = disk / NAME
    opened = kind.open(path)
    opened.put("a", "b")
    opened.close()
    filler = mounts.fill(disk)
    with pytest.raises(DiskFull):
        kind.open(path)
    if kind is Catalog:
        with pytest.raises(DiskFull):
            open_catalog(path)
    filler.unlink()
    assert not list(disk.glob("*.broken-*"))
    opened = kind.open(path)
    assert opened.get("a") == "b"
    opened.close()


def test_a_lock_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    path = tmp_path / NAME
    catalog = Catalog.open(path)
    catalog.put("a", "b")
    catalog.close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    other.execute("INSERT INTO meta VALUES ('c', 'd')")
    for opening in (open_catalog, Registry.open):
        with pytest.raises(StartRefused, match="another program has it open"):
            opening(path)
    other.execute("COMMIT")
    other.close()
    assert not list(tmp_path.glob("*.broken-*"))
    catalog = open_catalog(path)
    assert (catalog.get("a"), catalog.get("c")) == ("b", "d")
    catalog.close()


def test_what_cannot_be_opened_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.mkdir()
    with pytest.raises(StartRefused, match="this user"):
        open_catalog(path)
    assert path.is_dir()


@pytest.mark.parametrize("raw", [b"not a database" * 100, None], ids=["no database", "a torn page"])
def test_damage_goes_aside_with_all_that_belongs_to_it(tmp_path: Path, raw: bytes | None) -> None:
    path = tmp_path / NAME
    Catalog.open(path).close()
    whole = path.read_bytes()
    broken = raw or whole[:100] + b"\xff" * (len(whole) - 100)
    path.write_bytes(broken)
    for beside in ("-wal", "-shm"):
        path.with_name(NAME + beside).write_bytes(b"")
    with pytest.raises(DatabaseDamaged, match="cannot be read"):
        Catalog.open(path)
    for beside in ("-wal", "-shm"):
        path.with_name(NAME + beside).write_bytes(b"kept")
    kept = set_aside(path)
    assert kept.read_bytes() == broken
    assert {kept.with_name(kept.name + beside).read_bytes() for beside in ("-wal", "-shm")} == {b"kept"}
    assert {one.name for one in tmp_path.iterdir()} == {kept.name, f"{kept.name}-wal", f"{kept.name}-shm"}


def test_a_damaged_catalog_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"not a database" * 100)
    catalog = open_catalog(path)
    assert catalog.get("a") is None
    catalog.close()
    assert len(list(tmp_path.glob("*.broken-*"))) == 1
