"""Rows of many connections with small requests: how long answers take, and what each costs the server."""

import json
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import crowd, servers
from bench.crowd import Taken
from bench.measure import cpu_seconds
from bench.rows import Run, batch_of
from bench.servers import Server
from kit.certificates import Authority, Signed

CONNECTIONS: Final = (1, 16, 256, 4_096)
SECONDS: Final = 2.0
WARM_SECONDS: Final = 10.0
"""Of requests before anything is measured: a JVM compiles what it does often."""
BARE: Final = "bare event loop"
_TOPIC: Final = "crowd"
_TRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Crowd:
    """One kind of request over a number of connections: runs of each server, and its CPU microseconds per answer."""

    name: str
    connections: int
    taken: Mapping[str, Sequence[tuple[Taken, float]]]


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of who signed, what is shown, and both of that in one."""

    ca: str
    shown: Signed
    joined: str

    @property
    def of_tierd(self) -> list[str]:
        files = {"certificate": self.shown.certificate, "key": self.shown.key}
        return ["listener.security.protocol=SSL", *(f"listener.ssl.{k}.location={v}" for k, v in files.items())]

    @property
    def of_kafka(self) -> dict[str, str]:
        stores = {"keystore": self.joined, "truststore": self.ca}
        pem = {f"ssl.{store}.type": "PEM" for store in stores}
        places = {f"ssl.{store}.location": place for store, place in stores.items()}
        return {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL", **pem, **places}


def crowds(run: Run, kind: str, *, tls: bool = False) -> list[Crowd]:
    """All numbers of connections; a bare event loop, tierd, and Kafka where there is one, in turn."""
    place = run.place / f"crowd-{kind}{'-tls' * tls}"
    place.mkdir()
    secure = _certificates(place) if tls else None
    with ExitStack() as stack:
        them = [stack.enter_context(bare(place / "bare", secure))]
        them.append(stack.enter_context(servers.tierd(place / "tierd", None, *(secure.of_tierd if secure else ()))))
        others = secure.of_kafka if secure else {}
        kafka = stack.enter_context(servers.kafka(place / "kafka", others)) if run.with_kafka else None
        them += [kafka] if kafka is not None else []
        work = Work(kind, batch_of(crowd.RECORD_BYTES), secure)
        for server in them[1:]:
            work.prepare(server)
        return [_crowd(run, them, work, count) for count in CONNECTIONS]


def _certificates(place: Path) -> Tls:
    authority = Authority(place / "tls")
    shown = authority.sign("bench")
    joined = place / "tls" / "joined.pem"
    joined.write_bytes(shown.key.read_bytes() + shown.certificate.read_bytes())
    return Tls(str(authority.file), shown, str(joined))


@contextmanager
def bare(path: Path, secure: Tls | None) -> Iterator[Server]:
    files = [] if secure is None else [str(secure.shown.certificate), str(secure.shown.key)]
    command = [sys.executable, "-m", "bench.crowd", "serve", str(path), *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Server(BARE, f"127.0.0.1:{int(process.stdout.readline())}", {"loop": process.pid})
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Work:
    """What is asked again and again."""

    kind: str
    batch: bytes
    secure: Tls | None

    def prepare(self, server: Server) -> None:
        """A topic with records in it; a broker may say for a moment that it is not its leader."""
        spoken = {} if self.secure is None else {"security.protocol": "SSL", "ssl.ca.location": self.secure.ca}
        admin = AdminClient({"bootstrap.servers": server.address, "log_level": 4, **spoken})
        admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(60)
        pause = threading.Event()
        for _ in range(_TRIES):
            try:
                self.ask(server, 1, kind="produce", seconds=0.2)
            except subprocess.CalledProcessError:
                pause.wait(0.1)
            else:
                self.ask(server, 16, seconds=WARM_SECONDS)
                return
        raise RuntimeError(f"{server.name} does not take records")

    def ask(self, server: Server, count: int, *, kind: str | None = None, seconds: float = SECONDS) -> Taken:
        asked = kind or (f"bare-{self.kind}" if server.name == BARE else self.kind)
        words = [server.address, asked, _TOPIC, str(count), str(seconds), *([self.secure.ca] if self.secure else ())]
        command = [sys.executable, "-m", "bench.crowd", "ask", *words]
        done = subprocess.run(command, input=self.batch, stdout=subprocess.PIPE, timeout=120, check=True)
        return Taken(**json.loads(done.stdout))


def _crowd(run: Run, them: Sequence[Server], work: Work, count: int) -> Crowd:
    name = f"{work.kind} of 1 KiB{', TLS' if work.secure else ''}"
    taken: dict[str, list[tuple[Taken, float]]] = {server.name: [] for server in them}
    for number in range(run.rounds + 1):
        for server in them:
            before = sum(map(cpu_seconds, server.pids.values()))
            found = work.ask(server, count)
            spent_us = 1e6 * (sum(map(cpu_seconds, server.pids.values())) - before) / found.answers
            said = f"{found.per_s:.0f}/s, p99 {found.ms['99']:.1f} ms"
            run.said(f"{name}, {count} connections, round {number} of {run.rounds}: {server.name} {said}")
            if number:
                taken[server.name].append((found, spent_us))
    return Crowd(name, count, taken)


def lines(row: Crowd) -> list[dict[str, Any]]:
    """One dict a server: medians over the runs."""
    out: list[dict[str, Any]] = []
    for name, runs in row.taken.items():
        found = {f"p{p:g}_ms": statistics.median(taken.ms[f"{p:g}"] for taken, _ in runs) for p in crowd.PERCENTILES}
        speed = statistics.median(taken.per_s for taken, _ in runs)
        spent = statistics.median(us for _, us in runs)
        out.append(
            {"row": row.name, "connections": row.connections, "server": name, "per_s": speed, **found, "cpu_us": spent}
        )
    return out
