"""franz-go, through a small program (kit/go) that is built once; without Go its tests are skipped, in CI they fail."""

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from kit.traffic import Message

MODULE = Path(__file__).parent / "go"
BUILD_S, RUN_S = 600, 90


def require_go() -> None:
    """Skip the test where Go is missing; with CI=true fail it."""
    if shutil.which("go") is None:
        reason = "go is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def go(*words: str, cwd: Path = MODULE) -> str:
    """Run Go's own tool in the module; what it printed."""
    command = ["go", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@functools.cache
def program() -> Path:
    """The built client, kept beside Kafka's jars; another run may build at the same time."""
    require_go()
    place = Path.home() / ".cache" / "tierd-tests"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as fresh:
        go("build", "-o", f"{fresh}/franz", ".")
        return Path(fresh, "franz").rename(place / "franz")


def run(address: str, verb: str, *words: object, stdin: str | None = None) -> str:
    command = [str(program()), address, verb, *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def produce(address: str, topic: str, messages: Iterable[Message]) -> None:
    """Idempotent, acks=all, partition 0; fails when any record was not acknowledged."""
    run(address, "produce", topic, stdin="".join(map(_line, messages)))


def consume(address: str, topic: str, start: int, stop: int) -> list[Message]:
    """Offsets [start, stop) of partition 0."""
    return list(map(_message, run(address, "consume", topic, start, stop).splitlines()))


def group(address: str, topic: str, group: str, count: int) -> list[Message]:
    """*count* records by subscribing; offsets are committed at the end."""
    return list(map(_message, run(address, "group", topic, group, count).splitlines()))


def offset_at(address: str, topic: str, timestamp_ms: int) -> int:
    return int(run(address, "time", topic, timestamp_ms))


def _line(m: Message) -> str:
    return f"{m.offset} {m.key.hex()} {m.value.hex()} {m.timestamp_ms}\n"


def _message(line: str) -> Message:
    offset, key, value, timestamp_ms = line.split(" ")
    return Message(int(offset), bytes.fromhex(key), bytes.fromhex(value), int(timestamp_ms))
