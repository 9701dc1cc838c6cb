"""What all SASL mechanisms are to the connection: tokens in, tokens out, and in the end a name."""

from typing import Protocol

from tierd.base.errors import TierdError


class AuthenticationFailed(TierdError):
    """The client is not who it says, or says it wrongly. The text is for the log and holds no secret."""

    def __init__(self, why: str, *, told: str | None = None, user: str | None = None) -> None:
        """*told*: what the client hears; None: as little as Kafka tells. *user*: who it said it was."""
        super().__init__(why)
        self.told = told
        self.user = user


class Exchange(Protocol):
    """One authentication by one mechanism."""

    @property
    def user(self) -> str | None:
        """Who the client is; None until that is sure."""

    @property
    def expires_ms(self) -> int | None:
        """Wall clock until which it is so; None: no end."""

    async def step(self, token: bytes) -> bytes:
        """The answer to what the client says. Raises AuthenticationFailed."""
