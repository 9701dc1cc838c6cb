"""What our codecs write, Kafka's own DumpLogSegments reads."""

import re
from pathlib import Path

import pytest

from kit.kafka import dump_log_segments
from tierd.storage import names
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch
from tierd.storage.compression import Codec
from tierd.storage.index import IndexEntry, encode_index
from tierd.storage.records import Record
from tierd.storage.snapshot import ProducerEntry, encode_snapshot
from tierd.storage.timeindex import TimeEntry, encode_time_index
from tierd.storage.txnindex import AbortedEntry, encode_txn_index

pytestmark = pytest.mark.kafka

T0 = 1_700_000_000_000
BASE = 100


def test_a_segment_with_all_its_files(tmp_path: Path) -> None:
    log, index = b"", []
    offset = BASE
    for codec in Codec:
        records = [
            Record(offset + i, T0 + offset + i, b"k%d" % i, b"v" * 500 * i, (("h", None), ("ü", b"\x00")))
            for i in range(200)
        ]
        index.append(IndexEntry(offset + 199, len(log)))
        log += encode_batch(
            records, codec=codec, producer_id=4, producer_epoch=1, base_sequence=offset, attributes=0x10
        )
        offset += 200
    log += encode_control_batch(
        offset, ControlType.ABORT, producer_id=4, producer_epoch=2, timestamp_ms=T0 + offset, coordinator_epoch=3
    )
    index = index[1:]
    times = [TimeEntry(T0 + entry.offset, entry.offset) for entry in index]
    producer = ProducerEntry(
        producer_id=4,
        epoch=2,
        last_sequence=None,
        last_offset=None,
        offset_delta=0,
        timestamp_ms=T0 + offset,
        coordinator_epoch=3,
        txn_first_offset=None,
    )
    contents = {
        names.log_file(BASE): log,
        names.index_file(BASE): encode_index(index, BASE),
        names.time_index_file(BASE): encode_time_index(times, BASE),
        names.txn_index_file(BASE): encode_txn_index([AbortedEntry(4, BASE, offset, offset + 1)]),
        names.snapshot_file(offset + 1): encode_snapshot([producer]),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)

    said = dump_log_segments(*(tmp_path / name for name in contents))

    assert said.count("isvalid: true") == len(Codec) + 1
    assert "isvalid: false" not in said
    assert not re.search("mismatch|error|corrupt", said, re.IGNORECASE)
    assert re.findall(r"\| offset: (\d+) ", said) == [str(number) for number in range(BASE, offset + 1)]
    assert "endTxnMarker: ABORT coordinatorEpoch: 3" in said
    for entry in index:
        assert f"offset: {entry.offset} position: {entry.position}" in said
    assert f"producerId: 4 firstOffset: {BASE} lastOffset: {offset} lastStableOffset: {offset + 1}" in said
    assert "producerId: 4 producerEpoch: 2 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong.empty" in said
