"""What the small objects of a bucket say, asked for again only when they have changed. Blocking."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tierd.base.errors import CorruptFile
from tierd.remote.errors import NotFound
from tierd.remote.store import ObjectInfo

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class Documents(Generic[T]):
    """Objects of one kind by key. *read* may raise NotFound, and CorruptFile: then the object counts as not there."""

    read: Callable[[str], T]
    _known: dict[str, tuple[str, T | None]] = field(default_factory=dict)
    """With the ETag that it had when it was read."""

    def look(self, listed: Iterable[ObjectInfo]) -> dict[str, T]:
        """All of those *listed*, which are all that there are. Raises RemoteUnavailable."""
        now: dict[str, tuple[str, T | None]] = {}
        for info in listed:
            before = self._known.get(info.key)
            same = before is not None and before[0] == info.etag
            now[info.key] = before if before is not None and same else (info.etag, self._one(info.key))
        self._known = now
        return {key: value for key, (_, value) in now.items() if value is not None}

    def etag(self, key: str) -> str | None:
        """Of the object as it was read last."""
        found = self._known.get(key)
        return None if found is None else found[0]

    def _one(self, key: str) -> T | None:
        try:
            return self.read(key)
        except NotFound:
            return None
        except CorruptFile as error:
            log.error("an object does not parse, what the segments say counts: %s", error)
            return None
