"""`__consumer_offsets` as the groups see it, and what becomes of offsets when topics go or the broker restarts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import Client
from broker.file_tier import FileTier
from broker.running import Running, running
from tierd.base.ids import PartitionId
from tierd.broker.internal_topic import NotHere
from tierd.storage.batch import encode_batch, walk
from tierd.storage.records import Record

COMMIT, FETCH, FIND = 8, 9, 10


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path, FileTier(tmp_path / "held"), offsets_topic_partitions=3) as started:
        yield started


def commit(client: Client, group: str, topic: str, offset: int) -> int:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    answer = client.call(
        COMMIT,
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": partitions}],
    )
    return int(answer.topics[0].partitions[0].error_code)


def committed(client: Client, group: str, topic: str) -> int:
    answer = client.call(FETCH, 5, group_id=group, topics=[{"name": topic, "partition_indexes": (0,)}])
    return int(answer.topics[0].partitions[0].committed_offset)


def test_offsets_live_through_a_restart_and_are_never_tiered(tmp_path: Path) -> None:
    for run in range(3):
        with running(tmp_path, FileTier(tmp_path / "held"), offsets_topic_partitions=3) as started:
            with Client(started.address) as client:
                if run == 0:
                    client.create("t")
                for number in range(10):
                    group = f"g{number}"
                    assert committed(client, group, "t") == (-1 if run == 0 else 100 * run + number)
                    assert commit(client, group, "t", 100 * (run + 1) + number) == 0
            topic = started.partitions.topic("__consumer_offsets")
            assert topic is not None
            assert len(topic.partitions) == 3
            assert not any(partition.tiered for partition in topic.partitions.values())
            assert isinstance(started.tier, FileTier)
            assert {name for name, _ in started.tier.topics} == {"t"}


def test_offsets_of_a_deleted_topic_are_forgotten(broker: Running) -> None:
    with Client(broker.address) as client:
        client.create("t")
        client.create("other")
        commit(client, "g", "t", 5)
        commit(client, "g", "other", 6)
        client.call(20, 1, topic_names=["t"], timeout=1000)
        client.create("t")
        assert (committed(client, "g", "t"), committed(client, "g", "other")) == (-1, 6)


def test_the_coordinator_of_everything_is_this_node(broker: Running) -> None:
    with Client(broker.address) as client:
        for key_type in (0, 1):
            answer = client.call(FIND, 2, key="x", key_type=key_type)
            assert (answer.error_code, answer.node_id, answer.port) == (0, 1, broker.address[1])


def test_replay_gives_every_batch_in_order(broker: Running) -> None:
    port = broker.broker.parts.coordinator._log
    assert broker.run(port.ensure()) == 3 == port.count()
    for number in range(50):
        raw = encode_batch([Record(0, 1, b"k", b"v" * 50_000), Record(1, 1, b"k", b"%d" % number)])
        broker.call(lambda raw=raw: port.append(1, bytes(raw)))  # type: ignore[misc]

    async def all_pieces() -> list[bytes]:
        return [piece async for piece in port.replay(1)]

    pieces = broker.run(all_pieces())
    assert len(pieces) > 1
    offsets = [header.base_offset for piece in pieces for _, header in walk(piece)]
    assert offsets == list(range(0, 100, 2))
    with pytest.raises(NotHere):
        broker.call(lambda: port.append(9, pieces[0]))


def test_missing_partitions_of_an_adopted_offsets_topic_are_made(tmp_path: Path) -> None:
    with running(tmp_path, offsets_topic_partitions=3) as started, Client(started.address) as client:
        client.create("t")
        commit(client, "g", "t", 1)
    for path in (tmp_path / "state").iterdir():
        if path.is_file():
            path.unlink()
    gone = tmp_path / "data" / "__consumer_offsets-0"
    for path in gone.iterdir():
        path.unlink()
    gone.rmdir()
    with running(tmp_path) as started:
        topic = started.partitions.topic("__consumer_offsets")
        assert topic is not None
        assert sorted(topic.partitions) == [0, 1, 2]
        assert started.partitions.by_id(PartitionId(topic.id, 0)) is topic.partitions[0]
