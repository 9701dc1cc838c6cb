"""A whole tierd whose disk gets full, and has room again."""

from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from e2e.disks import connect, directories, read_all, sets, tierd
from kit import mounts
from tierd.config.topic import MIB
from tierd.wire.errors import ErrorCode

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("reserve", ["4MiB", "0"], ids=["down to the reserve", "down to the last byte"])
def test_a_full_disk_refuses_and_then_serves_again(tmp_path: Path, reserve: str) -> None:
    options = sets(segment_bytes="1MiB", tierd_disk_reserve_bytes=reserve, file_delete_delay_ms="0")
    with (
        mounts.small_disk(tmp_path / "disk", 24 * MIB) as disk,
        tierd(disk / "data", state=tmp_path / "state", remote=tmp_path / "bucket", extra=options) as daemon,
        connect(daemon) as client,
    ):
        client.create("t")
        records, end = batch(50, size=2000), 0
        while (answer := client.produce("t", records)).error_code == 0:
            end = answer.base_offset + 50
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert end * 2000 > 15 * MIB
        assert client.produce("t", records).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert read_all(client, "t", 0, end) == list(range(end))
        assert directories(daemon)["data"]["state"] == "online"
        daemon.verb("copy", "--wait")
        copied = daemon.partition("t")["copied_to"]
        assert copied > end / 2
        daemon.verb("evict")
        freed = daemon.partition("t")
        assert freed["local_start"] == copied
        answer = _once_there_is_room(client, records)
        assert (answer.error_code, answer.base_offset) == (0, end)
        daemon.kill()
        daemon.start()
        with connect(daemon) as again:
            assert read_all(again, "t", 0, end + 50) == list(range(end + 50))
        assert not list((tmp_path / "state" / "set-aside").rglob("*.log*"))


def _once_there_is_room(client: Client, records: bytes) -> Any:
    """Marked files go at the next tick of an idle broker (5 s), free space is looked at each second; a long poll is the
    pause."""
    for _ in range(240):
        answer = client.produce("t", records)
        if answer.error_code == 0:
            break
        client.fetch("t", client.list_offsets("t", -1).offset, max_wait=250)
    return answer


def test_a_full_disk_survives_a_kill(tmp_path: Path) -> None:
    options = sets(segment_bytes="1MiB", tierd_disk_reserve_bytes="1MiB")
    with (
        mounts.small_disk(tmp_path / "disk", 12 * MIB) as disk,
        tierd(disk / "data", state=tmp_path / "state", extra=options) as daemon,
    ):
        with connect(daemon) as client:
            client.create("t")
            end = 0
            while (answer := client.produce("t", batch(50, size=2000))).error_code == 0:
                end = answer.base_offset + 50
        daemon.kill()
        filler = disk / "filler"
        with filler.open("wb") as file:
            file.write(bytes(512 * 1024))
        daemon.start()
        with connect(daemon) as client:
            assert read_all(client, "t", 0, end) == list(range(end))
            assert client.produce("t", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            filler.unlink()
            client.call(20, 6, topics=[{"name": "t", "topic_id": None}], timeout=1000)
