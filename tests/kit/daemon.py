"""A whole tierd as its users start it: a process, its ready line, its verbs. Ended by its pid."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from kit.ports import free_ports
from tierd.cli.client import NotRunning, ask

READY = "tierd ready on "
START_S = 60
LEAN = Path(__file__).with_name("lean")


class DidNotStart(AssertionError):
    """tierd ended or stayed silent before its ready line; holds the exit code and what it said."""

    def __init__(self, exit_code: int | None, said: str) -> None:
        super().__init__(f"exit {exit_code}\n{said}")
        self.exit_code = exit_code
        self.said = said


@dataclass
class Daemon:
    """`tierd serve` on a data directory; `start` may be called again after `stop` or `kill`."""

    data: Path
    remote: str | None = None
    state: Path | None = None
    extra: Sequence[str] = ()
    env: dict[str, str] = field(default_factory=dict)
    address: str = ""
    program: Sequence[str] = ("-m", "tierd")
    """What `python` runs as tierd."""
    _process: subprocess.Popen[str] | None = None

    @property
    def control(self) -> Path:
        """The socket that the verbs ask."""
        return (self.state or self.data.with_name(self.data.name + ".tierd")) / "control.sock"

    @property
    def environment(self) -> dict[str, str]:
        given = {**os.environ, **self.env}
        return given | {"PYTHONPATH": os.pathsep.join(filter(None, [str(LEAN), given.get("PYTHONPATH")]))}

    @property
    def log(self) -> Path:
        return self.data.with_name(self.data.name + ".daemon.log")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        words = [
            sys.executable,
            *self.program,
            "serve",
            "--data",
            str(self.data),
            "--listen",
            self.address or f"127.0.0.1:{free_ports(1)[0]}",  # at a port of our own: restarts need it again
        ]
        words += ["--state", str(self.state)] if self.state else []
        words += ["--remote", self.remote] if self.remote else []
        return [*words, *self.extra]

    def start(self, *, timeout_s: float = START_S) -> "Daemon":
        """Return when the ready line is out; DidNotStart when the process ends first or says nothing in time."""
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment
            )
        lines: Queue[str] = Queue()
        threading.Thread(target=self._pump, args=(lines,), daemon=True).start()
        try:
            while not (line := lines.get(timeout=timeout_s)).startswith(READY):
                if line == "":
                    raise DidNotStart(self._process.wait(60), self.log.read_text())
        except Empty:
            self.kill()
            raise DidNotStart(None, self.log.read_text()) from None
        self.address = line.removeprefix(READY).strip()
        return self

    def _pump(self, lines: "Queue[str]") -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout as out:
            for line in out:
                lines.put(line)
        lines.put("")

    def tierer_pids(self) -> list[int]:
        """Pids of the children of the broker process that run the tierer."""
        return [pid for pid, words in self._children().items() if b"--fd" in words and b"tierd.worker" not in words]

    def worker_pids(self) -> list[int]:
        """The same of the worker."""
        return [pid for pid, words in self._children().items() if b"tierd.worker" in words]

    def _children(self) -> dict[int, bytes]:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}

    def stop(self, *, timeout_s: float = 30) -> int:
        """SIGTERM and wait; give the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL the broker process (the tierer ends by itself when its socket closes)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)

    def wait(self, timeout_s: float) -> int:
        assert self._process is not None
        return self._process.wait(timeout_s)

    @property
    def place(self) -> list[str]:
        """How a verb finds it."""
        return ["--data", str(self.data), *(["--state", str(self.state)] if self.state else [])]

    def verb(self, *words: str, expect: int | None = 0, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run `tierd WORDS --data ...`; fails the test unless it ends with *expect* (None: any)."""
        done = subprocess.run(
            [sys.executable, "-m", "tierd", *words, *self.place],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env=self.environment,
        )
        assert expect is None or done.returncode == expect, (words, done.returncode, done.stdout, done.stderr)
        return done

    def status(self) -> dict[str, Any]:
        """As `tierd status --json`; needs no process while the daemon runs."""
        answer: dict[str, Any]
        try:
            answer = ask(self.control, "status").result
        except NotRunning:
            answer = json.loads(self.verb("status", "--json").stdout)
        return answer

    def partition(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """One row of `tierd status --json`."""
        rows: list[dict[str, Any]] = self.status()["partitions"]
        return next(r for r in rows if r["topic"] == topic and r["partition"] == partition)


@contextmanager
def running(
    data: Path,
    remote: str | None = None,
    *extra: str,
    state: Path | None = None,
    env: dict[str, str] | None = None,
) -> Iterator[Daemon]:
    """A started daemon, killed at the end if the test did not stop it."""
    daemon = Daemon(data, remote, state, extra, env or {})
    try:
        yield daemon.start()
    finally:
        daemon.kill()
