"""A restored directory serves what the archive's broker did: in tierd to the last answer, and in a real Kafka."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import kafka
from kit.answers import LATEST, Asker, check
from kit.archived import aiven_bucket, tree
from kit.daemon import running
from kit.golden import golden
from tierd.storage.batch import walk

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def restore(bucket: Path, to: Path) -> None:
    words = ["-m", "tierd", "restore", "--remote", f"file:{bucket}", "--to", str(to)]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done


def test_a_tierd_answers_as_kafka_did(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """All but the topic whose end is held back by a transaction that hangs: its last records are in no bucket."""
    shutil.copytree(golden("kafka") / "final", tmp_path / "data")
    bucket = tmp_path / "bucket"
    with running(tmp_path / "data", f"file:{bucket}", "--set", "remote.head.interval.ms=100") as owner:
        owner.verb("copy", "--wait", "--roll", expect=None)
        ends = {(row["topic"], row["partition"]): row["copied_to"] or 0 for row in owner.status()["partitions"]}
        assert owner.stop() == 0
    before = tree(bucket)
    restore(bucket, tmp_path / "restored")
    assert tree(bucket) == before
    with running(tmp_path / "restored") as daemon:
        status = daemon.status()
        rows = {(row["topic"], row["partition"]): row for row in status["partitions"]}
        assert status["set_aside"] == 0
        copied = {name for name, end in ends.items() if end}
        assert {name: rows[name]["log_end"] for name in copied} == {name: ends[name] for name in copied}
        topics = {topic for topic, _ in copied} - {"hanging"}
        report = check(daemon.address, golden("kafka") / "final.answers.jsonl", topics=topics)
        figure(f"Kafka's recorded answers, from a restored directory: {report.agreed} of {report.asked} agree")
        assert report.agreed == report.asked >= 3_500, str(report)
        assert " segments=0 bytes=0 " in next(
            line for line in daemon.log.read_text().splitlines() if "logs opened" in line
        ), "nothing was read again"
        assert daemon.stop() == 0


@pytest.mark.kafka
def test_a_real_kafka_opens_it(tmp_path: Path) -> None:
    """As a clean stop left it: nothing is recovered, rebuilt or complained of, and it ends behind the last record."""
    restore(aiven_bucket(tmp_path / "bucket", "plain", "txn"), tmp_path / "restored")
    with kafka.opened(tmp_path / "kafka", tmp_path / "restored", ["plain", "txn"]) as opened:
        assert opened.recovered_nothing(2)
        assert opened.complaints() == []
        with Asker(opened.address) as asker:
            for topic, end in (("plain", 240), ("txn", 216)):
                assert asker.list_offsets(topic, LATEST).offset == end
                data = b"".join(path.read_bytes() for path in logs(tmp_path / "restored" / f"{topic}-0"))
                assert read(asker, topic, end) == data


def logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def read(asker: Asker, topic: str, end: int) -> bytes:
    data, offset = b"", 0
    while offset < end:
        got = asker.fetch(topic, offset, 1_000_000)
        data += got.records
        *_, (_, last) = walk(got.records)
        offset = last.next_offset
    return data
