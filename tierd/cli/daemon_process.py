"""A `tierd serve` of its own, started and ended with the verb that needs it."""

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tierd.base.errors import TierdError
from tierd.config.state_files import CONTROL_SOCKET

READY = "tierd ready on "
STOP_S = 30


class DidNotStart(TierdError):
    """The daemon ended before it was ready; the text holds its last words."""


class DaemonProcess:
    """A context: ready on entering, stopped cleanly on leaving."""

    def __init__(self, data: Path, *, remote: str, log: Path, sets: Mapping[str, str]) -> None:
        self.address = ""
        self.control = data.with_name(f"{data.name}.tierd") / CONTROL_SOCKET
        self._log = log
        self._command = [sys.executable, "-m", "tierd", "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
        self._command += ["--remote", remote]
        self._command += [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)  # noqa: S603 (ourselves)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(READY):
                self.address = line.removeprefix(READY).strip()
                return self
        self._stop()
        with self._log.open() as log:
            last_words = "".join(deque(log, 5))
        raise DidNotStart(f"tierd did not start:\n{last_words}".rstrip())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
