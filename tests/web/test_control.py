"""The control socket, with real sockets: what a client sends and what comes back."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.web.control import REQUEST_BYTES, ControlServer, Handler, Outcome, Progress, Request


@asynccontextmanager
async def serving(path: Path, **handlers: Handler) -> AsyncIterator[ControlServer]:
    server = ControlServer(path, handlers)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def ask(path: Path, raw: bytes) -> list[dict[str, Any]]:
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(raw)
    lines = [json.loads(line) async for line in reader]
    writer.close()
    await writer.wait_closed()
    return lines


async def echo(request: Request, progress: Progress) -> Outcome:
    progress({"step": 1})
    return Outcome({"said": request["text"]}, 3)


def test_progress_comes_before_the_result(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "c.sock", echo=echo):
            lines = await ask(tmp_path / "c.sock", b'{"do":"echo","text":"hi"}\n')
        assert lines == [{"progress": {"step": 1}}, {"result": {"said": "hi"}, "exit": 3}]

    asyncio.run(run())


@pytest.mark.parametrize(("error", "code"), [(RemoteUnavailable("away"), 5), (StartRefused("locked"), 4)])
def test_an_error_becomes_the_answer_with_its_exit_code(tmp_path: Path, error: Exception, code: int) -> None:
    async def fail(_request: Request, _progress: Progress) -> Outcome:
        raise error

    async def run() -> None:
        async with serving(tmp_path / "c.sock", fail=fail):
            assert await ask(tmp_path / "c.sock", b'{"do":"fail"}\n') == [{"error": str(error), "exit": code}]

    asyncio.run(run())


@pytest.mark.parametrize(
    "raw",
    [b"\n", b"{}\n", b'{"do":"unknown"}\n', b"[1]\n", b'{"do":[]}\n', b"\xff\n", b"x" * (2 * REQUEST_BYTES) + b"\n"],
)
def test_nonsense_is_answered_and_does_no_harm(tmp_path: Path, raw: bytes) -> None:
    async def run() -> None:
        async with serving(tmp_path / "c.sock", echo=echo):
            (answer,) = await ask(tmp_path / "c.sock", raw)
            assert answer["exit"] == 2
            assert (await ask(tmp_path / "c.sock", b'{"do":"echo","text":""}\n'))[-1]["exit"] == 3

    asyncio.run(run())


def test_a_client_that_goes_away_cancels_its_request(tmp_path: Path) -> None:
    async def run() -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def long(_request: Request, _progress: Progress) -> Outcome:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return Outcome(None)

        async with serving(tmp_path / "c.sock", long=long):
            _, writer = await asyncio.open_unix_connection(str(tmp_path / "c.sock"))
            writer.write(b'{"do":"long"}\n')
            await asyncio.wait_for(started.wait(), 60)
            writer.close()
            await asyncio.wait_for(cancelled.wait(), 60)

    asyncio.run(run())


def test_stopping_ends_requests_and_removes_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"

    async def run() -> None:
        started = asyncio.Event()

        async def long(_request: Request, _progress: Progress) -> Outcome:
            started.set()
            await asyncio.Event().wait()
            return Outcome(None)

        async with serving(path, long=long):
            asking = asyncio.create_task(ask(path, b'{"do":"long"}\n'))
            await asyncio.wait_for(started.wait(), 60)
        assert await asyncio.wait_for(asking, 60) == []

    asyncio.run(run())
    assert not path.exists()


def test_a_long_path_a_left_over_socket_and_the_owners_eyes_only(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 40)
    directory.mkdir()
    path = directory / "control.sock"
    path.touch()

    async def run() -> None:
        async with serving(path, echo=echo):
            assert stat.S_ISSOCK(path.stat().st_mode)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600

    asyncio.run(run())
