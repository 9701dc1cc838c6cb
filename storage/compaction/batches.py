"""What becomes of one batch: kept as it is, written anew without some records, kept empty, or gone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tierd.storage.compaction.kept import Kept, kept_at
from tierd.storage.compaction.keys import quick_keys
from tierd.storage.compaction.offset_map import OffsetMap
from tierd.storage.compaction.raw import RawRecord, plain_payload, raw_records, records_at
from tierd.storage.compaction.transactions import Transactions
from tierd.storage.compression import compress
from tierd.storage.header import (
    CODEC_MASK,
    CRC_AT,
    DELETE_HORIZON,
    HEADER_BYTES,
    BatchHeader,
    actual_crc,
    encode_header,
)
from tierd.storage.txnindex import AbortedEntry


@dataclass(frozen=True, slots=True)
class LastBatch:
    """What the log remembers of a producer: the batch to keep, records or not, so that a start still finds it."""

    producer_id: int
    last_offset: int | None
    """Last offset of its last data batch; None when a marker came after it."""
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for all batches of one cleaning."""

    now_ms: int
    delete_retention_ms: int
    round_stop: int
    """The cleaning ends here; the batch before it stays, records or not, so that its offset is not forgotten."""
    keep_deletes: bool
    """Tombstones that are the latest of their key and all markers stay: older data lies where no cleaning reaches."""
    last_batches: Mapping[int, LastBatch] = field(default_factory=dict)


class BatchCleaner:
    """Give it every batch of the walk, in order."""

    def __init__(self, offsets: OffsetMap, transactions: Transactions, rules: Rules) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._rules = rules
        self.aborted: AbortedEntry | None = None
        """The index entry that goes with the batch cleaned last, if it is the marker of an aborted transaction."""

    def clean(self, batch: memoryview, header: BatchHeader, where: str) -> memoryview | bytes | None:
        """*batch* itself when nothing of it changes, its successor, or None. Raises CorruptFile."""
        self.aborted = None
        if header.control:
            return self._clean_control(batch, header, where)
        if self._transactions.on_data(header):
            return self._emptied(header)
        return self._clean_data(batch, header, where)

    def _clean_control(self, batch: memoryview, header: BatchHeader, where: str) -> memoryview | bytes | None:
        idle = self._transactions.on_control(header, batch, where)
        if self._rules.keep_deletes or not idle:
            self.aborted = self._transactions.entry_of(header.last_offset)
            return batch
        if not header.count or (header.delete_horizon and header.base_timestamp_ms <= self._rules.now_ms):
            return self._emptied(header)
        if header.delete_horizon:
            return batch
        payload = plain_payload(batch, header, where)
        markers = Kept.of(raw_records(payload, header.count, where))
        return self._rewritten(header, payload, markers, self._horizon_ms)

    def _clean_data(self, batch: memoryview, header: BatchHeader, where: str) -> memoryview | bytes | None:
        offsets, base, count = self._offsets, header.base_offset, header.count
        payload = None
        if base in offsets.dense:  # nobody needs to look for keys again
            numbers, valued = offsets.latest_within(base, header.next_offset), base in offsets.valued
        else:
            payload = plain_payload(batch, header, where)
            keys = quick_keys(payload, count) if header.next_offset <= offsets.start else None
            if keys is None:
                return self._clean_records(batch, header, payload, self._kept(raw_records(payload, count, where), base))
            numbers = [number for number, latest in enumerate(offsets.latest(keys.found)) if latest < 0]
            valued = not keys.tombstones
        if valued and len(numbers) == count > 0:
            return batch
        if not numbers:
            return self._emptied(header)
        payload = plain_payload(batch, header, where) if payload is None else payload
        if not valued:
            return self._clean_records(batch, header, payload, records_at(payload, numbers, where))
        horizon_ms = header.base_timestamp_ms if header.delete_horizon else None
        return self._rewritten(header, payload, kept_at(payload, count, numbers, where), horizon_ms)

    def _clean_records(
        self, batch: memoryview, header: BatchHeader, payload: bytes, kept: list[RawRecord]
    ) -> memoryview | bytes | None:
        """The batch with the records *kept* for their keys, of which some may be tombstones."""
        if header.delete_horizon and self._rules.now_ms >= header.base_timestamp_ms and not self._rules.keep_deletes:
            kept = [record for record in kept if record[3] or header.base_offset + record[0] >= self._offsets.stop]
        if not kept:
            return self._emptied(header)
        horizon_ms = header.base_timestamp_ms if header.delete_horizon else None
        if horizon_ms is None and not all([record[3] for record in kept]):
            return self._rewritten(header, payload, Kept.of(kept), self._horizon_ms)
        return batch if len(kept) == header.count else self._rewritten(header, payload, Kept.of(kept), horizon_ms)

    def _kept(self, records: list[RawRecord], base: int) -> list[RawRecord]:
        stop, latest = self._offsets.stop, self._offsets.latest([record[2] or b"" for record in records])
        return [
            record
            for record, last in zip(records, latest, strict=True)
            if base + record[0] >= stop or (last <= base + record[0] and record[2] is not None)
        ]

    @property
    def _horizon_ms(self) -> int:
        return self._rules.now_ms + self._rules.delete_retention_ms

    def _emptied(self, header: BatchHeader) -> bytes | None:
        if not (self._is_last_of_producer(header) or header.next_offset == self._rules.round_stop):
            return None
        return _seal(
            replace(
                header,
                size_bytes=HEADER_BYTES,
                attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
                base_timestamp_ms=-1,
                count=0,
            ),
            b"",
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._rules.last_batches.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.control and header.producer_epoch == last.epoch

    def _rewritten(self, header: BatchHeader, payload: bytes, kept: Kept, horizon_ms: int | None) -> bytes:
        """The batch with *kept* alone: its offsets, sequence, producer and codec stay.

        *horizon_ms* takes the base timestamp's place, else that is the first kept record's.
        """
        if header.log_append_time:
            latest_ms = header.max_timestamp_ms
            base_ms = latest_ms if horizon_ms is None else horizon_ms
            records = kept.copy(payload, delta_ms=latest_ms - base_ms)
        else:
            latest_ms = header.base_timestamp_ms + max(kept.times)
            base_ms = header.base_timestamp_ms + kept.times[0] if horizon_ms is None else horizon_ms
            records = kept.copy(payload, shift_ms=header.base_timestamp_ms - base_ms)
        packed = compress(header.codec, records)
        return _seal(
            replace(
                header,
                size_bytes=HEADER_BYTES + len(packed),
                attributes=header.attributes & ~DELETE_HORIZON | (0 if horizon_ms is None else DELETE_HORIZON),
                base_timestamp_ms=base_ms,
                max_timestamp_ms=latest_ms,
                count=len(kept.times),
            ),
            packed,
        )


def _seal(header: BatchHeader, payload: bytes) -> bytes:
    """The bytes of a batch, with its CRC."""
    whole = bytearray(encode_header(header) + payload)
    whole[CRC_AT : CRC_AT + 4] = actual_crc(whole, 0, len(whole)).to_bytes(4, "big")
    return bytes(whole)
