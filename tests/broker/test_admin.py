"""DeleteRecords, CreatePartitions and topic settings at run time, on the wire."""

from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch, offsets_of
from broker.file_tier import FileTier
from broker.running import Running, running
from kit.tiers import until
from tierd.base.errors import DiskFull, RemoteUnavailable
from tierd.base.ids import TopicPartition
from tierd.broker import delete_records as delete_records_api
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def delete_records(client: Client, topic: str, offset: int, timeout_ms: int = 1000) -> tuple[int, int]:
    """(error, low watermark) of partition 0."""
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
    row = client.call(ApiKey.DELETE_RECORDS, 2, topics=asked, timeout=timeout_ms).topics[0].partitions[0]
    return row.error_code, row.low_watermark


def alter(
    client: Client, topic: str, *changes: tuple[str, int, str | None], check: bool = False
) -> tuple[int, str | None]:
    configs = [{"name": name, "config_operation": how, "value": value} for name, how, value in changes]
    asked = [{"resource_type": TOPIC, "resource_name": topic, "configs": configs}]
    row = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=asked, validate_only=check).responses[0]
    return row.error_code, row.error_message


def describe(client: Client, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
    answer = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=True, include_documentation=True)
    assert answer.results[0].error_code == ErrorCode.NONE, answer.results[0].error_message
    return {row.name: (row.value, row.config_source) for row in answer.results[0].configs}


