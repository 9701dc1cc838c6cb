"""Real clients, unmodified: idempotent produce, a group, seeks and times, before and after the data left the disk."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit import aio, franz, kcat, tiers, tools, traffic
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
    tiers.copy(tierd, roll=True)
    tiers.evict(tierd)
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
        pytest.param(aio.produce, aio.consume, aio.group, aio.offset_at, id="aiokafka"),
        pytest.param(
            franz.produce, franz.consume, franz.group, franz.offset_at, id="franz-go", marks=pytest.mark.programs
        ),
    ],
)
def test_a_client_sees_one_log(
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


@pytest.mark.extra
def test_kcat_sees_one_log(tierd: Daemon) -> None:
    """It stamps records itself: what it reads at first is what must be there from then on."""
    given = list(traffic.stream("k", 0, RECORDS, 1000))
    kcat.produce(tierd.address, "k", given)
    sent = kcat.consume(tierd.address, "k", 0, RECORDS)
    assert [(m.offset, m.key, m.value) for m in sent] == [(m.offset, m.key, m.value) for m in given]
    for where in ("local", "remote"):
        assert traffic.digest(kcat.group(tierd.address, "k", f"g-{where}", RECORDS)) == traffic.digest(sent), where
        for start in (0, 1, RECORDS // 3, RECORDS - 1):
            assert kcat.consume(tierd.address, "k", start, RECORDS) == sent[start:], where
            first = next(m.offset for m in sent if m.timestamp_ms >= sent[start].timestamp_ms)
            assert kcat.offset_at(tierd.address, "k", sent[start].timestamp_ms) == first, where
        if where == "local":
            to_the_bucket(tierd, "k")


@pytest.mark.kafka
def test_kafkas_own_tools_see_one_log(tierd: Daemon, tmp_path: Path) -> None:
    with tools.running(tierd.address, tmp_path) as kafkas:

        def say(tool: str, *words: str) -> str:
            said = kafkas.run(tool, *words)
            assert said.status == 0, said
            return said.text

        said = say("VerifiableProducer", "--topic", "j", "--max-messages", "3000", "--acks", "-1")
        assert '"acked":3000' in said.replace(" ", "")
        perf = ("--topic", "p", "--num-records", "20000", "--record-size", "500", "--throughput", "-1")
        props = (f"bootstrap.servers={tierd.address}", "acks=all", "enable.idempotence=true")
        assert "20000 records sent" in say("ProducerPerformance", *perf, "--producer-props", *props)
        console = ("consumer.ConsoleConsumer", "--topic", "j")
        for where in ("local", "remote"):
            from_start = ("--from-beginning", "--max-messages", "3000", "--group", f"console-{where}")
            lines = say(*console, *from_start).splitlines()
            assert [n for n in lines if n.isdigit()] == [str(n) for n in range(3000)], where
            lines = say(*console, "--partition", "0", "--offset", "1500", "--max-messages", "1500").splitlines()
            assert [n for n in lines if n.isdigit()] == [str(n) for n in range(1500, 3000)], where
            read = say("ConsumerPerformance", "--topic", "p", "--num-records", "20000")
            assert "20000" in read.replace(",", " ").split(), read
            assert "j:0:3000" in say("GetOffsetShell", "--topic", "j", "--time", "-1")
            assert "j:0:0" in say("GetOffsetShell", "--topic", "j", "--time", "0")
            if where == "local":
                to_the_bucket(tierd, "j")
