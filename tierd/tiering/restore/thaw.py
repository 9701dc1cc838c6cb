"""Asks for readable copies of archived objects: what a restore, or a reader, needs before it can go on."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from tierd.base.errors import Usage
from tierd.remote.frozen import Cold, FreezingStore, Thaw, freezing
from tierd.remote.keys import SegmentObject
from tierd.remote.open import Bucket

_THREADS = 8
TIERS = ("Standard", "Bulk", "Expedited")
_TAKES = {
    ("GLACIER", "Expedited"): "1 to 5 minutes",
    ("GLACIER", "Standard"): "3 to 5 hours",
    ("GLACIER", "Bulk"): "5 to 12 hours",
    ("DEEP_ARCHIVE", "Standard"): "up to 12 hours",
    ("DEEP_ARCHIVE", "Bulk"): "up to 48 hours",
    ("INTELLIGENT_TIERING", "Expedited"): "minutes, from the deep archive tier up to 12 hours",
    ("INTELLIGENT_TIERING", "Standard"): "3 to 5 hours, from the deep archive tier up to 12 hours",
    ("INTELLIGENT_TIERING", "Bulk"): "5 to 12 hours, from the deep archive tier up to 48 hours",
}
"""As Amazon says; other servers have their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thawed:
    """What there was to be thawed, by storage class."""

    storage_class: str
    takes: str
    objects: int = 0
    bytes: int = 0
    readable: int = 0
    """Thawed before, and still so."""
    under_way: int = 0
    """Asked for before."""
    asked: int = 0
    """Asked for now; in a dry run: that would be."""

    @property
    def ready(self) -> bool:
        return self.readable == self.objects


def thaw(bucket: Bucket, topics: Sequence[str], *, days: int, tier: str, dry: bool) -> list[Thawed]:
    """Of all objects of *topics* (of all topics without any). Repeating it asks for nothing twice.

    Raises Usage for a store that freezes nothing, RequestRefused, RemoteUnavailable.
    """
    store = freezing(bucket.store)
    if store is None:
        raise Usage(f"{bucket.url}: nothing there has to be thawed: it is no S3 bucket")
    done: dict[str, Thawed] = {}
    with ThreadPoolExecutor(_THREADS, "thaw") as threads:
        work: Callable[[Cold], tuple[Cold, Thaw]] = partial(_one, store, days, tier, dry)
        for cold, was in threads.map(work, _wanted(bucket, store, topics)):
            takes = _TAKES.get((cold.storage_class, tier), "as long as the server says")
            known = done.get(cold.storage_class, Thawed(storage_class=cold.storage_class, takes=takes))
            done[cold.storage_class] = _count(known, cold, was)
    return [done[name] for name in sorted(done)]


def _wanted(bucket: Bucket, store: FreezingStore, topics: Sequence[str]) -> Iterator[Cold]:
    for cold in store.list_cold(bucket.keys.prefix):
        key = bucket.keys.parse(cold.key)
        topic = key.name.topic if isinstance(key, SegmentObject) else None
        if key is not None and (not topics or topic is None or topic in topics):
            yield cold


def _one(store: FreezingStore, days: int, tier: str, dry: bool, cold: Cold) -> tuple[Cold, Thaw]:
    """As it was before it was asked for."""
    now = store.thawing(cold.key)
    if now.state is Thaw.FROZEN and not dry:
        store.thaw(cold.key, now.storage_class, days, tier)
    return cold, now.state


def _count(known: Thawed, cold: Cold, was: Thaw) -> Thawed:
    return replace(
        known,
        objects=known.objects + 1,
        bytes=known.bytes + cold.size,
        readable=known.readable + (was is Thaw.READABLE),
        under_way=known.under_way + (was is Thaw.UNDER_WAY),
        asked=known.asked + (was is Thaw.FROZEN),
    )
