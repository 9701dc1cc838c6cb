"""One frame in, one answer out: which handler serves which API, and what becomes of versions that nobody serves.

Reading a large request and writing a large answer is Python's work for each row: threads do it, so that others are
served meanwhile. Few at a time: what is read takes many times the memory of its frame.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.broker.api_versions import api_versions
from tierd.broker.connection import Answer, Connection
from tierd.broker.counters import Counters
from tierd.broker.fetch import Fetch
from tierd.broker.listings import LONG_ROWS, Listings
from tierd.broker.produce import Produce
from tierd.broker.sending import Reply
from tierd.wire.api import ApiKey, is_served
from tierd.wire.control import decode_control, encode_control, make_response
from tierd.wire.errors import BadFrame, ErrorCode
from tierd.wire.fetch import FetchRequest, decode_fetch
from tierd.wire.header import RequestHeader, parse_request_header
from tierd.wire.produce_shape import ProduceShapes

ControlHandler = Callable[[RequestHeader, Any], Awaitable[Mapping[str, object] | ResponsePayload]]
"""Answers a decoded request with a response of its version, or with plain values for `make_response`."""

LONG_BYTES = 16 * 1024
"""A request above this is read by a thread."""
_LONG_AT_A_TIME = 2
_WAIT_FOR_OTHERS = frozenset({int(ApiKey.JOIN_GROUP), int(ApiKey.SYNC_GROUP), int(ApiKey.FETCH)})
"""Answered when other clients have done something."""

# Enum members cost a look-up each time, and these are asked for every request.
_PRODUCE, _FETCH, _API_VERSIONS = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.API_VERSIONS)


class Dispatch:
    """The broker's side of a connection (`connection.Serve`)."""

    def __init__(
        self,
        produce: Produce,
        fetch: Fetch,
        control: Mapping[ApiKey, ControlHandler],
        counters: Counters,
        listings: Listings,
    ) -> None:
        self._produce = produce
        self._fetch = fetch
        self._control = {int(key): handler for key, handler in control.items()}
        self._counters = counters
        self._listings = listings
        self._long_requests = asyncio.Semaphore(_LONG_AT_A_TIME)
        self._long_answers = asyncio.Semaphore(_LONG_AT_A_TIME)

    def __call__(self, frame: memoryview, connection: Connection) -> Answer:
        answer = self._again(frame, connection)
        if answer is not None:
            return answer
        header, position = parse_request_header(frame, connection.session)
        key = header.api_key
        self._counters.requests[key] += 1
        if not is_served(key, header.version):
            return self._unserved(header)
        connection.swept.api_key = key
        if key == _PRODUCE:
            shapes = connection.produced
            if shapes is None:
                shapes = connection.produced = ProduceShapes()
            return self._produce(header, frame, position, shapes, connection.hold_frame)
        if len(frame) > LONG_BYTES:
            connection.hold_frame()
            return self._long(header, frame, position, connection)
        if key == _FETCH:
            return self._fetch(header, frame, position, connection)
        request = decode_control(key, header.version, frame[position:])
        if key == _API_VERSIONS:
            return _encoded(header, api_versions(header.version))
        return self._answer(header, request)

    def _again(self, frame: memoryview, connection: Connection) -> Answer:
        """The short way for a request like one before it on its connection; None when the usual way must decide."""
        fetched, produced = connection.fetched, connection.produced
        if fetched is not None and (reply := fetched.answer(frame, connection.session)) is not None:
            self._counters.requests[_FETCH] += 1
            return reply
        if produced is not None and (answer := self._produce.again(frame, produced, connection.session)) is not None:
            self._counters.requests[_PRODUCE] += 1
            if type(answer) is not bytes:
                connection.swept.api_key = _PRODUCE
            return answer
        return None

    async def _answer(self, header: RequestHeader, request: RequestPayload) -> Reply:
        turn = self._listings.turn(header, request)
        if turn is None:
            return await self._answer_now(header, request)
        async with turn:
            return await self._answer_now(header, request)

    async def _answer_now(self, header: RequestHeader, request: RequestPayload) -> Reply:
        if header.api_key == _API_VERSIONS:
            return _encoded(header, api_versions(header.version))
        answer = await self._control[header.api_key](header, request)
        if not _is_long(answer):
            return _encoded(header, answer)
        async with self._long_answers:
            return await asyncio.to_thread(_encoded, header, answer)

    async def _long(
        self, header: RequestHeader, frame: memoryview, position: int, connection: Connection
    ) -> Reply | None:
        async with self._long_requests:
            request: Any = await asyncio.to_thread(_read, header, frame, position)
            connection.frame_read()
            if header.api_key == _FETCH:
                await self._fetch.room.free(request.rows)
            elif header.api_key not in _WAIT_FOR_OTHERS:
                return await self._answer(header, request)
        if header.api_key != _FETCH:
            return await self._answer(header, request)
        answer = self._fetch.answer(header, request)
        return await answer if asyncio.iscoroutine(answer) else answer

    def _unserved(self, header: RequestHeader) -> Reply:
        """ApiVersions is answered in its oldest form, so that the client can choose; all else ends the connection."""
        if header.api_key != ApiKey.API_VERSIONS:
            raise BadFrame(
                f"api key {header.api_key} version {header.version} is not served (client {header.client_id})"
            )
        oldest = header._replace(version=0)
        return _encoded(oldest, api_versions(0, ErrorCode.UNSUPPORTED_VERSION))


def _read(header: RequestHeader, frame: memoryview, position: int) -> RequestPayload | FetchRequest:
    if header.api_key == _FETCH:
        return decode_fetch(frame, position, header.version)
    return decode_control(header.api_key, header.version, frame[position:])


def _is_long(answer: Mapping[str, object] | ResponsePayload) -> bool:
    if not isinstance(answer, Mapping):
        return False
    rows = [row for value in answer.values() if isinstance(value, (list, tuple)) for row in value]
    below = [value for row in rows if isinstance(row, Mapping) for value in row.values()]
    return len(rows) + sum(len(value) for value in below if isinstance(value, (list, tuple))) > LONG_ROWS


def _encoded(header: RequestHeader, answer: Mapping[str, object] | ResponsePayload) -> bytes:
    if isinstance(answer, Mapping):
        answer = make_response(header.api_key, header.version, **answer)
    return encode_control(header.correlation_id, header.version, answer)
