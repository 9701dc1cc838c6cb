"""TLS on loopback: handshakes that work and that do not, requests and answers of all sizes, slow and rude peers."""

import asyncio
import os
import socket
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from broker.serving import READERS, answer_of, client, echo, framed, limited, run, until
from broker.tls.secure import refused, secured, serving, side
from kit.certificates import Authority, Signed
from kit.clock import FakeClock
from tierd.broker import server
from tierd.broker.connection import Answer, Connection
from tierd.broker.sending import Reply
from tierd.broker.server import Server
from tierd.broker.tls.handshakes import HANDSHAKE_MS
from tierd.storage.view import FileSpan, LogSlice

MIB = 1024 * 1024


def test_requests_and_answers_of_all_sizes(authority: Authority, own: Signed) -> None:
    async def scenario() -> None:
        async with serving(echo, side(own)) as (served, _, port), secured(port, authority.client()) as (reader, writer):
            for size in (0, 1, 100, 16_383, 16_384, 16_385, 70_000, 3 * MIB, 5):
                body = os.urandom(size)
                writer.write(framed(body))
                assert await answer_of(reader) == body
            writer.write(b"".join(framed(bytes([n]) * (n * 300)) for n in range(200)))
            for n in range(200):
                assert await answer_of(reader) == bytes([n]) * (n * 300)
            assert served.connections == 1

    run(scenario())


def test_a_large_answer_comes_from_its_file(authority: Authority, own: Signed, tmp_path: Path) -> None:
    data = os.urandom(9 * MIB)
    (tmp_path / "log").write_bytes(data)
    released: list[bool] = []

    async def scenario() -> None:
        with (tmp_path / "log").open("rb") as file:

            def handler(frame: memoryview, connection: Connection) -> Answer:
                spans = (FileSpan(file.fileno(), 10, 5 * MIB), FileSpan(file.fileno(), 6 * MIB, 3 * MIB))
                slice_ = LogSlice(spans, 8 * MIB, (), on_release=lambda: released.append(True))
                reply: Reply = [(4 + 8 * MIB).to_bytes(4, "big"), slice_, b"tail"]
                return reply

            async with (
                serving(handler, side(own)) as (_, _, port),
                secured(port, authority.client()) as (reader, writer),
            ):
                for _ in range(2):
                    writer.write(framed(b"?") * 2)
                    for _ in range(2):
                        assert await answer_of(reader) == data[10 : 10 + 5 * MIB] + data[6 * MIB : 9 * MIB] + b"tail"

    run(scenario())
    assert len(released) == 4


