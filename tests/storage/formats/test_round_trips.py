"""Whatever is encoded decodes to the same values."""

from hypothesis import given
from hypothesis import strategies as st

from tierd.base.ids import TopicPartition, Uuid
from tierd.storage import varint
from tierd.storage.batch import check_crc, encode_batch, encode_header, parse_header, patch, walk
from tierd.storage.checkpoints import encode_checkpoint, parse_checkpoint
from tierd.storage.compression import Codec, compress, decompress
from tierd.storage.epochs import EpochEntry, encode_epochs, parse_epochs
from tierd.storage.index import IndexEntry, encode_index, parse_index
from tierd.storage.metadata import (
    MetaProperties,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
    encode_properties,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_partition_metadata,
    parse_properties,
)
from tierd.storage.records import Record, encode_records, iter_records
from tierd.storage.snapshot import ProducerEntry, encode_snapshot, parse_snapshot
from tierd.storage.timeindex import TimeEntry, encode_time_index, parse_time_index
from tierd.storage.txnindex import AbortedEntry, encode_txn_index, parse_txn_index

I16, I31, I63 = st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
TIMES = st.integers(0, 2**53)
FIELDS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=8), FIELDS), max_size=3).map(tuple)
UUIDS = st.binary(min_size=16, max_size=16).map(Uuid)
TOPICS = st.from_regex(r"[a-zA-Z0-9_-]{1,40}", fullmatch=True)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    offset, found = draw(st.integers(0, 2**62)), []
    for _ in range(draw(st.integers(1, 8))):
        found.append(Record(offset, draw(TIMES), draw(FIELDS), draw(FIELDS), draw(HEADERS)))
        offset += draw(st.integers(1, 2**20))
    return found


@st.composite
def ascending(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Pairs in which both numbers ascend."""
    left = sorted(draw(st.sets(st.integers(1, 2**31 - 1), max_size=20)))
    right = sorted(draw(st.sets(st.integers(1, 2**31 - 1), min_size=len(left), max_size=len(left))))
    return list(zip(left, right, strict=True))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(value: int) -> None:
    out = bytearray()
    varint.encode(value, out)
    assert varint.decode(out, 0) == (value, len(out))


@given(records(), st.sampled_from(list(Codec)), I63, I16, I31, I31)
def test_batches(found: list[Record], codec: Codec, producer_id: int, epoch: int, sequence: int, leader: int) -> None:
    raw = encode_batch(
        found,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        leader_epoch=leader,
    )
    [(position, header)] = walk(raw)
    assert position == 0
    assert encode_header(header) == raw[:61]
    assert check_crc(raw, 0, len(raw))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, sequence)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (found[0].offset, found[-1].offset, leader)
    assert header.max_timestamp_ms == max(record.timestamp_ms for record in found)
    assert list(iter_records(raw, header)) == found


@given(records(), I63, I31)
def test_a_batch_keeps_its_crc_when_it_gets_its_place(found: list[Record], base: int, leader: int) -> None:
    raw = bytearray(encode_batch(found))
    patch(raw, 0, base, leader)
    header = parse_header(raw)
    assert check_crc(raw, 0, len(raw))
    assert (header.base_offset, header.leader_epoch) == (base, leader)


@given(records())
def test_times_of_the_broker_hide_those_of_the_records(found: list[Record]) -> None:
    raw = encode_batch(found, log_append_time_ms=99)
    header = parse_header(raw)
    assert {record.timestamp_ms for record in iter_records(raw, header)} == {99}
    assert raw[61:] == encode_records(found, found[0].offset, found[0].timestamp_ms)


@given(st.sampled_from(list(Codec)), st.binary(max_size=5000))
def test_codecs(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@given(ascending(), I63)
def test_offset_indexes(pairs: list[tuple[int, int]], base: int) -> None:
    entries = [IndexEntry(base + relative, position) for relative, position in pairs]
    assert parse_index(encode_index(entries, base) + bytes(80), base) == entries


@given(ascending(), I63)
def test_time_indexes(pairs: list[tuple[int, int]], base: int) -> None:
    entries = [TimeEntry(timestamp, base + relative) for timestamp, relative in pairs]
    assert parse_time_index(encode_time_index(entries, base) + bytes(120), base) == entries


@given(
    st.lists(
        st.builds(
            ProducerEntry,
            producer_id=I63,
            epoch=I16,
            last_sequence=st.none() | I31,
            last_offset=st.none() | I63,
            offset_delta=I31,
            timestamp_ms=st.integers(-1, 2**62),
            coordinator_epoch=st.none() | I31,
            txn_first_offset=st.none() | I63,
        ),
        max_size=5,
    )
)
def test_snapshots(entries: list[ProducerEntry]) -> None:
    assert parse_snapshot(encode_snapshot(entries)) == entries


@given(ascending(), I63)
def test_transaction_indexes(pairs: list[tuple[int, int]], producer_id: int) -> None:
    entries = [AbortedEntry(producer_id, min(pair), max(pair), max(pair) + 1) for pair in pairs]
    assert parse_txn_index(encode_txn_index(entries)) == entries


@given(ascending())
def test_leader_epochs(pairs: list[tuple[int, int]]) -> None:
    entries = [EpochEntry(epoch, start) for epoch, start in pairs]
    assert parse_epochs(encode_epochs(entries)) == entries


@given(st.dictionaries(st.builds(TopicPartition, TOPICS, I31), I63, max_size=10))
def test_checkpoints(offsets: dict[TopicPartition, int]) -> None:
    assert parse_checkpoint(encode_checkpoint(offsets)) == offsets


@given(UUIDS, st.none() | I31, st.none() | st.text(max_size=20), st.none() | UUIDS)
def test_metadata(topic_id: Uuid, node: int | None, cluster: str | None, directory: Uuid | None) -> None:
    assert parse_partition_metadata(encode_partition_metadata(topic_id)) == topic_id
    meta = MetaProperties(node_id=node, cluster_id=cluster, directory_id=directory)
    assert parse_meta_properties(encode_meta_properties(meta, "some day")) == meta


@given(I63)
def test_clean_shutdown(epoch: int) -> None:
    assert parse_clean_shutdown(encode_clean_shutdown(epoch)) == epoch


@given(st.dictionaries(st.text("ab.=: \\#!é\t", min_size=1), st.text("ab.=: \\#!é\t\n")))
def test_properties(values: dict[str, str]) -> None:
    assert parse_properties(encode_properties(values, ["a comment"])) == values
