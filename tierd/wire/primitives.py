"""Kafka's primitive types on a memoryview: readers give (value, position after it), writers give bytes.

Readers may raise struct.error, IndexError or UnicodeDecodeError when the frame is cut or nonsense; each decoder that
uses them turns those into BadFrame at one place. Slices past the end are caught here, since Python shortens them in
silence.
"""

import struct
from typing import Final

from tierd.wire.errors import BadFrame

I16: Final = struct.Struct(">h")
I32: Final = struct.Struct(">i")

TopicKey = str | bytes
"""How a message names a topic: by its name, or by the 16 bytes of its id."""
MOST_TAGS: Final = 32
"""In one section: Kafka has a handful. Each is work on the loop, and whoever sends them need not be known yet."""
_ID_BYTES: Final = 16
_VARINT_BITS: Final = 35  # five bytes carry a 32-bit number
_SMALL: Final = tuple(bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80, n >> 7]) for n in range(0x100))


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes."""
    byte = frame[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
        if shift >= _VARINT_BITS:
            raise BadFrame(f"byte {position}: varint longer than five bytes")


def read_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    """A legacy nullable string: i16 length, bytes."""
    (length,) = I16.unpack_from(frame, position)
    position += 2
    if length < 0:
        return None, position
    stop = position + length
    if stop > len(frame):
        raise BadFrame(f"byte {position}: string of {length} bytes, only {len(frame) - position} left")
    return str(frame[position:stop], "utf-8"), stop


def read_compact_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    """A compact nullable string: uvarint length + 1, bytes."""
    length = frame[position]
    if length < 0x80:  # here and below: one byte nearly always, and a call costs more than the test
        position += 1
    else:
        length, position = read_uvarint(frame, position)
    if length == 0:
        return None, position
    stop = position + length - 1
    if stop > len(frame):
        raise BadFrame(f"byte {position}: string of {length - 1} bytes, only {len(frame) - position} left")
    return str(frame[position:stop], "utf-8"), stop


def named(value: str | None, what: str) -> str:
    """*value*, which must not be null."""
    if value is None:
        raise BadFrame(f"{what} is null")
    return value


def read_compact_topic(frame: memoryview, position: int) -> tuple[TopicKey, int]:
    """A topic's name, which must not be null."""
    name, position = read_compact_string(frame, position)
    return named(name, "topic name"), position


def read_topic_id(frame: memoryview, position: int) -> tuple[TopicKey, int]:
    """A topic's id."""
    stop = position + _ID_BYTES
    if stop > len(frame):
        raise BadFrame(f"byte {position}: a topic id, only {len(frame) - position} bytes left")
    return bytes(frame[position:stop]), stop


def read_count(frame: memoryview, position: int) -> tuple[int, int]:
    """The length of a legacy array that must not be null."""
    (count,) = I32.unpack_from(frame, position)
    if count < 0:
        raise BadFrame(f"byte {position}: array of {count} elements")
    return count, position + 4


def read_compact_count(frame: memoryview, position: int) -> tuple[int, int]:
    """The length of a compact array that must not be null."""
    count = frame[position]
    if count >= 0x80:
        count, position = read_uvarint(frame, position)
        return count - 1, position
    if count == 0:
        raise BadFrame(f"byte {position}: array is null")
    return count - 1, position + 1


def skip_tags(frame: memoryview, position: int) -> int:
    """The position after a tagged-field section; tags that tierd does not know are allowed by the protocol."""
    if frame[position] == 0:
        return position + 1
    count, position = read_uvarint(frame, position)
    for _ in range(tags(count)):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise BadFrame(f"tagged field ends at byte {position}, after the frame's {len(frame)}")
    return position


def tags(count: int) -> int:
    """*count* of tagged fields, which must not be too many."""
    if count > MOST_TAGS:
        raise BadFrame(f"{count} tagged fields in one place, {MOST_TAGS} are taken")
    return count


def rows_left(left: int, count: int) -> int:
    """Of the rows that one request may have, what is left after *count* more and what they stand under."""
    left -= count + 1
    if left < 0:
        raise BadFrame("more rows than are served in one request")
    return left


def at_end(frame: memoryview, position: int) -> None:
    """Refuse bytes that no field claimed: the peer and we do not speak of the same message."""
    if position != len(frame):
        raise BadFrame(f"{len(frame) - position} bytes left after the last field")


def uvarint(value: int) -> bytes:
    """The bytes of a varint; ValueError when negative."""
    if 0 <= value < 0x100:
        return _SMALL[value]
    if 0x4000 <= value < 0x200000:  # the records of most fetches
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value < 0:
        raise ValueError(f"unsigned varint of {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str | None) -> bytes:
    """A legacy nullable string."""
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return I16.pack(len(raw)) + raw


def compact_string(text: str | None) -> bytes:
    """A compact nullable string."""
    if text is None:
        return b"\0"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def compact_topic(topic: TopicKey) -> bytes:
    """A topic's name, or its id."""
    return topic if isinstance(topic, bytes) else compact_string(topic)


def as_name(topic: TopicKey) -> str:
    """*topic*, which is a name because the message has no ids."""
    assert isinstance(topic, str)
    return topic
