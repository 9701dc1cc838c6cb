"""Buckets that a real Kafka wrote, and a real server."""

import shutil
from pathlib import Path

import pytest

from kit.aiven import recorded_ring
from kit.bucket import in_weed
from kit.golden import golden, partitions
from kit.tierer_bench import KEYS as BENCH_KEYS
from kit.tierer_bench import SETTINGS, Bench, drive, who
from kit.verifying import DEEP, FRESH, Looked, flip, reasons, replaced, told, with_copy
from kit.weed import Weed
from tierd.base.clock import SystemClock
from tierd.remote import crc
from tierd.remote.file import FileStore
from tierd.remote.keys import Keys
from tierd.remote.open import Bucket
from tierd.storage.disk import PosixDisk
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verify.standing import PartitionReport
from tierd.tiering.verify.verdicts import Verdict


def _recorded(tmp_path: Path, variant: str) -> Looked:
    shutil.copytree(golden("aiven") / f"bucket-{variant}", tmp_path / "bucket")
    store = FileStore(tmp_path / "bucket", disk=PosixDisk(), clock=SystemClock())
    return Looked(Bucket(store, Keys("tier/"), "file:", recorded_ring()))


@pytest.mark.parametrize("variant", ["plain", "plain-chunks", "txn", "zstd", "enc", "enc-nocomp", "txn-enc"])
def test_a_bucket_that_kafka_wrote_is_whole(tmp_path: Path, variant: str) -> None:
    look = _recorded(tmp_path, variant)
    report = look()
    assert (report.verdict, reasons(report)) == (Verdict.OK, "")
    assert report.archive_id is None
    (one,) = report.standing.reports
    assert isinstance(one, PartitionReport)
    assert one.looked_into == one.segments >= 3
    assert not (tmp_path / "bucket" / ".tierd-meta").exists()


@pytest.mark.parametrize("variant", ["plain", "txn", "zstd", "enc"])
def test_every_flipped_byte_of_its_logs_is_found(tmp_path: Path, variant: str) -> None:
    look = _recorded(tmp_path, variant)
    path = sorted((tmp_path / "bucket").rglob("*.log"))[1]
    raw = path.read_bytes()
    for at in range(61, len(raw), len(raw) // 12):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert look().verdict is Verdict.FAILURE, at
    path.write_bytes(raw)
    assert look().verdict is Verdict.OK


@pytest.mark.parametrize("folder", partitions("kafka", "final"), ids=lambda path: path.name)
def test_whatever_tierd_copies_is_whole(tmp_path: Path, folder: Path) -> None:
    """Compacted, transactional, of all codecs, with log starts that moved."""

    async def work(bench: Bench) -> None:
        view = bench.local.adopt(folder, bench.root / "data", SETTINGS)
        await bench.open(who())
        await bench.copy()
        await bench.tierer.publish_head(view.id)
        report = Looked(Bucket(bench.store, BENCH_KEYS, "memory:"))()
        assert (report.verdict, reasons(report)) == (Verdict.OK, "")

    drive(tmp_path, work)


@pytest.mark.s3
def test_on_a_real_server(tmp_path: Path, weed_server: Weed) -> None:
    there = in_weed(weed_server, "verify")

    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        for info in bench.store.list("p/"):
            whole, raw = bench.store.get_with_info(info.key)
            key = there.bucket.keys.prefix + info.key.removeprefix("p/")
            there.bucket.store.put(key, raw, crc32c=crc.crc32c(raw), metadata=whole.metadata)
        for fresh in (FRESH, DEEP):
            report = Looked(there.bucket)(fresh)
            assert (report.verdict, told(report)) == (Verdict.OK, [(Verdict.OK, 0, rows[-1].next_base)])
        key = there.bucket.keys.prefix + rows[1].log_key.removeprefix("p/")
        replaced(there.bucket.store, key, flip)
        assert Looked(there.bucket)(FRESH).verdict is Verdict.FAILURE, "the server states another CRC-32C"
        there.bucket.store.delete([key])
        assert told(Looked(there.bucket)())[1] == (Verdict.FAILURE, rows[1].base, rows[1].next_base)

    with_copy(tmp_path, work)
    there.bucket.store.close()
