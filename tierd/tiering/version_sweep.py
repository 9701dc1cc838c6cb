"""Goes through the versions that a bucket keeps, a batch at a time: they may be many more than there are objects."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby

from tierd.base.ids import PartitionId
from tierd.remote.errors import AccessRefused, RequestRefused
from tierd.remote.open import Bucket
from tierd.remote.versions import Version, VersionedStore, versioned
from tierd.tiering.old_versions import OldVersions, old_versions
from tierd.tiering.orphans import Guard, Holdings

log = logging.getLogger(__name__)

_BATCH = 5_000
"""Versions, about, of one batch."""
_KEYS = 1_000


def kept_by(bucket: Bucket) -> VersionedStore | None:
    """The store when the bucket keeps versions; None when it does not, or does not tell. Raises RemoteUnavailable."""
    store = versioned(bucket.store)
    try:
        return store if store is not None and store.keeps_versions() else None
    except (AccessRefused, RequestRefused) as error:
        if isinstance(error, AccessRefused) and not error.denied:
            raise
        log.warning("whether the bucket keeps versions is not known: %s", error)
        return None


def batches(
    store: VersionedStore,
    bucket: Bucket,
    holdings: Callable[[Iterable[str]], Mapping[PartitionId, Holdings]],
    guard: Guard,
) -> Iterator[list[OldVersions]]:
    """All that is not current. *holdings* knows the partitions that keys are of. Raises RemoteUnavailable; no more
    come when listing them is denied."""
    try:
        for group in _groups(store.list_versions(bucket.keys.prefix)):
            known = holdings(versions[0].key for versions in group)
            found = old_versions(bucket.keys, group, known, guard)
            if found:
                yield found
    except (AccessRefused, RequestRefused) as error:
        if isinstance(error, AccessRefused) and not error.denied:
            raise
        log.warning("old versions cannot be listed: %s", error)


def _groups(listed: Iterable[tuple[Version, ...]]) -> Iterator[list[tuple[Version, ...]]]:
    """Keys that have more than a current version, of one folder, in batches."""
    for _, folder in groupby(listed, lambda versions: versions[0].key.rpartition("/")[0]):
        group: list[tuple[Version, ...]] = []
        size = 0
        for versions in folder:
            if len(versions) == 1 and not versions[0].marker:
                continue
            group.append(versions)
            size += len(versions)
            if size >= _BATCH or len(group) >= _KEYS:
                yield group
                group, size = [], 0
        if group:
            yield group
