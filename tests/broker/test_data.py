"""Produce, Fetch and ListOffsets over a socket against real logs, every version."""

import threading

import pytest

from broker.client import T0, Client, batch, offsets_of
from broker.running import Running
from tierd.wire.errors import ErrorCode

SMALL = {"internal_segment_bytes": "1000", "index_interval_bytes": "100"}


@pytest.mark.parametrize("produce", range(3, 13))
@pytest.mark.parametrize("fetch", [4, 7, 11, 12])
def test_what_went_in_comes_out_in_every_version(client: Client, produce: int, fetch: int) -> None:
    client.create("t")
    sent = [batch(n + 1, t0=T0 + n) for n in range(5)]
    firsts = [client.produce("t", raw, version=produce).base_offset for raw in sent]
    assert firsts == [0, 1, 3, 6, 10]
    got = client.fetch("t", 0, version=fetch)
    assert (got.error_code, got.high_watermark, got.last_stable_offset) == (0, 15, 15)
    assert offsets_of(got.records) == list(range(15))
    # All but base offset and leader epoch is as it was sent.
    assert sent[0][17:] == bytes(got.records)[17 : len(sent[0])]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_versions_are_refused_but_answered(client: Client, version: int) -> None:
    client.create("t")
    frame = bytes.fromhex("0000") + version.to_bytes(2, "big") + bytes.fromhex("00000001 ffff ffff 000003e8 00000001")
    frame += bytes.fromhex("0001") + b"t" + bytes.fromhex("00000001 00000000 00000000")
    client.send_raw(len(frame).to_bytes(4, "big") + frame)
    answer = client.frame()
    assert answer[:19] == bytes.fromhex("00000001 00000001 0001") + b"t" + bytes.fromhex("00000001 00000000")
    assert int.from_bytes(answer[19:21], "big") == ErrorCode.UNSUPPORTED_VERSION


def test_refusals_of_single_partitions(broker: Running, client: Client) -> None:
    client.create("t")
    good = batch()
    bad_crc = bytearray(good)
    bad_crc[17] ^= 1
    cases = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: client.produce("nope", good),
        ErrorCode.CORRUPT_MESSAGE: client.produce("t", bytes(bad_crc)),
        ErrorCode.INVALID_RECORD: client.produce("t", good + good),
        ErrorCode.MESSAGE_TOO_LARGE: client.produce("t", batch(1, size=2_000_000)),
        ErrorCode.INVALID_REQUIRED_ACKS: client.produce("t", good, acks=2),
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: _gap(client),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: client.produce(
            "t", batch(producer_id=9, producer_epoch=0, base_sequence=0, attributes=0x10)
        ),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: client.produce(
            "t", batch(producer_id=9, producer_epoch=0, base_sequence=0, attributes=0x10), transactional_id="nobody"
        ),
        ErrorCode.INVALID_TXN_STATE: _not_added(client),
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: client.produce("t", batch(codec=4), version=6),
        ErrorCode.INVALID_TIMESTAMP: client.produce("t", batch(t0=4_102_444_800_000)),
    }
    assert {expected: answer.error_code for expected, answer in cases.items()} == {code: code for code in cases}
    assert client.produce("t", None).error_code == ErrorCode.INVALID_RECORD
    late = client.produce("t", batch(2, t0=4_102_444_800_000))
    assert [error.batch_index for error in late.record_errors] == [0, 1]
    assert late.error_message
    assert broker.log("t").log_end == 3, "only the first batch of the idempotent producer"


def _gap(client: Client) -> object:
    ids = {"producer_id": 7, "producer_epoch": 0}
    assert client.produce("t", batch(**ids, base_sequence=0)).error_code == 0
    return client.produce("t", batch(**ids, base_sequence=9))


