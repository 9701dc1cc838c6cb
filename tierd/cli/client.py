"""Asks a running daemon through `<state>/control.sock` (the server is web/control.py)."""

import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tierd.base.errors import TierdError
from tierd.base.exits import Exit
from tierd.ipc.address import address_of


class NotRunning(TierdError):
    """No daemon answers at the socket."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no tierd runs there (nobody answers at {path}); start it with `tierd serve`")


class Refused(TierdError):
    """The daemon answered with an error; `exit` is the code that it names."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit = code


@dataclass(frozen=True, slots=True)
class Reply:
    result: Any
    exit: int


def ask(
    path: Path, do: str, /, *, on_progress: Callable[[Mapping[str, Any]], None] = lambda _facts: None, **facts: object
) -> Reply:
    """Send one request and wait for its result, however long it takes. Raises NotRunning or Refused."""
    with _connect(path) as connection, connection.makefile("rwb") as stream:
        try:
            stream.write(json.dumps({"do": do, **facts}).encode() + b"\n")
            stream.flush()
            for line in stream:
                answer = json.loads(line)
                if "progress" in answer:
                    on_progress(answer["progress"])
                elif "error" in answer:
                    raise Refused(answer["error"], answer["exit"])
                else:
                    return Reply(answer["result"], answer["exit"])
        except ConnectionError:
            pass  # the same as an end without an answer
    raise Refused("tierd ended before it answered", Exit.FAILED)


def _connect(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address_of(path) as address:
            connection.connect(address)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        connection.close()
        raise NotRunning(path) from None
    except OSError:
        connection.close()
        raise
    return connection
