"""Sockets on loopback against the real server: order, limits, backpressure, the end."""

import asyncio
import os
import resource
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from broker.serving import READERS, answer_of, client, echo, framed, limited, run, serving
from kit.clock import FakeClock
from tierd.broker import server
from tierd.broker.connection import Answer, Connection
from tierd.broker.sending import Reply
from tierd.broker.server import Server


def test_answers_come_in_order_however_the_bytes_arrive() -> None:
    async def scenario() -> None:
        async with serving(echo) as (_, host, port), client(host, port) as (reader, writer):
            bodies = [b"%d" % n * (n % 50) for n in range(300)]
            writer.write(b"".join(framed(body) for body in bodies))
            assert [await answer_of(reader) for _ in bodies] == bodies
            for byte in framed(b"slowly"):
                writer.write(bytes([byte]))
                await writer.drain()
            assert await answer_of(reader) == b"slowly"

    run(scenario())


def test_a_waiting_request_holds_back_the_ones_behind_it() -> None:
    async def scenario() -> None:
        let_go = asyncio.Event()
        seen: list[bytes] = []

        async def later(body: bytes) -> Reply:
            await let_go.wait()
            return [framed(body)]

        def handler(frame: memoryview, connection: Connection) -> Answer:
            body = bytes(frame)
            seen.append(body)
            return later(body) if body == b"wait" else [framed(body)]

        async with serving(handler) as (_, host, port), client(host, port) as (reader, writer):
            writer.write(framed(b"a") + framed(b"wait") + framed(b"b"))
            assert await answer_of(reader) == b"a"
            writer.write(framed(b"c"))
            await asyncio.sleep(0)
            assert seen == [b"a", b"wait"]
            let_go.set()
            assert [await answer_of(reader) for _ in range(3)] == [b"wait", b"b", b"c"]

    run(scenario())


def test_a_peer_that_leaves_cancels_its_waiting_request() -> None:
    async def scenario() -> None:
        cancelled, begun = asyncio.Event(), asyncio.Event()

        async def forever() -> Reply:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return []

        async with serving(lambda frame, connection: forever()) as (_, host, port):
            async with client(host, port) as (_, writer):
                writer.write(framed(b"x"))
                await begun.wait()
            await cancelled.wait()

    run(scenario())


def test_a_request_that_somebody_else_cancels_leaves_no_client_waiting() -> None:
    async def scenario() -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

        async def given_up() -> Reply:
            raise asyncio.CancelledError

        async with serving(lambda frame, connection: given_up()) as (_, host, port), client(host, port) as (reader, w):
            w.write(framed(b"x"))
            assert await reader.read() == b""
        assert ["request of" in context["message"] for context in told] == [True]

    run(scenario())


def test_no_answer_means_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        def handler(frame: memoryview, connection: Connection) -> Answer:
            return None if bytes(frame) == b"quiet" else echo(frame, connection)

        async with serving(handler) as (_, host, port), client(host, port) as (reader, writer):
            writer.write(framed(b"quiet") + framed(b"loud"))
            assert await answer_of(reader) == b"loud"

    run(scenario())


