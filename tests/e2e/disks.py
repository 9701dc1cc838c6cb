"""A whole tierd over several real disks."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.client import Client, offsets_of
from kit import tiers
from kit.daemon import Daemon


class Beside(Daemon):
    """Its log lies beside the state directory: the disk of the data may fail."""

    @property
    def log(self) -> Path:
        assert self.state is not None
        return self.state.with_name("daemon.log")


def sets(**settings: str) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name.replace('_', '.')}={value}")]


@contextmanager
def tierd(*data: Path, state: Path, remote: Path | None = None, extra: list[str] | None = None) -> Iterator[Daemon]:
    more = [word for path in data[1:] for word in ("--data", str(path))]
    more += sets(tierd_disk_reserve_bytes="1MiB")  # the disks here are small
    daemon = Beside(data[0], f"file:{remote}" if remote else None, state, [*more, *(extra or [])])
    try:
        yield daemon.start()
    finally:
        daemon.kill()


def connect(daemon: Daemon) -> Client:
    host, _, port = daemon.address.rpartition(":")
    return Client((host, int(port)))


def read_all(client: Client, topic: str, number: int, end: int) -> list[int]:
    found: list[int] = []
    while not found or found[-1] < end - 1:
        answer = client.fetch(topic, found[-1] + 1 if found else 0, number, max_wait=2000)
        assert answer.error_code == 0
        found += offsets_of(answer.records)
    return found


def health(daemon: Daemon) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(tiers.http(daemon, "/health"))
    return answer


def directories(daemon: Daemon) -> dict[str, dict[str, Any]]:
    return {Path(row["path"]).name: row for row in daemon.status()["directories"]}
