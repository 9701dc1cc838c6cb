"""What is wrong with settings that are right one by one."""

import os
from collections.abc import Iterator
from pathlib import Path

from tierd.config.encryption import Encryption
from tierd.config.listeners import Endpoint, Tls
from tierd.config.model import Settings
from tierd.config.principal_rules import parse_rules
from tierd.config.problem import Problem, quoted
from tierd.config.s3_rules import s3_contradictions


def contradictions(settings: Settings) -> Iterator[Problem]:
    listener = settings.listener
    yield from _of_listeners(settings)
    if listener.max_in_flight_bytes < listener.max_frame_bytes:
        yield Problem(
            "listener.max.in.flight.bytes", str(listener.max_in_flight_bytes), "must hold listener.max.frame.bytes"
        )
    http = settings.http.address
    if http is not None and not http.is_loopback and not listener.allow_anonymous:
        yield Problem(
            "http.address",
            quoted(http),
            "others can reach it and are not authenticated: set listener.allow.anonymous=true if that is meant",
        )
    yield from _places_in_the_way(settings)
    yield from _bucket_in_the_way(settings)
    yield from _of_keys(settings.remote.encryption)
    yield from _key_that_is_none(settings.remote.encryption)
    yield from s3_contradictions(settings.remote.s3)
    defaults = settings.topic_defaults
    for topic in ("", *settings.topics):
        place = f'topics."{topic}"' if topic else "defaults"
        yield from (Problem(place, None, reason) for reason in defaults.conflicts(topic))


def _of_listeners(settings: Settings) -> Iterator[Problem]:
    if settings.listener.named in settings.listeners:
        why = "the first listener is called so (listener.name)"
        yield Problem(f"listeners.{settings.listener.named}", None, why)
    yield from _of_listener(settings.listener, "listener")
    taken = {settings.listener.address}
    for name, endpoint in settings.listeners.items():
        if endpoint.port and endpoint.address in taken:
            yield Problem(f"listeners.{name}.address", quoted(endpoint.address), "another listener has this address")
        taken.add(endpoint.address)
        yield from _of_listener(endpoint, f"listeners.{name}")


def _of_listener(listener: Endpoint, place: str) -> Iterator[Problem]:
    if not listener.address.is_loopback and not listener.allow_anonymous and not listener.authenticates:
        yield Problem(
            f"{place}.address",
            quoted(listener.address),
            f"others can reach it and clients are not authenticated: set {place}.security.protocol, or "
            f"{place}.allow.anonymous=true if that is meant",
        )
    if (listener.advertised or listener.address).is_wildcard:
        yield Problem(
            f"{place}.advertised" if listener.advertised else f"{place}.address",
            quoted(listener.advertised or listener.address),
            "clients cannot connect to this address: "
            + ("say --advertise HOST:PORT" if place == "listener" else f"set {place}.advertised"),
        )
    if listener.speaks_tls:
        yield from _of_tls(listener.tls, place)
    if listener.asks_sasl:
        yield from _of_sasl(listener, place)


def _of_tls(tls: Tls, place: str) -> Iterator[Problem]:
    if tls.certificate is None:
        yield Problem(f"{place}.ssl.certificate.location", None, "TLS needs a certificate")
    if tls.client_auth != "none" and tls.ca is None:
        why = "clients' certificates need somebody who signed them"
        yield Problem(f"{place}.ssl.ca.location", None, why)
    try:
        parse_rules(tls.mapping_rules)
    except ValueError as error:
        yield Problem(f"{place}.ssl.principal.mapping.rules", quoted(tls.mapping_rules), str(error))


def _of_sasl(listener: Endpoint, place: str) -> Iterator[Problem]:
    if "OAUTHBEARER" in listener.sasl.mechanisms and listener.sasl.oauth.jwks is None:
        why = "OAUTHBEARER needs the keys that tokens are signed with"
        yield Problem(f"{place}.sasl.oauthbearer.jwks.location", None, why)


def _of_keys(encryption: Encryption) -> Iterator[Problem]:
    ids = [path.stem for path in encryption.key_files]
    for key_id in sorted(set(ids)):
        if ids.count(key_id) > 1 or ":" in key_id:
            why = "a colon cannot be in a key's id" if ":" in key_id else "two files are the key of this id"
            yield Problem("remote.encryption.key.files", quoted(key_id), why)


def _key_that_is_none(encryption: Encryption) -> Iterator[Problem]:
    active = encryption.active
    if active is not None and active not in {path.stem for path in encryption.key_files}:
        why = "none of remote.encryption.key.files is that key"
        yield Problem("remote.encryption.key.active", quoted(active), why)


def _places_in_the_way(settings: Settings) -> Iterator[Problem]:
    """Each directory must lie apart from the others, and be one. Of several data directories one may be broken."""
    for data in settings.data_dirs:
        if settings.state_dir == data or data in settings.state_dir.parents:
            yield Problem("state", quoted(settings.state_dir), f"must not lie in the data directory {data}")
        for above in settings.data_dirs:
            if above in data.parents:
                yield Problem("data", quoted(data), f"must not lie in the data directory {above}")
    alone = settings.data_dirs if len(settings.data_dirs) == 1 else ()
    for path, place in [("state", settings.state_dir), *(("data", data) for data in alone)]:
        there = next((one for one in (place, *place.parents) if os.path.lexists(one)), place)
        if not there.is_dir():
            yield Problem(path, quoted(place), f"{there} is not a directory")


def _bucket_in_the_way(settings: Settings) -> Iterator[Problem]:
    """A directory as the bucket must not lie in, or hold, what tierd keeps locally."""
    url = settings.remote.url
    if url is None or not url.startswith("file:"):
        return
    bucket = Path(url.removeprefix("file:"))
    for place in (*settings.data_dirs, settings.state_dir):
        if bucket == place or place in bucket.parents or bucket in place.parents:
            yield Problem("remote.url", quoted(url), f"must lie apart from {place}")
