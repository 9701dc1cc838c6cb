"""ListObjectVersions, key by key."""

from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from tierd.remote.versions import Version

if TYPE_CHECKING:
    from tierd.remote.s3 import S3Store

MOST = 100_000
"""Versions of one key that are looked at, the newest ones; others another time."""


def list_versions(store: "S3Store", prefix: str) -> Iterator[tuple[Version, ...]]:
    """All versions of each key, newest first."""
    for _, versions in groupby(_all(store, prefix), lambda version: version.key):
        newest = islice(versions, MOST)  # a document that is rewritten all the time may have millions
        yield tuple(sorted(newest, key=lambda one: (one.current, one.modified_ms), reverse=True))


def _all(store: "S3Store", prefix: str) -> Iterator[Version]:
    """By key: a page's markers stand apart from its versions, and a key may go on on the next page."""
    more: dict[str, Any] = {}
    open_: list[Version] = []
    while True:
        page = store.retried(prefix, store.client.list_object_versions, Prefix=prefix, **more)
        found = [_version(one, marker=False) for one in page.get("Versions", ())]
        found += [_version(one, marker=True) for one in page.get("DeleteMarkers", ())]
        found = sorted([*open_, *found], key=lambda one: one.key)
        if not page.get("IsTruncated"):
            yield from found
            return
        last = found[-1].key if found else ""
        yield from (one for one in found if one.key != last)
        open_ = [one for one in found if one.key == last][:MOST]
        more = {"KeyMarker": page["NextKeyMarker"]}
        if page.get("NextVersionIdMarker"):
            more["VersionIdMarker"] = page["NextVersionIdMarker"]


def _version(found: Mapping[str, Any], *, marker: bool) -> Version:
    return Version(
        key=found["Key"],
        version_id=found["VersionId"],
        size=0 if marker else found["Size"],
        modified_ms=int(found["LastModified"].timestamp() * 1000),
        marker=marker,
        current=found["IsLatest"],
    )
