"""What tiering will ask of the bucket and cost, before it is switched on: `tierd plan`. Pure.

Requests are those that the copier makes of a segment (`copier`, `object_upload`), and what a daemon asks beside: whose
the bucket is, heads, looks before an eviction. What is rounded is rounded up.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tierd.config.model import Remote
from tierd.config.prices import Prices
from tierd.config.topic import DAY_MS, TopicSettings
from tierd.tiering.costs import STANDARD, request_price, storage_price
from tierd.tiering.options import OWNER_LOOK_MS

MONTH_MS = 30 * DAY_MS
MANIFEST_BYTES = 2_000
"""About."""
_PAGE = 1000
_SHORTEST_MS = DAY_MS // 24
"""Segments whose appends lie no further apart than this say nothing of how fast they come."""
_MONTHS = (1, 12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A partition on the disk."""

    topic: str
    closed: tuple[tuple[int, int], ...]
    """Of each closed segment: bytes of its `.log`, wall clock of its last append; oldest first."""
    index_bytes: int
    """Of what goes to the bucket with them: indexes, snapshots."""
    active_bytes: int
    settings: TopicSettings
    adopted: bool
    """Nobody has settings for it: its segments are as large as they were."""

    @property
    def closed_bytes(self) -> int:
        return sum(size for size, _ in self.closed)

    @property
    def bytes_per_day(self) -> float | None:
        """As it was between the first closed segment and the last; None when they do not tell."""
        if len(self.closed) < 2:
            return None
        lasted_ms = self.closed[-1][1] - self.closed[0][1]
        return sum(size for size, _ in self.closed[1:]) * DAY_MS / lasted_ms if lasted_ms >= _SHORTEST_MS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What nobody can know but who asks."""

    rate_bytes_s: int
    """Of the upload."""
    bytes_per_day: int | None = None
    """Of all topics together, shared out by size; None: as it was."""
    read_per_day: int = 0
    """Bytes that are read from the bucket."""


def copy_requests(size_bytes: int, part_bytes: int) -> Counter[str]:
    """What the copy of one segment sends: its three objects, and once whose the bucket is. An empty one sends none."""
    if not size_bytes:
        return Counter()
    requests = Counter(PutObject=2, ListObjectsV2=1)
    if size_bytes <= part_bytes:
        requests["PutObject"] += 1
    else:
        requests.update(CreateMultipartUpload=1, UploadPart=-(-size_bytes // part_bytes), CompleteMultipartUpload=1)
    return requests


def forecast(prices: Prices, remote: Remote, found: Iterable[Found], assumed: Assumed) -> dict[str, Any]:
    """As JSON values."""
    partitions = list(found)
    rates = _rates(partitions, assumed)
    by_topic: dict[str, list[int]] = {}
    for number, one in enumerate(partitions):
        by_topic.setdefault(one.topic, []).append(number)
    topics = [
        _topic(prices, remote, [(partitions[at], rates[at]) for at in some], assumed)
        for _, some in sorted(by_topic.items())
    ]
    fixed = Counter(ListObjectsV2=MONTH_MS // OWNER_LOOK_MS)
    reads = Counter(GetObject=-(-assumed.read_per_day * 30 // remote.range_bytes))
    return {
        "currency": prices.currency,
        "prices": prices.model_dump(exclude={"currency"}),
        "storage_class": remote.s3.storage_class.log or STANDARD,
        "rate_bytes_s": assumed.rate_bytes_s,
        "topics": topics,
        "upload": _sum(topics, "upload"),
        "beside": _priced(prices, fixed),
        "reads": {**_priced(prices, reads), "egress_cost": _egress(prices, assumed)},
        "months": [_month(prices, remote, topics, assumed, fixed + reads, after) for after in _MONTHS],
    }


def _rates(partitions: Sequence[Found], assumed: Assumed) -> list[float | None]:
    """Bytes a day of each."""
    if assumed.bytes_per_day is None:
        return [one.bytes_per_day for one in partitions]
    sizes = [one.closed_bytes + one.active_bytes for one in partitions]
    whole = sum(sizes)
    return [assumed.bytes_per_day * (size / whole if whole else 1 / len(sizes)) for size in sizes]


def _topic(
    prices: Prices, remote: Remote, partitions: Sequence[tuple[Found, float | None]], assumed: Assumed
) -> dict[str, Any]:
    segments = [size for one, _ in partitions for size, _ in one.closed]
    size_bytes = sum(segments)
    stored = size_bytes + sum(one.index_bytes for one, _ in partitions) + MANIFEST_BYTES * len(segments)
    upload = sum((copy_requests(size, remote.part_bytes) for size in segments), Counter(PutObject=1 + len(partitions)))
    rates = [rate for _, rate in partitions if rate is not None]
    monthly = [_monthly(one, rate, remote) for one, rate in partitions if rate is not None]
    settings = partitions[0][0].settings
    return {
        "topic": partitions[0][0].topic,
        "partitions": len(partitions),
        "segments": len(segments),
        "bytes": size_bytes,
        "stored_bytes": stored,
        "active_bytes": sum(one.active_bytes for one, _ in partitions),
        "bytes_per_day": None if not rates else round(sum(rates)),
        "segments_per_month": None if not rates else sum(count for count, _ in monthly),
        "retention_ms": settings.retention_ms if settings.deletes else None,
        "retention_bytes": settings.retention_bytes if settings.deletes else None,
        "upload": {**_priced(prices, upload), "seconds": round(stored / assumed.rate_bytes_s)},
        "per_month": _priced(prices, sum((requests for _, requests in monthly), Counter())),
    }


def _monthly(one: Found, bytes_per_day: float, remote: Remote) -> tuple[int, Counter[str]]:
    """How many segments a partition closes in a month, and what comes of them."""
    settings = one.settings
    if not bytes_per_day:
        return 0, Counter()
    full = one.closed_bytes / len(one.closed) if one.adopted and one.closed_bytes else settings.roll_bytes
    ages = (settings.roll_ms, settings.tierd_archive_max_age_ms)
    lasts_ms = min([full * DAY_MS / bytes_per_day, *(age for age in ages if age is not None)])
    count = -int(-MONTH_MS // max(lasts_ms, 1))
    each = copy_requests(max(1, round(bytes_per_day * lasts_ms / DAY_MS)), remote.part_bytes)
    each.update(PutObject=1, ListObjectsV2=3)  # its head, and looks before head and eviction
    if settings.deletes and (settings.retention_ms is not None or settings.retention_bytes is not None):
        each.update(DeleteObjects=2, PutObject=1, ListObjectsV2=1)  # as many leave as come
    return count, Counter({operation: number * count for operation, number in each.items()})


def _month(
    prices: Prices,
    remote: Remote,
    topics: Sequence[Mapping[str, Any]],
    assumed: Assumed,
    others: Counter[str],
    after: int,
) -> dict[str, Any]:
    """The month after so many: what is stored then, limits of retention kept."""
    stored = sum(_stored_then(topic, after) for topic in topics)
    daily = -(-sum(3 * topic["segments"] for topic in topics) // _PAGE) * 2 * 30  # sweep and daily look
    requests = others + Counter(ListObjectsV2=daily)
    cost = _priced(prices, requests)["cost"] + sum(topic["per_month"]["cost"] for topic in topics)
    storage = storage_price(prices, stored, remote.s3.storage_class.log)
    egress = _egress(prices, assumed)
    return {
        "month": after,
        "stored_bytes": stored,
        "storage_cost": storage,
        "requests_cost": cost,
        "egress_cost": egress,
        "cost": storage + cost + egress,
    }


def _stored_then(topic: Mapping[str, Any], months: int) -> int:
    per_day = topic["bytes_per_day"] or 0
    stored: int = topic["stored_bytes"] + per_day * 30 * months
    if topic["retention_ms"] is not None and per_day:
        stored = min(stored, round(per_day * topic["retention_ms"] / DAY_MS))
    if topic["retention_bytes"] is not None:
        stored = min(stored, topic["retention_bytes"] * topic["partitions"])
    return stored


def _egress(prices: Prices, assumed: Assumed) -> float:
    return assumed.read_per_day * 30 / 2**30 * prices.egress


def _priced(prices: Prices, requests: Mapping[str, int]) -> dict[str, Any]:
    cost = sum(number * request_price(prices, operation) for operation, number in requests.items())
    return {"requests": dict(sorted(requests.items())), "cost": cost}


def _sum(topics: Sequence[Mapping[str, Any]], what: str) -> dict[str, Any]:
    requests: Counter[str] = Counter()
    for topic in topics:
        requests.update(topic[what]["requests"])
    return {
        "segments": sum(topic["segments"] for topic in topics),
        "bytes": sum(topic["stored_bytes"] for topic in topics),
        "requests": dict(sorted(requests.items())),
        "cost": sum(topic[what]["cost"] for topic in topics),
        "seconds": sum(topic[what]["seconds"] for topic in topics),
    }
