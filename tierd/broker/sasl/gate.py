"""Stands before the handlers on a SASL listener: nothing but versions and SASL gets through until the client is known.

What is refused, and how, is as in Kafka's SaslServerAuthenticator. Once the client is known and may stay for ever,
the gate is out of the way; else it looks at the clock at each request, and lets the client authenticate again
(KIP-368).
"""

import asyncio
import logging
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final

from tierd.base.errors import TierdError
from tierd.base.session import USER, Principal
from tierd.broker.connection import Answer, CloseQuietly, Connection, Serve
from tierd.broker.sasl.exchange import AuthenticationFailed, Exchange
from tierd.broker.sasl.mechanisms import SaslSide
from tierd.broker.sending import Reply
from tierd.wire.api import ApiKey, is_served
from tierd.wire.control import decode_control, encode_control, make_response
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader, parse_request_header

log = logging.getLogger(__name__)

AGAIN_AFTER_MS: Final = 1_000
"""Kafka: no client authenticates again sooner."""
_VERSIONS, _HANDSHAKE, _AUTHENTICATE = map(int, (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))


class _State(Enum):
    FIRST = auto()
    """Versions or the handshake."""
    HANDSHAKE = auto()
    TOKENS = auto()
    """In SaslAuthenticate requests."""
    RAW_TOKENS = auto()
    """Nothing around them: after version 0 of the handshake."""
    OPEN = auto()


