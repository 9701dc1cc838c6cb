"""Versions that a bucket keeps of what was overwritten or deleted. Only some stores have any."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tierd.remote.store import DeleteOutcome, ObjectStore
from tierd.remote.watched import WatchedStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of one key, or the marker that a delete has left."""

    key: str
    version_id: str
    size: int
    """Bytes; 0 of a marker."""
    modified_ms: int
    marker: bool
    current: bool


@runtime_checkable
class VersionedStore(Protocol):
    """A store that may keep versions."""

    def keeps_versions(self) -> bool:
        """Whether the bucket does, or has done. Raises RemoteUnavailable, RequestRefused."""

    def list_versions(self, prefix: str) -> Iterator[tuple[Version, ...]]:
        """All versions of each key, newest first."""

    def delete_versions(self, targets: Sequence[tuple[str, str]]) -> tuple[DeleteOutcome, ...]:
        """Delete (key, version id) for good. One outcome each, in order."""


def versioned(store: ObjectStore) -> VersionedStore | None:
    """*store* when it may keep versions."""
    plain = store.plain if isinstance(store, WatchedStore) else store
    return plain if isinstance(plain, VersionedStore) else None
