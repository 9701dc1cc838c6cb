"""The disk of data and state gets full to the last byte: nothing is lost, evicting makes room, a start comes up."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.client import Client, batch, offsets_of
from kit import mounts
from kit.daemon import Daemon, DidNotStart
from tierd.config.state_files import BALLAST, CATALOG, REGISTRY
from tierd.config.topic import MIB
from tierd.wire.errors import ErrorCode

pytestmark = pytest.mark.e2e

RECORDS = 50
SETTINGS = (
    "segment.bytes=1MiB",
    "tierd.disk.reserve.bytes=0",
    "file.delete.delay.ms=0",
    "local.retention.ms=-1",
)


class Elsewhere(Daemon):
    """Its own log has room."""

    @property
    def log(self) -> Path:
        return self.data.parent.with_name("daemon.log")


@contextmanager
def on_a_small_disk(tmp_path: Path) -> Iterator[tuple[Path, Daemon]]:
    extra = [word for one in SETTINGS for word in ("--set", one)]
    with mounts.small_disk(tmp_path / "disk", 32 * MIB) as disk:
        daemon = Elsewhere(disk / "data", f"file:{tmp_path / 'bucket'}", extra=extra)
        try:
            yield disk, daemon.start()
        finally:
            daemon.kill()


def connect(daemon: Daemon) -> Client:
    host, _, port = daemon.address.rpartition(":")
    return Client((host, int(port)))


def state(daemon: Daemon) -> Path:
    return daemon.control.parent


def produce(daemon: Daemon, batches: int) -> int:
    """The log end after it."""
    with connect(daemon) as client:
        client.create("t")
        for _ in range(batches):
            answer = client.produce("t", batch(RECORDS, size=2000))
            assert answer.error_code == 0
    return int(answer.base_offset) + RECORDS


def refused(daemon: Daemon) -> None:
    with connect(daemon) as client:
        assert client.produce("t", batch(RECORDS, size=2000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def read_all(daemon: Daemon, end: int) -> None:
    found: list[int] = []
    with connect(daemon) as client:
        while not found or found[-1] < end - 1:
            answer = client.fetch("t", found[-1] + 1 if found else 0, max_wait=2000)
            assert answer.error_code == 0
            found += offsets_of(answer.records)
    assert found == list(range(end))


def produce_again(daemon: Daemon, end: int) -> None:
    """tierd looks at the free space once a second; a long poll is the pause."""
    with connect(daemon) as client:
        for _ in range(240):  # a minute; it takes a second or two where the machine has time
            answer = client.produce("t", batch(RECORDS, size=2000))
            if answer.error_code == 0:
                break
            client.fetch("t", end, max_wait=250)
    assert (answer.error_code, answer.base_offset) == (0, end)


@pytest.mark.parametrize("killed", [False, True], ids=["while it runs", "and at a start"])
def test_evicting_makes_room_on_a_disk_that_is_full(tmp_path: Path, killed: bool) -> None:
    with on_a_small_disk(tmp_path) as (disk, daemon):
        end = produce(daemon, 90)
        daemon.verb("copy", "--wait")
        copied = daemon.partition("t")["copied_to"]
        assert copied > end / 2
        assert (state(daemon) / BALLAST).exists()
        if killed:
            daemon.kill()
        (tierer,) = daemon.tierer_pids() if not killed else (None,)
        filler = mounts.fill(disk)
        if killed:
            daemon.start()
        refused(daemon)
        daemon.verb("evict")
        assert daemon.partition("t")["local_start"] == copied
        assert killed or daemon.tierer_pids() == [tierer]
        produce_again(daemon, end)  # the evicted files have gone
        assert daemon.stop() == 0
        filler.unlink()
        daemon.start()
        assert (state(daemon) / BALLAST).exists()
        read_all(daemon, end + RECORDS)
        assert not list(state(daemon).glob("*.broken-*"))
        assert daemon.stop() == 0


def test_without_ballast_too_a_start_is_worth_another_try(tmp_path: Path) -> None:
    with on_a_small_disk(tmp_path) as (disk, daemon):
        end = produce(daemon, 30)
        daemon.kill()
        (state(daemon) / BALLAST).unlink()
        filler = mounts.fill(disk)
        before = {name: (state(daemon) / name).stat().st_size for name in (REGISTRY, CATALOG)}
        with pytest.raises(DidNotStart) as failed:
            daemon.start()
        assert failed.value.exit_code == 1, failed.value.said
        assert "free space" in failed.value.said
        assert {name: (state(daemon) / name).stat().st_size for name in before} == before
        filler.unlink()
        daemon.start()
        read_all(daemon, end)
        produce_again(daemon, end)


def test_a_tierer_on_a_full_disk_goes_on_when_there_is_room(tmp_path: Path) -> None:
    with on_a_small_disk(tmp_path) as (disk, daemon):
        end = produce(daemon, 30)
        tierers = daemon.tierer_pids()
        (state(daemon) / BALLAST).unlink()
        filler = mounts.fill(disk)
        with connect(daemon) as client:
            client.create("other")
        refused(daemon)
        daemon.verb("copy", "--wait", "--timeout", "3s", expect=None)
        filler.unlink()
        produce_again(daemon, end)
        daemon.verb("copy", "--wait")
        assert daemon.partition("t")["copied_to"] > end / 2
        assert daemon.tierer_pids() == tierers
        read_all(daemon, end + RECORDS)


def test_a_read_of_the_bucket_that_finds_no_room_is_refused(tmp_path: Path) -> None:
    with on_a_small_disk(tmp_path) as (disk, daemon):
        end = produce(daemon, 30)
        daemon.verb("copy", "--wait")
        daemon.verb("evict")
        filler = mounts.fill(disk)
        with connect(daemon) as client:
            assert client.fetch("t", 0, max_wait=2000).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            filler.unlink()
            assert offsets_of(client.fetch("t", 0, max_wait=2000).records)[0] == 0
        read_all(daemon, end)
