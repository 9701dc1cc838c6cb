"""kcat, the command-line client; where it is missing its test is skipped."""

import shutil
import subprocess
from collections.abc import Iterable

import pytest

from kit.traffic import Message

RUN_S = 90
_FORMAT = "%o %T %k %s\\n"


def kcat(address: str, *words: object, stdin: str | None = None) -> str:
    """What it printed; its keys and values are lines here, so hexadecimal digits stand for bytes."""
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    command = ["kcat", "-b", address, *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def produce(address: str, topic: str, messages: Iterable[Message]) -> None:
    """Idempotent, acks=all, partition 0. It gives records the time of day, whatever theirs is."""
    lines = "".join(f"{m.key.hex()}:{m.value.hex()}\n" for m in messages)
    kcat(address, "-P", "-t", topic, "-p", 0, "-K:", "-X", "enable.idempotence=true", "-X", "acks=all", stdin=lines)


def consume(address: str, topic: str, start: int, stop: int) -> list[Message]:
    """Offsets [start, stop) of partition 0."""
    words = ("-C", "-q", "-t", topic, "-p", 0, "-o", start, "-c", stop - start, "-f", _FORMAT)
    return _messages(kcat(address, *words))


def group(address: str, topic: str, group: str, count: int) -> list[Message]:
    """*count* records by subscribing; offsets are committed at the end."""
    earliest = ("-X", "auto.offset.reset=earliest")
    return _messages(kcat(address, "-q", *earliest, "-c", count, "-f", _FORMAT, "-G", group, topic))


def offset_at(address: str, topic: str, timestamp_ms: int) -> int:
    said = kcat(address, "-Q", "-t", f"{topic}:0:{timestamp_ms}")
    return int(said.rpartition("offset ")[2])


def _messages(said: str) -> list[Message]:
    return list(map(_message, said.splitlines()))


def _message(line: str) -> Message:
    offset, timestamp_ms, key, value = line.split(" ")
    return Message(int(offset), bytes.fromhex(key), bytes.fromhex(value), int(timestamp_ms))
