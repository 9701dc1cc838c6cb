"""Records of `__consumer_offsets`: what a real Kafka wrote parses and comes out again, byte for byte."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.golden import golden
from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.broker.groups.codec import (
    Commit,
    CommitKey,
    decode_commit,
    decode_group,
    decode_key,
    encode_commit,
    encode_commit_key,
    encode_group,
    encode_group_key,
)
from tierd.broker.groups.model import StoredGroup, StoredMember
from tierd.broker.groups.replay import GroupReplay
from tierd.broker.key_hash import partition_of
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch, walk
from tierd.storage.records import Record, iter_records

TRANSACTIONAL = 0x10


def recorded() -> bytes:
    return (golden("kafka") / "clean" / "__consumer_offsets-0" / f"{0:020}.log").read_bytes()


def again(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    name = decode_key(key, "")
    if isinstance(name, CommitKey):
        return encode_commit_key(name), encode_commit(decode_commit(value, ""))
    assert name is not None
    group = decode_group(value, "")
    assert group.changed_ms is not None
    return encode_group_key(name), encode_group(group, group.changed_ms)


def test_recorded_records_come_out_byte_for_byte() -> None:
    raw = recorded()
    count = 0
    for position, header in walk(raw):
        batch = raw[position : position + header.size_bytes]
        records = list(iter_records(batch, header))
        for record in records:
            assert record.key is not None
            assert record.value is not None
            assert again(record.key, record.value) == (record.key, record.value)
            count += 1
        assert encode_batch(records, base_sequence=0, leader_epoch=header.leader_epoch) == batch
    assert count >= 6


def test_recorded_state() -> None:
    replay = GroupReplay("x")
    replay.feed(recorded())
    assert {(key.topic, key.partition): commit.offset for key, commit in replay.commits.items()} == {
        ("multi", 0): 30,
        ("multi", 1): 30,
        ("multi", 2): 30,
    }
    group = replay.groups["g1"]
    assert (group.protocol_type, group.generation, group.protocol, group.members) == ("consumer", 2, None, ())
    assert all(commit.topic_id is not None for commit in replay.commits.values())


@pytest.mark.parametrize("name", ["offset", "group", "member"])
def test_every_truncation_is_an_error_or_the_good_part(name: str) -> None:
    commit = Commit(offset=5, leader_epoch=1, metadata="m", commit_ms=7, topic_id=Uuid(bytes(range(16))))
    member = StoredMember("m", "i", "c", "/h", 1, 2, b"sub", b"ass")
    group = StoredGroup("consumer", 3, "range", "m", (member,) if name == "member" else ())
    raw = encode_commit(commit) if name == "offset" else encode_group(group, 9)
    decode = decode_commit if name == "offset" else decode_group
    for stop in range(len(raw)):
        with pytest.raises(CorruptFile):
            decode(raw[:stop], "x")


def test_mutations_raise_only_corrupt_file() -> None:
    dice = random.Random(3)
    member = StoredMember("m", "i", "c", "/h", 1, 2, b"sub", b"ass")
    values = [
        (decode_group, encode_group(StoredGroup("consumer", 3, "range", "m", (member, member)), 9)),
        (decode_commit, encode_commit(Commit(offset=5, leader_epoch=1, metadata="m", commit_ms=7))),
        (decode_key, encode_commit_key(CommitKey("g", "t", 1))),
    ]
    for _ in range(10_000):
        decode, raw = dice.choice(values)
        broken = bytearray(raw)
        for _ in range(dice.randint(1, 3)):
            broken[dice.randrange(len(broken))] = dice.choice([0, 0xFF, 0x7F, dice.randrange(256)])
        try:
            decode(bytes(broken[: dice.randint(0, len(broken))]), "x")
        except CorruptFile:
            continue


texts = st.text(max_size=20)
numbers = st.integers(0, 2**63 - 1)


@given(
    st.builds(
        Commit,
        offset=numbers,
        leader_epoch=st.none() | st.integers(0, 2**31 - 1),
        metadata=texts,
        commit_ms=numbers,
        topic_id=st.none() | st.builds(Uuid, st.binary(min_size=16, max_size=16)),
    )
)
def test_commits_round_trip(commit: Commit) -> None:
    assert decode_commit(encode_commit(commit), "") == commit


def test_a_commit_with_an_expiry_is_written_as_kafka_writes_it() -> None:
    commit = Commit(offset=5, leader_epoch=None, metadata="m", commit_ms=7, expire_ms=9)
    raw = encode_commit(commit)
    assert raw == bytes.fromhex("0001 0000000000000005 0001 6d 0000000000000007 0000000000000009")
    assert decode_commit(raw, "") == commit


@pytest.mark.parametrize(
    ("raw", "commit"),
    [
        ("0000 0000000000000005 0000 0000000000000007", (5, None, "", 7)),
        ("0002 0000000000000005 0001 6d 0000000000000007", (5, None, "m", 7)),
        ("0003 0000000000000005 00000002 0001 6d 0000000000000007", (5, 2, "m", 7)),
    ],
)
def test_older_commits_are_read(raw: str, commit: tuple[int, int | None, str, int]) -> None:
    got = decode_commit(bytes.fromhex(raw), "")
    assert (got.offset, got.leader_epoch, got.metadata, got.commit_ms) == commit


def test_older_and_newer_groups_are_read() -> None:
    member = "0001 6d 0001 63 0002 2f68 {rebalance} 00000002 00000001 73 00000001 61"
    v0 = "0000 0001 63 00000003 0001 72 0001 6d 00000001" + member.format(rebalance="")
    v1 = "0001 0001 63 00000003 0001 72 0001 6d 00000001" + member.format(rebalance="00000001")
    v2 = "0002 0001 63 00000003 0001 72 0001 6d 0000000000000009 00000001" + member.format(rebalance="00000001")
    v4 = (
        "0004 02 63 00000003 02 72 02 6d 0000000000000009 02 02 6d 00 02 63 03 2f68 00000001 00000002 02 73 02 61 00 00"
    )
    for raw, rebalance in ((v0, 2), (v1, 1), (v2, 1), (v4, 1)):
        group = decode_group(bytes.fromhex(raw), "")
        assert group.members == (StoredMember("m", None, "c", "/h", rebalance, 2, b"s", b"a"),)
        assert (group.generation, group.protocol, group.leader) == (3, "r", "m")


@pytest.mark.parametrize("value", ["0005 00", "7fff", ""])
def test_a_value_from_the_future_is_an_error(value: str) -> None:
    with pytest.raises(CorruptFile):
        decode_commit(bytes.fromhex(value), "x")


def test_keys_of_other_kinds_are_left_alone() -> None:
    assert decode_key(bytes.fromhex("0003 0001 67"), "") is None
    assert decode_key(bytes.fromhex("0000 0001 67 0001 74 00000005"), "") == CommitKey("g", "t", 5)


def test_tombstones_and_transactions() -> None:
    keys = [CommitKey("g", "t", index) for index in range(4)]

    def batch(offset: int, *rows: tuple[CommitKey, int | None], producer: int | None = None) -> bytes:
        records = []
        for at, (key, value) in enumerate(rows):
            commit = None
            if value is not None:
                commit = encode_commit(Commit(offset=value, leader_epoch=None, metadata="", commit_ms=1))
            records.append(Record(offset + at, 1, encode_commit_key(key), commit))
        if producer is None:
            return encode_batch(records, base_sequence=0)
        return encode_batch(records, producer_id=producer, producer_epoch=0, attributes=TRANSACTIONAL, base_sequence=0)

    def marker(offset: int, kind: ControlType, producer: int) -> bytes:
        return encode_control_batch(
            offset, kind, producer_id=producer, producer_epoch=0, timestamp_ms=1, coordinator_epoch=0
        )

    replay = GroupReplay("x")
    replay.feed(
        batch(0, (keys[0], 1), (keys[1], 1))
        + batch(2, (keys[0], 2), (keys[2], 2), producer=7)
        + batch(4, (keys[3], 3), producer=8)
        + batch(5, (keys[1], None))
    )
    assert {key.partition: commit.offset for key, commit in replay.commits.items()} == {0: 1}
    replay.feed(marker(6, ControlType.COMMIT, 7) + marker(7, ControlType.ABORT, 8))
    assert {key.partition: commit.offset for key, commit in replay.commits.items()} == {0: 2, 2: 2}


@pytest.mark.parametrize(
    ("group", "java_hash"),
    [
        ("", 0),
        ("g1", 3242),
        ("console-consumer-52737", None),
        ("polygenelubricants", -(2**31)),
        ("Aa", 2112),
        ("😀", None),
    ],
)
def test_the_partition_is_javas_hash(group: str, java_hash: int | None) -> None:
    assert 0 <= partition_of(group, 50) < 50
    if java_hash is not None:
        assert partition_of(group, 50) == (0 if java_hash == -(2**31) else abs(java_hash) % 50)
