"""What a bad S3 server does to requests, and a plan that draws it: seeded, so that the same draws come again."""

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kit.http_message import Message


class Fault(Enum):
    """One thing that goes wrong with one request."""

    SLOW_DOWN = "503"
    INTERNAL = "500"
    RESET = "reset"
    """Before anything is done."""
    STALL = "stall"
    """Nothing is done, and nothing answered until the client goes."""
    TRUNCATED = "truncated answer"
    """The answer ends somewhere in its headers or its body."""
    WRONG_BYTES = "wrong bytes"
    """One byte of an object is another one: on the way out of the bucket, or on the way into it."""
    LOST = "lost answer"
    """It is done, and the connection is reset instead of an answer."""
    DONE_500 = "500 although it is done"
    SLOW = "slow"
    """The answer comes in small pieces."""
    DRIP = "drip"
    """The answer comes byte by byte, and never ends."""
    SKEWED = "wrong date"
    """The answer's `Date` is hours away."""
    TOO_SKEWED = "403 clock"
    EXPIRED = "403 credentials"


ERRORS: Mapping[Fault, tuple[int, str]] = {
    Fault.SLOW_DOWN: (503, "SlowDown"),
    Fault.INTERNAL: (500, "InternalError"),
    Fault.DONE_500: (500, "InternalError"),
    Fault.TOO_SKEWED: (403, "RequestTimeTooSkewed"),
    Fault.EXPIRED: (400, "ExpiredToken"),
}
"""Status and code of the answers that are made here."""

WEIGHTS: Mapping[Fault, int] = {fault: 1 if fault in (Fault.STALL, Fault.DRIP) else 4 for fault in Fault}
"""How often each is drawn; those that cost a whole time-out are rare."""

_KEY = re.compile(rb"/[^/?]+/[^?]+")
"""A path that names an object of a bucket."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as a plan may look at it."""

    method: str
    path: str
    body_bytes: int

    @property
    def of_object(self) -> bool:
        return _KEY.fullmatch(self.path.partition("?")[0].encode()) is not None

    @property
    def of_bytes(self) -> bool:
        """Bytes of an object go one way or the other: the checksums are there for them."""
        query = self.path.partition("?")[2]
        plain = not query or "uploadId=" in query
        return self.of_object and plain and (self.method == "GET" or (self.method == "PUT" and self.body_bytes > 0))


def asked(request: Message) -> Asked:
    method, path, _ = request.first.split(b" ", 2)
    return Asked(method.decode(), path.decode(), len(request.body))


class Plan:
    """Draws a fault for about *share* of the requests, *most* in all. Any thread."""

    def __init__(
        self,
        seed: int,
        share: float,
        *,
        most: int | None = None,
        weights: Mapping[Fault, int] = WEIGHTS,
        only: Callable[[Asked], bool] = lambda _: True,
    ) -> None:
        self._dice = random.Random(seed)
        self._share = share
        self._left = most
        self._faults, self._weights = list(weights), list(weights.values())
        self._only = only
        self._lock = threading.Lock()
        self._resting = False
        self.done: Counter[Fault] = Counter()
        """Faults that really happened."""
        self.requests = 0

    def draw(self, request: Asked) -> Fault | None:
        """Counts a drawn fault as one that happens."""
        with self._lock:
            self.requests += 1
            if self._resting or self._left == 0 or not self._only(request) or self._dice.random() >= self._share:
                return None
            (fault,) = self._dice.choices(self._faults, self._weights)
            if fault is Fault.WRONG_BYTES and not request.of_bytes:
                fault = Fault.RESET
            if self._left is not None:
                self._left -= 1
            self.done[fault] += 1
            return fault

    def number(self, below: int) -> int:
        """A choice inside a fault: which byte, how far."""
        with self._lock:
            return self._dice.randrange(below)

    def rest(self) -> None:
        """No more faults."""
        with self._lock:
            self._resting = True

    @property
    def over(self) -> bool:
        """All faults that it was to bring about have happened."""
        return self._left == 0

    def words(self) -> str:
        kinds = ", ".join(f"{fault.value} {self.done[fault]}" for fault in self._faults if self.done[fault])
        return f"{self.done.total()} faults in {self.requests} requests: {kinds}"


def always(faults: Sequence[Fault], *, only: Callable[[Asked], bool] = lambda _: True) -> Plan:
    """Each request that *only* takes has one of *faults*."""
    return Plan(1, 1.0, weights=dict.fromkeys(faults, 1), only=only)
