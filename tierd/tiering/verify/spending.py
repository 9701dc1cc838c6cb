"""What a look at the bucket costs, counted at the store, and the limit that it was given. A store for reading only."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tierd.remote.errors import RequestRefused
from tierd.remote.readonly import ReadOnlyStore
from tierd.remote.store import ObjectInfo, ObjectStore, UploadInfo

Item = TypeVar("Item")

_PAGE = 1000
"""Keys that one LIST gives."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests, and bytes of objects that came with them; a LIST is one for each 1,000 keys."""

    requests: int = 0
    bytes: int = 0

    def plus(self, other: "Cost") -> "Cost":
        return Cost(self.requests + other.requests, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class Budget:
    """None: no limit."""

    requests: int | None = None
    bytes: int | None = None
    is_open: Callable[[], bool] = lambda: True
    """Whether there is still time."""

    def allows(self, cost: Cost) -> bool:
        requests = self.requests is None or cost.requests <= self.requests
        return requests and (self.bytes is None or cost.bytes <= self.bytes) and self.is_open()


class CountedStore(ReadOnlyStore):
    """The ObjectStore *plain*, its requests counted, and nothing of it ever changed. Any thread."""

    def __init__(self, plain: ObjectStore) -> None:
        super().__init__(plain)
        self._lock = threading.Lock()
        self._cost = Cost()

    def refused(self, what: str) -> RequestRefused:
        return RequestRefused(what, "ReadOnly", "nothing is written here")

    @property
    def cost(self) -> Cost:
        return self._cost

    def _count(self, size_bytes: int = 0) -> None:
        with self._lock:
            self._cost = self._cost.plus(Cost(1, size_bytes))

    def get(self, key: str, start: int | None = None, stop: int | None = None, *, if_match: str | None = None) -> bytes:
        self._count()
        data = self.plain.get(key, start, stop, if_match=if_match)
        with self._lock:
            self._cost = self._cost.plus(Cost(0, len(data)))
        return data

    def pieces(
        self, key: str, start: int, stop: int, use: Callable[[Iterator[bytes]], Item], *, if_match: str | None = None
    ) -> Item:
        self._count(stop - start)
        return self.plain.pieces(key, start, stop, use, if_match=if_match)

    def get_with_info(self, key: str) -> tuple[ObjectInfo, bytes]:
        info, data = self.plain.get_with_info(key)
        self._count(len(data))
        return info, data

    def head(self, key: str) -> ObjectInfo:
        self._count()
        return self.plain.head(key)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._pages(self.plain.list(prefix, start_after))

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self._pages(self.plain.list_folders(prefix))

    def list_uploads(self, prefix: str) -> Iterator[UploadInfo]:
        return self._pages(self.plain.list_uploads(prefix))

    def _pages(self, items: Iterator[Item]) -> Iterator[Item]:
        self._count()
        for number, item in enumerate(items, 1):
            yield item
            if number % _PAGE == 0:
                self._count()
