"""Topics: made, shown, deleted, adopted, and found again after a restart."""

from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch, offsets_of
from broker.file_tier import FileTier
from broker.running import Running, running, settings
from kit.clock import FakeClock
from tierd.base.clock import SystemClock
from tierd.base.errors import DiskFull, StartRefused
from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic_names import problem
from tierd.wire.errors import ErrorCode

CREATE, DELETE, METADATA = 19, 20, 3


def metadata(client: Client, *names: str, version: int = 12, create: bool = False) -> Any:
    topics = [{"name": name, "topic_id": None} for name in names] if names else None
    if version == 0:
        topics = topics or []
    return client.call(METADATA, version, topics=topics, allow_auto_topic_creation=create)


def bury(started: Running, topic_id: Uuid) -> None:
    started.call(lambda: started.local.tombstone_written(topic_id))
    started.run(started.partitions.changes.settle())


def asked(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
        **fields,
    }


def created(client: Client, *topics: dict[str, Any], version: int = 7, validate_only: bool = False) -> dict[str, int]:
    answer = client.call(CREATE, version, topics=topics, timeout=1000, validate_only=validate_only)
    return {topic.name: topic.error_code for topic in answer.topics}


@pytest.mark.parametrize("version", range(2, 8))
def test_create_in_every_version(broker: Running, client: Client, version: int) -> None:
    assert created(client, asked("a", num_partitions=3), version=version) == {"a": 0}
    (topic,) = metadata(client).topics
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    assert {p.leader_id for p in topic.partitions} == {1}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (asked("bad name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (asked(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (asked("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (asked("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (asked("dotted_name"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (asked("n", num_partitions=0), ErrorCode.INVALID_PARTITIONS),
        (asked("n", num_partitions=1_000_000), ErrorCode.INVALID_PARTITIONS),
        (asked("n", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (asked("n", configs=[{"name": "bogus.key", "value": "1"}]), ErrorCode.INVALID_CONFIG),
        (asked("n", configs=[{"name": "retention.ms", "value": "-7"}]), ErrorCode.INVALID_CONFIG),
        (asked("n", configs=[{"name": "retention.ms", "value": None}]), ErrorCode.INVALID_CONFIG),
        (
            asked(
                "n", num_partitions=-1, replication_factor=-1, assignments=[{"partition_index": 0, "broker_ids": [7]}]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            asked(
                "n", num_partitions=-1, replication_factor=-1, assignments=[{"partition_index": 1, "broker_ids": [1]}]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (asked("n", assignments=[{"partition_index": 0, "broker_ids": [1]}]), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_made_is_refused_and_leaves_nothing(
    broker: Running, client: Client, topic: dict[str, Any], code: ErrorCode
) -> None:
    assert created(client, asked("there"), asked("dotted.name")) == {"there": 0, "dotted.name": 0}
    for validate_only in (True, False):
        assert created(client, topic, validate_only=validate_only) == {topic["name"]: code}
    assert [row.name for row in broker.call(broker.registry.topics)] == ["dotted.name", "there"]


def test_defaults_duplicates_and_validation_only(broker: Running, client: Client) -> None:
    manual = [{"partition_index": n, "broker_ids": [1]} for n in range(2)]
    assert created(client, asked("manual", num_partitions=-1, replication_factor=-1, assignments=manual)) == {
        "manual": 0
    }
    assert created(client, asked("twice"), asked("twice")) == {"twice": ErrorCode.INVALID_REQUEST}
    assert created(client, asked("dry"), validate_only=True) == {"dry": 0}
    assert created(client, asked("plain", num_partitions=-1, replication_factor=-1)) == {"plain": 0}
    assert {t.name: len(t.partitions) for t in metadata(client).topics} == {"manual": 2, "plain": 1}


def test_the_answer_shows_the_settings_in_force(client: Client) -> None:
    topic = client.create("t", retention_ms="86400000")
    shown = {setting.name: (setting.value, setting.config_source) for setting in topic.configs}
    assert shown["retention.ms"] == ("86400000", 1)
    assert shown["cleanup.policy"] == ("delete", 5)
    assert topic.topic_id is not None


@pytest.mark.parametrize("version", range(14))
def test_metadata_in_every_version(broker: Running, client: Client, version: int) -> None:
    client.create("t", partitions=2)
    for answer in (metadata(client, version=version), metadata(client, "t", version=version)):
        (node,) = answer.brokers
        assert (node.node_id, node.port) == (1, broker.address[1])
        (topic,) = answer.topics
        assert (topic.name, topic.error_code, len(topic.partitions)) == ("t", 0, 2)
    if version >= 2:
        assert answer.cluster_id == broker.directories[0].cluster_id


def test_metadata_makes_topics_only_when_asked(broker: Running, client: Client) -> None:
    assert metadata(client, "new").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(client, "bad name", create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert metadata(client, "__consumer_offsets", create=True).topics[0].error_code == 3
    assert metadata(client, "new", create=True).topics[0].error_code == 0
    assert client.produce("new", batch()).base_offset == 0
    (topic,) = metadata(client, "new").topics
    by_id = client.call(METADATA, 12, topics=[{"name": None, "topic_id": topic.topic_id}]).topics[0]
    assert by_id.name == "new"
    unknown = client.call(METADATA, 12, topics=[{"name": None, "topic_id": type(topic.topic_id)(int=5)}]).topics[0]
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_auto_create_can_be_off(tmp_path: Path) -> None:
    with running(tmp_path, auto_create_topics=False) as started, Client(started.address) as client:
        assert metadata(client, "new", create=True).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_in_every_version(broker: Running, client: Client, version: int) -> None:
    client.create("t")
    client.produce("t", batch())
    names = {"topics": [{"name": "t"}, {"name": "nope"}]} if version == 6 else {"topic_names": ["t", "nope"]}
    answer = client.call(DELETE, version, timeout=1000, **names)
    assert {row.name: row.error_code for row in answer.responses} == {"t": 0, "nope": 3}
    assert client.produce("t", batch()).error_code == 3
    assert client.fetch("t", 0).error_code == 3
    assert broker.call(broker.registry.deleted) == [], "without a bucket nothing is left to do"
    client.create("t")
    assert client.produce("t", batch()).base_offset == 0


def test_delete_by_id_and_internal_topics(broker: Running, client: Client) -> None:
    topic_id = client.create("t").topic_id
    answer = client.call(DELETE, 6, topics=[{"name": None, "topic_id": topic_id}], timeout=1000)
    assert [(row.name, row.error_code) for row in answer.responses] == [("t", 0)]
    again = client.call(DELETE, 6, topics=[{"name": None, "topic_id": topic_id}], timeout=1000)
    assert again.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    broker.run(broker.broker.topics.ensure("__consumer_offsets", 2))
    assert client.produce("__consumer_offsets", batch()).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    answer = client.call(DELETE, 1, topic_names=["__consumer_offsets"], timeout=1000)
    assert answer.responses[0].error_code == ErrorCode.INVALID_REQUEST


def test_files_of_a_deleted_topic_go_after_their_delay(tmp_path: Path) -> None:
    clock = FakeClock()
    with running(tmp_path, clock=clock) as started, Client(started.address) as client:
        client.create("t", file_delete_delay_ms="60000")
        client.call(DELETE, 1, topic_names=["t"], timeout=1000)
        data = tmp_path / "data"
        assert [path.name for path in data.iterdir() if path.name.endswith("-delete")]
        started.run(started.broker.housekeeping.step())
        assert [path.name for path in data.iterdir() if path.name.endswith("-delete")]
        clock.advance(60_001)
        started.run(started.broker.housekeeping.step())
        assert not [path.name for path in data.iterdir() if path.name.startswith("t-")]


def test_the_bucket_hears_of_topics_and_confirms_deletions(tmp_path: Path) -> None:
    tier = FileTier(tmp_path / "held")
    with running(tmp_path, tier) as started, Client(started.address) as client:
        topic_id = Uuid(client.create("t").topic_id.bytes)
        assert ("t", topic_id) in tier.topics
        client.call(DELETE, 1, topic_names=["t"], timeout=1000)
        assert tier.deleted == [("t", topic_id)]
        assert [row.id for row in started.call(started.registry.deleted)] == [topic_id]
    with running(tmp_path, tier) as started:
        assert tier.deleted == [("t", topic_id)] * 2, "told again after a restart"
        bury(started, topic_id)
        assert started.call(started.registry.deleted) == []


def test_a_topic_that_the_bucket_knows_as_deleted_goes(tmp_path: Path) -> None:
    """The registry came back from a backup that is older than the deletion."""
    tier = FileTier(tmp_path / "held")
    with running(tmp_path, tier) as started, Client(started.address) as client:
        topic_id = Uuid(client.create("t").topic_id.bytes)
        client.produce("t", batch())
        bury(started, topic_id)
        assert metadata(client).topics == ()
        assert TopicPartition("t", 0) not in started.directories[0].logs
        assert tier.deleted == [("t", topic_id)]
        bury(started, topic_id)  # the tierer confirms it
        assert started.call(started.registry.deleted) == []
        assert Uuid(client.create("t").topic_id.bytes) != topic_id


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t", partitions=2, max_message_bytes="5000")
        for n in range(5):
            client.produce("t", batch(), n % 2)
        before = started.log("t").leader_epoch
    with running(tmp_path) as started, Client(started.address) as client:
        assert started.log("t").settings.max_message_bytes == 5000
        assert started.log("t").leader_epoch == before + 1
        assert offsets_of(client.fetch("t", 0).records) == list(range(9))
        assert client.produce("t", batch(), 1).base_offset == 6
        assert [row.adopted for row in started.call(started.registry.topics)] == [False]


def test_partitions_that_only_the_disk_knows_are_adopted(tmp_path: Path) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t", partitions=3, retention_ms="1")
        client.produce("t", batch(), 2)
        topic_id = started.log("t", 2).topic_id
    for path in (tmp_path / "state").iterdir():
        if path.is_file():
            path.unlink()
    missing = tmp_path / "data" / "t-1"
    for path in missing.iterdir():
        path.unlink()
    missing.rmdir()
    with running(tmp_path) as started, Client(started.address) as client:
        (row,) = started.call(started.registry.topics)
        assert (row.id, row.partitions, row.adopted) == (topic_id, 3, True)
        assert started.log("t", 2).settings.retention_ms is None
        assert offsets_of(client.fetch("t", 0, 2).records) == [0, 1, 2]
        errors = [p.error_code for p in metadata(client, "t").topics[0].partitions]
        assert errors == [0, ErrorCode.LEADER_NOT_AVAILABLE, 0]


def test_one_name_with_two_ids_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t")
    (tmp_path / "data" / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    started = Running(started.config, None, FakeClock())
    with pytest.raises(StartRefused, match="several ids"):
        started.start()
    started.call(lambda: started.directories[0].close(False))
    started.registry.close()
    started.end()


def test_a_deletion_interrupted_before_the_rename_is_finished(tmp_path: Path) -> None:
    tier = FileTier(tmp_path / "held")
    with running(tmp_path, tier) as started, Client(started.address) as client:
        topic_id = Uuid(client.create("t").topic_id.bytes)
        started.call(lambda: started.registry.mark_deleted(topic_id, 5))
    with running(tmp_path, tier) as started, Client(started.address) as client:
        assert metadata(client).topics == ()
        assert TopicPartition("t", 0) not in started.directories[0].logs
        assert tier.deleted == [("t", topic_id)]


@pytest.mark.parametrize("name", ["a", "a.b-c_9", "x" * 249, "__consumer_offsets"])
def test_good_names(name: str) -> None:
    assert problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n", "a:b"])
def test_bad_names(name: str) -> None:
    assert problem(name) is not None


# Producer ids.


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    def given(client: Client, version: int) -> int:
        answer = client.call(22, version, transactional_id=None, transaction_timeout=1000, producer_id=-1)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        return int(answer.producer_id)

    clock = FakeClock()
    with running(tmp_path, clock=clock) as started, Client(started.address) as client:
        first = [given(client, version) for version in range(6)]
        assert first == list(range(first[0], first[0] + 6))
        assert first[0] >= clock.now_ms() << 16
        client.create("t")
        high = first[0] + 10_000_000
        client.produce("t", batch(producer_id=high, producer_epoch=0, base_sequence=0))
    clock.step_wall(-3_600_000)
    with running(tmp_path, clock=clock) as started, Client(started.address) as client:
        assert given(client, 4) > high


# The rest of the dispatcher.


def test_api_versions_and_unknown_versions(client: Client) -> None:
    for version in range(5):
        answer = client.call(18, version, client_software_name="x", client_software_version="1")
        assert answer.error_code == 0
        assert {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}[0][0] == 0
        if version >= 3:
            levels = {row.name: (row.min_version_level, row.max_version_level) for row in answer.finalized_features}
            assert levels == {"group.version": (1, 1), "transaction.version": (2, 2)}
            assert answer.finalized_features_epoch > 0
            # A minimum of 0 would be an error to clients of version 3.
            assert [row.name for row in answer.supported_features] == list(levels) * (version - 3)
    client.send_raw(bytes.fromhex("00000010 0012 0063 00000007 0001 78 00 02 78 02 78".replace(" ", ""))[:20])
    answer = client.frame()
    assert int.from_bytes(answer[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION


def test_an_unserved_version_of_another_api_closes(broker: Running, client: Client) -> None:
    client.send_raw(bytes.fromhex("0000000a 0003 0063 00000007 ffff".replace(" ", "")))
    assert client.closed()
    with Client(broker.address) as other:
        other.send_raw(bytes.fromhex("0000000a 7777 0000 00000007 ffff".replace(" ", "")))
        assert other.closed()


def test_a_partition_beyond_the_registrys_count_is_taken_in(tmp_path: Path) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t", partitions=3)
    with running(tmp_path) as started:
        topic_id = started.log("t").topic_id
        started.call(lambda: started.registry.set_partitions(topic_id, 2))
    with running(tmp_path) as started, Client(started.address) as client:
        assert len(metadata(client, "t").topics[0].partitions) == 3
        assert started.call(started.registry.topics)[0].partitions == 3


def test_a_topic_that_finds_no_room_leaves_nothing(
    broker: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = broker.directories[0]
    make = directory.make

    def full_at_the_third(tp: TopicPartition, *rest: Any) -> Any:
        if tp.partition == 2:
            raise DiskFull("no room")
        return make(tp, *rest)

    monkeypatch.setattr(directory, "make", full_at_the_third)
    assert client.create("t", partitions=5).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.call(broker.registry.topics) == broker.call(broker.registry.deleted) == []
    assert not directory.logs
    monkeypatch.undo()
    assert client.create("t", partitions=5).error_code == 0


def test_a_topic_whose_places_the_registry_cannot_note_leaves_nothing(
    broker: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(rows: object) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(broker.registry, "place", full)
    assert client.create("t", partitions=5).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.call(broker.registry.topics) == broker.call(broker.registry.deleted) == []
    assert not broker.directories[0].logs
    assert not list(broker.directories[0].path.glob("t-?"))
    monkeypatch.undo()
    assert client.create("t", partitions=5).error_code == 0


def test_what_was_deleted_of_a_topic_is_not_deleted_of_the_next_one_of_its_name(tmp_path: Path) -> None:
    started = Running(settings(tmp_path), None, SystemClock())
    started.start()
    with Client(started.address) as client:
        client.create("t", partitions=3)
        client.produce("t", batch(5))
        asked = [{"partition_index": 0, "offset": 4}]
        answer = client.call(21, 2, topics=[{"name": "t", "partitions": asked}], timeout=5000)
        assert answer.topics[0].partitions[0].low_watermark == 4
        assert client.call(DELETE, 5, topic_names=["t"], timeout=1000).responses[0].error_code == 0
        listed = (started.directories[0].path / "log-start-offset-checkpoint").read_text()
        assert "t 0" not in listed
        client.create("t", partitions=3)
        assert client.produce("t", batch(5)).error_code == 0
    started.stop(clean=False)
    with running(tmp_path) as started, Client(started.address) as client:
        assert client.list_offsets("t", -2).offset == 0
        assert offsets_of(client.fetch("t", 0).records) == [0, 1, 2, 3, 4]
