"""What the control socket does for `tierd why`: the answers of broker and tierer, and who holds a transaction open."""

from collections.abc import Callable
from dataclasses import replace

from tierd.base.clock import utc
from tierd.base.errors import RemoteUnavailable, Usage
from tierd.broker.broker import Broker
from tierd.broker.partition import Partition
from tierd.broker.status import local_waiting
from tierd.broker.transactions.machine import Refused
from tierd.daemon.bucket_verbs import unless
from tierd.remote.view import Waiting
from tierd.tiering import questions as m
from tierd.tiering.link import TierLink
from tierd.tiering.why import Why, document, why_local, why_uncopied
from tierd.web.control import Handler, Progress, Request
from tierd.web.control import Outcome as Answer

Answers = tuple[Why | None, Why | None, Why | None]


class WhyVerb:
    """Loop thread only."""

    def __init__(self, broker: Broker, link: TierLink | None, tiered: Callable[[], TierLink]) -> None:
        """*tiered* gives the tierer, or raises what the verb ends with."""
        self._broker = broker
        self._link = link
        self._tiered = tiered

    def handlers(self) -> dict[str, Handler]:
        return {"why": self._why}

    async def _why(self, request: Request, progress: Progress) -> Answer:
        """{topic, partition}: why the next segment is not copied, the oldest local one on the disk, the oldest remote
        one in the bucket."""
        topic, number = str(request["topic"]), int(request["partition"])
        partitions = self._broker.partitions
        partition = partitions.get(topic, number)
        known = partitions.topic(topic)
        away = None if known is None else known.offline.get(number)
        if away is not None:
            answers: Answers = (Why(reason="offline", detail=away.reason), None, None)
        elif partition is None:
            raise Usage(f"there is no partition {topic}-{number}")
        else:
            answers = await self._answers(partition)
        names = ("copy", "local", "remote")
        return Answer({name: document(why) for name, why in zip(names, answers, strict=True)})

    async def _answers(self, partition: Partition) -> Answers:
        waiting = local_waiting(partition, has_tier=self._link is not None)
        if waiting is not None and partition.remote is None:
            return self._alone(partition, waiting)
        try:
            link = self._tiered()
            found: m.WhyFound = await unless(link.call(lambda n: m.GetWhy(n, partition.id)), lambda: link.heart.silence)
        except RemoteUnavailable as error:
            return self._alone(partition, Waiting("unknown", str(error)))
        copy, local = found.copy, found.local
        if copy is not None and copy.reason == "pinned":
            copy = replace(copy, detail=f"{copy.detail}; {await self._transaction(partition)}")
        return copy, local, found.remote

    def _alone(self, partition: Partition, waiting: Waiting) -> Answers:
        view = partition.view()
        local = why_local(view, (), now_ms=self._broker.partitions.clock.now_ms(), trouble=None, waiting=waiting)
        return why_uncopied(view, waiting, view.closed), local, None

    async def _transaction(self, partition: Partition) -> str:
        """Whose it is, since when, and when it ends at the latest."""
        oldest = partition.log.first_open
        if oldest is None:
            return "it has ended by now"
        first, producer_id = oldest
        try:
            every = await self._broker.parts.transactions.listed()
        except Refused:
            return "its coordinator cannot be asked now"
        for name, one in every.items():
            if one.producer_id == producer_id and one.started_ms is not None and not one.decided:
                ends = utc(one.started_ms + one.timeout_ms)
                return f"transactional id {name}, open since {utc(one.started_ms)}, aborted at {ends} at the latest"
        return (
            f"no coordinator knows of it, so nobody will end it: kafka-transactions.sh abort --topic "
            f"{partition.name.topic} --partition {partition.name.partition} --start-offset {first} does"
        )
