"""Topics of which nobody knows the id: they are read, and nothing of them changes."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client
from broker.running import Running, running
from kit.logs import batch
from tierd.broker.problems import Kind, problems
from tierd.config.coordination import Transactions
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

ONE: dict[str, Any] = {"offsets_topic_partitions": 1, "transactions": Transactions(topic_partitions=1)}
METADATA = "partition.metadata"


def commit(client: Client, offset: int, group: str = "g") -> int:
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    asked = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    told = client.call(ApiKey.OFFSET_COMMIT, 8, **asked, topics=[{"name": "t", "partitions": [part]}])
    return int(told.topics[0].partitions[0].error_code)


def committed(client: Client, group: str = "g") -> int:
    asked = [{"group_id": group, "topics": [{"name": "t", "partition_indexes": [0]}]}]
    told = client.call(ApiKey.OFFSET_FETCH, 8, groups=asked, require_stable=False).groups[0]
    return int(told.topics[0].partitions[0].committed_offset)


@pytest.fixture
def written(tmp_path: Path) -> bytes:
    """A topic of two partitions whose ids have been lost, and the registry with them; what was kept of one file."""
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        client.create("t", 2)
        for number in (0, 1, 0):
            assert client.produce("t", bytes(batch(3)), number).error_code == 0
        assert commit(client, 2) == 0
    kept = (tmp_path / "data" / "t-0" / METADATA).read_bytes()
    for number in (0, 1):
        (tmp_path / "data" / f"t-{number}" / METADATA).unlink()
    shutil.rmtree(tmp_path / "state")
    return kept


def test_all_of_it_is_read(tmp_path: Path, written: bytes) -> None:
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        asked = [{"topic_id": None, "name": "t"}]
        told = client.call(ApiKey.METADATA, 12, topics=asked, allow_auto_topic_creation=True).topics[0]
        assert (told.error_code, [part.leader_id for part in told.partitions]) == (0, [1, 1])
        by_id = [{"topic_id": told.topic_id, "name": None}]
        assert client.call(ApiKey.METADATA, 12, topics=by_id, allow_auto_topic_creation=False).topics[0].name == "t"
        found = client.fetch("t", 1)
        assert (found.error_code, found.high_watermark, found.log_start_offset) == (0, 6, 0)
        assert found.records
        assert client.list_offsets("t", -1).offset == 6
        assert committed(client) == 2
        assert commit(client, 5) == 0
        assert committed(client) == 5
        status = broker.run(broker.broker.status())
        rows = {row["partition"]: row for row in status["partitions"] if row["topic"] == "t"}  # type: ignore[attr-defined]
        assert [rows[number]["topic_id"] for number in (0, 1)] == [None, None]
        assert rows[0]["waiting"]["reason"] == "read-only"
        folders = [str(tmp_path / "data" / f"t-{number}") for number in (0, 1)]
        assert status["unidentified"] == folders
        found_wrong = broker.call(lambda: problems(broker.partitions))
        assert [(problem.kind, problem.where) for problem in found_wrong] == [
            (Kind.UNIDENTIFIED, one) for one in folders
        ]
        assert all(problem.detail.startswith("only read") for problem in found_wrong)


def test_nothing_of_it_changes(tmp_path: Path, written: bytes) -> None:
    refused = ErrorCode.POLICY_VIOLATION
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        before = files(tmp_path)
        answer = client.produce("t", bytes(batch(1)))
        assert answer.error_code == refused
        assert "t-0 is read-only" in answer.error_message
        assert client.create("t").error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        gone = client.call(ApiKey.DELETE_TOPICS, 5, topic_names=("t",), timeout=1000).responses[0]
        assert (gone.error_code, "read-only" in gone.error_message) == (refused, True)
        grown = [{"name": "t", "count": 5, "assignments": None}]
        answer = client.call(ApiKey.CREATE_PARTITIONS, 3, topics=grown, timeout=1000, validate_only=False)
        assert answer.results[0].error_code == refused
        change = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
        resource = [{"resource_type": 2, "resource_name": "t", "configs": change}]
        answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resource, validate_only=False)
        assert answer.responses[0].error_code == refused
        cut = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 3}]}]
        answer = client.call(ApiKey.DELETE_RECORDS, 2, topics=cut, timeout=1000)
        assert answer.topics[0].partitions[0].error_code == refused
        moved = [{"path": str(tmp_path / "data"), "topics": [{"name": "t", "partitions": (0,)}]}]
        answer = client.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=moved)
        assert answer.results[0].partitions[0].error_code == refused
        assert in_transaction(client) == refused
        broker.run(broker.broker.housekeeping.step())
        broker.run(broker.broker.housekeeping.roll({broker.partitions.read_only[0].id}))
        assert files(tmp_path) == before
        assert broker.registry.placements().keys() == {one.id for one in broker.partitions}
        assert "t" not in [row.name for row in broker.registry.topics()]


def in_transaction(client: Client) -> int:
    """What AddPartitionsToTxn says of it."""
    asked = {"transactional_id": "x", "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    producer = client.call(ApiKey.INIT_PRODUCER_ID, 4, **asked)
    answer = client.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": "t", "partitions": [0]}],
    )
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for number in (0, 1) for path in (root / "data" / f"t-{number}").iterdir()}


def test_it_goes_on_once_the_id_is_known(tmp_path: Path, written: bytes) -> None:
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        assert commit(client, 5) == 0
    (tmp_path / "data" / "t-0" / METADATA).write_bytes(written)
    with running(tmp_path, **ONE) as broker, Client(broker.address) as client:
        assert [str(one) for one in broker.partitions.read_only] == []
        assert committed(client) == 5
        assert client.produce("t", bytes(batch(1))).base_offset == 6
        assert broker.run(broker.broker.status())["unidentified"] == [str(tmp_path / "data" / "t-1")]


def test_two_directories_that_claim_one_partition_are_not_served(tmp_path: Path, written: bytes) -> None:
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "data" / "t-0", other / "t-0")
    with running(tmp_path, data_dirs=(tmp_path / "data", other), **ONE) as broker, Client(broker.address) as client:
        assert client.fetch("t", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.fetch("t", 0, 1).error_code == 0
        found = broker.call(lambda: problems(broker.partitions))
        assert [problem.detail.split(":")[0] for problem in found] == ["not opened", "only read", "not opened"]


def test_an_empty_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data" / "backup-2024").mkdir(parents=True)
    with running(tmp_path) as broker, Client(broker.address) as client:
        assert list((tmp_path / "data" / "backup-2024").iterdir()) == []
        assert unserved(broker) == ["not opened"]
        assert client.create("backup").error_code == 0


def unserved(broker: Running) -> list[str]:
    return [problem.detail.split(":")[0] for problem in broker.call(lambda: problems(broker.partitions))]
