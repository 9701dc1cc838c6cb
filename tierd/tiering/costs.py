"""What the use of the bucket comes to by the price table: `tierd cost` and `tierd plan`. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from tierd.config.prices import Prices
from tierd.config.topic import GIB
from tierd.remote.meter import price_class
from tierd.tiering.usage import StoredRow, UsageRow

STANDARD = "STANDARD"


def request_price(prices: Prices, operation: str) -> float:
    """Of one request."""
    by_class = {"write": prices.write_requests, "read": prices.read_requests, "delete": prices.delete_requests}
    return by_class[price_class(operation)] / 1000


def storage_price(prices: Prices, size_bytes: float, storage_class: str | None) -> float:
    """Of so many bytes for a month. None: the class that the bucket itself gives, which S3 calls STANDARD."""
    return size_bytes / GIB * prices.storage.of(storage_class or STANDARD)


def cost_document(
    prices: Prices,
    rows: Iterable[UsageRow],
    stored: Iterable[StoredRow],
    *,
    month: str,
    storage_class: str | None = None,
) -> dict[str, Any]:
    """As JSON values: what was used in *month*, and what it costs to keep what is stored now for a month. The topic of
    what belongs to none is null."""
    kept = {row.topic: row for row in stored}
    used: dict[str, list[UsageRow]] = {topic: [] for topic in kept}
    for row in rows:
        used.setdefault(row.topic, []).append(row)
    topics = [
        _topic(prices, topic, some, kept.get(topic, StoredRow(topic, 0, 0)), storage_class)
        for topic, some in sorted(used.items())
    ]
    sums = [name for name in _topic(prices, "", (), StoredRow("", 0, 0), None) if name not in ("topic", "operations")]
    return {
        "month": month,
        "currency": prices.currency,
        "prices": prices.model_dump(exclude={"currency"}),
        "storage_class": storage_class or STANDARD,
        "topics": topics,
        "total": {name: sum(topic[name] for topic in topics) for name in sums},
    }


def _topic(
    prices: Prices, topic: str, rows: Iterable[UsageRow], stored: StoredRow, storage_class: str | None
) -> dict[str, Any]:
    operations = [_operation(prices, row) for row in sorted(rows, key=lambda row: row.operation)]
    received = sum(one["received_bytes"] for one in operations)
    return {
        "topic": topic or None,
        "operations": operations,
        "requests": sum(one["requests"] for one in operations),
        "sent_bytes": sum(one["sent_bytes"] for one in operations),
        "received_bytes": received,
        "requests_cost": sum(one["cost"] for one in operations),
        "egress_cost": received / GIB * prices.egress,
        "segments": stored.segments,
        "stored_bytes": stored.bytes,
        "storage_cost_per_month": storage_price(prices, stored.bytes, storage_class),
    }


def _operation(prices: Prices, row: UsageRow) -> Mapping[str, Any]:
    facts = {name: value for name, value in asdict(row).items() if name not in ("month", "topic")}
    cost = row.requests * request_price(prices, row.operation)
    return {**facts, "class": price_class(row.operation), "cost": cost}
