"""One frame in, one answer out: which handler serves which API, and what becomes of versions that nobody serves."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.broker.api_versions import api_versions
from tierd.broker.connection import Answer, Connection
from tierd.broker.counters import Counters
from tierd.broker.fetch import Fetch
from tierd.broker.produce import Produce
from tierd.broker.sending import Reply
from tierd.wire.api import ApiKey, is_served
from tierd.wire.control import decode_control, encode_control, make_response
from tierd.wire.errors import BadFrame, ErrorCode
from tierd.wire.header import RequestHeader, parse_request_header
from tierd.wire.produce_shape import ProduceShapes

ControlHandler = Callable[[RequestHeader, Any], Awaitable[Mapping[str, object] | ResponsePayload]]
"""Answers a decoded request with a response of its version, or with plain values for `make_response`."""


# Enum members cost a look-up each time, and these are asked for every request.
_PRODUCE, _FETCH, _API_VERSIONS = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.API_VERSIONS)


class Dispatch:
    """The broker's side of a connection (`connection.Serve`)."""

    def __init__(
        self, produce: Produce, fetch: Fetch, control: Mapping[ApiKey, ControlHandler], counters: Counters
    ) -> None:
        self._produce = produce
        self._fetch = fetch
        self._control = {int(key): handler for key, handler in control.items()}
        self._counters = counters

    def __call__(self, frame: memoryview, connection: Connection) -> Answer:
        shapes = connection.produced
        if shapes is not None:
            answer = self._produce.again(frame, shapes)
            if answer is not None:
                self._counters.requests[_PRODUCE] += 1
                return answer
        header, position = parse_request_header(frame)
        key = header.api_key
        self._counters.requests[key] += 1
        if not is_served(key, header.version):
            return self._unserved(header)
        if key == _PRODUCE:
            if shapes is None:
                shapes = connection.produced = ProduceShapes()
            return self._produce(header, frame, position, shapes)
        if key == _FETCH:
            return self._fetch(header, frame, position)
        request = decode_control(key, header.version, frame[position:])
        if key == _API_VERSIONS:
            return _encoded(header, api_versions(header.version))
        return self._answer(header._replace(client_host="/" + connection.peer.rpartition(":")[0]), request)

    async def _answer(self, header: RequestHeader, request: RequestPayload) -> Reply:
        return _encoded(header, await self._control[header.api_key](header, request))

    def _unserved(self, header: RequestHeader) -> Reply:
        """ApiVersions is answered in its oldest form, so that the client can choose; all else ends the connection."""
        if header.api_key != ApiKey.API_VERSIONS:
            raise BadFrame(
                f"api key {header.api_key} version {header.version} is not served (client {header.client_id})"
            )
        oldest = header._replace(version=0)
        return _encoded(oldest, api_versions(0, ErrorCode.UNSUPPORTED_VERSION))


def _encoded(header: RequestHeader, answer: Mapping[str, object] | ResponsePayload) -> bytes:
    if isinstance(answer, Mapping):
        answer = make_response(header.api_key, header.version, **answer)
    return encode_control(header.correlation_id, header.version, answer)
