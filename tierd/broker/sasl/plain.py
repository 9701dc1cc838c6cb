"""PLAIN (RFC 4616): name and password as they are; for connections through TLS."""

from collections.abc import Awaitable, Callable

from tierd.broker.sasl.exchange import AuthenticationFailed

Check = Callable[[str, str], Awaitable[bool]]
"""Whether that is the password of that user."""


class PlainExchange:
    """One message. What the client is told are Kafka's words."""

    expires_ms = None

    def __init__(self, check: Check) -> None:
        self._check = check
        self.user: str | None = None

    async def step(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("a token that is no UTF-8") from None
        if len(parts) != 3:
            told = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise AuthenticationFailed("not a message of PLAIN", told=told)
        meant, name, password = parts
        if not name or not password:
            missing = "password" if name else "username"
            raise AuthenticationFailed(f"no {missing}", told=f"Authentication failed: {missing} not specified")
        if meant not in ("", name):
            told = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationFailed("authorization id is not the user name", told=told, user=name)
        if not await self._check(name, password):
            told = "Authentication failed: Invalid username or password"
            raise AuthenticationFailed("no such user, or wrong password", told=told, user=name)
        self.user = name
        return b""
