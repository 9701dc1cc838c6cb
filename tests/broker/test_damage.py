"""Groups and transactions of which something cannot be read: what stops, what goes on, and who is told."""

from pathlib import Path
from typing import Any

import pytest

from broker.client import Client
from broker.running import Running, running
from tierd.broker.groups.codec import CommitKey, encode_commit_key
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.problems import Kind, problems
from tierd.broker.transactions.codec import encode_key
from tierd.broker.transactions.ports import STATE_TOPIC
from tierd.config.coordination import Transactions
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record
from tierd.wire.api import ApiKey

NOT_NOW = 15
ONE: dict[str, Any] = {"offsets_topic_partitions": 1, "transactions": Transactions(topic_partitions=1)}


def init(client: Client, name: str) -> int:
    asked = {"transactional_id": name, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    return int(client.call(ApiKey.INIT_PRODUCER_ID, 5, **asked).error_code)


def commit(client: Client, group: str) -> int:
    part = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    asked = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    told = client.call(ApiKey.OFFSET_COMMIT, 8, **asked, topics=[{"name": "t", "partitions": [part]}])
    return int(told.topics[0].partitions[0].error_code)


def offset(client: Client, group: str) -> tuple[int, int]:
    asked = [{"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]}]
    told = client.call(ApiKey.OFFSET_FETCH, 8, groups=asked, require_stable=False).groups[0]
    return int(told.error_code), told.topics[0].partitions[0].committed_offset if told.topics else -1


def begin(root: Path) -> None:
    """Two ids and two groups."""
    with running(root, **ONE) as broker, Client(broker.address) as client:
        client.create("t")
        for name in ("x", "y"):
            assert (init(client, name), commit(client, name)) == (0, 0)


def put(root: Path, topic: str, key: bytes, value: bytes) -> int:
    """Append a record as it is; its offset."""
    with running(root, **ONE) as broker:
        batch = memoryview(bytearray(encode_batch([Record(0, 1, key, value)])))
        return broker.call(lambda: broker.log(topic).append(batch, now_ms=1, internal=True)).first_offset


def wrong(broker: Running) -> list[str]:
    found = broker.call(lambda: problems(broker.partitions))
    assert {problem.kind for problem in found} <= {Kind.UNREADABLE}
    return [str(problem) for problem in found]


def flip(root: Path, topic: str) -> None:
    """One bit of the first batch's records."""
    [path] = (root / "data" / f"{topic}-0").glob("*.log")
    raw = bytearray(path.read_bytes())
    raw[70] ^= 0x40
    path.write_bytes(raw)


def test_a_transaction_that_cannot_be_decoded_stops_only_its_id(tmp_path: Path) -> None:
    begin(tmp_path)
    at = put(tmp_path, STATE_TOPIC, encode_key("x"), b"\0\x63later")
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        assert [init(client, name) for name in ("x", "y", "new")] == [NOT_NOW, 0, 0]
        listed = client.call(ApiKey.LIST_TRANSACTIONS, 1, state_filters=(), producer_id_filters=(), duration_filter=-1)
        assert listed.error_code == 0
        assert {row.transactional_id for row in listed.transaction_states} == {"y", "new"}
        [line] = wrong(broker)
        assert line.startswith(f"{STATE_TOPIC}-0: offset {at}: transaction: ")
        assert "'x'" in line


def test_an_offset_that_cannot_be_decoded_stops_only_its_group(tmp_path: Path) -> None:
    begin(tmp_path)
    key = encode_commit_key(CommitKey("x", "t", 0))
    at = put(tmp_path, OFFSETS_TOPIC, key, b"\0\x63later")
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        assert (offset(client, "x")[0], offset(client, "y"), commit(client, "x")) == (NOT_NOW, (0, 7), NOT_NOW)
        [line] = wrong(broker)
        assert line.startswith(f"{OFFSETS_TOPIC}-0: offset {at}: committed offset: ")
        assert "'x'" in line
    put(tmp_path, OFFSETS_TOPIC, key, b"")
    put(tmp_path, OFFSETS_TOPIC, key, bytes.fromhex("0003 0000000000000009 ffffffff 0000 0000000000000001"))
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        assert offset(client, "x") == (0, 9), "the last record of a key counts"
        assert wrong(broker) == []


@pytest.mark.parametrize("topic", [STATE_TOPIC, OFFSETS_TOPIC])
def test_a_wrong_crc_stops_the_partition_until_it_is_mended(tmp_path: Path, topic: str) -> None:
    begin(tmp_path)
    flip(tmp_path, topic)
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        ask = init if topic == STATE_TOPIC else commit
        assert [ask(client, name) for name in ("x", "y", "new")] == [NOT_NOW] * 3
        [line] = wrong(broker)
        assert line.startswith(f"{topic}-0: its ")
        assert line.endswith("offset 0: the CRC of the batch does not match")
        flip(tmp_path, topic)
        while ask(client, "x"):
            pass
        assert wrong(broker) == []


@pytest.mark.parametrize("topic", [STATE_TOPIC, OFFSETS_TOPIC])
def test_without_its_files_the_partition_begins_anew(tmp_path: Path, topic: str) -> None:
    begin(tmp_path)
    for path in (tmp_path / "data" / f"{topic}-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        assert (init(client, "x"), commit(client, "x"), wrong(broker)) == (0, 0, [])
