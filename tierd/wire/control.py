"""Every API but Produce and Fetch: kio's message classes, decoded by `schema`, encoded by kio.

`make_response` lets a handler answer all versions with one call: fields that a version does not have are left out.
"""

import dataclasses
import datetime
import functools
import io
import struct
from collections.abc import Mapping
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.wire.errors import BadFrame
from tierd.wire.header import framed, response_header
from tierd.wire.schema import Input, Shape, reader, shapes

_NO_TIME = datetime.timedelta(0)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def decode_control(api_key: int, version: int, body: memoryview) -> RequestPayload:
    """Decode a request body of a version that is served. Raises BadFrame; memory stays within `MAX_ELEMENTS`.

    Bytes behind the last field are passed over, as Kafka does: librdkafka 2.16 sends three zeros too many when it asks
    for the metadata of all topics in version 13.
    """
    entity = load_request_schema(api_key, version)
    source = Input(body, 0)
    try:
        request: RequestPayload = reader(entity)(source)
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame) as error:
        raise BadFrame(f"{entity.__name__} v{version}: {error}") from error
    return request


def encode_control(correlation_id: int, version: int, response: ResponsePayload) -> bytes:
    """The whole frame, length word included."""
    body = io.BytesIO()
    entity_writer(type(response))(body, response)
    return framed(response_header(response.__api_key__, version, correlation_id), body.getvalue())


def make_response(api_key: int, version: int, **fields: object) -> ResponsePayload:
    """Build the response of *version* from plain values.

    Times are int milliseconds, error codes ints, arrays iterables, nested messages mappings; a ready kio value is
    taken too. A field that this version lacks is left out, one that no version has is a TypeError, a missing one gets
    its default or the zero of its type.
    """
    entity = load_response_schema(api_key, version)
    response: ResponsePayload = _build(entity, fields)
    return response


def _build(entity: type[Any], values: Mapping[str, object]) -> Any:
    unknown = values.keys() - _names(entity.__api_key__, entity.__name__)
    if unknown:
        raise TypeError(f"no version of {entity.__name__} has {', '.join(sorted(unknown))}")
    return entity(**{shape.name: _value(shape, values) for shape in shapes(entity)})


def _value(shape: Shape, values: Mapping[str, object]) -> object:
    if shape.name not in values:
        return _zero(shape) if shape.default is dataclasses.MISSING else shape.default
    value: Any = values[shape.name]
    if not shape.array or value is None:
        return _element(shape, value)
    return tuple([_element(shape, element) for element in value])


def _element(shape: Shape, value: Any) -> object:
    if shape.entity is not None and isinstance(value, Mapping):
        return _build(shape.entity, value)
    if shape.kafka_type == "error_code":
        return KioErrorCode(value)
    if shape.kafka_type in ("timedelta_i32", "timedelta_i64") and not isinstance(value, datetime.timedelta):
        return datetime.timedelta(milliseconds=value)
    if shape.kafka_type == "datetime_i64" and isinstance(value, int):
        return _EPOCH + datetime.timedelta(milliseconds=value)
    return value


def _zero(shape: Shape) -> object:
    if shape.array and not shape.nullable:
        return ()
    if shape.nullable or shape.kafka_type == "uuid":
        return None
    if shape.entity is not None:
        return _build(shape.entity, {})
    return _ZEROS.get(shape.kafka_type or "", 0)


_ZEROS: dict[str, object] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "error_code": KioErrorCode.none,
    "timedelta_i32": _NO_TIME,
    "timedelta_i64": _NO_TIME,
    "datetime_i64": _EPOCH,
}


@functools.cache
def _names(api_key: int, class_name: str) -> frozenset[str]:
    """Field names that the class has in any version of the API."""
    names: set[str] = set()
    for version in schema_name_map[api_key_map[api_key]]:
        names |= _collect(load_response_schema(api_key, version), class_name)
    return frozenset(names)


def _collect(entity: type[Any], class_name: str) -> set[str]:
    names = {shape.name for shape in shapes(entity)} if entity.__name__ == class_name else set()
    for shape in shapes(entity):
        if shape.entity is not None:
            names |= _collect(shape.entity, class_name)
    return names
