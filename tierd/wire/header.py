"""Request and response headers (versions 1 and 2; responses 0 and 1)."""

import struct
from typing import Final, NamedTuple

from tierd.base.session import NOBODY, Session
from tierd.wire.api import API, has_flexible_header
from tierd.wire.errors import BadFrame
from tierd.wire.primitives import skip_tags

_FIXED: Final = struct.Struct(">hhih")  # api key, version, correlation id, client id length
_I32: Final = struct.Struct(">i")
LENGTH_BYTES: Final = 4
assert _FIXED.size == 10


class RequestHeader(NamedTuple):
    """Who asks what. A tuple because one is made per request."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    session: Session = NOBODY
    """Who sent it. Not of the frame: the connection's."""

    @property
    def client_host(self) -> str:
        """Where it came from, as Kafka writes it ("/127.0.0.1")."""
        return f"/{self.session.host}"


def parse_request_header(frame: memoryview, session: Session = NOBODY) -> tuple[RequestHeader, int]:
    """Give the header and where the body begins.

    The version may be one that tierd does not serve (`api.is_served`): the header says how to answer.
    Raises BadFrame when the frame is cut or its API is not served at all.
    """
    try:
        api_key, version, correlation_id, client_length = _FIXED.unpack_from(frame, 0)
        versions = API.get(api_key)
        if versions is None:
            raise BadFrame(f"api key {api_key} is not served")
        position = _FIXED.size
        client_id = None
        if client_length >= 0:
            stop = position + client_length
            if stop > len(frame):
                raise BadFrame(f"client id of {client_length} bytes in a frame of {len(frame)}")
            client_id = str(frame[position:stop], "utf-8")
            position = stop
        if version >= versions.flexible_from:
            # One zero byte nearly always.
            position = position + 1 if frame[position] == 0 else skip_tags(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BadFrame(f"request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, session), position


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The header of an answer, without the length word."""
    raw = _I32.pack(correlation_id)
    return raw + b"\0" if has_flexible_header(api_key, version) else raw


def framed(header: bytes, body: bytes) -> bytes:
    """Length word, header, body."""
    return _I32.pack(len(header) + len(body)) + header + body
