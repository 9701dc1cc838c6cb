"""Quotas at work: what each request uses, the pause that its answer names, and that its connection keeps.

As in Kafka since 2.0 the answer goes out at once and says `throttle_time_ms`; until then nothing more is read from the
connection. Unlike in Kafka, a Fetch that is too much is still answered with its records: they were read already; and
who comes anew before its pause is over waits for the rest of it: a pause is the client's, not the connection's.
"""

import asyncio
import functools
import struct
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from kio.index import load_response_schema

from tierd.broker.connection import Answer, Connection, Serve
from tierd.broker.counters import Counters
from tierd.broker.security.mutations import STRICT_FROM
from tierd.broker.security.quota_entities import Key
from tierd.broker.security.quotas import Quotas
from tierd.broker.sending import Reply
from tierd.broker.slow_disks import SlowDisks
from tierd.wire.api import ApiKey, has_flexible_header, is_flexible, is_served
from tierd.wire.header import LENGTH_BYTES, RequestHeader, parse_request_header
from tierd.wire.schema import shapes

_I32: Final = struct.Struct(">i")
_LIMITS: Final = struct.Struct(">ii")  # Fetch: min bytes, max bytes
_PRODUCE, _FETCH, _API_VERSIONS = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.API_VERSIONS)
_LIMITED: Final = {_PRODUCE: Key.PRODUCED, _FETCH: Key.FETCHED}
_BITS: Final = {Key.PRODUCED: 1, Key.FETCHED: 2, Key.REQUESTS: 4}
_FETCH_WITHOUT_REPLICA = 15
_ERROR_BYTES: Final = 2
_PERCENT_OF_A_SECOND: Final = 100.0


class Throttle:
    """Stands before `Dispatch` (`connection.Serve`); costs one look where there are no quotas."""

    def __init__(self, serve: Serve, quotas: Quotas, counters: Counters, slow: SlowDisks) -> None:
        self._serve = serve
        self._slow = slow
        self._quotas = quotas
        self._counters = counters

    def __call__(self, frame: memoryview, connection: Connection) -> Answer:
        if not self._quotas.any and not self._slow.on:
            return self._serve(frame, connection)
        header, position = parse_request_header(frame, connection.session)
        if (owed_ms := self._owed_ms(header, connection)) > 0:
            connection.hold_frame()
            return self._later(owed_ms, frame, connection)
        if header.api_key == _FETCH and not frame.readonly and is_served(_FETCH, header.version):
            self._narrow(header, frame, position)
        used = _Used(header, connection, len(frame), self._debt_ms(header))
        begun = perf_counter()
        answer = self._serve(frame, connection)
        used.time_s = perf_counter() - begun
        used.slow_ms = self._slow.due_ms()
        if answer is None or isinstance(answer, (bytes, list)):
            return self._answered(used, answer)
        return _Timed(answer, used, self._answered)

    def _owed_ms(self, header: RequestHeader, connection: Connection) -> int:
        """What is left of the pause that this client was told on another connection; asked once for each quota."""
        key = _LIMITED.get(header.api_key, Key.REQUESTS)
        bit = _BITS[key]
        if connection.swept.held_to & bit or header.api_key == _API_VERSIONS:
            return 0
        connection.swept.held_to |= bit
        return self._quotas.owed_ms(key, header.session, header.client_id)

    async def _later(self, owed_ms: int, frame: memoryview, connection: Connection) -> Reply | None:
        self._counters.throttled += 1
        self._counters.throttled_ms += owed_ms
        await asyncio.sleep(owed_ms / 1000)
        answer = self(frame, connection)
        return await answer if asyncio.iscoroutine(answer) else answer

    def _debt_ms(self, header: RequestHeader) -> int:
        """How long nothing more may be made or removed, before the request that asks for it."""
        return self._quotas.debt_ms(header.session, header.client_id) if header.api_key in STRICT_FROM else 0

    def _narrow(self, header: RequestHeader, frame: memoryview, position: int) -> None:
        """Let a Fetch take no more at once than its windows allow together, or its pause would outlast its client."""
        most = self._quotas.most(Key.FETCHED, header.session, header.client_id)
        at = position + (4 if header.version >= _FETCH_WITHOUT_REPLICA else 8)
        if most is None or at + _LIMITS.size > len(frame):
            return
        least_bytes, most_bytes = _LIMITS.unpack_from(frame, at)
        if most_bytes > most:
            _LIMITS.pack_into(frame, at, min(least_bytes, most), most)

    def _answered(self, used: "_Used", reply: Reply | None) -> Reply | None:
        header = used.header
        key, who = header.api_key, (header.session, header.client_id)
        pause_ms = 0
        if key == _PRODUCE:
            pause_ms = max(used.slow_ms, self._quotas.used(Key.PRODUCED, used.received_bytes, *who))
        elif key == _FETCH and reply is not None:
            pause_ms = self._quotas.used(Key.FETCHED, _size_bytes(reply), *who)
        elif key in STRICT_FROM:
            pause_ms = self._pause_of_mutations(used)
        if key != _API_VERSIONS:
            pause_ms = max(pause_ms, self._quotas.used(Key.REQUESTS, used.time_s * _PERCENT_OF_A_SECOND, *who))
        if pause_ms == 0:
            return reply
        self._counters.throttled += 1
        self._counters.throttled_ms += pause_ms
        used.connection.pause(pause_ms / 1000)
        return reply if reply is None else told(key, header.version, reply, pause_ms)

    def _pause_of_mutations(self, used: "_Used") -> int:
        """Of who was refused, who made too much at once, or who made anything by mentioning it."""
        header = used.header
        if header.version >= STRICT_FROM[header.api_key]:
            return used.debt_ms
        debt_ms = self._debt_ms(header)
        return debt_ms if header.api_key != ApiKey.METADATA or debt_ms > used.debt_ms else 0


