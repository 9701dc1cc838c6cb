"""Who a connection speaks for: what handlers, rules, quotas and audit lines may ask of it."""

from dataclasses import dataclass
from typing import Final

USER: Final = "User"


@dataclass(frozen=True, slots=True)
class Principal:
    """A type and a name, as Kafka has them; two of the same text are the same."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Principal":
        """`User:alice`. Raises ValueError."""
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise ValueError("not TYPE:NAME, such as User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Who did not say who it is."""


@dataclass(frozen=True, slots=True)
class Session:
    """One for each connection, shared by its requests; another one takes its place when the client authenticates."""

    principal: Principal = ANONYMOUS
    listener: str = ""
    """Name of the listener that it came in through."""
    host: str = ""
    """Address of the client, without a port."""
    tls: bool = False


NOBODY: Final = Session()
"""Of a request that came through no connection."""
