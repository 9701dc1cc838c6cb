"""Bytes of the records: Kafka's own reader understands them, and ours neither fails nor guesses when they are cut."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kit import kafka
from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.broker.groups.consumer.model import ConsumerMember, ConsumerState, MemberState
from tierd.broker.groups.consumer.records import ConsumerReplay, difference
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record

T1, T2 = Uuid(b"1" * 16), Uuid(b"2" * 16)
STATE = ConsumerState(
    epoch=7,
    topics_hash=-5,
    assignment_epoch=6,
    members={
        "one": ConsumerMember(
            id="one",
            instance_id="i",
            rack_id="r",
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=300_000,
            topics=frozenset({"t1", "t2"}),
            assignor="range",
            epoch=6,
            previous_epoch=5,
            state=MemberState.UNREVOKED,
            assigned=frozenset({(T1, 0), (T1, 2), (T2, 300)}),
            revoking=frozenset({(T2, 1)}),
            since={(T1, 0): 2, (T1, 2): 6, (T2, 300): 5, (T2, 1): 1},
        ),
        "two": ConsumerMember(id="two"),
    },
    target={"one": frozenset({(T1, 0)}), "two": frozenset()},
)


def read(rows: Any) -> dict[str, ConsumerState]:
    replay = ConsumerReplay()
    for key, value in rows:
        replay.take(key, value, "log")
    return replay.groups


def test_what_is_written_is_read() -> None:
    rows = list(difference("g", None, STATE))
    assert read(rows) == {"g": STATE}
    assert list(difference("g", STATE, STATE)) == []
    rows += difference("g", STATE, None)
    assert read(rows) == {}
    left = {key: value for key, value in rows}  # as compaction leaves them
    assert set(left.values()) == {None}
    assert read(left.items()) == {}


def test_every_cut_is_refused() -> None:
    for key, value in difference("g", None, STATE):
        assert value is not None
        for stop in range(len(value)):
            with pytest.raises(CorruptFile):
                read([(key, value[:stop])])
        for stop in range(2, len(key)):
            with pytest.raises(CorruptFile):
                read([(key[:stop], value)])
        with pytest.raises(CorruptFile, match="version 1"):
            read([(key, b"\0\1" + value[2:])])


def test_other_kinds_are_read_past() -> None:
    assert read([(b"\0\4\0\1g", b"\0\0\1\0"), (b"\0\x10\0\1g\0\1r", b"?"), (b"\0\x0b", b"")]) == {}


@pytest.mark.kafka
def test_kafka_reads_the_same(tmp_path: Path) -> None:
    rows = list(difference("g", None, STATE))
    batch = encode_batch([Record(n, 1, key, value) for n, (key, value) in enumerate(rows)], base_sequence=0)
    log = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(bytes(batch))
    said = kafka.java("org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(log))
    found = [
        (json.loads(key), json.loads(value)["data"])
        for key, value in re.findall(r"key: (\{.*?\}) payload: (\{.*\})$", said, re.MULTILINE)
    ]
    assert len(found) == len(rows), said
    values = {(key["type"], key["data"].get("memberId", "")): value for key, value in found}
    places = [{"topicId": str(T1), "partitions": [0, 2]}, {"topicId": str(T2), "partitions": [300]}]
    member, held = values["5", "one"], values["8", "one"]
    assert values["3", ""]["epoch"] == 7
    assert values["3", ""]["metadataHash"] == -5
    assert values["6", ""]["assignmentEpoch"] == 6
    assert (member["instanceId"], member["rackId"], member["clientId"], member["clientHost"]) == (
        "i",
        "r",
        "c",
        "/127.0.0.1",
    )
    assert (member["subscribedTopicNames"], member["serverAssignor"]) == (["t1", "t2"], "range")
    assert (member["rebalanceTimeoutMs"], member["subscribedTopicRegex"]) == (300_000, None)
    assert (held["memberEpoch"], held["previousMemberEpoch"], held["state"]) == (6, 5, 1)
    assert [{k: row[k] for k in ("topicId", "partitions")} for row in held["assignedPartitions"]] == places
    assert [row["assignmentEpochs"] for row in held["assignedPartitions"]] == [[2, 6], [5]]
    assert [row["partitions"] for row in held["partitionsPendingRevocation"]] == [[1]]
    assert [row["partitions"] for row in values["7", "one"]["topicPartitions"]] == [[0]]
    assert values["7", "two"]["topicPartitions"] == []
