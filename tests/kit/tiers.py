"""Questions about both tiers of a running tierd, asked often and cheaply, and waiting for their answers."""

import json
import re
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from kit import traffic
from kit.daemon import Daemon, DidNotStart
from tierd.cli.client import ask
from tierd.config.topic import MIB

Answer = TypeVar("Answer")

RECORD_BYTES = 10_000
PER_MIB = MIB // RECORD_BYTES
_PAUSE_S = 0.05
_WAIT_S = 60


def until(what: str, look: Callable[[], Answer | None], *, timeout_s: float = _WAIT_S) -> Answer:
    """The first answer of *look* that is not None or False."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        answer = look()
        if answer is not None and answer is not False:
            return answer
        Event().wait(_PAUSE_S)
    raise AssertionError(f"in {timeout_s} s not: {what}")


def state_of(daemon: Daemon) -> Path:
    return daemon.control.parent


def http(daemon: Daemon, path: str) -> str:
    """`GET path`; the address stands in the log, since the port was free to choose."""
    found = re.findall(r"health and metrics listening=(\S+)", daemon.log.read_text())
    with urllib.request.urlopen(f"http://{found[-1]}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def reason(daemon: Daemon, topic: str) -> str | None:
    """Why the next segment is not in the bucket."""
    waiting = daemon.partition(topic)["waiting"]
    return None if waiting is None else str(waiting["reason"])


def copy(daemon: Daemon, *, roll: bool = False) -> None:
    """`tierd copy --wait`, without a process for it."""
    _done(daemon, "copy", wait=True, roll=roll)


def evict(daemon: Daemon) -> None:
    _done(daemon, "evict")


def _done(daemon: Daemon, verb: str, **how: bool) -> None:
    reply = ask(daemon.control, verb, **how)
    assert reply.exit == 0, (verb, reply)


def refused(daemon: Daemon) -> str:
    """What it says when its start is refused."""
    with pytest.raises(DidNotStart) as caught:
        daemon.start()
    assert caught.value.exit_code == 4, caught.value.said
    return caught.value.said


def create(daemon: Daemon, topic: str, **config: str) -> None:
    """With one partition; names of settings with _ for each dot."""
    new = NewTopic(topic, 1, 1, config={name.replace("_", "."): value for name, value in config.items()})
    admin = _admin(daemon)
    admin.create_topics([new])[topic].result(60)


def alter(daemon: Daemon, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = _admin(daemon)
    admin.incremental_alter_configs([resource])[resource].result(60)


def delete(daemon: Daemon, topic: str) -> None:
    admin = _admin(daemon)
    admin.delete_topics([topic])[topic].result(60)


def topics(daemon: Daemon) -> set[str]:
    return set(_admin(daemon).list_topics(timeout=60).topics)


def _admin(daemon: Daemon) -> AdminClient:
    """To be held until the answer is there."""
    return AdminClient({"bootstrap.servers": daemon.address})


def fill(
    daemon: Daemon, topic: str, mib: int, *, start: int = 0, timestamp_ms: int | None = None
) -> list[traffic.Message]:
    """*mib* MiB more, from record number *start*, in batches of 64 KiB; with one timestamp or those of `traffic`."""
    sent = list(traffic.stream(topic, start, start + mib * PER_MIB, RECORD_BYTES))
    if timestamp_ms is not None:
        sent = [replace(one, timestamp_ms=timestamp_ms) for one in sent]
    traffic.produce_confluent(daemon.address, topic, sent, **{"batch.size": 65_536})
    return sent


def read_back(daemon: Daemon, topic: str, sent: Iterable[traffic.Message]) -> None:
    """Every one of *sent*, at its offset, byte for byte."""
    expected = list(sent)
    got = traffic.consume_confluent(daemon.address, topic, expected[0].offset, expected[-1].offset + 1)
    assert traffic.digest(got) == traffic.digest(expected)


def head(folder: Path, topic: str) -> dict[str, Any]:
    """The head of a topic's partition 0 in a directory bucket; empty while there is none."""
    for path in folder.glob(f"tierd/partitions/{topic}-*/0.json"):
        document: dict[str, Any] = json.loads(path.read_bytes())
        return document
    return {}


def bases(folder: Path, topic: str, kind: str = ".rsm-manifest") -> list[int]:
    """Where the segments begin that a directory bucket has, by the objects of one kind."""
    return sorted(int(path.name[:20]) for path in folder.glob(f"{topic}-*/0/*{kind}"))
