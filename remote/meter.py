"""Counts what is asked of the bucket, by topic and operation: requests as a provider bills them, and bytes. Any thread.

A request counts when it is sent, again with each retry; bytes are those of bodies.
"""

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tierd.remote.keys import OWN_FOLDER, Keys

ARCHIVE = ""
"""The topic of what belongs to none: claims, listings of the whole bucket."""

_FREE = ("Delete", "Abort")
_READS = ("Get", "Head")


@dataclass(frozen=True, slots=True)
class Used:
    """By one topic with one operation."""

    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def plus(self, other: "Used") -> "Used":
        return Used(
            self.requests + other.requests,
            self.sent_bytes + other.sent_bytes,
            self.received_bytes + other.received_bytes,
        )


Totals = Mapping[tuple[str, str], Used]
"""By (topic, operation); operations as S3 calls them: PutObject."""


def price_class(operation: str) -> str:
    """How S3 bills it: `write` (PUT, COPY, POST, LIST), `read` (GET and all others), `delete` (free there)."""
    if operation.startswith(_FREE):
        return "delete"
    return "read" if operation.startswith(_READS) else "write"


def topic_of(keys: Keys) -> Callable[[str], str]:
    """Whose a key is, or a prefix that is listed; ARCHIVE when it is no topic's."""

    @functools.lru_cache(maxsize=10_000)
    def of_folder(folder: str) -> str:
        found = keys.parse_topic_folder(f"{keys.prefix}{folder}/")
        return ARCHIVE if found is None else found[0]

    def of(key: str) -> str:
        path = key.removeprefix(keys.prefix)
        if not path.startswith(OWN_FOLDER):
            return of_folder(path.partition("/")[0])
        parts = path.split("/")
        return of_folder(parts[2].removesuffix(".json")) if len(parts) > 2 else ARCHIVE

    return of


class Meter:
    """What has been used since it was made."""

    def __init__(self, topic: Callable[[str], str] = lambda _: ARCHIVE) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._used: dict[tuple[str, str], Used] = {}

    def sent(self, operation: str, key: str, sent_bytes: int = 0) -> None:
        """One request about *key*, by S3's name of the operation or boto3's of the method (`put_object`)."""
        self._add(operation, key, Used(1, sent_bytes))

    def received(self, operation: str, key: str, received_bytes: int) -> None:
        """The body of an answer."""
        self._add(operation, key, Used(0, 0, received_bytes))

    def _add(self, operation: str, key: str, used: Used) -> None:
        entry = self._topic(key), _name(operation)
        with self._lock:
            self._used[entry] = used.plus(self._used.get(entry, Used()))

    @property
    def totals(self) -> Totals:
        with self._lock:
            return dict(self._used)


@functools.lru_cache(maxsize=100)
def _name(operation: str) -> str:
    """`list_objects_v2` -> `ListObjectsV2`."""
    return "".join(word[:1].upper() + word[1:] for word in operation.split("_"))
