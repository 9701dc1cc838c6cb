"""What goes out of files: spans between header and tail, cold ones first read by a thread, slices always released."""

import asyncio
import os
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.serving import READERS, answer_of, client, framed, limited, run, serving, talking
from kit.clock import FakeClock
from tierd.broker import sending
from tierd.broker.connection import Answer, Connection
from tierd.broker.sending import ColdRead, Reply, resident_until
from tierd.broker.server import Server
from tierd.storage.view import FileSpan, LogSlice


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    content = os.urandom(9 * 1024 * 1024)
    path = tmp_path / "data"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    yield fd, content
    os.close(fd)


def spans_reply(fd: int, spans: list[tuple[int, int]], released: list[int]) -> Reply:
    length = sum(size for _, size in spans)
    body = LogSlice(
        tuple(FileSpan(fd, at, size) for at, size in spans), length, (), on_release=lambda: released.append(length)
    )
    return [(length + 6).to_bytes(4, "big") + b"abc", body, b"def"]


@pytest.mark.parametrize("spans", [[(5, 100)], [(0, 9 * 1024 * 1024)], [(100, 20_000), (70_000, 65_537), (3, 1)]])
def test_spans_go_out_between_header_and_tail(file: tuple[int, bytes], spans: list[tuple[int, int]]) -> None:
    async def scenario() -> None:
        fd, content = file
        released: list[int] = []
        async with talking(lambda frame, connection: spans_reply(fd, spans, released)) as (reader, writer):
            writer.write(framed(b"1") + framed(b"2"))
            for _ in range(2):
                body = await answer_of(reader)
                assert body == b"abc" + b"".join(content[at : at + size] for at, size in spans) + b"def"
        assert len(released) == 2

    run(scenario())


def test_cold_spans_are_read_by_a_thread_first(file: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        fd, content = file
        reads: list[ColdRead] = []
        warm_to = [0]

        def resident(fd: int, position: int, stop: int) -> int:
            return min(stop, max(position, warm_to[0]))

        def run_read(read: ColdRead) -> None:
            reads.append(read)
            warm_to[0] = read.position + read.length

        monkeypatch.setattr(sending, "resident_until", resident)
        monkeypatch.setattr(ColdRead, "run", run_read)
        released: list[int] = []
        size = 3 * 1024 * 1024 + 17
        async with talking(lambda frame, connection: spans_reply(fd, [(1, size)], released)) as (reader, writer):
            writer.write(framed(b"1"))
            assert await answer_of(reader) == b"abc" + content[1 : 1 + size] + b"def"
        assert [read.position for read in reads] == [1 + n * sending.COLD_BYTES for n in range(4)]
        assert released == [size]

    run(scenario())


def test_evicted_pages_are_seen_as_cold_and_read(file: tuple[int, bytes]) -> None:
    fd, content = file
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if resident_until(fd, 0, len(content)) == len(content):
        pytest.skip("this file system keeps its pages or cannot be probed")
    cold = resident_until(fd, 0, len(content))
    ColdRead(fd, cold, len(content) - cold).run()
    assert resident_until(fd, 0, len(content)) == len(content)


def test_slices_of_a_client_that_leaves_are_released(file: tuple[int, bytes]) -> None:
    async def scenario() -> None:
        fd, content = file
        released: list[int] = []
        async with serving(lambda frame, connection: spans_reply(fd, [(0, len(content))], released)) as (served, *at):
            async with client(*at) as (reader, writer):
                writer.write(framed(b"1"))
                await reader.readexactly(10)
                writer.transport.abort()
            while served.connections:
                await asyncio.sleep(0)
        assert released == [len(content)]

    run(scenario())


def test_a_span_whose_file_was_cut_closes_the_connection(file: tuple[int, bytes], tmp_path: Path) -> None:
    async def scenario() -> None:
        fd, content = file
        released: list[int] = []
        spans = [(len(content) - 100_000, 200_000)]
        async with talking(lambda frame, connection: spans_reply(fd, spans, released)) as (reader, writer):
            writer.write(framed(b"1"))
            with pytest.raises(asyncio.IncompleteReadError):
                await answer_of(reader)
        assert released == [200_000]

    run(scenario())


def test_a_client_that_does_not_take_its_answer_is_closed_and_its_slices_released(file: tuple[int, bytes]) -> None:
    async def scenario() -> None:
        fd, content = file
        clock = FakeClock()
        released: list[int] = []
        begun = asyncio.Event()

        def handler(frame: memoryview, connection: Connection) -> Answer:
            begun.set()
            return spans_reply(fd, [(0, len(content))] * 4, released)

        served = Server(handler, limited(idle_ms=1000), clock, READERS)
        with socket.create_connection(served.listen("127.0.0.1", 0)) as sock:
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(sock, framed(b"x"))
            await begun.wait()
            while served.connections:
                served._sweep()
                clock.advance(1001)
                await asyncio.sleep(0)
            assert released == [4 * len(content)]
        await served.stop(0)

    run(scenario())


def test_a_peer_that_takes_all_at_once_leaves_turns_to_others(file: tuple[int, bytes]) -> None:
    fd, content = file
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as threads:
        ours.setblocking(False)
        body = LogSlice((FileSpan(fd, 0, len(content)),) * 3, 3 * len(content), ())
        taken = threads.submit(lambda: sum(iter(lambda: len(theirs.recv(1 << 20)), 0)))
        out = sending.Outgoing(ours)
        state, before = out.send([b"header", body]), 0
        while state is not sending.Pumped.DONE:
            assert out.sent_bytes - before <= sending.TURN_BYTES + len(b"header")
            before = out.sent_bytes
            select.select([], [ours], [])
            state = out.pump()
        ours.shutdown(socket.SHUT_WR)
        assert taken.result() == len(b"header") + 3 * len(content)
