"""Messages as bytes: the JSON object `{"k": <class name>, "b": <fields>}`; `channel` splits what is too long."""

import json
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from tierd.ipc.codec import BadMessage, decode, encode

Message = TypeVar("Message")


class Packing(Generic[Message]):
    """For a closed set of message classes, the same at both ends."""

    def __init__(self, kinds: Iterable[type[Message]]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}

    def pack(self, message: Message) -> bytes:
        body = {"k": type(message).__name__, "b": encode(message)}
        return json.dumps(body, separators=(",", ":")).encode()

    def unpack(self, raw: bytes) -> Message:
        """Raise BadMessage for bytes that `pack` did not make."""
        try:
            outer: Any = json.loads(raw)
            kind, body = self._kinds[outer["k"]], outer["b"]
        except (ValueError, KeyError, TypeError) as error:
            raise BadMessage(f"not a message: {error!r}") from error
        message: Message = decode(kind, body)
        return message
