"""The real server on loopback, with a handler of the test's own; asyncio's streams as clients."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from kit.clock import FakeClock
from tierd.broker.connection import Answer, Connection
from tierd.broker.server import Server
from tierd.config.listeners import Listener

READERS = ThreadPoolExecutor(2)
Handler = Callable[[memoryview, Connection], Answer]


def limited(**given: int) -> Listener:
    """The listener's settings, with numbers that would be too small outside of tests, too."""
    return Listener.model_construct(**given)


@asynccontextmanager
async def serving(handler: Handler, **limits: int) -> AsyncIterator[tuple[Server, str, int]]:
    served = Server(handler, limited(**limits), FakeClock(), READERS)
    host, port = served.listen("127.0.0.1", 0)
    try:
        yield served, host, port
    finally:
        await served.stop(0)


async def until(condition: Callable[[], object]) -> None:
    """Let the loop go on until it is so; the test's timeout ends a wait in vain."""
    while not condition():
        await asyncio.sleep(0)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


@asynccontextmanager
async def client(host: str, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            writer.transport.abort()


@asynccontextmanager
async def talking(handler: Handler) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with serving(handler) as (_, host, port), client(host, port) as both:
        yield both


def echo(frame: memoryview, connection: Connection) -> Answer:
    return [framed(bytes(frame))]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))
