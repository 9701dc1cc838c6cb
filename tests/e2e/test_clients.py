"""Real clients, unmodified: idempotent produce, a group, seeks and times, before and after the data left the disk."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit import kafka, traffic
from kit.daemon import Daemon, running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

RECORDS = 5_000


@pytest.fixture
def tierd(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", "--set", "segment.bytes=1MiB") as daemon:
        yield daemon
        assert daemon.stop() == 0


def to_the_bucket(tierd: Daemon, topic: str) -> None:
    """Everything but an empty active segment leaves the local disk."""
    tierd.verb("copy", "--wait", "--roll")
    tierd.verb("evict")
    row = tierd.partition(topic)
    assert row["local_start"] == row["log_end"] == row["copied_to"], row


@pytest.mark.parametrize(
    ("write", "read", "group", "time"),
    [
        pytest.param(
            traffic.produce_confluent,
            traffic.consume_confluent,
            traffic.group_confluent,
            traffic.offset_at_confluent,
            id="confluent-kafka",
        ),
        pytest.param(
            traffic.produce_kafka_python,
            traffic.consume_kafka_python,
            traffic.group_kafka_python,
            traffic.offset_at_kafka_python,
            id="kafka-python",
        ),
    ],
)
def test_a_python_client_sees_one_log(
    tierd: Daemon,
    write: Callable[..., None],
    read: Callable[..., list[traffic.Message]],
    group: Callable[..., list[traffic.Message]],
    time: Callable[[str, str, int], int],
) -> None:
    sent = list(traffic.stream("c", 0, RECORDS, 1000))
    write(tierd.address, "c", sent)
    for where in ("local", "remote"):
        assert traffic.digest(group(tierd.address, "c", f"g-{where}", RECORDS)) == traffic.digest(sent), where
        for start in (0, 1, RECORDS // 3, RECORDS - 1):
            assert traffic.digest(read(tierd.address, "c", start, RECORDS)) == traffic.digest(sent[start:]), where
            assert time(tierd.address, "c", traffic.T0_MS + start * traffic.STEP_MS) == start, where
        if where == "local":
            to_the_bucket(tierd, "c")


@pytest.mark.kafka
def test_kafkas_own_tools_see_one_log(tierd: Daemon) -> None:
    tool = "org.apache.kafka.tools."
    at = ("--bootstrap-server", tierd.address)
    said = kafka.java(tool + "VerifiableProducer", *at, "--topic", "j", "--max-messages", "3000", "--acks", "-1")
    assert '"acked":3000' in said.replace(" ", "")
    perf = ("--topic", "p", "--num-records", "20000", "--record-size", "500", "--throughput", "-1")
    props = (f"bootstrap.servers={tierd.address}", "acks=all", "enable.idempotence=true")
    assert "20000 records sent" in kafka.java(tool + "ProducerPerformance", *perf, "--producer-props", *props)
    for where in ("local", "remote"):
        console = ("consumer.ConsoleConsumer", *at, "--topic", "j", "--from-beginning", "--max-messages", "3000")
        lines = kafka.java(tool + console[0], *console[1:], "--group", f"console-{where}").splitlines()
        assert [n for n in lines if n.isdigit()] == [str(n) for n in range(3000)], where
        seek = ("--topic", "j", "--partition", "0", "--offset", "1500", "--max-messages", "1500")
        lines = kafka.java(tool + console[0], *at, *seek).splitlines()
        assert [n for n in lines if n.isdigit()] == [str(n) for n in range(1500, 3000)], where
        read = kafka.java(tool + "ConsumerPerformance", *at, "--topic", "p", "--num-records", "20000")
        assert "20000" in read.replace(",", " ").split(), read
        assert "j:0:3000" in kafka.java(tool + "GetOffsetShell", *at, "--topic", "j", "--time", "-1")
        assert "j:0:0" in kafka.java(tool + "GetOffsetShell", *at, "--topic", "j", "--time", "0")
        if where == "local":
            to_the_bucket(tierd, "j")
