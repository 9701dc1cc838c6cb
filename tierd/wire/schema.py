"""Decode a message by walking its kio class, with every length checked before anything is allocated for it.

kio 0.6's own decoder is native and reserves memory for as many array elements as the frame claims: eleven bytes of a
Metadata request end the process (memory allocation of 34359738352 bytes failed). So kio gives the message classes and
writes answers, and requests are read here. tests/wire compares the two on every recorded frame.
"""

import dataclasses
import datetime
import struct
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode as KioErrorCode

from tierd.wire.errors import BadFrame
from tierd.wire.primitives import I16, I32, read_compact_string, read_string, read_uvarint, tags

MAX_ELEMENTS: Final = 100_000
"""Array elements in one request. A byte on the wire may become a hundred in memory; Kafka has no such limit."""

_LONGEST: Final = datetime.timedelta(days=999_999_998)
_UUID_BYTES: Final = 16


class Input:
    """A body being read. Not shared, not kept."""

    __slots__ = ("elements", "frame", "position")

    def __init__(self, frame: memoryview, position: int) -> None:
        self.frame = frame
        self.position = position
        self.elements = MAX_ELEMENTS

    def uvarint(self) -> int:
        value, self.position = read_uvarint(self.frame, self.position)
        return value

    def i16(self) -> int:
        return int(I16.unpack(self.take(I16.size))[0])

    def i32(self) -> int:
        return int(I32.unpack(self.take(I32.size))[0])

    def string(self) -> str:
        """With an i16 length; null is empty."""
        value, self.position = read_string(self.frame, self.position)
        return value or ""

    def take(self, size: int) -> memoryview:
        start, self.position = self.position, self.position + size
        if self.position > len(self.frame):
            raise BadFrame(f"byte {start}: {size} bytes announced, {len(self.frame) - start} left")
        return self.frame[start : self.position]

    def count(self, count: int) -> int:
        """Check an array length; -1 is null."""
        if not -1 <= count <= len(self.frame) - self.position:
            raise BadFrame(f"byte {self.position}: array of {count} elements, {len(self.frame)} bytes in all")
        self.elements -= max(count, 0)
        if self.elements < 0:
            raise BadFrame(f"more than {MAX_ELEMENTS} array elements")
        return count


Reader = Callable[[Input], Any]


def _fixed(form: str) -> Reader:
    code = struct.Struct(form)

    def read(source: Input) -> Any:
        (value,) = code.unpack_from(source.frame, source.position)
        source.position += code.size
        return value

    return read


_I16: Final = _fixed(">h")
_I32: Final = _fixed(">i")
_I64: Final = _fixed(">q")


def _read_uuid(source: Input) -> uuid.UUID | None:
    """The zero id is how the protocol says "none"."""
    value = uuid.UUID(bytes=bytes(source.take(_UUID_BYTES)))
    return value if value.int else None


def _read_error(source: Input) -> KioErrorCode:
    code = _I16(source)
    try:
        return KioErrorCode(code)
    except ValueError as error:
        raise BadFrame(f"error code {code}") from error


def _read_i64_timedelta(source: Input) -> datetime.timedelta:
    """Milliseconds; what a timedelta cannot hold (two million years) is cut to what it can."""
    value = _I64(source)
    limit = int(_LONGEST.total_seconds()) * 1000
    return datetime.timedelta(milliseconds=max(-limit, min(limit, value)))


def _read_datetime(source: Input) -> datetime.datetime | None:
    value = _I64(source)
    if value == -1:
        return None
    try:
        return datetime.datetime.fromtimestamp(value / 1000, tz=datetime.UTC)
    except (OverflowError, OSError, ValueError) as error:
        raise BadFrame(f"timestamp {value} ms: {error}") from error


_PRIMITIVES: Final[dict[str, Reader]] = {
    "bool": lambda source: source.take(1)[0] != 0,
    "int8": _fixed(">b"),
    "int16": _I16,
    "int32": _I32,
    "int64": _I64,
    "uint16": _fixed(">H"),
    "float64": _fixed(">d"),
    "error_code": _read_error,
    "timedelta_i32": lambda source: datetime.timedelta(milliseconds=_I32(source)),
    "timedelta_i64": _read_i64_timedelta,
    "datetime_i64": _read_datetime,
    "uuid": _read_uuid,
}


def _read_string(source: Input) -> str | None:
    value, source.position = read_string(source.frame, source.position)
    return value


def _read_compact_string(source: Input) -> str | None:
    value, source.position = read_compact_string(source.frame, source.position)
    return value


def _read_bytes(source: Input) -> bytes | None:
    size = _I32(source)
    return None if size < 0 else bytes(source.take(size))


