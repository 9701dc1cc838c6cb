"""A real small disk that gets short of room: what the bucket has leaves it, nobody asks for it, and status says so."""

from pathlib import Path

import pytest

from broker.client import batch
from e2e.disks import connect, read_all, sets, tierd
from kit import mounts
from kit.tiers import until
from tierd.config.topic import MIB

pytestmark = pytest.mark.e2e


def test_a_short_disk_lets_go_what_the_bucket_has(tmp_path: Path) -> None:
    options = sets(
        segment_bytes="1MiB", local_retention_ms="-1", file_delete_delay_ms="0", tierd_disk_evict_bytes="23MiB"
    )
    with (
        mounts.small_disk(tmp_path / "disk", 24 * MIB) as disk,
        tierd(disk / "data", state=tmp_path / "state", remote=tmp_path / "bucket", extra=options) as daemon,
        connect(daemon) as client,
    ):
        client.create("t")
        end = 0
        while end * 2000 < 4 * MIB:
            answer = client.produce("t", batch(50, size=2000))
            assert answer.error_code == 0
            end = answer.base_offset + 50
        until("an early eviction", lambda: daemon.partition("t")["local_start"] or None)
        assert read_all(client, "t", 0, end) == list(range(end))
        (said,) = [one for one in daemon.status()["bucket"]["notes"] if str(disk) in one]
        assert "what the bucket has leaves this disk early" in said
