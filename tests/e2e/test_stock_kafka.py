"""What tierd wrote, stock Kafka reads: its dump tool finds every batch valid, its broker opens and serves the files."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from kit import kafka, traffic
from kit.daemon import running

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(240)]

RECORDS = 6_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def topic_of(codec: str) -> str:
    return f"written-{codec}"


def records_of(codec: str) -> list[traffic.Message]:
    return list(traffic.stream(codec, 0, RECORDS, 700))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after a clean stop, with a topic for each codec, several segments each."""
    data = tmp_path_factory.mktemp("stock") / "data"
    with running(data, None, "--set", "segment.bytes=1MiB") as tierd:
        for codec in CODECS:
            sent = records_of(codec)
            traffic.produce_confluent(tierd.address, topic_of(codec), sent, **{"compression.type": codec})
        traffic.group_confluent(tierd.address, topic_of("none"), "group", 100)
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