def test_deleted_records_are_gone_for_readers_and_stay_gone(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t")
        for _ in range(4):
            client.produce("t", batch(10))
        assert delete_records(client, "t", 41) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert delete_records(client, "nobody", 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert delete_records(client, "t", 15) == (ErrorCode.NONE, 15)
        assert delete_records(client, "t", 3) == (ErrorCode.NONE, 15)  # never back
        assert client.fetch("t", 14).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert client.list_offsets("t", -2).offset == 15
    with running(tmp_path) as broker, Client(broker.address) as client:
        assert client.list_offsets("t", -2).offset == 15
        assert offsets_of(client.fetch("t", 15).records)[0] <= 15
        assert delete_records(client, "t", -1) == (ErrorCode.NONE, 40)


def test_a_compacted_topic_refuses_to_delete_records(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("c", **{"cleanup.policy": "compact"})
        assert delete_records(client, "c", 0) == (ErrorCode.POLICY_VIOLATION, -1)


def unpublished(broker: Running) -> int | None:
    document = broker.run(broker.broker.status())
    rows = document["partitions"]
    assert isinstance(rows, list)
    found: int | None = rows[0]["unpublished_log_start"]
    return found


def test_the_answer_waits_for_the_buckets_head_but_not_for_ever(tmp_path: Path) -> None:
    tier = FileTier(tmp_path / "bucket")
    with running(tmp_path, tier) as broker, Client(broker.address) as client:
        client.create("t")
        client.produce("t", batch(10))
        assert delete_records(client, "t", 5) == (ErrorCode.NONE, 5)
        assert len(tier.heads) == 1
        assert unpublished(broker) is None
        tier.fails = RemoteUnavailable
        assert delete_records(client, "t", 7, timeout_ms=50) == (ErrorCode.NONE, 7)
        assert unpublished(broker) == 7


def test_a_head_that_a_full_disk_held_up_is_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_records_api, "_AGAIN_S", 0.01)
    tier = FileTier(tmp_path / "bucket")
    with running(tmp_path, tier) as broker, Client(broker.address) as client:
        client.create("t")
        client.produce("t", batch(10))
        tier.fails = DiskFull
        assert delete_records(client, "t", 7, timeout_ms=50) == (ErrorCode.NONE, 7)
        tier.fails = None
        until("the head is written", lambda: unpublished(broker) is None)


def grow(client: Client, count: int, *, check: bool = False) -> int:
    asked = [{"name": "t", "count": count, "assignments": None}]
    answer = client.call(ApiKey.CREATE_PARTITIONS, 3, topics=asked, timeout=1000, validate_only=check)
    code: int = answer.results[0].error_code
    return code


def test_a_topic_grows_and_keeps_its_size_over_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 2)
        assert grow(client, 5, check=True) == ErrorCode.NONE
        assert grow(client, 2) == grow(client, 1) == ErrorCode.INVALID_PARTITIONS
        assert grow(client, 4) == ErrorCode.NONE
        assert client.produce("t", batch(), 3).error_code == ErrorCode.NONE
        assert client.produce("t", batch(), 4).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with running(tmp_path) as broker, Client(broker.address) as client:
        assert offsets_of(client.fetch("t", 0, 3).records) == [0, 1, 2]


@pytest.mark.parametrize("count", [3, 5])
def test_partitions_without_room_are_made_when_they_are_asked_for_again(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", 1)
        make = broker.directories[0].make

        def full_at_the_first(tp: TopicPartition, *rest: Any) -> Any:
            if tp.partition == 1:
                raise DiskFull("no room")
            return make(tp, *rest)

        monkeypatch.setattr(broker.directories[0], "make", full_at_the_first)
        assert grow(client, 3) == grow(client, 3) == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce("t", batch(), 2).error_code == ErrorCode.NONE
        monkeypatch.undo()
        assert grow(client, 2) == ErrorCode.INVALID_PARTITIONS
        assert grow(client, count) == ErrorCode.NONE
        codes = [client.produce("t", batch(), number).error_code for number in range(count)]
        assert codes == [ErrorCode.NONE] * count
        assert grow(client, count) == ErrorCode.INVALID_PARTITIONS


def test_settings_change_at_once_and_are_remembered(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t")
        assert describe(client, TOPIC, "t")["max.message.bytes"][1] == 5  # built in
        assert alter(client, "t", ("max.message.bytes", SET, "100")) == (ErrorCode.NONE, None)
        assert client.produce("t", batch(3)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert describe(client, TOPIC, "t")["max.message.bytes"] == ("100", 1)
        assert alter(client, "t", ("max.message.bytes", DELETE, None), check=True)[0] == ErrorCode.NONE
    with running(tmp_path) as broker, Client(broker.address) as client:
        assert client.produce("t", batch(3)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert alter(client, "t", ("max.message.bytes", DELETE, None))[0] == ErrorCode.NONE
        assert client.produce("t", batch(3)).error_code == ErrorCode.NONE


def test_lists_get_and_lose_words(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", **{"cleanup.policy": "delete"})
        assert alter(client, "t", ("cleanup.policy", APPEND, "compact"))[0] == ErrorCode.NONE
        assert describe(client, TOPIC, "t")["cleanup.policy"][0] == "delete,compact"
        assert alter(client, "t", ("cleanup.policy", SUBTRACT, "delete"))[0] == ErrorCode.NONE
        assert describe(client, TOPIC, "t")["cleanup.policy"][0] == "compact"
        assert alter(client, "t", ("cleanup.policy", SUBTRACT, "compact"))[0] == ErrorCode.NONE
        assert describe(client, TOPIC, "t")["cleanup.policy"][0] == "", "as in Kafka: nothing happens to old data"
        settings = broker.log("t").settings
        assert (settings.deletes, settings.compacted) == (False, False)


def test_a_word_is_added_to_a_list_that_the_topic_has_not_set(tmp_path: Path) -> None:
    """As in Kafka: with compact alone retention would have stopped."""
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t")
        assert alter(client, "t", ("cleanup.policy", APPEND, "compact"))[0] == ErrorCode.NONE
        assert describe(client, TOPIC, "t")["cleanup.policy"][0] == "delete,compact"
        assert alter(client, "t", ("cleanup.policy", SUBTRACT, "delete"))[0] == ErrorCode.NONE
        assert describe(client, TOPIC, "t")["cleanup.policy"][0] == "compact"


def test_what_cannot_be_is_refused_in_kafkas_words(tmp_path: Path) -> None:
    with running(tmp_path, FileTier(tmp_path / "bucket")) as broker, Client(broker.address) as client:
        client.create("t")
        unknown = alter(client, "t", ("bogus.key", SET, "1"))
        assert unknown == (ErrorCode.INVALID_CONFIG, "Unknown topic config name: bogus.key")
        low = alter(client, "t", ("retention.ms", SET, "-7"))
        assert low == (
            ErrorCode.INVALID_CONFIG,
            "Invalid value -7 for configuration retention.ms: Value must be at least -1",
        )
        code, text = alter(client, "t", ("remote.storage.enable", SET, "false"))
        assert code == ErrorCode.INVALID_CONFIG
        assert "remote.log.copy.disable" in (text or "")
        assert alter(client, "nobody", ("retention.ms", SET, "1"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        twice = alter(client, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        assert twice[0] == ErrorCode.INVALID_REQUEST


def test_the_older_alter_gives_all_settings_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", **{"retention.ms": "5000"})
        configs = [{"name": "segment.ms", "value": "60000"}]
        asked = [{"resource_type": TOPIC, "resource_name": "t", "configs": configs}]
        assert client.call(ApiKey.ALTER_CONFIGS, 2, resources=asked, validate_only=False).responses[0].error_code == 0
        shown = describe(client, TOPIC, "t")
        assert (shown["segment.ms"], shown["retention.ms"][1]) == (("60000", 1), 5)


def test_the_daemons_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        shown = describe(client, BROKER, "1")
        assert shown["advertised.listeners"][0] == "PLAINTEXT://{}:{}".format(*broker.address)
        assert shown["num.partitions"][0] == "1"
        assert shown["remote.s3.secret.access.key"][0] is None
