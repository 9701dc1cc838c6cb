"""Requests that get no room, on sockets: small ones pass, slow and dead peers go, nobody is read without room."""

import asyncio
import socket
from contextlib import ExitStack

from broker.serving import READERS, answer_of, client, echo, framed, limited, run, until
from kit.clock import FakeClock
from tierd.broker import server
from tierd.broker.server import Server

MIB = 1024 * 1024
LIMITS = limited(max_in_flight_bytes=2 * MIB, max_frame_bytes=MIB, idle_ms=600_000)
"""896 KiB are shared, of which large requests may use half; seats of 256 KiB in all."""


def received(served: Server) -> int:
    return sum(connection.incoming.received_bytes for connection in served._connections)


async def write(writer: asyncio.StreamWriter, piece: bytes, served: Server) -> None:
    """And wait until something of it has arrived."""
    before = received(served)
    writer.write(piece)
    await until(lambda: received(served) > before)


class Crowd:
    """Peers that have announced a mebibyte each and sent less, until there is no room left."""

    def __init__(self, stack: ExitStack, served: Server, at: tuple[str, int]) -> None:
        self.served = served
        self.peers = [stack.enter_context(socket.create_connection(at)) for _ in range(12)]

    async def fill(self) -> None:
        for peer in self.peers:
            peer.sendall(MIB.to_bytes(4, "big") + bytes(200 * 1024))
        await until(lambda: self.served.room.waiting >= 5)


def served_crowd(stack: ExitStack) -> tuple[Crowd, FakeClock, tuple[str, int]]:
    clock = FakeClock()
    served = Server(echo, LIMITS, clock, READERS)
    at = served.listen("127.0.0.1", 0)
    return Crowd(stack, served, at), clock, at


def sweep(served: Server, clock: FakeClock) -> None:
    served._sweep()
    clock.advance(server.STALLED_MS + 1)
    served._sweep()


def test_a_small_request_needs_no_room_once_the_kernel_has_it() -> None:
    async def scenario() -> None:
        with ExitStack() as stack:
            crowd, _, at = served_crowd(stack)
            await crowd.fill()
            async with client(*at) as (reader, writer):
                for size in (10_000, 60_000):
                    await write(writer, framed(bytes(size))[:5000], crowd.served)
                    writer.write(framed(bytes(size))[5000:])
                    assert await answer_of(reader) == bytes(size)
            assert crowd.served.buffered_bytes <= crowd.served.room.bound_bytes
            await crowd.served.stop(0)

    run(scenario())


def test_those_who_stand_still_while_others_wait_are_closed() -> None:
    async def scenario() -> None:
        with ExitStack() as stack:
            crowd, clock, at = served_crowd(stack)
            await crowd.fill()
            async with client(*at) as (reader, writer):
                writer.write(framed(bytes(MIB)))
                await writer.drain()
                answer = asyncio.ensure_future(answer_of(reader))
                while not answer.done():
                    for _ in range(1000):  # What was let in comes, before the clock goes on.
                        await asyncio.sleep(0)
                    sweep(crowd.served, clock)
                assert await answer == bytes(MIB)
            await crowd.served.stop(0)

    run(scenario())


def test_one_byte_now_and_then_is_no_progress() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        served = Server(echo, limited(idle_ms=1000), clock, READERS)
        async with client(*served.listen("127.0.0.1", 0)) as (reader, writer):
            writer.write(framed(bytes(100))[:50])
            for _ in range(3):
                await write(writer, b"x", served)
                served._sweep()
                clock.advance(600)
            assert await reader.read() == b""
        await served.stop(0)

    run(scenario())


def test_dead_peers_that_wait_for_room_are_noticed() -> None:
    async def scenario() -> None:
        with ExitStack() as stack:
            crowd, *_ = served_crowd(stack)
            await crowd.fill()
            before = crowd.served.connections
            assert before == len(crowd.peers)
            for peer in crowd.peers:
                peer.close()
            while crowd.served.connections:
                await asyncio.sleep(0)
                crowd.served._sweep()
            assert crowd.served.buffered_bytes == 0
            await crowd.served.stop(0)

    run(scenario())


def test_a_peer_that_resets_with_requests_behind_the_one_in_work_is_noticed() -> None:
    async def scenario() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def forever() -> bytes:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return b""

        served = Server(lambda frame, connection: forever(), limited(), FakeClock(), READERS)
        async with client(*served.listen("127.0.0.1", 0)) as (_, writer):
            writer.write(framed(b"x"))
            await begun.wait()
            writer.write(framed(b"behind it"))
            connection = next(iter(served._connections))
            await until(lambda: connection.incoming.unread_bytes)
            writer.transport.abort()
        while not ended.is_set():
            await asyncio.sleep(0)
            served._sweep()
        assert served.connections == 0
        await served.stop(0)

    run(scenario())


def test_more_requests_than_a_turn_takes_do_not_pile_up() -> None:
    async def scenario() -> None:
        served = Server(lambda frame, connection: None, limited(), FakeClock(), READERS)
        async with client(*served.listen("127.0.0.1", 0)) as (_, writer):
            connection_bytes = 0
            for _ in range(8):
                writer.write(framed(b"") * 50_000)
                await writer.drain()
                for connection in served._connections:
                    connection_bytes = max(connection_bytes, connection.incoming.frames.capacity_bytes)
            assert connection_bytes <= 256 * 1024
        await served.stop(0)

    run(scenario())
