"""Tells systemd what happens (sd_notify(3)): one datagram per event to $NOTIFY_SOCKET; silent without one."""

import os
import socket
from collections.abc import Mapping


class Notifier:
    """READY, STATUS, WATCHDOG and STOPPING. Never blocks: systemd's queue being full costs a message, no more."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if path else None
        if self._socket is not None:
            self._socket.setblocking(False)
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        limit_us = int(environment.get("WATCHDOG_USEC", "0")) if watched else 0
        self.watchdog_interval_s: float | None = limit_us / 2_000_000 if limit_us else None
        """How often `watchdog` is to be called by a loop that works; None when nobody listens."""

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def stopping(self, status: str) -> None:
        self._send(f"STOPPING=1\nSTATUS={status}")

    def extend_timeout(self, by_ms: int) -> None:
        """A start or stop that makes progress asks for more time."""
        self._send(f"EXTEND_TIMEOUT_USEC={by_ms * 1000}")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError:
            return  # a service manager that restarts is no reason for us to stop
