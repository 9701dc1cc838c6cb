"""`tierd rebuild`: the catalog again, and what the old one had wrong."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.cli import tierd
from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, copied, who
from tierd.base.ids import PartitionId
from tierd.broker.registry import Registry
from tierd.daemon import state
from tierd.remote.archive_id import read_archive
from tierd.remote.file import FileStore
from tierd.remote.heads import read_head
from tierd.storage.disk import PosixDisk
from tierd.tiering.catalog import Catalog

LOCKED = (
    "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('ok', flush=True); input()"
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The state directory of a tierd that has copied a recorded partition, stopped."""

    async def run() -> None:
        clock = FakeClock()
        store = FileStore(tmp_path / "bucket", disk=PosixDisk(), clock=clock)
        bench, _ = await copied(tmp_path, store, clock)  # type: ignore[arg-type]
        await bench.tierer.publisher.tick()
        archive = read_archive(store, KEYS)
        await bench.close()
        registry = Registry.open(tmp_path / "state" / "registry.sqlite")
        state.remember_remote(registry, f"file:{tmp_path / 'bucket' / 'p'}")
        state.remember_archive(registry, archive.archive_id if archive else None)
        registry.close()

    asyncio.run(run())
    return tmp_path / "state"


def rebuilt(capsys: pytest.CaptureFixture[str], place: Path, *words: str) -> dict[str, Any]:
    ended = tierd(capsys, "rebuild", "--state", place, "--json", *words)
    assert ended.code == 0, ended
    document: dict[str, Any] = json.loads(ended.out)
    return document


def rows(place: Path, query: str = "SELECT * FROM segments ORDER BY base") -> list[Any]:
    with sqlite3.connect(place / "catalog.sqlite") as db:
        found = db.execute(query).fetchall()
    db.close()
    return found


def part(place: Path) -> PartitionId:
    catalog = Catalog.open(place / "catalog.sqlite")
    try:
        return catalog.partitions()[0].part
    finally:
        catalog.close()


def kept(place: Path) -> Iterator[Path]:
    return place.glob("catalog.sqlite.before-*")


def test_one_that_is_right_has_no_difference_and_a_dry_run_changes_nothing(
    capsys: pytest.CaptureFixture[str], place: Path
) -> None:
    before = rows(place)
    found = rebuilt(capsys, place, "--dry-run")
    assert (found["different"], found["old"], found["partitions"], found["segments"]) == (0, "used", 1, len(before))
    assert (found["kept"], list(kept(place)), rows(place)) == (None, [], before)
    ended = tierd(capsys, "rebuild", "--state", place)
    assert ended.code == 0
    assert "; 0 differences; old: used" in ended.out
    assert len(list(kept(place))) == 1
    assert [row[:7] for row in rows(place)] == [row[:7] for row in before]
    assert {path.name for path in place.iterdir()} >= {"catalog.sqlite", "registry.sqlite"}
    assert not list(place.glob("rebuild-*"))


def test_what_the_old_one_had_wrong_is_named_and_put_right(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    whole = rows(place, "SELECT base, next_base, segment_id FROM segments ORDER BY base")
    with sqlite3.connect(place / "catalog.sqlite") as db:
        db.execute("DELETE FROM segments WHERE base = ?", (whole[0][0],))
        db.execute("UPDATE segments SET segment_id = randomblob(16) WHERE base = ?", (whole[1][0],))
        db.execute("UPDATE segments SET size_bytes = 1 WHERE base = ?", (whole[2][0],))
    db.close()
    found = rebuilt(capsys, place)
    assert [(one["start"], one["stop"], one["what"]) for one in found["differences"]] == [
        (whole[0][0], whole[0][1], "not in the catalog"),
        (whole[1][0], whole[1][1], "not in the catalog"),
        (whole[1][0], whole[1][1], "not in the bucket"),
        (whole[2][0], whole[2][1], "other sizes, offsets or keys in the catalog"),
    ]
    assert rows(place, "SELECT base, next_base, segment_id FROM segments ORDER BY base") == whole
    assert rebuilt(capsys, place)["different"] == 0


def test_what_only_the_old_one_knows_stays(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    """Copies and deletes that are under way, and how far offsets went."""
    with sqlite3.connect(place / "catalog.sqlite") as db:
        (last,) = db.execute("SELECT max(base) FROM segments").fetchone()
        db.execute("UPDATE segments SET state = 2, due_ms = 77 WHERE base = ?", (last,))
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(segments)")]
        names = ", ".join(columns)
        values = names.replace("segment_id", "x'00112233445566778899aabbccddeeff'").replace("state", "0")
        db.execute(f"INSERT INTO segments ({names}) SELECT {values} FROM segments WHERE base = 0")
        db.execute("UPDATE partitions SET copied_to = 99999, log_start = 3, delete_delay_ms = 5")
    db.close()
    facts = "SELECT key, value FROM meta ORDER BY key"
    before = rows(place, facts)
    rebuilt(capsys, place)
    assert rows(place, facts) == before
    assert rows(place, "SELECT state, due_ms FROM segments WHERE state <> 1 ORDER BY state") == [(0, None), (2, 77)]
    assert rows(place, "SELECT copied_to, log_start, delete_delay_ms FROM partitions") == [(99999, 3, 5)]


@pytest.mark.parametrize("there", ["damaged", "missing"])
def test_without_the_old_one_the_bucket_is_enough_to_go_on(
    capsys: pytest.CaptureFixture[str], place: Path, there: str
) -> None:
    which, before = part(place), rows(place)
    for path in place.glob("catalog.sqlite*"):
        path.unlink()
    if there == "damaged":
        (place / "catalog.sqlite").write_bytes(b"no database" * 1000)
    found = rebuilt(capsys, place)
    assert (found["old"], found["different"], found["segments"]) == (there, 0, len(before))

    async def run() -> None:
        clock = FakeClock()
        store = FileStore(place.parent / "bucket", disk=PosixDisk(), clock=clock)
        bench = Bench(place.parent, store, clock)  # type: ignore[arg-type]
        report = await bench.open(who())
        stored = read_head(store, KEYS, bench.catalog.partitions()[0].topic, which.topic_id, which.partition)
        assert stored is not None
        assert report.remotes[which].copied_to == stored.head.copied_to
        await bench.close()

    asyncio.run(run())


def test_it_is_refused_where_it_makes_no_sense(capsys: pytest.CaptureFixture[str], place: Path) -> None:
    lock = place / "tierer.lock"
    with subprocess.Popen(
        [sys.executable, "-c", LOCKED, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "ok\n"
        ended = tierd(capsys, "rebuild", "--state", place)
        daemon.kill()
    assert (ended.code, "stop it first" in ended.err) == (4, True)
    assert tierd(capsys, "rebuild", "--state", place / "nothing").code == 2
    for path in (place.parent / "bucket" / "p" / "tierd").glob("archive.json"):
        path.unlink()
    ended = tierd(capsys, "rebuild", "--state", place)
    assert (ended.code, "holds no archive" in ended.err) == (4, True)
    assert not list(kept(place))
