"""What tierd wrote, stock Kafka reads: its dump tool finds every batch valid, its broker opens and serves the files."""

import re
from collections import defaultdict
from pathlib import Path

import confluent_kafka
import pytest

from kit import kafka, traffic
from kit.daemon import running
from kit.transactions import SMALL, WAIT_S, producer, write

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(240)]

RECORDS = 6_000
TRANSACTIONS = "in-transactions"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def topic_of(codec: str) -> str:
    return f"written-{codec}"


def records_of(codec: str) -> list[traffic.Message]:
    return list(traffic.stream(codec, 0, RECORDS, 700))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after a clean stop, with a topic for each codec, several segments each."""
    data = tmp_path_factory.mktemp("stock") / "data"
    with running(data, None, "--set", "segment.bytes=1MiB", *SMALL) as tierd:
        for codec in CODECS:
            sent = records_of(codec)
            traffic.produce_confluent(tierd.address, topic_of(codec), sent, **{"compression.type": codec})
        traffic.group_confluent(tierd.address, topic_of("none"), "group", 100)
        in_transactions(tierd.address)
        assert tierd.stop() == 0
    return data


@pytest.fixture(scope="module")
def dumped(written: Path) -> dict[str, str]:
    """What Kafka's dump tool says of each topic's files."""
    kinds = ("*.log", "*.*index", "*.snapshot")
    files = [file for codec in CODECS for kind in kinds for file in sorted(written.glob(f"{topic_of(codec)}-0/{kind}"))]
    _, *said = re.split("^Dumping (.*)$", kafka.dump_log_segments(*files), flags=re.MULTILINE)
    assert said[::2] == [str(file) for file in files]
    texts: dict[str, str] = defaultdict(str)
    for file, text in zip(files, said[1::2], strict=True):
        texts[file.parent.name] += text
    return texts


def in_transactions(address: str) -> None:
    """Every third one is aborted; the last is left open over several segments."""
    made = producer(address, "writer")
    for n in range(9):
        write(made, TRANSACTIONS, [b"x" * 50_000] * 5, commit=n % 3 != 1)
    made.begin_transaction()
    place = confluent_kafka.TopicPartition(TRANSACTIONS, 0, 7)
    members = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "group"})
    made.send_offsets_to_transaction([place], members.consumer_group_metadata(), WAIT_S)
    for _ in range(50):
        made.produce(TRANSACTIONS, b"y" * 50_000)
    made.flush(WAIT_S)


def test_kafkas_dump_tool_finds_open_committed_and_aborted_transactions(written: Path) -> None:
    directory = written / f"{TRANSACTIONS}-0"
    logs = sorted(directory.glob("*.log"))
    said = kafka.dump_log_segments(*logs, *sorted(directory.glob("*.txnindex")), *sorted(directory.glob("*.snapshot")))
    lines = said.splitlines()
    assert len(logs) >= 4
    assert all("isvalid: true" in line for line in lines if line.startswith("baseOffset:"))
    assert said.count("endTxnMarker: COMMIT") == 6
    assert said.count("endTxnMarker: ABORT") == 3
    aborted = [re.search(r"firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", line) for line in lines]
    assert [tuple(map(int, found.groups())) for found in aborted if found] == [
        (6, 11, 12),
        (24, 29, 30),
        (42, 47, 48),
    ]
    last = [line for line in lines if "currentTxnFirstOffset" in line][-1]
    assert "currentTxnFirstOffset: OptionalLong[54]" in last
    assert "mismatch" not in said.lower()
    offsets = [path for path in sorted(written.glob("__consumer_offsets-*/*.log")) if path.stat().st_size]
    said = kafka.java(DUMP, "--offsets-decoder", "--files", ",".join(map(str, offsets)))
    assert "isTransactional: true" in said
    assert '"offset":7' in said
    state = [path for path in sorted(written.glob("__transaction_state-*/*.log")) if path.stat().st_size]
    said = kafka.java(DUMP, "--transaction-log-decoder", "--files", ",".join(map(str, state)))
    assert '"transactionalId":"writer"' in said


@pytest.mark.parametrize("codec", CODECS)
def test_kafkas_dump_tool_finds_every_batch_valid(dumped: dict[str, str], codec: str) -> None:
    said = dumped[f"{topic_of(codec)}-0"]
    batches = [line for line in said.splitlines() if line.startswith("baseOffset:")]
    assert batches
    assert all("isvalid: true" in line for line in batches)
    assert f"compresscodec: {codec}" in batches[0].lower()
    assert "mismatch" not in said.lower()
    assert sum("| offset:" in line for line in said.splitlines()) == RECORDS


def test_a_real_kafka_opens_the_directories_and_serves_the_same_records(written: Path, tmp_path: Path) -> None:
    with kafka.opened(tmp_path / "kafka", written, [topic_of(c) for c in CODECS]) as broker:
        for codec in CODECS:
            got = traffic.consume_confluent(broker.address, topic_of(codec), 0, RECORDS)
            assert traffic.digest(got) == traffic.digest(records_of(codec))
        said = broker.log.read_text()
    for word in ("Recovering", "corrupt", "Found invalid", "Rebuilding", "stray"):
        assert word not in said, [line for line in said.splitlines() if word in line][:3]
