"""Recorded buckets of Kafka and Aiven's plugin, served read-only over a socket."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from broker.client import Client, batch
from kit.archived import Serving, aiven_bucket, fetched, local, read_on, serving, tree
from kit.golden import golden
from kit.tiers import until
from tierd.broker.operations import Operation, bits
from tierd.cli.offline import offline_status
from tierd.config.load import Options, load
from tierd.storage.batch import walk
from tierd.storage.txnindex import parse_txn_index
from tierd.wire.errors import ErrorCode

PLAIN_END, TXN_END = 240, 216
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@dataclass
class Case:
    """An archive of two recorded buckets, and how the directory was before."""

    archive: Serving
    bucket: Path
    before: dict[str, tuple[int, bytes]]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    root = tmp_path_factory.mktemp("archive")
    bucket = aiven_bucket(root / "bucket", "plain", "txn")
    before = tree(bucket)
    with serving(bucket, root / "state") as archive:
        yield Case(archive, bucket, before)


@pytest.fixture
def client(case: Case) -> Iterator[Client]:
    with Client(case.archive.address) as client:
        yield client


@pytest.mark.parametrize(("topic", "end"), [("plain", PLAIN_END), ("txn", TXN_END)])
@pytest.mark.parametrize("isolation", [0, 1])
def test_every_byte_of_the_sources_is_served(client: Client, topic: str, end: int, isolation: int) -> None:
    whole = local(topic, topic, end)
    assert read_on(client, topic, end, isolation_level=isolation, partition_max_bytes=3000) == whole
    at_the_end = client.fetch(topic, end)
    assert (at_the_end.error_code, at_the_end.records or b"") == (0, b"")
    assert (at_the_end.high_watermark, at_the_end.last_stable_offset, at_the_end.log_start_offset) == (end, end, 0)
    assert client.fetch(topic, end + 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_aborted_transactions_are_named(client: Client) -> None:
    folder = golden("aiven") / "local-txn" / "txn-0"
    entries = [entry for path in sorted(folder.glob("*.txnindex")) for entry in parse_txn_index(path.read_bytes())]
    for offset in range(0, TXN_END, 7):
        got = fetched(client, "txn", offset, isolation_level=1, partition_max_bytes=1)
        *_, (_, last) = walk(bytes(got.records))
        assert {(txn.producer_id, txn.first_offset) for txn in got.aborted_transactions} == {
            (entry.producer_id, entry.first_offset)
            for entry in entries
            if entry.marker_offset >= offset and entry.first_offset < last.next_offset
        }


def test_ends_and_times(client: Client) -> None:
    wanted = {-1: PLAIN_END, -2: 0, -4: PLAIN_END}
    assert {at: client.list_offsets("plain", at).offset for at in wanted} == wanted
    assert client.list_offsets("plain", -5, version=9).offset == PLAIN_END - 1
    headers = [header for _, header in walk(local("plain", "plain", PLAIN_END))]
    latest = max(header.max_timestamp_ms for header in headers)
    assert client.list_offsets("plain", -3).timestamp == latest
    assert client.list_offsets("plain", latest + 1).offset == -1
    for header in headers[::9]:
        found = client.list_offsets("plain", header.max_timestamp_ms)
        assert (found.error_code, found.timestamp >= header.max_timestamp_ms) == (0, True)
        assert found.offset <= header.last_offset


def test_epochs_come_from_the_newest_segment(client: Client) -> None:
    assert client.list_offsets("plain", -1).leader_epoch == 2
    assert client.list_offsets("plain", -2).leader_epoch == 0
    asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 1}]
    answer = client.call(23, 4, replica_id=-2, topics=[{"topic": "plain", "partitions": asked}])
    (found,) = answer.topics[0].partitions
    assert (found.leader_epoch, found.end_offset) == (0, 120)


def test_what_it_is_and_what_may_be_done_with_it(client: Client) -> None:
    answer = client.call(3, 10, topics=None, include_topic_authorized_operations=True)
    shown = {topic.name: topic for topic in answer.topics if not topic.is_internal}
    assert sorted(shown) == ["plain", "txn"]
    assert shown["plain"].partitions[0].leader_epoch == 2
    may = bits(Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
    assert shown["plain"].topic_authorized_operations == may
    missing = client.call(3, 9, topics=[{"name": "nobody"}], allow_auto_topic_creation=True)
    assert missing.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_may_say_the_topics_id(client: Client) -> None:
    (topic,) = (one for one in client.call(3, 12, topics=None).topics if one.name == "txn")
    asked = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}]

    def look() -> Any:
        topics = [{"topic_id": topic.topic_id, "partitions": asked}]
        fields = {"max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, "session_epoch": -1}
        got = client.call(1, 13, topics=topics, **fields).responses[0].partitions[0]
        assert got.error_code == 0
        return got.records or None

    assert isinstance(topic.topic_id, UUID)
    assert until("records", look)


def test_nothing_can_be_written(client: Client) -> None:
    refused = client.produce("plain", batch())
    assert (refused.error_code, "only read" in refused.error_message) == (REFUSED, True)
    assert client.produce("plain", None).error_code == REFUSED
    assert client.create("new").error_code == REFUSED
    delete = client.call(20, 4, topic_names=["plain"], timeout=1000)
    assert delete.responses[0].error_code == REFUSED
    more = [{"name": "plain", "count": 3, "assignments": None}]
    grow = client.call(37, 2, topics=more, timeout=1000, validate_only=False)
    assert grow.results[0].error_code == REFUSED
    cut = [{"name": "plain", "partitions": [{"partition_index": 0, "offset": 10}]}]
    assert client.call(21, 2, topics=cut, timeout=1000).topics[0].partitions[0].error_code == REFUSED
    config = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
    resources = [{"resource_type": 2, "resource_name": "plain", "configs": config}]
    altered = client.call(44, 1, resources=resources, validate_only=False)
    assert altered.responses[0].error_code == REFUSED


def test_producers_are_told_at_the_topic_and_transactions_at_once(client: Client) -> None:
    """An idempotent producer begins with an id: what it may not do it hears for the topic that it writes to."""
    asked = {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
    assert client.call(22, 4, transactional_id=None, **asked).error_code == 0
    denied = client.call(22, 4, transactional_id="t", **asked)
    assert denied.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    ended = client.call(26, 3, transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
    assert ended.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def committed(client: Client, group: str, topic: str) -> int:
    topics = [{"name": topic, "partition_indexes": [0]}]

    def look() -> Any:
        answer = client.call(9, 7, group_id=group, topics=topics, require_stable=False)
        return None if answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else answer

    return int(until("the group", look).topics[0].partitions[0].committed_offset)


def commit(client: Client, group: str, topic: str, offset: int) -> None:
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}

    def look() -> bool:
        client.call(10, 4, coordinator_keys=[group], key_type=0)
        answer = client.call(8, 8, topics=[{"name": topic, "partitions": [part]}], **fields)
        return bool(answer.topics[0].partitions[0].error_code == 0)

    assert until("the commit", look)


def test_status_shows_the_bucket(case: Case) -> None:
    document = case.archive.status()
    assert (document["claim"], document["problems"]) == ("none", [])
    row = case.archive.row("plain")
    assert (row["log_start"], row["local_start"], row["copied_to"], row["log_end"]) == (0, 240, 240, 240)
    assert (row["local_bytes"], row["remote_bytes"]) == (0, len(local("plain", "plain", PLAIN_END)))
    assert (row["waiting"], row["gaps"], row["directory"]) == (None, [], None)


def test_the_status_of_one_that_does_not_run(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain", "txn")
    with serving(bucket, tmp_path / "state") as archive:
        shown = {row["topic"]: row for row in archive.status()["partitions"]}
    document = offline_status(load(Options(state=tmp_path / "state")))
    rows: list[dict[str, Any]] = document["partitions"]  # type: ignore[assignment]
    assert [row["topic"] for row in rows] == ["plain", "txn"]
    for row in rows:
        same = ("topic_id", "log_start", "copied_to", "log_end", "local_bytes", "remote_bytes", "waiting")
        assert [row[key] for key in same] == [shown[row["topic"]][key] for key in same]


def test_groups_are_kept_here_and_nothing_in_the_bucket(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    before = tree(bucket)
    sets = {"offsets__topic__num__partitions": 1}
    with serving(bucket, tmp_path / "state", **sets) as archive, Client(archive.address) as client:
        assert fetched(client, "plain", 0)
        commit(client, "g", "plain", 17)
    with serving(bucket, tmp_path / "state", **sets) as archive, Client(archive.address) as client:
        assert committed(client, "g", "plain") == 17
    assert tree(bucket) == before


def test_the_bucket_stays_as_it_is(case: Case, client: Client) -> None:
    assert fetched(client, "plain", 0)
    assert tree(case.bucket) == case.before
