"""TLS connections that are being set up: step by step as bytes come, one step in a turn of the loop.

A step may take a millisecond (a signature): hundreds that come at once must not keep the loop from others.
"""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tierd.base.logs import Doubling
from tierd.base.session import Principal
from tierd.broker.refusals import Refusals
from tierd.broker.tls.contexts import TlsSide

HANDSHAKE_MS: Final = 10_000
"""Who has not finished by then is closed."""


@dataclass(slots=True, eq=False)
class Handshake:
    """One of them."""

    sock: ssl.SSLSocket
    side: TlsSide
    peer: str
    begun_ms: int
    done: Callable[[ssl.SSLSocket, Principal], None]


class Handshakes:
    """Loop thread only. Sockets are theirs until `done` gets them."""

    def __init__(self, failed: Callable[[str, OSError | ValueError, int | None], None], refusals: Refusals) -> None:
        """*failed* counts; it gets peer, error, and how often when that is to be said."""
        self._failed = failed
        self._refusals = refusals
        self._failures = Doubling()  # clients that fail try again many times a second
        self._loop: asyncio.AbstractEventLoop
        self._open: dict[Handshake, None] = {}
        self._ready: deque[Handshake] = deque()

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self,
        sock: socket.socket,
        side: TlsSide,
        peer: str,
        now_ms: int,
        done: Callable[[ssl.SSLSocket, Principal], None],
    ) -> None:
        """*sock* does not block; *now_ms* is monotonic."""
        self._loop = asyncio.get_running_loop()
        try:
            wrapped = side.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:
            sock.close()
            self._refused(peer, error)
            return
        one = Handshake(wrapped, side, peer, now_ms, done)
        self._open[one] = None
        self._loop.add_reader(wrapped.fileno(), self._wakes, one)

    def sweep(self, now_ms: int) -> None:
        """Close who takes too long."""
        for one in [one for one in self._open if now_ms - one.begun_ms > HANDSHAKE_MS]:
            self._end(one)
            self._refused(one.peer, TimeoutError(f"not finished in {HANDSHAKE_MS // 1000} s"))

    def close(self) -> None:
        for one in list(self._open):
            self._end(one)

    def _wakes(self, one: Handshake) -> None:
        self._unwatch(one)
        self._ready.append(one)
        if len(self._ready) == 1:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        one = self._ready.popleft()
        if self._ready:
            self._loop.call_soon(self._turn)
        if one in self._open:
            self._step(one)

    def _step(self, one: Handshake) -> None:
        try:
            one.sock.do_handshake()
            principal = one.side.principal(one.sock)
        except ssl.SSLWantReadError:
            self._loop.add_reader(one.sock.fileno(), self._wakes, one)
        except ssl.SSLWantWriteError:
            self._loop.add_writer(one.sock.fileno(), self._wakes, one)
        except (OSError, ValueError) as error:
            self._end(one)
            self._refused(one.peer, error)
        else:
            del self._open[one]
            one.done(one.sock, principal)

    def _unwatch(self, one: Handshake) -> None:
        self._loop.remove_reader(one.sock.fileno())
        self._loop.remove_writer(one.sock.fileno())

    def _end(self, one: Handshake) -> None:
        self._unwatch(one)
        del self._open[one]
        one.sock.close()

    def _refused(self, peer: str, error: OSError | ValueError) -> None:
        times = self._failures.failed((peer.rpartition(":")[0], why(error)))
        self._failed(peer, error, times)
        if times is not None:
            event = "TLS handshake failed, connection closed"
            self._refusals.say(logging.WARNING, event, peer=peer, why=why(error), times=times)


def of_certificate(error: OSError | ValueError) -> bool:
    """Whether it was for the client's certificate."""
    refused = isinstance(error, ssl.SSLCertVerificationError)
    return refused or (isinstance(error, ssl.SSLError) and error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE")


def why(error: OSError | ValueError) -> str:
    """In words that help who set the client up."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError):
        return "the client ended it"
    if isinstance(error, ssl.SSLError):
        return _WHY.get(error.reason or "", error.reason or str(error))
    return str(error)


_WHY: Final = {
    "HTTP_REQUEST": "HTTP spoken to a TLS port",
    "HTTPS_PROXY_REQUEST": "HTTP spoken to a TLS port",
    "WRONG_VERSION_NUMBER": "that is no TLS: is the client set to PLAINTEXT or SASL_PLAINTEXT?",
    "UNSUPPORTED_PROTOCOL": "the client knows no TLS 1.2",
    "NO_SHARED_CIPHER": "no cipher that both know",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate (ssl.client.auth=required)",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses the certificate (its CA, or the host's name)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client finds the certificate expired",
}