def _not_added(client: Client) -> object:
    """Its coordinator knows the producer, but no transaction that writes there."""
    made = client.call(22, 4, transactional_id="x", transaction_timeout=60_000, producer_id=-1, producer_epoch=-1)
    assert made.error_code == ErrorCode.NONE
    ids = {"producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    return client.produce("t", batch(**ids, base_sequence=0, attributes=0x10), transactional_id="x")


def test_a_duplicate_is_answered_with_the_first_offset(broker: Running, client: Client) -> None:
    client.create("t")
    raw = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert [client.produce("t", raw).base_offset for _ in range(3)] == [0, 0, 0]
    assert broker.log("t").log_end == 3


def test_acks_0_is_silent_and_a_failure_closes(broker: Running, client: Client) -> None:
    client.create("t")
    data = [{"name": "t", "partition_data": [{"index": 0, "records": batch()}]}]
    client.send(0, 9, transactional_id=None, acks=0, timeout=100, topic_data=data)
    assert client.list_offsets("t", -1).offset == 3
    client.send(0, 9, transactional_id=None, acks=0, timeout=100, topic_data=[{**data[0], "name": "nope"}])
    assert client.closed()


def test_fetch_edges(client: Client) -> None:
    client.create("t")
    client.produce("t", batch(5))
    beyond, below = client.fetch("t", 6), client.fetch("t", -1)
    for answer in (beyond, below):
        assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
        assert answer.aborted_transactions is None
    at_end = client.fetch("t", 5)
    assert (at_end.error_code, at_end.high_watermark, at_end.records or b"") == (0, 5, b"")
    assert client.fetch("nope", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.fetch("t", 0, isolation_level=1).aborted_transactions == ()
    assert offsets_of(client.fetch("t", 3).records) == [0, 1, 2, 3, 4], "the whole batch that holds it"


def test_one_budget_for_all_partitions_and_the_first_batch_whole(client: Client) -> None:
    client.create("a")
    client.create("b")
    size = len(batch(3))
    for topic in ("a", "b"):
        for _ in range(4):
            client.produce(topic, batch(3))
    wanted = [("a", 0, 0, 1 << 20), ("b", 0, 0, 1 << 20)]
    lengths = [len(got.records or b"") for got in client.fetch_many(wanted, max_bytes=1)]
    assert lengths == [size, 0]
    lengths = [len(got.records or b"") for got in client.fetch_many(wanted, max_bytes=6 * size + 5)]
    assert lengths == [4 * size, 2 * size]
    lengths = [len(got.records or b"") for got in client.fetch_many([(*w[:3], 1) for w in wanted])]
    assert lengths == [size, 0], "only one batch above its partition's limit"


def test_an_append_wakes_a_waiting_fetch(broker: Running, client: Client) -> None:
    client.create("t")
    with Client(broker.address) as other:
        other.send_fetch([("t", 0, 0, 1 << 20)], max_wait=20_000)
        later = threading.Timer(0.05, lambda: client.produce("t", batch()))
        later.start()
        (got,) = other.fetched()
        assert offsets_of(got.records) == [0, 1, 2]
        later.join()  # its answer comes after the fetch's: the client is closed only then


def test_a_fetch_waits_for_min_bytes_or_its_time(broker: Running, client: Client) -> None:
    client.create("t")
    size = len(batch())
    with Client(broker.address) as other:
        other.send_fetch([("t", 0, 0, 1 << 20)], max_wait=20_000, min_bytes=3 * size)
        for _ in range(3):
            client.produce("t", batch())
        assert len(offsets_of(other.fetched()[0].records)) == 9
    assert offsets_of(client.fetch("t", 0, max_wait=30, min_bytes=1 << 20).records) == list(range(9))
    assert not client.fetch("t", 9, max_wait=30).records


def test_a_waiting_fetch_hears_of_a_deletion(broker: Running, client: Client) -> None:
    client.create("t")
    with Client(broker.address) as other:
        other.send_fetch([("t", 0, 0, 1 << 20)], max_wait=20_000)
        assert client.call(20, 1, topic_names=["t"], timeout=1000).responses[0].error_code == 0
        assert other.fetched()[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_list_offsets(client: Client) -> None:
    client.create("t", **SMALL)
    for n in range(10):
        client.produce("t", batch(t0=T0 + 100 * n, step=10))
    assert client.list_offsets("t", -2).offset == 0
    assert (client.list_offsets("t", -1).offset, client.list_offsets("t", -1).timestamp) == (30, -1)
    found = client.list_offsets("t", T0 + 111)
    assert (found.offset, found.timestamp) == (5, T0 + 120)
    found = client.list_offsets("t", -3)
    assert (found.offset, found.timestamp) == (29, T0 + 920)
    assert client.list_offsets("t", -4).offset == 0
    assert client.list_offsets("t", -5, version=9).offset == -1
    nothing = client.list_offsets("t", T0 + 10_000)
    assert (nothing.error_code, nothing.offset, nothing.timestamp) == (0, -1, -1)
    assert client.list_offsets("t", -3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.list_offsets("nope", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for version in range(1, 11):
        assert client.list_offsets("t", -1, version=version).offset == 30


def test_leader_epochs_fence_old_and_unknown_ones(broker: Running, client: Client) -> None:
    client.create("t")
    epoch = broker.log("t").leader_epoch
    for known, expected in ((epoch - 1, 74), (epoch, 0), (epoch + 1, 75)):
        if known < 0:
            continue
        asked = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100, "current_leader_epoch": known}]
        fetched = client.call(
            1, 12, replica_id=-1, session_epoch=-1, max_bytes=100, topics=[{"topic": "t", "partitions": asked}]
        )
        assert fetched.responses[0].partitions[0].error_code == expected


# Both tiers.
