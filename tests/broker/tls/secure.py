"""A TLS listener on loopback, and clients of it."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from broker.serving import READERS, Handler, limited
from kit.certificates import Signed
from kit.clock import FakeClock
from tierd.broker.entrances import Entrance
from tierd.broker.server import Server
from tierd.broker.tls.contexts import TlsSide
from tierd.config.listeners import Tls

logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # its complaints about clients that are cut off


def side(own: Signed, **more: object) -> TlsSide:
    return TlsSide(Tls(certificate=own.certificate, key=own.key, **more))  # type: ignore[arg-type]


@asynccontextmanager
async def serving(
    handler: Handler, tls: TlsSide, clock: FakeClock | None = None, **limits: int
) -> AsyncIterator[tuple[Server, str, int]]:
    served = Server(handler, limited(**limits), clock or FakeClock(), READERS)
    host, port = served.listen("127.0.0.1", 0, Entrance("SSL", tls))
    try:
        yield served, host, port
    finally:
        await served.stop(0)


@asynccontextmanager
async def secured(
    port: int, context: ssl.SSLContext
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context, family=socket.AF_INET)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def refused(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(str(getattr(record, "why", "")) for record in caplog.records)
