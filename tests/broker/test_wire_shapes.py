"""Requests that eight clients and tools sent to a real Kafka, one by one to tierd: the answers have the same shape.

Each comes alone, on its own connection: groups, transactions and fetch sessions that it speaks of are not there, and an
answer may say so (`NOT_HERE`); below such an error nothing is compared. What is: that the answer decodes, every error
code, what is null, what is empty.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_response_schema

from broker.client import Client, batch
from broker.running import Running, running
from tierd.wire.api import ApiKey, has_flexible_header
from tierd.wire.errors import ErrorCode as E
from tierd.wire.schema import Input, reader, shapes
from wire.frames import Recorded, recorded

ANSWERS = {frame.name.removesuffix(".response"): frame for frame in recorded("response", served=False)}
FIRST, LAST = (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS), (ApiKey.DELETE_RECORDS, ApiKey.DELETE_TOPICS)

NOT_HERE = {
    ApiKey.FETCH: {E.FETCH_SESSION_ID_NOT_FOUND, E.OFFSET_OUT_OF_RANGE},
    ApiKey.OFFSET_COMMIT: {E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.GROUP_ID_NOT_FOUND},
    ApiKey.JOIN_GROUP: {E.UNKNOWN_MEMBER_ID},
    ApiKey.HEARTBEAT: {E.UNKNOWN_MEMBER_ID},
    ApiKey.LEAVE_GROUP: {E.UNKNOWN_MEMBER_ID},
    ApiKey.SYNC_GROUP: {E.UNKNOWN_MEMBER_ID},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH},
    ApiKey.ADD_PARTITIONS_TO_TXN: {E.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.ADD_OFFSETS_TO_TXN: {E.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.END_TXN: {E.INVALID_PRODUCER_ID_MAPPING},
    ApiKey.TXN_OFFSET_COMMIT: {E.INVALID_PRODUCER_ID_MAPPING, E.UNKNOWN_MEMBER_ID},
    ApiKey.DESCRIBE_TRANSACTIONS: {E.TRANSACTIONAL_ID_NOT_FOUND},
    ApiKey.DELETE_RECORDS: {E.OFFSET_OUT_OF_RANGE},
    ApiKey.PRODUCE: {E.UNKNOWN_PRODUCER_ID, E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.INVALID_PRODUCER_ID_MAPPING},
}
STATE = {
    ("FETCH", ".responses[].partitions[].aborted_transactions"): "nothing was aborted here",
    ("LIST_TRANSACTIONS", ".transaction_states"): "there are none here",
    ("DESCRIBE_PRODUCERS", ".topics[].partitions[].active_producers"): "there are none here",
    ("CONSUMER_GROUP_HEARTBEAT", ".assignment.topic_partitions"): "the member had topics of its own",
    (
        "API_VERSIONS",
        ".supported_features",
    ): "version 3 tells only of features that nobody can turn off; there are none",
}
"""What differs because the state or the node does."""
NOT_YET = {E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS}
"""What the recorded Kafka said because it had just begun."""
NOT_MADE = {E.UNKNOWN_TOPIC_OR_PARTITION}
"""What it said of a topic that it had not made yet."""


def answer(api_key: int, version: int, raw: bytes) -> Any:
    schema = load_response_schema(api_key, version)
    head = 5 if has_flexible_header(api_key, version) else 4
    return reader(schema)(Input(memoryview(raw), head))


def recorded_topics() -> dict[str, tuple[bytes | None, int]]:
    """Ids and numbers of partitions that recorded answers tell."""
    found: dict[str, tuple[bytes | None, int]] = {}
    for frame in ANSWERS.values():
        if frame.api_key in (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS):
            for topic in answer(frame.api_key, frame.version, frame.raw).topics:
                if topic.name and topic.partitions:
                    topic_id = getattr(topic, "topic_id", None)
                    before = found.get(topic.name, (None, 0))
                    found[topic.name] = topic_id.bytes if topic_id else before[0], max(before[1], len(topic.partitions))
    return found


TOPICS = recorded_topics()


def created() -> set[str]:
    """Topics that recorded requests make."""
    frames = [frame for frame in ANSWERS.values() if frame.api_key == ApiKey.CREATE_TOPICS]
    return {topic.name for frame in frames for topic in answer(frame.api_key, frame.version, frame.raw).topics}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("shapes"), node_id=1) as started, Client(started.address) as client:
        for name, (_, partitions) in TOPICS.items():
            if not name.startswith("__") and name not in created():
                assert client.create(name, partitions).error_code == E.NONE
                client.produce(name, batch())
        yield started


def in_order() -> list[Recorded]:
    rank = {key: at for at, key in enumerate(FIRST, -len(FIRST))} | {key: at for at, key in enumerate(LAST, 1)}
    return sorted(recorded("request"), key=lambda frame: (rank.get(ApiKey(frame.api_key), 0), frame.name))


def with_our_ids(broker: Running, raw: bytes) -> bytes:
    for name, (theirs, _) in TOPICS.items():
        topic = broker.partitions.topic(name)
        if theirs is not None and topic is not None:
            raw = raw.replace(theirs, topic.id.raw)
    return raw


@pytest.mark.parametrize("frame", in_order(), ids=lambda frame: frame.name.removesuffix(".request"))
def test_the_answer_has_the_shape_of_kafkas(broker: Running, frame: Recorded) -> None:
    raw = with_our_ids(broker, frame.raw)
    with Client(broker.address) as client:
        client.send_raw(len(raw).to_bytes(4, "big") + raw)
        said = client.frame()
    theirs = ANSWERS[frame.name.removesuffix(".request")]
    assert said[:4] == theirs.raw[:4], "the correlation id"
    ours = answer(frame.api_key, frame.version, said)
    assert list(differences(ApiKey(frame.api_key), ours, answer(frame.api_key, frame.version, theirs.raw), "")) == []


def differences(key: ApiKey, ours: Any, theirs: Any, path: str) -> Iterator[str]:
    if (key.name, path) in STATE or (ours is None and theirs is None):
        return
    if ours is None or theirs is None:
        yield f"{path}: {ours} instead of {theirs}"
    elif isinstance(theirs, tuple):
        if bool(ours) is not bool(theirs):
            yield f"{path}: {len(ours)} rows instead of {len(theirs)}"
        for mine, other in zip(ours[:1], theirs[:1], strict=False):
            yield from differences(key, mine, other, f"{path}[]")
    elif dataclasses.is_dataclass(theirs):
        yield from _of_entities(key, ours, theirs, path)


def _of_entities(key: ApiKey, ours: Any, theirs: Any, path: str) -> Iterator[str]:
    assert type(ours) is type(theirs)
    names = [shape.name for shape in shapes(type(theirs))]
    for name in names:
        if re.search("error_code$", name):
            code, other = E(int(getattr(ours, name))), E(int(getattr(theirs, name)))
            if code in NOT_HERE.get(key, ()) or other in NOT_YET or (key is ApiKey.METADATA and other in NOT_MADE):
                return
            if code is not other:
                yield f"{path}.{name}: {code.name} instead of {other.name}"
    for name in names:
        yield from differences(key, getattr(ours, name), getattr(theirs, name), f"{path}.{name}")


def test_a_topic_has_the_settings_of_kafkas(broker: Running) -> None:
    described = next(
        frame for name, frame in ANSWERS.items() if name.endswith(".topics-describe.0") and name[:2] == "32"
    )
    (theirs,) = answer(described.api_key, described.version, described.raw).results
    with Client(broker.address) as client:
        asked = [{"resource_type": 2, "resource_name": "multi", "configuration_keys": None}]
        (ours,) = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked).results
    kinds = {row.name: row.config_type for row in ours.configs}
    other = {row.name for row in theirs.configs if kinds.get(row.name) != row.config_type}
    assert other == {f"{side}.replication.throttled.replicas" for side in ("leader", "follower")}
