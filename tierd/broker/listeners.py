"""The listeners of the settings: what each shows and asks, where it listens, what its clients are told."""

import logging
from typing import TYPE_CHECKING

from tierd.base.clock import Clock
from tierd.base.errors import TierdError
from tierd.broker.counters import Counters
from tierd.broker.entrances import Entrance
from tierd.broker.sasl.mechanisms import SaslSide, tokens_of
from tierd.broker.sasl.users import Users
from tierd.broker.security.audit import Audit, Budget
from tierd.broker.server import Server
from tierd.broker.tls.contexts import TlsSide
from tierd.config.listeners import Endpoint
from tierd.config.model import Settings
from tierd.remote.renewal import Renewal

if TYPE_CHECKING:
    from tierd.broker.sasl.tokens import Tokens

log = logging.getLogger(__name__)


class Listeners:
    """Loop thread only; renewed files are taken up by threads of their own."""

    def __init__(self, settings: Settings, users: Users, clock: Clock, counters: Counters, audit: Audit | None) -> None:
        """Raises StartRefused when a certificate or the keys of tokens are of no use."""
        self._endpoints = settings.endpoints
        lines = Budget(clock)

        def sasl(endpoint: Endpoint) -> SaslSide:
            return SaslSide(endpoint.sasl, users, tokens_of(endpoint.sasl), clock, counters, lines, audit)

        self._entrances = [
            Entrance(
                name,
                TlsSide(endpoint.tls, names=not endpoint.asks_sasl) if endpoint.speaks_tls else None,
                sasl(endpoint) if endpoint.asks_sasl else None,
            )
            for name, endpoint in self._endpoints.items()
        ]
        self._renewal = Renewal([file for part in self._renewable for file in part.files], self._renew)
        self.addresses: dict[str, tuple[str, int]] = {}
        """Where each really listens, once it does; the first is that of `listener.address`."""

    def open(self, server: Server) -> tuple[str, int]:
        """Let clients in; give the address of the first. Raises StartRefused."""
        for entrance in self._entrances:
            endpoint = self._endpoints[entrance.name]
            self.addresses[entrance.name] = host, port = server.listen(endpoint.host, endpoint.port, entrance)
            facts = {"listener": entrance.name, "listening": f"{host}:{port}", "protocol": endpoint.security_protocol}
            log.info("listening", extra=facts)
            if entrance.sasl is not None and entrance.sasl.asks_password and entrance.sasl.users.nobody():
                log.warning("nobody can log in yet: tierd users add NAME", extra={"listener": entrance.name})
        self._renewal.start()
        self._renewal.look()  # logs may have been opened for minutes since the files were read
        return self.addresses[self._entrances[0].name]

    def close(self) -> None:
        """Look after no files any more; the server closes what it has opened."""
        self._renewal.close()

    @property
    def _renewable(self) -> "list[TlsSide | Tokens]":
        found: list[TlsSide | Tokens] = [one.tls for one in self._entrances if one.tls is not None]
        return [*found, *(one.sasl.tokens for one in self._entrances if one.sasl is not None and one.sasl.tokens)]

    def _renew(self) -> None:
        """Any thread: all that can be. Raises TierdError with what cannot."""
        wrong: dict[str, None] = {}
        for part in self._renewable:
            try:
                part.renew()
            except TierdError as error:
                wrong[str(error)] = None
        if wrong:
            raise TierdError("; ".join(wrong))

    @property
    def expiries_ms(self) -> dict[str, int]:
        """Until when the certificate of each listener with TLS is good; wall clock."""
        return {one.name: one.tls.expires_ms for one in self._entrances if one.tls is not None}

    def advertised(self, name: str) -> tuple[str, int]:
        """What clients of a listener are told to connect to; by default those of the first."""
        known = name if name in self.addresses else self._entrances[0].name
        told = self._endpoints[known].advertise(self.addresses[known][1])
        return told.host, told.port
