"""The short way through Fetch answers as the usual way does, or leaves it to that."""

import asyncio
import random
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.client import Client, batch, request_frame
from broker.file_tier import FileTier
from broker.running import Running, running
from tierd.base.session import NOBODY
from tierd.storage.view import LogSlice
from tierd.wire.header import parse_request_header

SMALL = {"internal_segment_bytes": "6000", "index_interval_bytes": "300"}
MOST = (0, 1, 60, 300, 700, 2000, 5900, 1 << 20, 2**31 - 1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Topics `t`, of which the oldest segments are only in the bucket, and `u`, all local; batches of all sizes."""
    root: Path = tmp_path_factory.mktemp("again")
    dice = random.Random(1)
    with running(root, FileTier(root / "held")) as started:
        with Client(started.address) as client:
            for topic in ("t", "u"):
                client.create(topic, **SMALL)
                for _ in range(120):
                    assert client.produce(topic, batch(dice.randint(1, 40))).error_code == 0
        started.give_to_tier("t", started.log("t").closed()[3].base)
        yield started


def frame_of(offset: int, **fields: Any) -> memoryview:
    row = {
        "partition": fields.pop("partition", 0),
        "fetch_offset": offset,
        "partition_max_bytes": fields.pop("partition_max_bytes", 1 << 20),
        "current_leader_epoch": fields.pop("epoch", -1),
    }
    asked = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "rack_id": "", **fields}
    number, version = asked.pop("number", 7), asked.pop("version", 12)
    asked |= {"replica_id": -1} if version < 15 else {}
    topic = {"topic": asked.pop("topic", "t")} if version < 13 else {"topic_id": asked.pop("topic_id")}
    topics = [{**topic, "partitions": [row]}]
    return memoryview(
        bytearray(request_frame(1, version, number, topics=topics, forgotten_topics_data=(), **asked)[4:])
    )


def usual(broker: Running, frame: memoryview, connection: Any) -> Any:
    header, position = parse_request_header(frame)
    return broker.broker.parts.fetch(header, frame, position, connection)


def shown(reply: Any) -> Any:
    """Bytes and places of an answer, which is released; None when it is still to be waited for."""
    if asyncio.iscoroutine(reply):
        reply.close()
        return None
    if reply is None or isinstance(reply, bytes):
        return reply
    parts = [[*part.spans, part.aborted] if isinstance(part, LogSlice) else part for part in reply]
    for part in reply:
        if isinstance(part, LogSlice):
            part.release()
    return parts


def asked(dice: random.Random, broker: Running) -> dict[str, Any]:
    topic, version = dice.choice("tu"), dice.choice([12, 13, 14, 15, 17, 18])
    known = broker.partitions.topic(topic)
    assert known is not None
    return {
        "version": version,
        **({"topic": topic} if version < 13 else {"topic_id": uuid.UUID(bytes=known.id.raw)}),
        "partition": dice.choice([0, 0, 0, 0, 1]),
        "partition_max_bytes": dice.choice(MOST),
        "max_bytes": dice.choice(MOST),
        "min_bytes": dice.choice([0, 1, 1, 1, 500, 1 << 20]),
        "max_wait": dice.choice([0, 100]),
        "isolation_level": dice.choice([0, 1]),
        "epoch": dice.choice([-1, -1, 0, 1, 5]),
    }


@pytest.mark.parametrize("seed", range(4))
def test_both_ways_answer_alike(served: Running, seed: int) -> None:
    dice = random.Random(seed)

    def compare() -> int:
        short = 0
        for _ in range(15):
            end = served.log("t").log_end
            kind, connection = asked(dice, served), SimpleNamespace(fetched=None, session=NOBODY)
            shown(usual(served, frame_of(0, **kind), connection))
            for number in range(20):
                frame = frame_of(
                    dice.choice([-1, 0, end - 1, end, end + 1, dice.randrange(end)]), **kind, number=number
                )
                again = None if connection.fetched is None else shown(connection.fetched.answer(frame, NOBODY))
                if again is not None:
                    short += 1
                    assert again == shown(usual(served, frame, SimpleNamespace(fetched=None, session=NOBODY)))
        return short

    assert served.call(compare) > 0


def test_another_request_takes_the_usual_way(served: Running) -> None:
    def declined() -> list[bool]:
        connection = SimpleNamespace(fetched=None, session=NOBODY)
        first = frame_of(0, topic="u")
        shown(usual(served, first, connection))
        others = [
            frame_of(0),
            frame_of(0, topic="u", partition_max_bytes=5),
            frame_of(0, topic="u", min_bytes=3),
            frame_of(0, topic="u", isolation_level=1),
            frame_of(0, topic="u", rack_id="x"),
            frame_of(0, topic="u", session_id=9, session_epoch=1),
            frame_of(0, topic="longer"),
            first[:-1],
            first[:40],
        ]
        assert shown(connection.fetched.answer(first, NOBODY)) is not None
        return [connection.fetched.answer(other, NOBODY) is None for other in others]

    assert all(served.call(declined))


def test_2_000_mutations_agree_or_are_declined(served: Running) -> None:
    def compare() -> int:
        dice, short = random.Random(5), 0
        connection = SimpleNamespace(fetched=None, session=NOBODY)
        whole = frame_of(3, topic="u")
        shown(usual(served, whole, connection))
        for _ in range(2_000):
            mutated = memoryview(bytearray(whole))
            for _ in range(dice.randint(1, 2)):
                mutated[dice.randrange(len(mutated))] = dice.choice([0, 0x7F, 0x80, 0xFF, dice.randrange(256)])
            again = shown(connection.fetched.answer(mutated, NOBODY))
            if again is not None:
                short += 1
                assert again == shown(usual(served, mutated, SimpleNamespace(fetched=None, session=NOBODY)))
        return short

    assert served.call(compare) > 0


def test_a_topic_that_is_gone_is_not_served_from_memory(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        for records in (1, 5):
            client.create("v")
            client.produce("v", batch(records))
            for _ in range(3):
                assert client.fetch("v", 0).high_watermark == records
            client.call(20, 6, topics=[{"name": "v", "topic_id": None}], timeout=5000)
            assert client.fetch("v", 0).error_code == 3


def test_offset_and_correlation_are_of_each_request(served: Running) -> None:
    with Client(served.address) as client:
        for offset in (0, 5, 3, 70, 3):
            got = client.fetch("u", offset, partition_max_bytes=1)
            first, delta = struct.unpack_from(">q", got.records)[0], struct.unpack_from(">i", got.records, 23)[0]
            assert first <= offset <= first + delta