@dataclass(slots=True)
class _Used:
    """What a request has used so far."""

    header: RequestHeader
    connection: Connection
    received_bytes: int
    debt_ms: int
    time_s: float = 0.0
    slow_ms: int = 0
    """What the disks that it wrote to ask for."""


class _Timed(Coroutine[Any, Any, Reply | None]):
    """An answer that is waited for; its own steps count as time, the waiting between them does not."""

    __slots__ = ("_answer", "_done", "_used")

    def __init__(
        self,
        answer: Coroutine[Any, Any, Reply | None],
        used: _Used,
        done: Callable[[_Used, Reply | None], Reply | None],
    ) -> None:
        self._answer, self._used, self._done = answer, used, done

    def send(self, value: Any) -> Any:
        return self._step(self._answer.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._answer.throw, *error)

    def close(self) -> None:
        self._answer.close()

    @property
    def cr_await(self) -> Coroutine[Any, Any, Reply | None]:
        """What it waits for, as a coroutine says it."""
        return self._answer

    def __await__(self) -> Generator[Any, Any, Reply | None]:
        return self  # an iterator with `send` and `throw` is all that `await` asks for

    def __iter__(self) -> "_Timed":
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def _step(self, step: Callable[..., Any], *values: Any) -> Any:
        begun = perf_counter()
        try:
            return step(*values)
        except StopIteration as end:
            self._used.time_s += perf_counter() - begun
            begun = perf_counter()
            raise StopIteration(self._done(self._used, end.value)) from None
        finally:
            self._used.time_s += perf_counter() - begun


def told(api_key: int, version: int, reply: Reply, pause_ms: int) -> Reply:
    """The answer with the pause in it, where its version has a place for that."""
    if isinstance(reply, list):
        first = reply[0]
        assert isinstance(first, bytes)
        return [_put(api_key, version, first, pause_ms), *reply[1:]]
    return _put(api_key, version, reply, pause_ms)


def _put(api_key: int, version: int, raw: bytes, pause_ms: int) -> bytes:
    at = _throttle_at(api_key, version)
    if at is None or not is_served(api_key, version):
        return raw
    at = at if at >= 0 else len(raw) + at
    return b"".join((raw[:at], _I32.pack(min(pause_ms, 2**31 - 1)), raw[at + _I32.size :]))


@functools.cache
def _throttle_at(api_key: int, version: int) -> int | None:
    """Where the pause stands in the framed answer, from the end where negative; None: nowhere."""
    if api_key == _PRODUCE:
        tags = 1 if is_flexible(api_key, version) else 0
        return -_I32.size - tags if version >= 1 else None
    at = LENGTH_BYTES + _I32.size + (1 if has_flexible_header(api_key, version) else 0)
    for shape in shapes(load_response_schema(api_key, version)):
        if shape.name == "throttle_time":
            return at
        if shape.kafka_type != "error_code":
            return None
        at += _ERROR_BYTES
    return None


def _size_bytes(reply: Reply) -> int:
    if isinstance(reply, bytes):
        return len(reply)
    return sum([len(part) if isinstance(part, bytes) else part.length for part in reply])