class SaslGate:
    """One for each connection. Loop thread only."""

    def __init__(self, serve: Serve, side: SaslSide, max_frame_bytes: int) -> None:
        """*serve* and *max_frame_bytes* are for who is known."""
        self._serve = serve
        self._side = side
        self._max_frame_bytes = max_frame_bytes
        self._state = _State.FIRST
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._known: Principal | None = None  # before it authenticates again
        self._changed = False  # it chose another mechanism than before
        self._expires_ms: int | None = None  # monotonic
        self._begun_ms = -AGAIN_AFTER_MS

    def __call__(self, frame: memoryview, connection: Connection) -> Answer:
        if self._state is _State.OPEN:
            key = frame[0] << 8 | frame[1] if len(frame) > 1 else -1
            if key != _HANDSHAKE or not self._again(connection):
                return self._admitted(frame, connection)
        elif self._state is _State.RAW_TOKENS:
            return self._raw_token(bytes(frame), connection)
        header, position = parse_request_header(frame, connection.session)
        if is_served(header.api_key, header.version):
            if header.api_key == _VERSIONS and self._state is _State.FIRST:
                self._state = _State.HANDSHAKE
                return self._serve(frame, connection)
            if header.api_key == _HANDSHAKE and self._state in (_State.FIRST, _State.HANDSHAKE):
                request: Any = decode_control(header.api_key, header.version, frame[position:])
                return self._handshake(header, request.mechanism, connection)
            if header.api_key == _AUTHENTICATE and self._state is _State.TOKENS and not self._changed:
                request = decode_control(header.api_key, header.version, frame[position:])
                return self._token(header, bytes(request.auth_bytes), connection)
        elif header.api_key == _VERSIONS and self._state is _State.FIRST:
            return self._serve(frame, connection)  # It says which version it may be.
        return self._out_of_turn(header, connection)

    def _out_of_turn(self, header: RequestHeader, connection: Connection) -> Answer:
        """Once tokens are due Kafka says what is wrong; of all that a client could send, these two are worth it."""
        answer = None
        if self._state is _State.TOKENS and not self._changed and is_served(header.api_key, header.version):
            if header.api_key == _HANDSHAKE:
                answer = _encoded(header, error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=())
            elif header.api_key == _VERSIONS:
                answer = _encoded(header, error_code=ErrorCode.ILLEGAL_SASL_STATE)
        why = "another mechanism than before" if self._changed else f"API key {header.api_key} is not for now"
        return self._failed(AuthenticationFailed(why), connection, answer)

    def _admitted(self, frame: memoryview, connection: Connection) -> Answer:
        if self._expires_ms is not None and self._side.clock.monotonic_ms() > self._expires_ms:
            self._side.counters.sessions_expired += 1
            log.info(
                "authentication has expired, connection closed",
                extra={"peer": connection.peer, "principal": str(connection.session.principal)},
            )
            raise CloseQuietly
        return self._serve(frame, connection)

    def _again(self, connection: Connection) -> bool:
        """Whether the client may authenticate again now."""
        now_ms = self._side.clock.monotonic_ms()
        if now_ms - self._begun_ms < AGAIN_AFTER_MS:
            return False
        self._begun_ms = now_ms
        self._known = connection.session.principal
        self._state = _State.HANDSHAKE
        return True

    def _handshake(self, header: RequestHeader, mechanism: str, connection: Connection) -> Answer:
        exchange = self._side.begin(mechanism)
        code = ErrorCode.NONE if exchange is not None else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer = _encoded(header, error_code=code, mechanisms=tuple(self._side.mechanisms))
        if exchange is None:
            error = AuthenticationFailed(f"mechanism {mechanism[:40]!r} is not enabled")
            return self._failed(error, connection, answer)
        # Kafka answers the handshake all the same, and refuses what comes next.
        self._changed = self._known is not None and mechanism != self._mechanism
        self._mechanism = mechanism
        self._exchange = exchange
        self._state = _State.RAW_TOKENS if header.version == 0 else _State.TOKENS
        return answer

    async def _token(self, header: RequestHeader, token: bytes, connection: Connection) -> Reply | None:
        try:
            answer, lifetime_ms = await self._step(token, connection)
        except AuthenticationFailed as error:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            message = error.told or self._generic()
            reply = _encoded(header, error_code=code, error_message=message, auth_bytes=b"")
            return await self._failed(error, connection, reply)
        more = {} if header.version == 0 else {"session_lifetime": lifetime_ms or 0}
        return _encoded(header, error_code=ErrorCode.NONE, error_message="", auth_bytes=answer, **more)

    async def _raw_token(self, token: bytes, connection: Connection) -> Reply | None:
        try:
            answer, _ = await self._step(token, connection)
        except AuthenticationFailed as error:
            return await self._failed(error, connection, None)
        return len(answer).to_bytes(4, "big") + answer

    async def _step(self, token: bytes, connection: Connection) -> tuple[bytes, int | None]:
        """The answer, and how long the client may stay now that it is known. Raises AuthenticationFailed."""
        exchange = self._exchange
        assert exchange is not None
        try:
            answer = await exchange.step(token)
        except AuthenticationFailed:
            raise
        except (TierdError, OSError) as error:
            raise AuthenticationFailed(f"users cannot be read: {error}") from error
        return answer, None if exchange.user is None else self._admit(exchange, exchange.user, connection)

    def _admit(self, exchange: Exchange, user: str, connection: Connection) -> int | None:
        principal = Principal(USER, user)
        if self._known is not None and principal != self._known:
            was, now = (str(one).replace(":", ".", 1) for one in (self._known, principal))  # as Kafka writes it
            told = f"Cannot change principals during re-authentication from {was}: {now}"
            raise AuthenticationFailed("another user than before", told=told, user=user)
        lifetime_ms = self._side.lifetime_ms(exchange.expires_ms)
        connection.session = replace(connection.session, principal=principal)
        connection.admitted = True
        connection.by_password = self._mechanism != "OAUTHBEARER"
        connection.incoming.frames.allow(self._max_frame_bytes)
        self._exchange = None
        self._state = _State.OPEN
        if lifetime_ms is None:
            connection.serve = self._serve
        else:
            self._expires_ms = self._side.clock.monotonic_ms() + lifetime_ms
        return lifetime_ms

    async def _failed(self, error: AuthenticationFailed, connection: Connection, reply: Reply | None) -> Reply | None:
        """Answer late, so that guessing takes long, and close."""
        self._side.counters.authentications_failed += 1
        self._say(error, connection)
        await asyncio.sleep(self._side.settings.failure_delay_ms / 1000)
        if reply is None:
            raise CloseQuietly
        connection.finish()
        return reply

    def _say(self, error: AuthenticationFailed, connection: Connection) -> None:
        times = self._side.failures.failed((connection.session.host, error.user, str(error)))
        if times is None:
            return
        if self._side.audit is not None:
            self._side.audit.authentication_failed(connection.session, error.user, str(error), times)
        if not self._side.lines.spend():
            return
        left_out = self._side.lines.left_out()
        log.warning(
            "authentication failed, connection closed",
            extra={
                "peer": connection.peer,
                "listener": connection.session.listener,
                "mechanism": self._mechanism or None,
                "user": None if error.user is None else ascii(error.user[:100])[1:-1],  # it may hold anything
                "why": str(error),
                "times": times,
                **({"left_out": left_out} if left_out else {}),
            },
        )

    def _generic(self) -> str:
        kind = "authentication" if self._known is None else "re-authentication"
        return f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism}"


def _encoded(header: RequestHeader, **fields: object) -> bytes:
    return encode_control(
        header.correlation_id, header.version, make_response(header.api_key, header.version, **fields)
    )