def _read_compact_bytes(source: Input) -> bytes | None:
    size = source.uvarint()
    return None if size == 0 else bytes(source.take(size - 1))


_SIZED: Final[dict[tuple[str, bool], Reader]] = {
    ("string", False): _read_string,
    ("string", True): _read_compact_string,
    ("bytes", False): _read_bytes,
    ("bytes", True): _read_compact_bytes,
    ("records", False): _read_bytes,
    ("records", True): _read_compact_bytes,
}


class Shape(NamedTuple):
    """What a field of a kio class holds."""

    name: str
    kafka_type: str | None
    """None for a nested entity."""
    entity: type[Any] | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any
    """dataclasses.MISSING when there is none."""


_shapes: Final[dict[type[Any], tuple[Shape, ...]]] = {}
_readers: Final[dict[type[Any], Reader]] = {}


def shapes(entity: type[Any]) -> tuple[Shape, ...]:
    """The fields of a kio class, in wire order."""
    known = _shapes.get(entity)
    if known is None:
        hints = typing.get_type_hints(entity)
        known = tuple(_shape(field, hints[field.name]) for field in dataclasses.fields(entity))
        _shapes[entity] = known
    return known


def _shape(field: "dataclasses.Field[Any]", hint: Any) -> Shape:
    nullable = False
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        nullable = True
        (hint,) = (inner for inner in typing.get_args(hint) if inner is not types.NoneType)
    array = typing.get_origin(hint) is tuple
    if array:
        hint = typing.get_args(hint)[0]
        if typing.get_origin(hint) in (types.UnionType, typing.Union):  # an array of nullable ids
            (hint,) = (inner for inner in typing.get_args(hint) if inner is not types.NoneType)
    nested = hint if dataclasses.is_dataclass(hint) else None
    return Shape(
        field.name,
        field.metadata.get("kafka_type"),
        typing.cast("type[Any] | None", nested),
        array,
        nullable,
        field.metadata.get("tag"),
        field.default,
    )


def reader(entity: type[Any]) -> Reader:
    """A function that reads one *entity*; raises BadFrame and the errors of `primitives`."""
    known = _readers.get(entity)
    if known is None:
        known = _readers[entity] = _make_reader(entity)
    return known


def _make_reader(entity: type[Any]) -> Reader:
    flexible: bool = entity.__flexible__
    plain = tuple((shape.name, _field_reader(shape, flexible)) for shape in shapes(entity) if shape.tag is None)
    tagged = {
        shape.tag: (shape.name, _field_reader(shape, flexible)) for shape in shapes(entity) if shape.tag is not None
    }

    def read(source: Input) -> Any:
        values = {name: read_field(source) for name, read_field in plain}
        if flexible:
            _read_tags(source, tagged, values)
        return entity(**values)

    return read


def _read_tags(source: Input, tagged: dict[int, tuple[str, Reader]], values: dict[str, Any]) -> None:
    for _ in range(tags(source.uvarint())):
        tag, size = source.uvarint(), source.uvarint()
        stop = source.position + size
        known = tagged.get(tag)
        if known is None:
            source.take(size)
            continue
        name, read_field = known
        values[name] = read_field(source)
        if source.position != stop:
            raise BadFrame(f"tagged field {name} ends at byte {source.position} instead of {stop}")


def _field_reader(shape: Shape, flexible: bool) -> Reader:
    element = _element_reader(shape, flexible)
    if not shape.array:
        return element

    def read(source: Input) -> tuple[Any, ...] | None:
        count = source.count(source.uvarint() - 1 if flexible else _I32(source))
        if count < 0:
            if not shape.nullable:
                raise BadFrame(f"{shape.name} is null")
            return None
        return tuple([element(source) for _ in range(count)])

    return read


def _element_reader(shape: Shape, flexible: bool) -> Reader:
    if shape.entity is not None:
        nested = reader(shape.entity)
        return _nullable(nested) if shape.nullable and not shape.array and shape.tag is None else nested
    kafka_type = shape.kafka_type or ""
    if kafka_type in _PRIMITIVES:
        return _PRIMITIVES[kafka_type]
    sized = _SIZED[kafka_type, flexible]
    if shape.nullable and not shape.array:
        return sized

    def read(source: Input) -> Any:
        value = sized(source)
        if value is None:
            raise BadFrame(f"{shape.name} is null")
        return value

    return read


def _nullable(nested: Reader) -> Reader:
    """A struct that may be null begins with a byte: below 0 null, else present (KIP-893)."""

    def read(source: Input) -> Any:
        return None if source.take(1)[0] >= 0x80 else nested(source)

    return read
