"""The servers under test, each with its pids: tierd (a bucket or none) and a real Kafka."""

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from kit.daemon import Daemon
from kit.kafka import Kafka, kafka_home


@dataclass(frozen=True, slots=True)
class Server:
    """Something that speaks Kafka at *address*; CPU is charged to *pids*."""

    name: str
    address: str
    pids: Mapping[str, int]

    def create(self, topic: str, **config: str) -> None:
        """A topic with one partition; raises when it is there."""
        new = NewTopic(topic, 1, 1, config={k.replace("_", "."): v for k, v in config.items()})
        AdminClient({"bootstrap.servers": self.address}).create_topics([new])[topic].result(60)

    def drop(self, topic: str) -> None:
        AdminClient({"bootstrap.servers": self.address}).delete_topics([topic])[topic].result(60)


@contextmanager
def tierd(
    place: Path, remote: str | None = None, *extra: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[Server, Daemon]]:
    daemon = Daemon(place / "data", remote, None, ("--set", "segment.bytes=64MiB", *extra), dict(env or {}))
    try:
        daemon.start()
        tierers = dict(zip(("tierer",), daemon.tierer_pids(), strict=False))
        yield Server("tierd", daemon.address, {"broker": daemon.pid, **tierers}), daemon
        daemon.stop(timeout_s=60)
    finally:
        daemon.kill()


@contextmanager
def kafka(place: Path) -> Iterator[Server | None]:
    """A real Kafka, or None where Java or Maven is missing (the rows then say so)."""
    if not (shutil.which("java") and shutil.which("mvn")):
        yield None
        return
    with Kafka(kafka_home(), place) as broker:
        yield Server("Kafka 4.3.1", broker.address, {"kafka": broker.pid})


def machine() -> str:
    """The line that every table needs above it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    cores = subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{cores} cores of {model}, Python {sys.version.split()[0]}"
