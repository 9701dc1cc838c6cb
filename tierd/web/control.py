"""Serves `<state>/control.sock`: one JSON request a connection, answered by JSON lines.

Request: `{"do": NAME, ...}`. Answer: any number of `{"progress": {...}}`, then one `{"result": ..., "exit": N}` or
`{"error": "...", "exit": N}`. The socket is for the owner of the state directory only.
"""

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierd.base.errors import TierdError
from tierd.base.exits import Exit, exit_of
from tierd.ipc.address import address_of

log = logging.getLogger(__name__)

REQUEST_BYTES = 64 * 1024
_UNREAD_BYTES = 256 * 1024
"""Progress is dropped above this: a client that does not read must not cost memory."""

Request = Mapping[str, Any]
Progress = Callable[[Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request comes to: a JSON value, and the verb's exit code."""

    result: object
    exit: int = Exit.DONE


Handler = Callable[[Request, Progress], Awaitable[Outcome]]
"""Cancelled when the client goes away. A TierdError becomes the answer, with its exit code."""


class ControlServer:
    """Loop thread only. `start` replaces a dead daemon's socket: the caller holds the state directory's lock."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        self._path = path
        self._handlers = handlers
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)  # no durable file: no Disk
        self._server = await asyncio.start_unix_server(self._serve, sock=_bind(self._path), limit=REQUEST_BYTES)

    async def stop(self) -> None:
        """Close the socket and every connection; requests under way are cancelled."""
        if self._server is None:
            return
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        await self._server.wait_closed()
        self._server = None
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            answer = await self._answer(reader, writer)
            if answer is not None:
                _write(writer, answer)
                await writer.drain()
        except ConnectionError:
            log.debug("control client went away")
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, object] | None:
        try:
            line = await reader.readuntil(b"\n")
            request = json.loads(line)
            handler = self._handlers[request["do"]]
        except asyncio.IncompleteReadError:
            return None
        except (asyncio.LimitOverrunError, ValueError, KeyError, TypeError):
            return _error("not a request that this tierd knows: are both of one version?", Exit.USAGE)

        def progress(facts: Mapping[str, object]) -> None:
            if writer.transport.get_write_buffer_size() < _UNREAD_BYTES:
                _write(writer, {"progress": facts})

        return await _run(handler(request, progress), reader)


async def _run(work: Awaitable[Outcome], reader: asyncio.StreamReader) -> dict[str, object] | None:
    """Do the work unless the client closes first; None then."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return None
        try:
            outcome = task.result()
        except TierdError as error:
            return _error(str(error), exit_of(error))
        return {"result": outcome.result, "exit": int(outcome.exit)}
    finally:
        for one in (task, gone):
            one.cancel()
            with contextlib.suppress(asyncio.CancelledError, TierdError, OSError):
                await one


def _error(text: str, code: Exit) -> dict[str, object]:
    return {"error": text, "exit": int(code)}


def _write(writer: asyncio.StreamWriter, answer: Mapping[str, object]) -> None:
    writer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")


def _bind(path: Path) -> socket.socket:
    """A listening socket at *path*."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_of(path) as address:
            listener.bind(address)
            os.chmod(address, 0o600)
        listener.listen(16)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
