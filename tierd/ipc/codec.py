"""Frozen dataclasses to JSON values and back, driven by their type hints; for the messages between the processes.

Both ends are the same build of tierd, so there is no versioning: an unknown or missing field is an error.
"""

import base64
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from tierd.base.errors import TierdError
from tierd.base.ids import Uuid

_Codec = Callable[[Any], Any]
_PLAIN = (int, str, bool, float)


class BadMessage(TierdError):
    """A message that does not fit its type: the other process is another build, or broken."""


def encode(value: Any) -> Any:
    """*value* (a dataclass) as JSON values."""
    hint: Any = type(value)
    return _encoder(hint)(value)


def decode(cls: type, raw: Any) -> Any:
    """Raise BadMessage unless *raw* is what `encode` makes of a *cls*."""
    hint: Any = cls
    try:
        return _decoder(hint)(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadMessage(f"not a {cls.__name__}: {error!r}") from error


@functools.cache
def _encoder(hint: Any) -> _Codec:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        inner = _encoder(_optional(hint))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        item = _encoder(typing.get_args(hint)[0])
        return lambda value: [item(one) for one in value]
    if origin is frozenset:
        return lambda value: sorted(value)
    if hint in (Uuid, Path):
        return str
    if hint is bytes:
        return lambda value: base64.b64encode(value).decode("ascii")
    if dataclasses.is_dataclass(hint):
        fields = [(name, _encoder(kind)) for name, kind in _hints(hint).items()]
        return lambda value: {name: code(getattr(value, name)) for name, code in fields}
    return _encode_simple(hint, origin)


def _encode_simple(hint: Any, origin: Any) -> _Codec:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return lambda value: _reveal(value.model_dump())
    if hint in _PLAIN or origin in (dict, Mapping):
        return lambda value: value
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: value.value
    raise TypeError(f"no codec for {hint!r}")


@functools.cache
def _decoder(hint: Any) -> _Codec:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        inner = _decoder(_optional(hint))
        return lambda raw: None if raw is None else inner(raw)
    if origin is tuple:
        item = _decoder(typing.get_args(hint)[0])
        return lambda raw: tuple(item(one) for one in raw)
    if origin is frozenset:
        return frozenset
    if hint is Uuid:
        return Uuid.parse
    if hint is bytes:
        return lambda raw: base64.b64decode(raw, validate=True)
    if dataclasses.is_dataclass(hint):
        return _dataclass_decoder(hint)
    return _decode_simple(hint, origin)


def _decode_simple(hint: Any, origin: Any) -> _Codec:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint.model_validate
    if hint in _PLAIN:
        return lambda raw: _checked(raw, hint)
    if origin in (dict, Mapping):
        return lambda raw: dict(raw)
    if hint is Path or (isinstance(hint, type) and issubclass(hint, Enum)):
        return lambda raw: hint(raw)
    raise TypeError(f"no codec for {hint!r}")


def _dataclass_decoder(cls: Any) -> _Codec:
    fields = [(name, _decoder(kind)) for name, kind in _hints(cls).items()]

    def build(raw: Any) -> Any:
        if len(raw) != len(fields):
            raise ValueError(f"{cls.__name__} has {len(fields)} fields, got {sorted(raw)}")
        return cls(**{name: code(raw[name]) for name, code in fields})

    return build


def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _reveal(value: Any) -> Any:
    """A settings section as JSON values, secrets in the clear: the socket pair is seen by our two processes alone."""
    if isinstance(value, dict):
        return {name: _reveal(one) for name, one in value.items()}
    if isinstance(value, tuple):
        return [_reveal(one) for one in value]
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value


def _optional(hint: Any) -> Any:
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    if len(kinds) != 1:
        raise TypeError(f"no codec for {hint!r}")
    return kinds[0]


def _checked(raw: Any, kind: type) -> Any:
    fits = isinstance(raw, (int, float)) if kind is float else type(raw) is kind
    if not fits:
        raise ValueError(f"{raw!r} is not {kind.__name__}")
    return raw