def test_who_reads_slowly_gets_everything(authority: Authority, own: Signed, tmp_path: Path) -> None:
    data = os.urandom(4 * MIB)
    (tmp_path / "log").write_bytes(data)

    async def scenario() -> None:
        with (tmp_path / "log").open("rb") as file:

            def handler(frame: memoryview, connection: Connection) -> Answer:
                slice_ = LogSlice((FileSpan(file.fileno(), 0, len(data)),), len(data), ())
                return [len(data).to_bytes(4, "big"), slice_]

            async with serving(handler, side(own)) as (_, _, port):
                sock = socket.socket()
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                sock.setblocking(False)
                await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
                limit = 64 * 1024
                reader, writer = await asyncio.open_connection(
                    sock=sock, ssl=authority.client(), server_hostname="localhost", limit=limit
                )
                writer.write(framed(b"?"))
                got = await reader.readexactly(4)
                while len(got) < len(data) + 4:
                    got += await reader.read(10_000)
                    await asyncio.sleep(0)
                assert got[4:] == data
                writer.transport.abort()

    run(scenario())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP spoken to a TLS port"),
        (bytes.fromhex("0000001a0012000400000001000474657374000474657374000431"), "that is no TLS"),
        (b"\x16\x03\x01\x00\x10" + b"\xff" * 16, ""),
        (os.urandom(2000), ""),
    ],
)
def test_garbage_on_a_tls_port(own: Signed, sent: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(echo, side(own)) as (served, host, port), client(host, port) as (reader, writer):
            writer.write(sent)
            writer.write_eof()
            with suppress(ConnectionResetError):
                await reader.read()
            await until(lambda: served.counters.handshakes_failed == 1)
            assert served.connections == 0

    run(scenario())
    assert reason in refused(caplog)


def test_tls_on_a_plain_port(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        served = Server(echo, limited(), FakeClock(), READERS)
        _, port = served.listen("127.0.0.1", 0)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with secured(port, authority.client()):
                pass
        await served.stop(0)

    run(scenario())
    assert "HTTP or TLS spoken to a plain Kafka port?" in refused(caplog)


def test_old_versions_of_tls_are_refused(authority: Authority, own: Signed, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        context = authority.client()
        with pytest.warns(DeprecationWarning, match="TLSv1"):
            context.minimum_version = ssl.TLSVersion.TLSv1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        async with serving(echo, side(own)) as (served, _, port):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                async with secured(port, context):
                    pass
            await until(lambda: served.counters.handshakes_failed == 1)

    run(scenario())
    assert "knows no TLS 1.2" in refused(caplog)


def test_who_begins_a_handshake_and_does_not_end_it_is_closed(own: Signed, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        async with serving(echo, side(own), clock, max_connections=3) as (served, host, port):
            async with client(host, port) as (silent, _), client(host, port) as (half, writer):
                writer.write(bytes.fromhex("160301020001"))
                await until(lambda: served.accepted == 2)
                served._sweep()
                async with client(host, port) as (third, _), client(host, port) as (fourth, _):
                    assert await fourth.read() == b""  # those who shake hands count as connections
                    clock.advance(HANDSHAKE_MS + 1)
                    served._sweep()
                    for reader in (silent, half, third):
                        assert await reader.read() == b""
            assert served.counters.handshakes_failed == 3

    run(scenario())
    assert refused(caplog).count("not finished in 10 s") == 2  # the first and the second: 3 is said with the fourth


def test_requests_that_wait_for_room_get_it_also_through_tls(authority: Authority, own: Signed) -> None:
    async def scenario() -> None:
        most = 0

        def measured(frame: memoryview, connection: Connection) -> Answer:
            nonlocal most
            most = max(most, served.buffered_bytes)
            return framed(bytes(frame[:1]))

        limits = {"max_in_flight_bytes": 2 * MIB, "max_frame_bytes": MIB}
        async with serving(measured, side(own), **limits) as (served, _, port):

            async def one(number: int) -> None:
                async with secured(port, authority.client()) as (reader, writer):
                    for size in (30_000, 900_000, 10, 60_000, 700_000):
                        body = bytes([number]) * size
                        writer.write(framed(body))
                        await writer.drain()
                        assert await answer_of(reader) == bytes([number])

            await asyncio.gather(*map(one, range(12)))
            assert most <= served.room.bound_bytes
            assert served.room.waiting == 0

    run(scenario())


def test_a_peer_that_stops_in_the_middle_makes_room(authority: Authority, own: Signed) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        async with serving(echo, side(own), clock) as (served, _, port):
            async with secured(port, authority.client()) as (reader, writer):
                writer.write((90 * MIB).to_bytes(4, "big") + bytes(40_000))
                await until(lambda: served.buffered_bytes > 0)
                served._sweep()
                clock.advance(server.SLOWEST_BYTES_S * 1000)
                served._sweep()
                assert await reader.read() == b""
            await until(lambda: served.connections == 0)
            assert served.buffered_bytes == 0

    run(scenario())


def test_a_peer_that_leaves_while_its_answer_is_made_is_noticed(authority: Authority, own: Signed) -> None:
    async def scenario() -> None:
        begun = asyncio.Event()
        gone = asyncio.Event()

        async def forever() -> Reply:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                gone.set()
            return b""

        async with serving(lambda *_: forever(), side(own)) as (served, _, port):
            async with secured(port, authority.client()) as (_, writer):
                writer.write(framed(b""))
                await begun.wait()
            await until(lambda: served._sweep() or gone.is_set())

    run(scenario())


def test_records_that_nothing_tells_of_are_taken(authority: Authority, own: Signed) -> None:
    """Many small requests in one TLS record, of which each is answered later: the rest is in OpenSSL's hands."""

    async def scenario() -> None:
        async def later(body: bytes) -> Reply:
            await asyncio.sleep(0)
            return framed(body)

        context = authority.client()
        serve = serving(lambda frame, _: later(bytes(frame)), side(own))
        async with serve as (_, _, port), secured(port, context) as (reader, writer):
            for _ in range(5):
                writer.write(b"".join(framed(b"%05d" % n) for n in range(1500)))
                for n in range(1500):
                    assert await answer_of(reader) == b"%05d" % n

    run(scenario())


def test_stop_says_goodbye(authority: Authority, own: Signed) -> None:
    async def scenario() -> None:
        async with serving(echo, side(own)) as (served, _, port), secured(port, authority.client()) as (reader, writer):
            writer.write(framed(b"a"))
            assert await answer_of(reader) == b"a"
            await served.stop(0)
            assert await reader.read() == b""

    run(scenario())


def test_hellos_that_are_broken_in_many_ways(authority: Authority, own: Signed) -> None:
    hello = ssl.MemoryBIO()
    side_of_client = authority.client().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        side_of_client.do_handshake()
    good = hello.read()
    random = Random(7)

    def broken() -> bytes:
        raw = bytearray(good)
        for _ in range(random.randrange(1, 4)):
            raw[random.randrange(len(raw))] = random.randrange(256)
        return bytes(raw[: random.randrange(len(raw) + 1)]) + random.randbytes(random.choice([0, 0, 5, 20_000]))

    async def scenario() -> None:
        clock = FakeClock()
        async with serving(echo, side(own), clock) as (served, host, port):
            for _ in range(20):
                async with AsyncExitStack() as stack:
                    for _ in range(20):
                        _, writer = await stack.enter_async_context(client(host, port))
                        writer.write(broken())
            await until(lambda: served.accepted == 400)
            clock.advance(HANDSHAKE_MS + 1)
            served._sweep()
            async with secured(port, authority.client()) as (reader, writer):
                writer.write(framed(b"well"))
                assert await answer_of(reader) == b"well"
            assert served.counters.handshakes_failed == 400

    run(scenario())


def test_records_of_one_byte_do_not_keep_others_waiting(authority: Authority, own: Signed) -> None:
    async def scenario() -> None:
        context = authority.client()
        async with serving(echo, side(own)) as (_, _, port), secured(port, context) as (slow, crumbs):
            body = os.urandom(20_000)
            for byte in framed(body):
                crumbs.write(bytes([byte]))
            async with secured(port, context) as (reader, writer):
                for _ in range(20):
                    writer.write(framed(b"x"))
                    assert await answer_of(reader) == b"x"
            assert await answer_of(slow) == body

    run(scenario())
