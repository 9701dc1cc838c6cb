"""Runs a verb in this process, and plays the daemon that it talks to."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tierd.cli.main import run


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def tierd(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Ended:
    """What `tierd WORDS` says and the code it ends with."""
    capsys.readouterr()
    code = run([str(word) for word in words])
    out, err = capsys.readouterr()
    return Ended(code, out, err)


@contextmanager
def answering(state: Path, *answers: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """A daemon at *state* that answers one request with these lines, then closes; yields the requests it got."""
    got: list[dict[str, Any]] = []
    state.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state / "control.sock"))
        listener.listen(1)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as stream:
                got.append(json.loads(stream.readline()))
                for answer in answers:
                    stream.write(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield got
        thread.join(10)
