"""Connections of boto3 as tierd needs them: each request is watched, and half an answer is no answer.

http.client takes the end of the stream for the end of the headers: an answer cut there would be a good one without
its ETag, or a LIST of nothing.
"""

import http.client
from typing import Any

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool

from tierd.remote.watchdog import note

_ENDS = (b"\r\n", b"\n")


class _Lines:
    """What http.client reads headers from; remembers the last line."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self.last = b""

    def readline(self, limit: int = -1) -> bytes:
        self.last = self.plain.readline(limit)
        return self.last

    def close(self) -> None:
        self.plain.close()


class WholeResponse(http.client.HTTPResponse):
    """Raises RemoteDisconnected when its headers do not end."""

    def begin(self) -> None:
        lines = _Lines(self.fp)
        self.fp: Any = lines
        try:
            super().begin()
        finally:
            if self.fp is lines:
                self.fp = lines.plain
        if lines.last not in _ENDS:
            self.close()
            raise http.client.RemoteDisconnected("the answer ends inside its headers")


class _Watched:
    """Tells the watchdog over which socket the request of this thread goes."""

    sock: Any
    response_class = WholeResponse

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        note(self.sock)

    def request(self, *args: Any, **how: Any) -> None:
        note(self.sock)
        super().request(*args, **how)  # type: ignore[misc]


class _Plain(_Watched, AWSHTTPConnection):  # type: ignore[misc]
    """HTTP."""


class _Secure(_Watched, AWSHTTPSConnection):  # type: ignore[misc]
    """The same with TLS."""


class _PlainPool(AWSHTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(AWSHTTPSConnectionPool):
    ConnectionCls = _Secure


def use_ours(client: Any) -> None:
    """Have a boto3 *client* make its connections here, also those through a proxy. Before its first request."""
    client._endpoint.http_session._pool_classes_by_scheme.update(http=_PlainPool, https=_SecurePool)