@pytest.mark.parametrize("first", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP/1.1\r\n"])
def test_a_frame_beyond_the_limit_closes_the_connection(first: bytes) -> None:
    async def scenario() -> None:
        async with serving(echo, max_frame_bytes=1000) as (served, host, port), client(host, port) as (reader, writer):
            writer.write(first)
            assert await reader.read() == b""
            assert served.connections == 0

    run(scenario())


def test_one_connection_too_many_is_closed_and_counted() -> None:
    async def scenario() -> None:
        async with serving(echo, max_connections=1) as (served, host, port), client(host, port) as (reader, writer):
            writer.write(framed(b"here"))
            await answer_of(reader)
            async with client(host, port) as (second, _):
                assert await second.read() == b""
            assert served.refused == 1
            writer.write(framed(b"still here"))
            assert await answer_of(reader) == b"still here"

    run(scenario())


def test_large_requests_share_the_buffer_limit_and_all_get_through() -> None:
    async def scenario() -> None:
        body = b"x" * 3_000_000
        most = 0

        def measured(frame: memoryview, connection: Connection) -> Answer:
            nonlocal most
            most = max(most, served.buffered_bytes)
            return [framed(b"%d" % len(frame))]

        limits = {"max_frame_bytes": 3_100_000, "max_in_flight_bytes": 5_000_000}
        async with serving(measured, **limits) as (served, host, port):

            async def one() -> None:
                async with client(host, port) as (reader, writer):
                    for _ in range(3):
                        writer.write(framed(body))
                        assert await answer_of(reader) == b"3000000"

            await asyncio.gather(*(one() for _ in range(8)))
            while served.connections:
                await asyncio.sleep(0)
            assert served.buffered_bytes == 0
            assert most <= served.room.bound_bytes <= 5_000_000

    run(scenario())


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        let_go, begun = asyncio.Event(), asyncio.Event()

        async def later() -> Reply:
            begun.set()
            await let_go.wait()
            return [framed(b"done")]

        served = Server(lambda frame, connection: later(), limited(idle_ms=1000), clock, READERS)
        at = served.listen("127.0.0.1", 0)
        async with client(*at) as (idle, idle_writer), client(*at) as (busy, writer):
            writer.write(framed(b"x"))
            await begun.wait()
            assert served.accepted == 2
            served._sweep()
            clock.advance(1001)
            served._sweep()
            assert await idle.read() == b""
            let_go.set()
            assert await answer_of(busy) == b"done"
            idle_writer.close()
        await served.stop(0)

    run(scenario())


def test_stalled_large_requests_make_room_for_others() -> None:
    async def scenario() -> None:
        clock = FakeClock()
        limits = limited(max_in_flight_bytes=200_000)
        served = Server(echo, limits, clock, READERS)
        at = served.listen("127.0.0.1", 0)
        async with client(*at) as (first, stuck), client(*at) as (reader, writer):
            stuck.write((1_000_000).to_bytes(4, "big") + b"x" * 300_000)
            while served.buffered_bytes < 200_000:
                await asyncio.sleep(0)
            writer.write(framed(b"y" * 500_000))
            await asyncio.sleep(0)
            for _ in range(3):
                served._sweep()
                clock.advance(server.STALLED_MS + 1)
                await asyncio.sleep(0)
            assert await first.read() == b""
            assert await answer_of(reader) == b"y" * 500_000
        await served.stop(0)

    run(scenario())


def test_stop_lets_answers_out_and_takes_no_more() -> None:
    async def scenario() -> None:
        let_go, begun = asyncio.Event(), asyncio.Event()

        async def later() -> Reply:
            begun.set()
            await let_go.wait()
            return [framed(b"last words")]

        served = Server(lambda frame, connection: later(), limited(), FakeClock(), READERS)
        at = served.listen("127.0.0.1", 0)
        async with client(*at) as (idle, idle_writer), client(*at) as (reader, writer):
            writer.write(framed(b"x") + framed(b"y"))
            await begun.wait()
            stopping = asyncio.create_task(served.stop(10))
            assert await idle.read() == b""
            idle_writer.close()
            let_go.set()
            assert await answer_of(reader) == b"last words"
            assert await reader.read() == b""
            await stopping
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(at, 1)

    run(scenario())


def test_a_bug_in_a_handler_costs_the_connection_and_is_reported() -> None:
    async def scenario() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

        def handler(frame: memoryview, connection: Connection) -> Answer:
            raise ZeroDivisionError("bug")

        async def soon() -> Reply:
            raise ZeroDivisionError("bug")

        for faulty in (handler, lambda frame, connection: soon()):
            async with serving(faulty) as (_, host, port), client(host, port) as (reader, writer):
                writer.write(framed(b"x"))
                assert await reader.read() == b""
        assert [type(context["exception"]) for context in reported] == [ZeroDivisionError] * 2

    run(scenario())


def test_sweep_interval_is_short_beside_the_stall_limit() -> None:
    assert server.SWEEP_S * 1000 < server.STALLED_MS


def take_all_descriptors(stack: ExitStack) -> None:
    while True:
        stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))


def test_without_descriptors_the_listener_pauses_and_goes_on_later(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        async with serving(echo) as (served, host, port):
            with ExitStack() as stack:
                socks = [stack.enter_context(socket.socket()) for _ in range(5)]
                stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
                highest = max(map(int, os.listdir("/proc/self/fd")))
                resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
                with pytest.raises(OSError, match="Too many open files"):
                    take_all_descriptors(stack)
                for sock in socks:
                    sock.connect((host, port))
                for _ in range(50):
                    await asyncio.sleep(0)
                assert served.accepted == 0
                assert len([record for record in caplog.records if record.message == "cannot accept connections"]) == 1
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                while served.accepted < 5:
                    await asyncio.sleep(0)

    run(scenario())
