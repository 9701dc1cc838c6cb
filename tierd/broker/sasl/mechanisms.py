"""What a listener asks of its clients by SASL: mechanisms, times, and where passwords and keys are."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tierd.base.clock import Clock
from tierd.base.logs import Doubling
from tierd.broker.counters import Counters
from tierd.broker.sasl.exchange import Exchange
from tierd.broker.sasl.plain import PlainExchange
from tierd.broker.sasl.scram import Mechanism, ScramExchange
from tierd.broker.sasl.users import Users
from tierd.broker.security.audit import Audit, Budget
from tierd.config.listeners import MECHANISMS, Sasl
from tierd.config.topic import DAY_MS

if TYPE_CHECKING:
    from tierd.broker.sasl.tokens import Tokens


_LONGEST_MS: Final = 3650 * DAY_MS
"""A token may name a time that no calendar has."""


def tokens_of(settings: Sasl) -> "Tokens | None":
    """The keys of tokens, where tokens are asked for. Raises StartRefused when they are of no use."""
    if "OAUTHBEARER" not in settings.mechanisms:
        return None
    from tierd.broker.sasl.tokens import Tokens  # slow to import, and most listeners need none

    return Tokens(settings.oauth)


@dataclass(frozen=True, slots=True)
class SaslSide:
    """Of one listener, shared by its connections."""

    settings: Sasl
    users: Users
    tokens: "Tokens | None"
    clock: Clock
    counters: Counters
    lines: Budget
    """How many may be written of failures: whoever tries one name after the other fills no disk."""
    audit: Audit | None = None
    """Told of failures, if somebody wants to know."""
    failures: Doubling = field(default_factory=Doubling)
    """Which are worth a line: clients that fail try again many times a second."""

    @property
    def mechanisms(self) -> list[str]:
        """What clients may choose from."""
        return [name for name in MECHANISMS if name in self.settings.mechanisms]

    @property
    def asks_password(self) -> bool:
        """Whether all of them need a user with a password."""
        return "OAUTHBEARER" not in self.settings.mechanisms

    def begin(self, mechanism: str) -> Exchange | None:
        """None for a mechanism that is not enabled."""
        if mechanism not in self.settings.mechanisms:
            return None
        if mechanism == "PLAIN":
            return PlainExchange(self.users.check)
        if mechanism == "OAUTHBEARER":
            from tierd.broker.sasl.tokens import TokenExchange

            assert self.tokens is not None
            return TokenExchange(self.tokens)
        return ScramExchange(Mechanism.named(mechanism), self.users.shown)

    def lifetime_ms(self, expires_ms: int | None) -> int | None:
        """How long a client that is authenticated now may go on; None: for ever."""
        most = self.settings.max_reauth_ms or None
        left = None if expires_ms is None else min(max(expires_ms - self.clock.now_ms(), 0), _LONGEST_MS)
        return min((one for one in (most, left) if one is not None), default=None)
