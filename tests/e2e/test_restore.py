"""A restored directory serves what the archive's broker did: in tierd to the last answer, and in a real Kafka."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka.admin import AdminClient, ConfigResource

from kit import kafka
from kit.answers import LATEST, Asker, check
from kit.archived import aiven_bucket, tree
from kit.daemon import running
from kit.golden import golden
from kit.tiers import until
from tierd.remote.groups import GroupOffset, GroupOffsets, encode_groups
from tierd.storage import names
from tierd.storage.batch import walk
from tierd.storage.records import iter_records
from tierd.storage.txnindex import parse_txn_index

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


def restore(bucket: Path, to: Path, *how: str) -> None:
    words = ["-m", "tierd", "restore", "--remote", f"file:{bucket}", "--to", str(to), *how]
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


def test_with_its_old_ids_it_goes_on_in_the_same_bucket(tmp_path: Path) -> None:
    """Nothing is copied again, and what is written now lies behind what is there."""
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    committed_of(bucket, "readers", plain=100)
    before = {name: content for name, content in tree(bucket).items() if name.startswith("plain-")}
    restore(bucket, tmp_path / "restored", "--keep-ids")
    with running(tmp_path / "restored", f"file:{bucket}") as daemon:
        assert position(daemon.address, "readers", "plain") == {"plain": 100}
        written(daemon.address, "plain", 240)
        daemon.verb("copy", "--wait", "--roll")
        row = next(row for row in daemon.status()["partitions"] if row["topic"] == "plain")
        assert (row["log_start"], row["log_end"], row["copied_to"]) == (0, 241, 241)
        assert daemon.stop() == 0
    after = {name: content for name, content in tree(bucket).items() if name.startswith("plain-")}
    assert {name: after[name] for name in before if before[name][1]} == {n: c for n, c in before.items() if c[1]}
    assert len([name for name in after if name.endswith(".log")]) == 5


@pytest.mark.kafka
def test_a_freshly_formatted_kafka_goes_on(tmp_path: Path) -> None:
    """As after a clean stop nothing is recovered or rebuilt; it serves all to the end, and writes behind."""
    bucket = aiven_bucket(tmp_path / "bucket", "plain", "txn")
    committed_of(bucket, "readers", plain=500, txn=50)
    asked = tmp_path / "ends.json"
    asked.write_text('{"partitions": [{"topic": "txn", "partition": 0, "offset": 104}]}')
    ends = {"plain": 240, "txn": 96}
    with kafka.formatted(tmp_path / "kafka") as broker:
        restore(bucket, broker.data, "--kafka", "--offsets", str(asked))
        folders = {topic: broker.data / f"{topic}-0" for topic in ends}
        ids = {topic: (folder / names.PARTITION_METADATA).read_bytes() for topic, folder in folders.items()}
        broker.start()
        with Asker(broker.address) as asker:
            until("leads", lambda: all(asker.list_offsets(topic, LATEST).leader_epoch > 1 for topic in ends))
            assert broker.recovered_nothing(len(ends) + 1)
            assert broker.complaints() == []
            for topic, end in ends.items():
                assert asker.list_offsets(topic, LATEST).offset == end
                assert read(asker, topic, end) == b"".join(path.read_bytes() for path in logs(folders[topic]))
        assert {topic: (folder / names.PARTITION_METADATA).read_bytes() for topic, folder in folders.items()} == ids
        settings = config_of(broker.address, "plain")
        assert (settings["retention.ms"], settings["retention.bytes"]) == ("-1", "-1")
        assert position(broker.address, "readers", *ends) == {"plain": 240, "txn": 50}
        written(broker.address, "plain", 240)
        for topic in ends:
            assert consumed(broker.address, topic, ends[topic]) == committed(folders[topic], ends[topic])


def committed_of(bucket: Path, group: str, **offsets: int) -> None:
    """As a tierd keeps them in the bucket."""
    rows = tuple(GroupOffset(topic, None, 0, offset, None, "", 1_000) for topic, offset in offsets.items())
    path = bucket / "tierd" / "groups" / "0000000001-0000000000.zst"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_groups(1_000, [GroupOffsets(group, rows)]))


def position(address: str, group: str, *topics: str) -> dict[str, int]:
    """Where the group goes on. Asked again while its coordinator, which has just started, is still at work."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group})
    parts = [confluent_kafka.TopicPartition(topic, 0) for topic in topics]

    def look() -> list[confluent_kafka.TopicPartition] | None:
        try:
            return list(consumer.committed(parts, timeout=30))
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                return None
            raise

    try:
        return {one.topic: one.offset for one in until("the coordinator", look)}
    finally:
        consumer.close()


def config_of(address: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": address})  # what was asked ends with it
    (asked,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in asked.result(30).items()}


def written(address: str, topic: str, offset: int) -> None:
    """One more record, which gets *offset*."""
    got: list[Message] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    producer.produce(topic, b"more", on_delivery=lambda _, message: got.append(message))
    assert producer.flush(30) == 0
    assert [message.offset() for message in got] == [offset]


def consumed(address: str, topic: str, stop: int) -> list[tuple[int, bytes | None]]:
    """Offsets and values below *stop* as a consumer of committed records gets them."""
    config = {"bootstrap.servers": address, "group.id": "g", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(config | {"isolation.level": "read_committed", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes | None]] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return [one for one in found if one[0] < stop]
            found.append((message.offset(), message.value()))
    finally:
        consumer.close()


def committed(folder: Path, stop: int) -> list[tuple[int, bytes | None]]:
    """The same out of the files."""
    aborted = [one for path in folder.glob("*.txnindex") for one in parse_txn_index(path.read_bytes())]
    found: list[tuple[int, bytes | None]] = []
    for raw in (path.read_bytes() for path in logs(folder)):
        for at, header in walk(raw):
            hidden = any(
                one.producer_id == header.producer_id and one.first_offset <= header.base_offset < one.marker_offset
                for one in aborted
            )
            if not header.control and not (hidden and header.transactional) and header.base_offset < stop:
                batch = raw[at : at + header.size_bytes]
                found += [(one.offset, one.value) for one in iter_records(batch, header)]
    return found


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
