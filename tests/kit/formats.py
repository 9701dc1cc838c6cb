"""Every file format of a data directory as one table: read a file and write it again."""

import dataclasses
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tierd.storage import names
from tierd.storage.batch import encode_header, walk
from tierd.storage.checkpoints import encode_checkpoint, parse_checkpoint
from tierd.storage.compression import Codec, decompress
from tierd.storage.epochs import encode_epochs, parse_epochs
from tierd.storage.header import HEADER_BYTES, LOG_APPEND_TIME
from tierd.storage.index import encode_index, parse_index
from tierd.storage.metadata import (
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_partition_metadata,
)
from tierd.storage.records import encode_records, iter_records
from tierd.storage.snapshot import encode_snapshot, parse_snapshot
from tierd.storage.timeindex import encode_time_index, parse_time_index
from tierd.storage.txnindex import encode_txn_index, parse_txn_index


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    ending: str
    """How the names of its files end."""
    again: Callable[[bytes, int], bytes]
    """Parse the bytes of a file (of a segment with this base) and encode what was found. Raises CorruptFile."""

    def __str__(self) -> str:
        return self.name


def _log(raw: bytes, base: int) -> bytes:
    """Codecs choose their own bytes, so a compressed payload is compared plain and then taken as it was."""
    out = bytearray()
    for position, header in walk(raw):
        batch = memoryview(raw)[position : position + header.size_bytes]
        # The broker's time hides the producer's deltas; without its bit they are seen.
        plain = dataclasses.replace(header, attributes=header.attributes & ~LOG_APPEND_TIME)
        records = encode_records(iter_records(batch, plain), header.base_offset, header.base_timestamp_ms)
        assert records == decompress(header.codec, batch[HEADER_BYTES:])
        out += encode_header(header) + (batch[HEADER_BYTES:] if header.codec != Codec.NONE else records)
    return bytes(out)


def _with_room(used: bytes, raw: bytes) -> bytes:
    return used + bytes(len(raw) - len(used))


def _meta(raw: bytes, _: int) -> bytes:
    meta = parse_meta_properties(raw)
    lines = raw.decode("latin-1").splitlines()
    return encode_meta_properties(meta, lines[1][1:] if len(lines) > 1 else "")


FORMATS = (
    Format("log", ".log", _log),
    Format("offset index", ".index", lambda raw, base: _with_room(encode_index(parse_index(raw, base), base), raw)),
    Format(
        "time index",
        ".timeindex",
        lambda raw, base: _with_room(encode_time_index(parse_time_index(raw, base), base), raw),
    ),
    Format("producer snapshot", ".snapshot", lambda raw, _: encode_snapshot(parse_snapshot(raw))),
    Format("transaction index", ".txnindex", lambda raw, _: encode_txn_index(parse_txn_index(raw))),
    Format("leader epochs", names.LEADER_EPOCH_CHECKPOINT, lambda raw, _: encode_epochs(parse_epochs(raw))),
    Format("checkpoint", "-offset-checkpoint", lambda raw, _: encode_checkpoint(parse_checkpoint(raw))),
    Format(
        "partition metadata",
        names.PARTITION_METADATA,
        lambda raw, _: encode_partition_metadata(parse_partition_metadata(raw)),
    ),
    Format("meta.properties", names.META_PROPERTIES, _meta),
    Format(
        "clean shutdown", names.CLEAN_SHUTDOWN, lambda raw, _: encode_clean_shutdown(parse_clean_shutdown(raw) or 0)
    ),
)


def base_of(name: str) -> int:
    """The base offset that the name of a segment file tells; 0 for other files."""
    parsed = names.parse_segment_file(name)
    return parsed.offset if parsed else 0


def mutations(raw: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """*count* damaged copies of *raw*: bytes changed, cut out, doubled, put in, or the end cut off."""
    dice = random.Random(seed)
    for _ in range(count):
        copy = bytearray(raw)
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            at = dice.randrange(len(copy) + 1)
            match dice.randrange(8):
                case 0:
                    del copy[at:]
                case 1:
                    del copy[at : at + dice.randrange(1, 16)]
                case 2:
                    copy[at:at] = copy[at : at + dice.randrange(1, 16)]
                case 3:
                    copy[at:at] = dice.randbytes(dice.randrange(1, 16))
                case _:
                    copy[at : at + 1] = bytes([dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))])
        yield bytes(copy)
