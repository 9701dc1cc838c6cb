"""The registry keeps what it was told across reopening, and refuses what it cannot read."""

import sqlite3
from pathlib import Path

import pytest

from tierd.base.errors import StartRefused
from tierd.base.ids import Uuid
from tierd.broker.registry import SCHEMA_VERSION, Registry, TopicRow

ID = Uuid(b"0123456789abcdef")
ROW = TopicRow(id=ID, name="orders", partitions=3, created_ms=17, config={"retention.ms": "1"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.sqlite"


def reopened(path: Path, registry: Registry) -> Registry:
    registry.close()
    return Registry.open(path)


def test_topics_live_through_reopening(path: Path) -> None:
    registry = Registry.open(path)
    registry.add(ROW)
    registry = reopened(path, registry)
    assert registry.topics() == [ROW]
    registry.set_config(ID, {"segment.bytes": "2"})
    registry.set_partitions(ID, 4)
    registry = reopened(path, registry)
    (row,) = registry.topics()
    assert (row.partitions, row.config) == (4, {"segment.bytes": "2"})
    registry.close()


def test_a_deleted_name_is_free_and_the_id_stays_until_forgotten(path: Path) -> None:
    registry = Registry.open(path)
    registry.add(ROW)
    registry.forget(ID)
    assert registry.topics() == [ROW], "a live topic is not forgotten"
    registry.mark_deleted(ID, 99)
    registry.mark_deleted(ID, 100)
    registry.add(TopicRow(id=Uuid(b"fedcba9876543210"), name="orders", partitions=1, created_ms=100))
    registry = reopened(path, registry)
    assert [row.deleted_ms for row in registry.deleted()] == [99]
    assert [row.created_ms for row in registry.topics()] == [100]
    registry.forget(ID)
    assert registry.deleted() == []
    registry.close()


def test_one_name_is_one_live_topic_and_a_refused_row_leaves_nothing(path: Path) -> None:
    registry = Registry.open(path)
    registry.add(ROW)
    with pytest.raises(sqlite3.IntegrityError):
        registry.add(TopicRow(id=Uuid(b"fedcba9876543210"), name="orders", partitions=1, created_ms=1))
    registry.put("after", "works")
    assert registry.get("after") == "works"
    assert registry.topics() == [ROW]
    registry.close()


def test_values(path: Path) -> None:
    registry = Registry.open(path)
    assert registry.get("remote.url") is None
    registry.put("remote.url", "file:/a")
    registry.put("remote.url", "file:/b")
    registry = reopened(path, registry)
    assert registry.get("remote.url") == "file:/b"
    registry.close()


def test_a_newer_registry_is_refused(path: Path) -> None:
    Registry.open(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(StartRefused, match="newer tierd"):
        Registry.open(path)


def test_garbage_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(StartRefused, match="cannot be read"):
        Registry.open(path)


def test_what_is_kept_of_passwords_is_not_for_others(path: Path) -> None:
    def modes() -> set[int]:
        return {one.stat().st_mode & 0o777 for one in path.parent.glob("registry.sqlite*")}

    opened = Registry.open(path)
    opened.put("a", "b")
    assert modes() == {0o600}
    opened.close()
    path.chmod(0o644)  # an earlier release made it so
    opened = Registry.open(path)
    opened.put("a", "c")
    assert modes() == {0o640}, "a group may read it, if somebody wants that"
    opened.close()
