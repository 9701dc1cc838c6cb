"""What leaves when: the local disk after a committed copy, the bucket after total retention and its delay, and an
active segment that nobody writes to any more. One tierd with one bucket for all of it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit import tiers, traffic
from kit.daemon import Daemon, running
from tierd.config.topic import MIB

pytestmark = pytest.mark.e2e

QUICK = (
    *("--set", "segment.bytes=1MiB"),
    *("--set", "log.retention.check.interval.ms=200"),
    *("--set", "remote.head.interval.ms=200"),
    *("--set", "remote.retry.max.ms=1000"),
    *("--set", "file.delete.delay.ms=0"),
)
DELAY_S = 2.0
AHEAD_MS = 50 * 60_000


@dataclass(frozen=True, slots=True)
class Tiered:
    daemon: Daemon
    bucket: Path
    begun: list[traffic.Message]
    """The few records of `quiet`, written at the start."""

    def row(self, topic: str) -> dict[str, int]:
        found: dict[str, int] = self.daemon.partition(topic)
        return found

    def segments(self, topic: str) -> int:
        """On the local disk, the active one included."""
        return len(list((self.daemon.data / f"{topic}-0").glob("*.log")))


@pytest.fixture(scope="module")
def tierd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    place = tmp_path_factory.mktemp("retention")
    with running(place / "data", f"file:{place / 'bucket'}", *QUICK) as daemon:
        tiers.create(daemon, "quiet", tierd_archive_max_age_ms="1000")
        sent = list(traffic.stream("quiet", 0, 10, 100))
        traffic.produce_confluent(daemon.address, "quiet", sent)
        yield Tiered(daemon, place / "bucket", sent)
        assert daemon.stop() == 0


def test_local_segments_wait_for_their_copies_whatever_the_limits_say(tierd: Tiered) -> None:
    daemon, away = tierd.daemon, tierd.bucket.with_name("away")
    tiers.create(daemon, "local-bytes", local_retention_bytes=str(2 * MIB), local_retention_ms="-1")
    tiers.create(daemon, "local-time", local_retention_ms="1000")
    tiers.create(daemon, "local-ahead", local_retention_ms="1000")
    in_an_hour = int(time.time() * 1000) + AHEAD_MS
    names = ("local-bytes", "local-time", "local-ahead")
    tierd.bucket.rename(away)
    sent = {
        name: tiers.fill(daemon, name, 5, timestamp_ms=in_an_hour if name == "local-ahead" else None) for name in names
    }
    for name in names:
        tiers.until(f"{name} was tried twice", lambda name=name: _tries(tierd, name) >= 2)  # type: ignore[misc]
        row = tierd.row(name)
        assert (row["local_start"], row["copied_to"]) == (0, None)
        assert row["local_bytes"] > 5 * MIB * 0.9
    away.rename(tierd.bucket)
    tiers.copy(daemon)
    for name in names:
        tiers.until(f"{name} leaves", lambda name=name: tierd.row(name)["local_start"] > 0)  # type: ignore[misc]
    for name in ("local-time", "local-ahead"):
        tiers.until(f"only the active segment of {name} stays", lambda name=name: tierd.segments(name) == 1)  # type: ignore[misc]
    assert 2 * MIB <= tierd.row("local-bytes")["local_bytes"] < 3 * MIB
    for name in names:
        row = tierd.row(name)
        assert row["log_start"] == 0
        assert row["local_start"] <= row["copied_to"] < row["log_end"]
        tiers.read_back(daemon, name, sent[name])


def _tries(tierd: Tiered, topic: str) -> int:
    waiting = tierd.daemon.partition(topic)["waiting"]
    return int(waiting["detail"].split()[1]) if waiting and waiting["reason"] == "retrying" else 0


def test_a_shortened_total_limit_moves_log_start_and_deletes_after_the_delay(tierd: Tiered) -> None:
    daemon = tierd.daemon
    delays = {"total-soon": str(int(DELAY_S * 1000)), "total-late": "86400000"}
    for name, delay_ms in delays.items():
        tiers.create(daemon, name, tierd_delete_delay_ms=delay_ms, local_retention_ms="-2")
        tiers.fill(daemon, name, 6)
    tiers.copy(daemon)
    tiers.evict(daemon)
    whole = {name: tiers.bases(tierd.bucket, name) for name in delays}
    assert all(len(bases) >= 5 for bases in whole.values())
    before = time.monotonic()
    for name in delays:
        tiers.alter(daemon, name, retention_bytes=str(2 * MIB))
    starts = {name: _moved(tierd, name) for name in delays}
    for name, start in starts.items():
        row = tierd.row(name)
        kept = [base for base in whole[name] if base >= start]
        assert kept[0] == start, "log start lies between segments"
        assert 2 * MIB <= row["remote_bytes"] + row["local_bytes"] < 3 * MIB
        assert traffic.offset_at_confluent(daemon.address, name, 0) == start
    kept = [base for base in whole["total-soon"] if base >= starts["total-soon"]]
    tiers.until("objects leave after the delay", lambda: tiers.bases(tierd.bucket, "total-soon") == kept)
    assert time.monotonic() - before >= DELAY_S
    tiers.until("each of their objects", lambda: tiers.bases(tierd.bucket, "total-soon", ".log") == kept)
    assert tiers.head(tierd.bucket, "total-soon")["log_start"] == starts["total-soon"]
    assert tiers.bases(tierd.bucket, "total-late") == whole["total-late"], "these have a day"
    rest = traffic.consume_confluent(daemon.address, "total-soon", starts["total-soon"], 6 * tiers.PER_MIB)
    assert rest == list(traffic.stream("total-soon", starts["total-soon"], 6 * tiers.PER_MIB, tiers.RECORD_BYTES))


def _moved(tierd: Tiered, topic: str) -> int:
    return tiers.until(f"log start of {topic} moves", lambda: tierd.row(topic)["log_start"] or None)


def test_a_timestamp_in_the_future_pins_nothing(tierd: Tiered) -> None:
    keep_s = 3.0
    tiers.create(tierd.daemon, "total-time", retention_ms=str(int(keep_s * 1000)), tierd_delete_delay_ms="0")
    begun = time.monotonic()
    tiers.fill(tierd.daemon, "total-time", 3, timestamp_ms=int(time.time() * 1000) + AHEAD_MS)
    end = tierd.row("total-time")["log_end"]
    tiers.until("the copies", lambda: len(tiers.bases(tierd.bucket, "total-time")) >= 2)
    active = tiers.until("all closed segments are released", lambda: _only_active(tierd, "total-time"))
    assert time.monotonic() - begun >= keep_s
    assert 0 < active < end
    tiers.until("the objects leave", lambda: not tiers.bases(tierd.bucket, "total-time", ".log"))


def _only_active(tierd: Tiered, topic: str) -> int | None:
    names = sorted((tierd.daemon.data / f"{topic}-0").glob("*.log"))
    return int(names[0].stem) if len(names) == 1 and tierd.row(topic)["log_start"] == int(names[0].stem) else None


def test_a_quiet_partition_is_rolled_and_copied_by_its_age(tierd: Tiered) -> None:
    tiers.until("quiet is in the bucket", lambda: tierd.row("quiet")["copied_to"] == len(tierd.begun))
    assert tiers.bases(tierd.bucket, "quiet") == [0]
    assert tierd.row("quiet")["waiting"] is None
    tiers.evict(tierd.daemon)
    tiers.until("quiet has left the disk", lambda: tierd.row("quiet")["local_start"] == len(tierd.begun))
    tiers.read_back(tierd.daemon, "quiet", tierd.begun)
