"""The listeners of the settings: what each shows and asks, where it listens, what its clients are told."""

import logging
from collections.abc import Iterator

from tierd.base.clock import Clock
from tierd.broker.counters import Counters
from tierd.broker.entrances import Entrance
from tierd.broker.sasl.mechanisms import SaslSide, tokens_of
from tierd.broker.sasl.users import Users
from tierd.broker.security.audit import Audit
from tierd.broker.server import Server
from tierd.broker.tls.contexts import TlsSide
from tierd.config.listeners import Endpoint
from tierd.config.model import Settings
from tierd.remote.renewal import Renewal

log = logging.getLogger(__name__)


class Listeners:
    """Loop thread only; renewed files are taken up by threads of their own."""

    def __init__(self, settings: Settings, users: Users, clock: Clock, counters: Counters, audit: Audit | None) -> None:
        """Raises StartRefused when a certificate or the keys of tokens are of no use."""
        self._endpoints = settings.endpoints

        def sasl(endpoint: Endpoint) -> SaslSide:
            return SaslSide(endpoint.sasl, users, tokens_of(endpoint.sasl), clock, counters, audit)

        self._entrances = [
            Entrance(
                name,
                TlsSide(endpoint.tls) if endpoint.speaks_tls else None,
                sasl(endpoint) if endpoint.asks_sasl else None,
            )
            for name, endpoint in self._endpoints.items()
        ]
        self._renewals = [renewal for entrance in self._entrances for renewal in _renewals(entrance)]
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
        for renewal in self._renewals:
            renewal.start()
            renewal.look()  # logs may have been opened for minutes since the files were read
        return self.addresses[self._entrances[0].name]

    def close(self) -> None:
        """Look after no files any more; the server closes what it has opened."""
        for renewal in self._renewals:
            renewal.close()
        self._renewals.clear()

    @property
    def expiries_ms(self) -> dict[str, int]:
        """Until when the certificate of each listener with TLS is good; wall clock."""
        return {one.name: one.tls.expires_ms for one in self._entrances if one.tls is not None}

    def advertised(self, name: str) -> tuple[str, int]:
        """What clients of a listener are told to connect to; by default those of the first."""
        known = name if name in self.addresses else self._entrances[0].name
        told = self._endpoints[known].advertise(self.addresses[known][1])
        return told.host, told.port


def _renewals(entrance: Entrance) -> Iterator[Renewal]:
    if entrance.tls is not None:
        yield Renewal(entrance.tls.files, entrance.tls.renew)
    if entrance.sasl is not None and entrance.sasl.tokens is not None:
        yield Renewal([entrance.sasl.tokens.file], entrance.sasl.tokens.renew)
