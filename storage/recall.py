"""Earlier batches of producers, out of the tail of the log: a snapshot holds only the last batch of each.

A client has up to five batches in flight. When a stop, clean or not, swallows their answers, it sends all of them
again, and every one has to be known for a duplicate although a roll or a start lies in between.
"""

from collections.abc import Iterator

from tierd.base.errors import CorruptFile
from tierd.config.topic import MIB
from tierd.storage.batch import BatchHeader
from tierd.storage.header import HEADER_BYTES, parse_header
from tierd.storage.index import OffsetIndex
from tierd.storage.names import Suffix
from tierd.storage.producers import REMEMBERED_BATCHES, Producers
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments

TAIL_BYTES = 4 * MIB
"""How far back batches are looked for: five of a producer's, and those of others in between."""
_WINDOW_BYTES = 64 * 1024


def recall(producers: Producers, segments: Segments, stop: int) -> None:
    """Fill *producers*, the state at offset *stop*, up with batches from the tail of the log below it.

    Reads headers only, and nothing at all unless a producer wrote there. Any thread. Damage ends the look-back early.
    """
    oldest = [one.batches[0].first_offset for one in producers.producers if 0 < len(one.batches) < REMEMBERED_BATCHES]
    if not oldest:
        return
    room, headers = TAIL_BYTES, list[BatchHeader]()
    for segment in reversed(segments.since(0)[: segments.find(stop - 1) + 1]):
        offset, position = _tail_of(segment, room)
        if offset < max(oldest):  # else what came before any of these batches lies further back
            headers = [*_headers(segment, position, stop), *headers]
        room -= segment.size_bytes - position
        if room <= 0:
            break
    producers.recall(headers)


def _tail_of(segment: Segment, room: int) -> tuple[int, int]:
    """(an offset at or below that batch, position) of a batch some *room* bytes before the segment's end."""
    if segment.size_bytes <= room:
        return segment.base, 0
    try:
        entry = OffsetIndex(segment.path(Suffix.INDEX).read_bytes(), segment.base).floor_position(
            segment.size_bytes - room
        )
    except FileNotFoundError:
        entry = None
    return (segment.base, 0) if entry is None else (entry.offset, entry.position)


def _headers(segment: Segment, position: int, stop: int) -> Iterator[BatchHeader]:
    """Headers of data batches that have a producer, from *position* up to offset *stop* or the first damage."""
    with segment.handle.path.open("rb", buffering=_WINDOW_BYTES) as file:
        while position < segment.size_bytes:
            file.seek(position)
            try:
                header = parse_header(file.read(HEADER_BYTES), 0, segment.where)
            except CorruptFile:
                return
            if header.base_offset >= stop:
                return
            if header.has_producer and not header.control:
                yield header
            position += header.size_bytes
