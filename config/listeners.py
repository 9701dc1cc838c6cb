"""Listeners: where clients come in, and what each asks of them (TLS, SASL)."""

from pathlib import Path
from typing import Annotated

from pydantic import SecretStr

from tierd.config.kinds import BYTES, INT_MAX, MILLIS, Choice, Number, Switch, Text, Words
from tierd.config.places import Address, HostPort, Place, Secret
from tierd.config.section import Section, Setting
from tierd.config.topic import GIB, KIB, MIB

_LISTEN = HostPort("127.0.0.1", 9092)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Tls(Section):
    """What is shown to clients of an SSL or SASL_SSL listener, and asked of them."""

    certificate: Annotated[
        Path | None,
        Setting(
            "listener.ssl.certificate.location",
            Place(),
            "PEM file: the certificate, then those between it and its root. Needed for SSL and SASL_SSL. This file, "
            "the key and the CA are read again when they change.",
        ),
    ] = None
    key: Annotated[
        Path | None,
        Setting(
            "listener.ssl.key.location", Place(), "PEM file with its key; not set: it is in the certificate's file."
        ),
    ] = None
    key_password: Annotated[
        SecretStr | None,
        Setting("listener.ssl.key.password", Secret(), "What the key is encrypted with. Never with --set."),
    ] = None
    ca: Annotated[
        Path | None,
        Setting("listener.ssl.ca.location", Place(), "PEM file: who may have signed the certificates of clients."),
    ] = None
    client_auth: Annotated[
        str,
        Setting(
            "listener.ssl.client.auth",
            Choice(("none", "requested", "required")),
            "Whether clients show a certificate. Requested: who shows none is User:ANONYMOUS.",
        ),
    ] = "none"
    mapping_rules: Annotated[
        str,
        Setting(
            "listener.ssl.principal.mapping.rules",
            Text(),
            "How a certificate's name becomes that of a user, in Kafka's form: RULE:pattern/replacement/[L|U] or "
            "DEFAULT, with commas; the first that matches counts.",
        ),
    ] = "DEFAULT"


class OAuth(Section):
    """Tokens of the mechanism OAUTHBEARER: JWTs, signed with RS256, ES256 and the like."""

    jwks: Annotated[
        Path | None,
        Setting(
            "listener.sasl.oauthbearer.jwks.location",
            Place(),
            "JSON file with the keys (JWKS) that tokens are signed with; read again when it changes.",
        ),
    ] = None
    issuer: Annotated[
        str | None, Setting("listener.sasl.oauthbearer.expected.issuer", Text(), "What `iss` of a token must be.")
    ] = None
    audience: Annotated[
        str | None,
        Setting(
            "listener.sasl.oauthbearer.expected.audience", Text(), "One of these, with commas, must be in its `aud`."
        ),
    ] = None
    clock_skew_s: Annotated[
        int,
        Setting(
            "listener.sasl.oauthbearer.clock.skew.seconds",
            Number(0, 3600),
            "So far the issuer's clock may be from this one.",
        ),
    ] = 30
    sub_claim: Annotated[
        str, Setting("listener.sasl.oauthbearer.sub.claim.name", Text(), "The claim that names the user.")
    ] = "sub"


class Sasl(Section):
    """How clients of a SASL listener say who they are."""

    mechanisms: Annotated[
        frozenset[str],
        Setting("listener.sasl.enabled.mechanisms", Words(MECHANISMS), "What clients may choose from."),
    ] = frozenset({"SCRAM-SHA-256", "SCRAM-SHA-512"})
    max_receive_bytes: Annotated[
        int,
        Setting(
            "listener.sasl.server.max.receive.size",
            Number(4 * KIB, 16 * MIB, BYTES),
            "Largest request before a client is authenticated.",
        ),
    ] = 512 * KIB
    max_reauth_ms: Annotated[
        int,
        Setting(
            "listener.connections.max.reauth.ms",
            Number(0, unit=MILLIS),
            "After so long a client must authenticate again (they do it by themselves); 0: never, but tokens expire.",
        ),
    ] = 0
    failure_delay_ms: Annotated[
        int,
        Setting(
            "listener.connection.failed.authentication.delay.ms",
            Number(0, 60_000, MILLIS),
            "A failed authentication is answered, and its connection closed, only after this.",
        ),
    ] = 100
    oauth: OAuth = OAuth()


class Endpoint(Section):
    """One place where Kafka clients come in."""

    address: Annotated[
        HostPort,
        Setting("listener.address", Address(), "Where Kafka clients connect (--listen). Port 0 takes a free one."),
    ] = _LISTEN
    advertised: Annotated[
        HostPort | None,
        Setting(
            "listener.advertised",
            Address(),
            "What clients are told to connect to (--advertise), when not listener.address. Port 0: the real one.",
        ),
    ] = None
    security_protocol: Annotated[
        str,
        Setting("listener.security.protocol", Choice(PROTOCOLS), "Whether it speaks TLS, and asks clients for SASL."),
    ] = "PLAINTEXT"
    allow_anonymous: Annotated[
        bool,
        Setting(
            "listener.allow.anonymous",
            Switch(),
            "Listen beyond this machine although clients are not authenticated: on PLAINTEXT, or SSL without required "
            "certificates.",
        ),
    ] = False
    tls: Tls = Tls()
    sasl: Sasl = Sasl()

    @property
    def host(self) -> str:
        return self.address.host

    @property
    def port(self) -> int:
        return self.address.port

    @property
    def speaks_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def asks_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    @property
    def authenticates(self) -> bool:
        """Whether nobody stays anonymous."""
        return self.asks_sasl or (self.speaks_tls and self.tls.client_auth == "required")

    def advertise(self, bound_port: int) -> HostPort:
        """What clients are told, once the port is known."""
        told = self.advertised or HostPort(self.host, bound_port)
        return told if told.port else HostPort(told.host, bound_port)


class Listener(Endpoint):
    """The listener that is always there, and what all share. Others: `[listeners.NAME]`."""

    name: Annotated[
        str | None,
        Setting("listener.name", Text(), "Its name; not set: that of its security protocol."),
    ] = None
    max_connections: Annotated[
        int,
        Setting(
            "listener.max.connections",
            Number(1, 1_000_000),
            "Connections at a time, over all listeners; one more is closed at once.",
        ),
    ] = 10_000
    max_connections_per_ip: Annotated[
        int,
        Setting(
            "listener.max.connections.per.ip",
            Number(1, INT_MAX),
            "Connections at a time from one address, over all listeners; one more is closed at once.",
        ),
    ] = INT_MAX
    max_frame_bytes: Annotated[
        int,
        Setting(
            "listener.max.frame.bytes",
            Number(16 * KIB, GIB, BYTES),
            "Largest request; the connection of a larger one is closed.",
        ),
    ] = 100 * MIB
    max_in_flight_bytes: Annotated[
        int,
        Setting(
            "listener.max.in.flight.bytes",
            Number(MIB, unit=BYTES),
            "Bytes of requests being received at a time, over all connections, beside 4 KiB each (22 KiB with TLS). A "
            "request without room waits, small ones go first, and who sends below 16 KiB/s is closed while others "
            "wait. A quarter of this and the largest request have room in any case. Answers that clients do not take "
            "may hold as much again; then who holds most is closed.",
        ),
    ] = 256 * MIB
    idle_ms: Annotated[
        int, Setting("listener.idle.ms", Number(1_000, unit=MILLIS), "A connection silent for this long is closed.")
    ] = 600_000

    @property
    def named(self) -> str:
        return (self.name or self.security_protocol).upper()
