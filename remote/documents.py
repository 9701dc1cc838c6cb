"""tierd's own JSON objects in the bucket: frozen dataclasses with a format version, read strictly.

A newer version is refused, never guessed at; unknown fields of a known one are tolerated.
"""

import json
from typing import Annotated, Generic, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError, WithJsonSchema

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote import crc
from tierd.remote.store import ObjectInfo, ObjectStore

T = TypeVar("T")
VERSION = 1


class NewerFormat(CorruptFile):
    """Written by a later tierd: upgrade, or use another prefix."""


def _read_id(raw: object) -> Uuid:
    if isinstance(raw, Uuid):
        return raw
    if not isinstance(raw, str):
        raise ValueError("an id is a string")
    return Uuid.parse(raw)


Id = Annotated[
    Uuid, PlainValidator(_read_id), PlainSerializer(str, return_type=str), WithJsonSchema({"type": "string"})
]
"""A Uuid field of a document."""


class Document(Generic[T]):
    """Codec of one kind of document."""

    def __init__(self, shape: type[T]) -> None:
        self._adapter = TypeAdapter(shape)

    def encode(self, value: T) -> bytes:
        """Compact JSON; the version comes first."""
        body = self._adapter.dump_json(value)
        return b'{"version":%d,' % VERSION + body[1:]

    def parse(self, raw: bytes, where: str) -> T:
        """Raises NewerFormat or CorruptFile, naming the field."""
        version = _version(raw, where)
        if version > VERSION:
            raise NewerFormat(where, 0, f"format version {version}, this tierd knows {VERSION}")
        try:
            return self._adapter.validate_json(raw)
        except ValidationError as error:
            first = error.errors()[0]
            raise CorruptFile(where, 0, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    def put(
        self,
        store: ObjectStore,
        key: str,
        value: T,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Store it; raises PreconditionFailed like `ObjectStore.put`."""
        raw = self.encode(value)
        return store.put(key, raw, crc32c=crc.crc32c(raw), if_none_match=if_none_match, if_match=if_match)

    def get(self, store: ObjectStore, key: str) -> tuple[T, str]:
        """The document and its ETag. Raises NotFound, CorruptFile, NewerFormat."""
        info, raw = store.get_with_info(key)
        return self.parse(raw, key), info.etag


def _version(raw: bytes, where: str) -> int:
    try:
        document = json.loads(raw)
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError alike
        raise CorruptFile(where, 0, f"not JSON: {error}") from error
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or version < 1:
        raise CorruptFile(where, 0, "no format version")
    return version
