"""Topics in the file that a freshly formatted Kafka reads at its first start; whether it takes them tests/e2e shows."""

import pytest

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.storage.batch import walk
from tierd.storage.header import check_crc
from tierd.storage.records import iter_records
from tierd.tiering.restore.bootstrap import BootTopic, with_topics

FORMATTED = bytes.fromhex(
    "000000000000000000000047000000000208ff05c9002000000000000001a22f86327e000001a22f86327effffffffffffff"
    "ffffffffffffff000000012a0000000800000003160000000000000000000000000000000000000001000000f10000000002"
    "0f9c3d26000000000005000001a22f8632b3000001a22f8632b3ffffffffffffffffffffffffffff000000063a000000012e"
    "010c00116d657461646174612e76657273696f6e001e00005a000002014e010c0021656c696769626c652e6c65616465722e"
    "7265706c696361732e76657273696f6e00010000340000040128010c000e67726f75702e76657273696f6e00010000340000"
    "060128010c000e73686172652e76657273696f6e0001000038000008012c010c001073747265616d732e76657273696f6e00"
    "0100004000000a0134010c00147472616e73616374696f6e2e76657273696f6e0002000000000000000000070000003f0000"
    "0000026a7057f8002000000000000001a22f8632b7000001a22f8632b7ffffffffffffffffffffffffffff000000011a0000"
    "0008000000040600000000"
)
"""As `kafka-storage.sh format --standalone` of Kafka 4.3.1 has left it."""
DIRECTORY = Uuid.parse("pg2V57h6Q-ieqnbLpTHdaA")
ORDERS = BootTopic(name="orders", topic_id=Uuid(b"\x07" * 16), config={"retention.ms": "-1"}, leader_epochs=[3, 1])


def values(raw: bytes) -> list[bytes | None]:
    return [
        one.value
        for at, header in walk(raw)
        if not header.control
        for one in iter_records(raw[at : at + header.size_bytes], header)
    ]


def told(*topics: BootTopic, raw: bytes = FORMATTED) -> bytes:
    return with_topics(raw, "bootstrap.checkpoint", 1, DIRECTORY, topics)


def test_topics_come_behind_what_is_there() -> None:
    """The records are as Kafka's own tool wrote them for the same topic."""
    raw = told(ORDERS)
    before, after = values(FORMATTED), values(raw)
    assert after[: len(before)] == before
    topic, *partitions, config = after[len(before) :]
    assert topic == b"\1\2\0" + b"\7orders" + b"\7" * 16 + b"\0"
    first = b"\1\3\1" + bytes(4) + b"\7" * 16 + b"\2\0\0\0\1" * 2 + b"\1\1" + b"\0\0\0\1" + b"\0\0\0\3"
    assert partitions[0] == first + bytes(4) + b"\2" + DIRECTORY.raw + b"\0"
    assert [len(one or b"") for one in partitions] == [len(partitions[0])] * 2
    assert config == b"\1\4\0" + b"\2" + b"\7orders" + b"\rretention.ms" + b"\3-1" + b"\0"


def test_offsets_go_on_and_the_sums_are_right() -> None:
    many = [BootTopic(name=f"t{i}", topic_id=ORDERS.topic_id, config={}, leader_epochs=[0] * 600) for i in range(4)]
    raw = told(*many)
    expected = 0
    for at, header in walk(raw):
        assert header.base_offset == expected
        assert check_crc(raw, at, header.size_bytes)
        expected = header.next_offset
    assert expected == 8 + 4 * 601


def test_it_is_the_same_when_done_again() -> None:
    assert told(ORDERS, raw=told(ORDERS)) == told(ORDERS)
    assert told(raw=told(ORDERS)) == FORMATTED


def test_another_file_is_refused() -> None:
    for raw in (b"", FORMATTED[:83], FORMATTED[83:], FORMATTED[:-1]):
        with pytest.raises(CorruptFile):
            told(raw=raw)
