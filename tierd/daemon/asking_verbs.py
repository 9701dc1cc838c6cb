"""What the control socket does for `tierd retention --dry-run` and `tierd cost`, as JSON values; nothing changes."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tierd.base.errors import RemoteUnavailable, TierdError, Usage
from tierd.broker.broker import Broker
from tierd.broker.partition import Partition
from tierd.broker.retention import going
from tierd.broker.turns import in_turns
from tierd.daemon.bucket_verbs import unless
from tierd.tiering import questions as m
from tierd.tiering.costs import cost_document
from tierd.tiering.link import TierLink
from tierd.tiering.outlook import Outlook, outlook_of_untiered
from tierd.tiering.usage import StoredRow, month_of
from tierd.web.control import Handler, Progress, Request
from tierd.web.control import Outcome as Answer

_ANSWER_S = 5.0
"""So long status waits for what the tierer knows of the bucket."""
_A_TURN = 100
"""Partitions looked at before the loop serves others again."""


class AskingVerbs:
    """Loop thread only."""

    def __init__(self, broker: Broker, link: TierLink | None, tiered: Callable[[], TierLink]) -> None:
        """*tiered* gives the tierer, or raises what the verb ends with."""
        self._broker = broker
        self._link = link
        self._tiered = tiered

    def handlers(self) -> dict[str, Handler]:
        return {"retention": self._retention, "cost": self._cost}

    async def _ask(self, make: Callable[[int], m.Question]) -> Any:
        link = self._tiered()
        return await unless(link.call(make), lambda: link.heart.silence)

    async def _cost(self, request: Request, progress: Progress) -> Answer:
        """{month}: None is this one."""
        if self._link is None:
            raise Usage("this tierd runs without a bucket: nothing costs anything")
        link, settings = self._link, self._broker.settings
        month = request.get("month") or month_of(self._broker.partitions.clock.now_ms())
        used: m.UsageFound = await unless(link.call(lambda n: m.GetUsage(n, month, False)), lambda: link.heart.silence)
        stored: tuple[StoredRow, ...] = () if settings.is_archive else (await self._ask(m.GetStored)).rows
        storage_class = settings.remote.s3.storage_class.log  # nearly all bytes are these
        return Answer(cost_document(settings.prices, used.rows, stored, month=month, storage_class=storage_class))

    async def _retention(self, request: Request, progress: Progress) -> Answer:
        """{within_ms, topic}: what goes up to *within_ms* from now."""
        within_ms, topic = int(request["within_ms"]), request.get("topic")
        trouble, (outlooks, unread) = None, await self._untiered(within_ms, topic)
        if self._link is not None:
            found: m.OutlookFound = await self._ask(lambda n: m.GetOutlook(n, within_ms, topic))
            trouble = found.trouble
            outlooks += found.outlooks
        if topic is not None and not outlooks and self._broker.partitions.topic(topic) is None:
            raise Usage(f"there is no topic {topic!r}")  # nor anything left of a deleted one
        outlooks.sort(key=lambda one: (one.topic, one.part.partition))
        document = {
            "running": True,
            "now_ms": self._broker.partitions.clock.now_ms(),
            "within_ms": within_ms,
            "trouble": trouble,
            "unread": unread,
            "partitions": [one.document() for one in outlooks],
        }
        return Answer(document)

    async def _untiered(self, within_ms: int, topic: str | None) -> tuple[list[Outlook], list[str]]:
        """Of partitions that the bucket does not hold: what the broker's own pass lets go, and which it cannot read."""
        found, unread = [], []
        async for partition in in_turns(list(self._broker.partitions), _A_TURN):
            if topic is not None and partition.name.topic != topic:
                continue
            try:
                found.append(self._outlook(partition, within_ms))
            except (TierdError, OSError) as error:
                unread.append(f"{partition}: {error}")
        return [one for one in found if one is not None and not one.is_empty], unread

    def _outlook(self, partition: Partition, within_ms: int) -> Outlook | None:
        if partition.deleted or partition.offline or partition.remote is not None:
            return None
        if self._link is not None and partition.tiered:
            return None
        view, now_ms = partition.view(), self._broker.partitions.clock.now_ms()
        leaving = going(view, now_ms, now_ms + within_ms)
        return outlook_of_untiered(view, leaving, now_ms=now_ms, within_ms=within_ms)


async def conditions(link: TierLink | None, *, archive: bool) -> dict[str, object] | None:
    """What is to be said of the bucket as a whole; None when nobody knows."""
    if link is None or archive or not link.ready:
        return None
    try:
        async with asyncio.timeout(_ANSWER_S):
            found: m.ConditionsFound = await link.call(m.GetConditions)
    except (RemoteUnavailable, TimeoutError):
        return None
    return {"notes": list(found.notes), "delete_refused": [asdict(one) for one in found.refused]}
