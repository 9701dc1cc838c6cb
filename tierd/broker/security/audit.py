"""Audit lines: who did what, with what outcome; a line of JSON each, in a file, among the daemon's log lines, or both.

Never a secret: of settings and users only names are told. Loop thread only.
"""

import json
import logging
import os
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol, TextIO, TypeVar

from tierd.base.clock import Clock
from tierd.base.logs import Doubling
from tierd.base.session import Session
from tierd.broker.ongoing import Ongoing
from tierd.broker.security.asking import Denied
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

_MODE: Final = 0o640
OK: Final = "OK"
_LINES, _BUDGET_MS = 600, 60_000
"""In a minute, of refusals of all kinds: whoever asks for a million things fills no disk."""
_REFUSED_CHARS: Final = 1000
"""Of what was asked for in vain: a name may be long."""

_LAST_ACTS_S: Final = 5.0

_T = TypeVar("_T")


class Sink(Protocol):
    def write(self, line: str) -> None:
        """One line, without its end. Never raises: what is told has been done already."""


class AuditFile:
    """A file that others may rename or remove: then the next line begins it anew."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when it cannot be written to."""
        self._path = path
        self._file = self._open()
        self._failures = Doubling()

    def write(self, line: str) -> None:
        try:
            if self._moved():
                self.close()
                self._file = self._open()
            self._file.write(line + "\n")
            self._file.flush()
        except (OSError, ValueError) as error:  # ValueError: closed, and could not be opened again
            if (times := self._failures.failed(self._path)) is not None:
                log.error("audit line lost", extra={"file": str(self._path), "why": str(error), "times": times})

    def close(self) -> None:
        with suppress(OSError):  # what did not fit the disk was reported as lost
            self._file.close()

    def _open(self) -> TextIO:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        return os.fdopen(descriptor, "a", encoding="utf-8")

    def _moved(self) -> bool:
        if self._file.closed:
            return True
        ours = os.fstat(self._file.fileno())
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return True
        return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)


class AuditLog:
    """The same lines among the daemon's own."""

    def write(self, line: str) -> None:
        log.info("audit", extra={"line": line})


class Budget:
    """How many lines may be caused by those who are refused; what is more is counted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_ms: int | None = None
        self._spent = 0
        self._left_out = 0

    def spend(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if self._begun_ms is None or now_ms - self._begun_ms >= _BUDGET_MS:
            self._begun_ms, self._spent = now_ms, 0
        self._spent += 1
        self._left_out += self._spent > _LINES
        return self._spent <= _LINES

    def left_out(self) -> int:
        """Since the last time."""
        found, self._left_out = self._left_out, 0
        return found


class Audit:
    """Puts lines together."""

    def __init__(self, sinks: "list[AuditFile | AuditLog]", clock: Clock) -> None:
        self._sinks = sinks
        self._clock = clock
        self._refused = Doubling()
        self._budget = Budget(clock)
        self._ongoing = Ongoing()

    async def whole(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run an act that tells of itself, and wait: who leaves in the wait is told of all the same."""
        return await self._ongoing.whole(work)

    def act(self, header: RequestHeader, act: str, what: Mapping[str, object], code: int, message: object) -> None:
        """Something that was done or tried."""
        if code and not self._budget.spend():
            return
        facts = {"event": act, **_who(header.session), "client_id": header.client_id, **what}
        if not code:
            self._write({**facts, "outcome": OK})
            return
        why = {"why": str(message)} if message else {}
        self._write({**_brief(facts), "outcome": ErrorCode(code).name, **_brief(why)})

    def by_hand(self, act: str, what: Mapping[str, object]) -> None:
        """Something that was done at the control socket: by whoever may write to the state directory."""
        self._write({"event": act, "principal": None, "address": "control socket", **what, "outcome": OK})

    def denied(self, denied: Denied) -> None:
        """A client asked for what it may not do. Who goes on asking is told of at each doubling of its times."""
        session = denied.header.session
        key = session.principal, session.host, denied.operation, denied.kind, denied.name
        times = self._refused.failed(key)
        if times is None or not self._budget.spend():
            return
        facts = {
            "event": "denied",
            **_who(session),
            "client_id": denied.header.client_id,
            "api": ApiKey(denied.header.api_key).name,
            "operation": denied.operation.name,
            "resource": f"{denied.kind.name}:{denied.name}",
            "rule": None if denied.by is None else str(denied.by),
            "times": times,
        }
        self._write({**_brief(facts), "outcome": "DENIED"})

    def authentication_failed(self, session: Session, user: str | None, why: str, times: int) -> None:
        """*user*: who it said it was."""
        if not self._budget.spend():
            return
        facts = {"event": "authentication", **_who(session), "principal": None, "user": user, "times": times}
        self._write({**_brief(facts), "outcome": ErrorCode.SASL_AUTHENTICATION_FAILED.name, "why": why})

    async def close(self) -> None:
        """Once acts that go on have ended, or have had their time."""
        await self._ongoing.settle(_LAST_ACTS_S)
        for sink in self._sinks:
            if isinstance(sink, AuditFile):
                sink.close()

    def _write(self, facts: Mapping[str, object]) -> None:
        if left_out := self._budget.left_out():
            facts = {**facts, "left_out": left_out}
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now.replace("+00:00", "Z"), **facts})
        for sink in self._sinks:
            sink.write(line)


def _who(session: Session) -> dict[str, object]:
    return {"principal": str(session.principal), "address": session.host, "listener": session.listener}


def _brief(facts: Mapping[str, object]) -> dict[str, object]:
    """What a client has said in vain, cut short where it is long."""
    return {
        name: value if len(text := json.dumps(value)) <= _REFUSED_CHARS else text[:_REFUSED_CHARS] + "..."
        for name, value in facts.items()
    }
