"""A killed daemon whose disk was harmed meanwhile: what the bucket has comes from there, and nothing is lost."""

from pathlib import Path

import pytest

from kit import traffic
from kit.daemon import Daemon, running
from tierd.storage import names
from tierd.storage.epochs import parse_epochs
from tierd.storage.snapshot import parse_snapshot

pytestmark = pytest.mark.e2e

RECORDS = 4000
SMALL = ("--set", "segment.bytes=1MiB", "--set", "local.retention.ms=-1")


def logs_of(daemon: Daemon, topic: str) -> list[Path]:
    return sorted((daemon.data / f"{topic}-0").glob("*.log"))


def test_a_torn_middle_is_read_from_the_bucket(tmp_path: Path) -> None:
    sent = list(traffic.stream("torn", 0, RECORDS, 1000))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "torn", sent)
        tierd.verb("copy", "--wait")
        tierd.kill()
        second = logs_of(tierd, "torn")[1]
        raw = bytearray(second.read_bytes())
        raw[len(raw) // 2] ^= 1
        second.write_bytes(raw)
        (tierd.data / names.RECOVERY_POINT_CHECKPOINT).unlink()  # everything is read again
        tierd.start()
        row = tierd.partition("torn")
        assert row["gaps"] == []
        assert row["local_start"] == int(logs_of(tierd, "torn")[0].stem) > 0
        assert "lost offsets are in the bucket" in tierd.log.read_text()
        assert traffic.consume_confluent(tierd.address, "torn", 0, RECORDS) == sent
        assert tierd.stop() == 0


def test_without_a_bucket_what_is_lost_is_shown(tmp_path: Path) -> None:
    sent = list(traffic.stream("torn", 0, RECORDS, 1000))
    with running(tmp_path / "data", None, *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "torn", sent)
        tierd.kill()
        second = logs_of(tierd, "torn")[1]
        raw = bytearray(second.read_bytes())
        raw[len(raw) // 2] ^= 1
        second.write_bytes(raw)
        (tierd.data / names.RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
        tierd.start()
        ((start, stop),) = tierd.partition("torn")["gaps"]
        assert 0 < start < stop < tierd.partition("torn")["log_end"] == RECORDS
        assert f"torn-0: offsets {start} to {stop - 1} are lost" in tierd.verb("status").stdout
        assert tierd.stop() == 0
        assert tierd.partition("torn")["gaps"] == [[start, stop]], "without a daemon, too"


def test_forgotten_producers_and_epochs_come_from_the_bucket(tmp_path: Path) -> None:
    sent = list(traffic.stream("gone", 0, RECORDS, 1000))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "gone", sent)
        tierd.verb("copy", "--wait")
        tierd.verb("evict")
        folder = tierd.data / "gone-0"
        begun = parse_epochs((folder / names.LEADER_EPOCH_CHECKPOINT).read_bytes())
        tierd.kill()
        known = {entry.producer_id for path in folder.glob("*.snapshot") for entry in parse_snapshot(path.read_bytes())}
        assert known
        for path in folder.glob("*.snapshot"):
            path.unlink()
        (folder / names.LEADER_EPOCH_CHECKPOINT).unlink()
        tierd.start()
        assert "older producers and epochs were taken from the bucket" in tierd.log.read_text()
        assert parse_epochs((folder / names.LEADER_EPOCH_CHECKPOINT).read_bytes())[: len(begun)] == begun
        assert tierd.stop() == 0
        newest = max(folder.glob("*.snapshot"))
        assert {entry.producer_id for entry in parse_snapshot(newest.read_bytes())} == known
