"""Objects in storage classes that have to be thawed before they can be read. Only some stores have any."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from tierd.remote.store import ObjectStore
from tierd.remote.watched import WatchedStore


class Thaw(StrEnum):
    """How far one object is."""

    READABLE = "readable"
    FROZEN = "frozen"
    UNDER_WAY = "under way"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """An object that may have to be thawed, by its listing."""

    key: str
    size: int
    storage_class: str


@dataclass(frozen=True, slots=True)
class Thawing:
    """One object now."""

    state: Thaw
    storage_class: str


@runtime_checkable
class FreezingStore(Protocol):
    """A store with such storage classes."""

    def list_cold(self, prefix: str) -> Iterator[Cold]:
        """Objects in such a class, thawed or not. Raises RemoteUnavailable."""

    def thawing(self, key: str) -> Thawing:
        """Raises NotFound, RemoteUnavailable."""

    def thaw(self, key: str, storage_class: str, days: int, tier: str) -> None:
        """Ask for a readable copy that stays for *days*; fine when it was asked for already.

        Raises NotFound, RequestRefused, RemoteUnavailable.
        """


def freezing(store: ObjectStore) -> FreezingStore | None:
    """*store* when it may freeze objects."""
    plain = store.plain if isinstance(store, WatchedStore) else store
    return plain if isinstance(plain, FreezingStore) else None
