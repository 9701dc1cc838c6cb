"""The servers under test, each with its pids: tierd (a bucket or none) and a real Kafka."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.measure import GIB, private_mib
from bench.rawclient import wait_served
from kit import kafka as kafka_kit
from kit import weed
from kit.daemon import Daemon

KAFKA = "Kafka 4.3.1"
KAFKA_JVM = (
    "-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip
"""What Kafka's own start script gives."""


@dataclass(frozen=True, slots=True)
class Server:
    """Something that speaks Kafka at *address*; CPU and memory are charged to *pids*."""

    name: str
    address: str
    pids: Mapping[str, int]
    daemon: Daemon | None = field(default=None, compare=False)
    data: Path = field(default=Path(), compare=False)

    def create(self, topic: str, **config: str) -> None:
        """A topic with one partition, ready to be used; raises when it is there."""
        new = NewTopic(topic, 1, 1, config={k.replace("_", "."): v for k, v in config.items()})
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 4})
        admin.create_topics([new])[topic].result(60)
        wait_served(self.address, topic)

    def drop(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 4})
        admin.delete_topics([topic])[topic].result(60)

    def private_mib(self) -> dict[str, float]:
        """By process."""
        return {name: private_mib(pid) for name, pid in self.pids.items()}


@contextmanager
def tierd(place: Path, remote: str | None = None, *sets: str, server: weed.Weed | None = None) -> Iterator[Server]:
    """tierd with its data in *place*, stopped cleanly at the end; *sets* are settings as `--set` takes them."""
    words = ["segment.bytes=64MiB", "log.level=warning", *sets]
    if server is not None:
        words += [f"remote.s3.endpoint={server.endpoint}", "remote.s3.region=us-east-1"]
    env = server.env if server is not None else {}
    place.mkdir(exist_ok=True)
    daemon = Daemon(place / "data", remote, None, [part for word in words for part in ("--set", word)], env)
    try:
        daemon.start()
        tierers = dict(zip(("tierer",), daemon.tierer_pids(), strict=False))
        yield Server("tierd", daemon.address, {"broker": daemon.pid, **tierers}, daemon, daemon.data)
        daemon.stop(timeout_s=60)
    finally:
        daemon.kill()


@contextmanager
def kafka(place: Path, others: Mapping[str, str] | None = None) -> Iterator[Server | None]:
    """A real Kafka with the JVM flags of its own start script; None where Java or Maven is missing. *others* are
    settings."""
    if not has_kafka():
        yield None
        return
    settings = {"log.segment.bytes": str(64 << 20), "log.segment.delete.delay.ms": "1000", **(others or {})}
    with kafka_kit.running(place, settings, KAFKA_JVM) as broker:
        yield Server(KAFKA, broker.address, {"kafka": broker.pid}, data=broker.data)


def has_kafka() -> bool:
    return bool(shutil.which("java") and (os.environ.get("TIERD_KAFKA_HOME") or shutil.which("mvn")))


def machine() -> str:
    """The line that every table needs above it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if "model name" in line), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {len(os.sched_getaffinity(0))} cores of {model}, {memory:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}, Python {sys.version.split()[0]}"
    )
