"""Transactions by unmodified clients and tools: exactly once, aborted ones unseen in both tiers, hanging ones ended."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.structs import OffsetAndMetadata

from kit import kafka, tiers, tools, traffic
from kit.daemon import Daemon, running
from kit.golden import golden
from kit.transactions import SMALL, Copier, committed_offset, producer, read, values, write

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TOOLS = "org.apache.kafka.tools."


@pytest.fixture(scope="module")
def tierd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """For all tests here: each has topics of its own."""
    place = tmp_path_factory.mktemp("tierd")
    with running(place / "data", f"file:{place / 'bucket'}", "--set", "segment.bytes=1MiB", *SMALL) as daemon:
        yield daemon
        assert daemon.stop() == 0


def test_what_is_copied_in_transactions_comes_out_exactly_once(tierd: Daemon) -> None:
    sent = list(traffic.stream("in", 0, 400, 100))
    traffic.produce_confluent(tierd.address, "in", sent)
    for number, share in enumerate((150, 250)):  # the second begins where the first was committed
        copier = Copier(
            address=tierd.address, source="in", target="out", group="copiers", transactional_id="copier",
            aborts=lambda n: n % 3 == 1,
        )  # fmt: skip
        copier.copy(share)
        assert committed_offset(tierd.address, "in", "copiers") == 150 + 250 * number
    assert values(tierd.address, "out") == [b"copied " + m.value for m in sent]
    assert len(values(tierd.address, "out", committed=False)) > 450
    # A restart changes nothing of it.
    assert tierd.stop() == 0
    tierd.start()
    assert values(tierd.address, "out") == [b"copied " + m.value for m in sent]
    assert committed_offset(tierd.address, "in", "copiers") == 400


def test_a_newer_producer_fences_the_older_one(tierd: Daemon) -> None:
    old = producer(tierd.address, "x")
    old.begin_transaction()
    old.produce("fenced", b"of a zombie")
    old.flush(30)
    new = producer(tierd.address, "x")
    write(new, "fenced", [b"of the new one"], commit=True)
    with pytest.raises(confluent_kafka.KafkaException):
        old.commit_transaction(30)
    assert values(tierd.address, "fenced") == [b"of the new one"]
    assert values(tierd.address, "fenced", committed=False) == [b"of a zombie", b"of the new one"]


def test_a_transaction_that_takes_too_long_is_aborted(tierd: Daemon) -> None:
    slow = producer(tierd.address, "slow", **{"transaction.timeout.ms": 1500})
    slow.begin_transaction()
    slow.produce("late", b"too late")
    slow.flush(30)
    write(producer(tierd.address, "quick"), "late", [b"in time"], commit=True)
    consumer = KafkaConsumer(
        "late", bootstrap_servers=tierd.address, auto_offset_reset="earliest", isolation_level="read_committed",
        consumer_timeout_ms=30_000, group_id=None,
    )  # fmt: skip
    try:
        assert next(consumer).value == b"in time"  # waits until the slow one no longer holds it back
    finally:
        consumer.close()
    with pytest.raises(confluent_kafka.KafkaException):
        slow.commit_transaction(30)


def test_kafka_python_writes_transactions_with_offsets(tierd: Daemon) -> None:
    traffic.produce_confluent(tierd.address, "py-in", traffic.stream("py-in", 0, 10, 50))
    made = KafkaProducer(bootstrap_servers=tierd.address, transactional_id="p", acks="all")
    try:
        made.init_transactions()
        for offset, end in ((3, made.abort_transaction), (7, made.commit_transaction)):
            made.begin_transaction()
            made.send("py-out", b"up to %d" % offset, partition=0)
            place = {KafkaPythonPartition("py-in", 0): OffsetAndMetadata(offset, "", -1)}
            made.send_offsets_to_transaction(place, "py")
            end()
    finally:
        made.close()
    assert values(tierd.address, "py-out") == [b"up to 7"]
    assert committed_offset(tierd.address, "py-in", "py") == 7


def to_the_bucket(tierd: Daemon, topic: str, *, pinned: str = "") -> dict[str, Any]:
    """As much as may leave the disk; *pinned*: why not all of it."""
    done = tierd.verb("copy", "--wait", "--roll", expect=3 if pinned else 0)
    assert pinned in done.stderr
    tiers.evict(tierd)
    return tierd.partition(topic)


def test_both_tiers_show_the_same_to_whoever_reads_committed(tierd: Daemon) -> None:
    made = producer(tierd.address, "writer")
    seen = []
    for n in range(12):
        records = [b"%d " % n + b"x" * 60_000 for _ in range(6)]
        write(made, "tiers", records, commit=n % 3 != 1)
        seen += records if n % 3 != 1 else []
    write(made, "tiers", [b"z" * 60_000] * 25, commit=False)  # its marker comes a segment later than it begins
    before = read(tierd.address, "tiers")
    assert [value for _, _, value in before] == seen
    everything = read(tierd.address, "tiers", committed=False)
    tiers.copy(tierd)
    tiers.evict(tierd)
    row = tierd.partition("tiers")
    assert 97 < row["local_start"] < row["log_end"], row
    assert read(tierd.address, "tiers") == before
    row = to_the_bucket(tierd, "tiers")
    assert row["local_start"] == row["log_end"] == row["copied_to"], row
    assert read(tierd.address, "tiers") == before
    assert read(tierd.address, "tiers", committed=False) == everything


def test_an_open_transaction_holds_its_segments_on_the_disk_until_it_ends(tierd: Daemon) -> None:
    made = producer(tierd.address, "open")
    write(made, "held", [b"x" * 100_000] * 5, commit=True)
    made.begin_transaction()
    for n in range(30):
        made.produce("held", b"%d " % n + b"y" * 100_000)
    made.flush(30)
    row = to_the_bucket(tierd, "held", pinned="has had a transaction open since offset 6")
    assert row["copied_to"] <= 6 < row["log_end"], row
    made.abort_transaction(30)
    row = to_the_bucket(tierd, "held")
    assert row["local_start"] == row["log_end"] == row["copied_to"] == 37, row
    assert values(tierd.address, "held") == [b"x" * 100_000] * 5


@pytest.mark.kafka
def test_kafkas_copier_and_its_list_of_transactions(tierd: Daemon, tmp_path: Path) -> None:
    sent = [b"%d" % n for n in range(300)]
    plain = confluent_kafka.Producer({"bootstrap.servers": tierd.address})
    for value in sent:
        plain.produce("java-in", value)
    assert plain.flush(30) == 0
    copier = (
        "--broker-list", tierd.address, "--input-topic", "java-in", "--input-partition", "0",
        "--output-topic", "java-out", "--consumer-group", "java", "--transactional-id", "java-copier",
        "--transaction-size", "50", "--max-messages", "300", "--enable-random-aborts", "--use-group-metadata",
        "--group-mode",
    )  # fmt: skip
    kafka.java(TOOLS + "TransactionalMessageCopier", *copier)
    assert values(tierd.address, "java-out") == sent
    assert committed_offset(tierd.address, "java-in", "java") == 300
    with tools.running(tierd.address, tmp_path) as told:
        said = rows(told, "list")
        assert said[0][0] == "TransactionalId"
        assert "CompleteCommit" in next(row for row in said if row[0] == "java-copier")
        assert "CompleteCommit" in rows(told, "describe", "--transactional-id", "java-copier")[1]
    perf = ("--topic", "perf", "--num-records", "5000", "--record-size", "200", "--throughput", "-1")
    props = ("--producer-props", f"bootstrap.servers={tierd.address}", "acks=all")
    transactional = ("--transactional-id", "perf", "--transaction-duration-ms", "100")
    assert "5000 records sent" in kafka.java(TOOLS + "ProducerPerformance", *perf, *transactional, *props)
    assert len(values(tierd.address, "perf")) == 5000


def rows(told: tools.Tools, *words: str) -> list[list[str]]:
    """What kafka-transactions.sh prints, in words."""
    said = told.run("TransactionsCommand", *words)
    assert said.status == 0, said
    return [line.split() for line in said.text.splitlines() if line.strip()]


@pytest.mark.kafka
def test_a_hanging_transaction_is_found_and_ended_by_the_tool(tmp_path: Path) -> None:
    """It comes from a Kafka whose coordinator knows nothing of it any more."""
    data = tmp_path / "data"
    data.mkdir()
    shutil.copytree(golden("kafka") / "final" / "hanging-0", data / "hanging-0")
    with running(data, f"file:{tmp_path / 'bucket'}", *SMALL) as tierd, tools.running(tierd.address, tmp_path) as told:
        to_the_bucket(tierd, "hanging", pinned="producer 3000 has had a transaction open since offset 0")
        found = rows(told, "find-hanging", "--broker-id", "1")
        assert [row[:4] for row in found[1:]] == [["hanging", "0", "3000", "0"]]
        described = rows(told, "describe-producers", "--topic", "hanging", "--partition", "0")
        assert described[1][:2] == ["3000", "0"]
        rows(told, "abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0")
        assert rows(told, "find-hanging", "--broker-id", "1")[1:] == []
        aborted = {offset for _, offset, _ in read(tierd.address, "hanging", committed=False)}
        aborted -= {offset for _, offset, _ in read(tierd.address, "hanging")}
        assert 0 in aborted
        row = to_the_bucket(tierd, "hanging")
        assert row["copied_to"] == row["log_end"] == 311
        assert tierd.stop() == 0
