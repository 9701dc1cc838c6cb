"""What the broker keeps in a topic of its own, read closely: damage is told with the offset and key that it is at.

A batch whose CRC is wrong, or that does not parse, stops its partition: any key may be in it, and an older record of
that key would count again. A record that lies in a sound batch and cannot be decoded, its version is a later one say,
stops what its key names and nothing else; a later record of the same key takes its place.
"""

from collections.abc import Iterator

from typing_extensions import Buffer

from tierd.base.errors import CorruptFile, TierdError
from tierd.storage.batch import BatchHeader, check_crc, walk
from tierd.storage.records import Record, iter_records


class DamagedRecords(CorruptFile):
    """Records that are there and do not parse."""

    def __init__(self, where: str, offset: int, reason: str) -> None:
        TierdError.__init__(self, f"{where}: offset {offset}: {reason}")
        self.where, self.position, self.reason = where, 0, reason
        self.offset = offset


def sound_records(chunk: Buffer, where: str) -> Iterator[tuple[BatchHeader, Record]]:
    """Each record of whole batches, with its batch. Raises DamagedRecords, after the good ones."""
    view = memoryview(chunk)
    offset = 0
    try:
        for position, header in walk(view, where):
            offset = header.base_offset
            batch = view[position : position + header.size_bytes]
            if not check_crc(batch, 0, header.size_bytes):
                raise DamagedRecords(where, offset, "the CRC of the batch does not match")
            for record in iter_records(batch, header, where):
                yield header, record
            offset = header.next_offset
    except DamagedRecords:
        raise
    except CorruptFile as error:
        raise DamagedRecords(where, offset, error.reason) from error
