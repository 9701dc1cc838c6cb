"""What /health, /metrics and systemd's status line say, computed from state when they ask."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tierd import __version__
from tierd.base.errors import TierdError
from tierd.broker.broker import Broker
from tierd.broker.homes import Home
from tierd.broker.problems import Kind, Problem, problems
from tierd.broker.status import TIERER_WAIT_S, status
from tierd.daemon.bucket_verbs import unless
from tierd.remote.view import ClaimState
from tierd.tiering import questions as m
from tierd.tiering.link import TierLink
from tierd.tiering.usage import UsageRow
from tierd.web.health import Health, HealthState
from tierd.web.metrics import Sample, broker_samples, partition_samples
from tierd.wire.api import ApiKey

_NAMED = 5
"""So many problems of a kind /health gives in full; `tierd status` has all."""


class Watch:
    """Loop thread only; each call is quick and changes nothing."""

    def __init__(self, broker: Broker, link: TierLink | None) -> None:
        self._broker = broker
        self._link = link

    def summary(self) -> str:
        """One line for people."""
        claim = "no bucket" if self._link is None else f"claim {self._link.claim.state}"
        if self._broker.settings.is_archive:
            claim = "an archive, only read"
        elif self._link is not None and self._link.heart.paused:
            claim += ", copying is paused (tierd resume)"
        if self._slowed():
            claim += ", little room on disk: producers are slowed"
        connections = self._broker.server.connections
        return f"{self._partitions} partitions, {connections} connections, {claim}"

    def _slowed(self) -> list[Home]:
        return self._broker.parts.slow_disks.slowed()

    @property
    def _partitions(self) -> int:
        return len(self._broker.partitions) + len(self._broker.partitions.read_only)

    def health(self) -> Health:
        failing, degraded = self._reasons()
        state = HealthState.FAILING if failing else HealthState.DEGRADED if degraded else HealthState.OK
        claim = None if self._link is None else str(self._link.claim.state)
        facts = {"version": __version__, "epoch": self._broker.partitions.epoch, "claim": claim}
        return Health(state, (*failing, *degraded), facts)

    def _reasons(self) -> tuple[list[str], list[str]]:
        reserve = self._broker.settings.disk_reserve_bytes
        homes = list(self._broker.partitions.homes)
        failing = [
            f"no room in {home.path}: Produce is refused"
            for home in homes
            if (space := home.space()) is not None and space[1] < reserve
        ]
        degraded = [f"{home.path} is offline: {home.reason}" for home in homes if not home.online]
        degraded += [f"{home.path} has little room: producers are slowed" for home in self._slowed()]
        degraded += [
            f"the certificate of listener {name} has expired"
            for name, expires_ms in self._broker.listeners.expiries_ms.items()
            if expires_ms < self._broker.partitions.clock.now_ms()
        ]
        if self._link is not None:
            claim = self._link.claim
            if claim.state is ClaimState.LOST:
                failing.append(f"the bucket has another owner: {claim.detail}")
            elif claim.state is ClaimState.PENDING:
                degraded.append(f"nothing is copied: {claim.detail}")
            if self._link.trouble is not None:
                degraded.append(self._link.trouble)
        degraded += _in_few_words(problems(self._broker.partitions))
        return failing, degraded

    async def samples(self) -> Iterable[Sample]:
        document = await status(self._broker.partitions, self._link)
        rows = document["partitions"]
        assert isinstance(rows, list)
        of_partitions = (sample for row in rows for sample in partition_samples(row))
        return [*self._process_samples(), *await self._bucket_samples(), *of_partitions]

    async def _bucket_samples(self) -> list[Sample]:
        """What the tierer has asked of the bucket; nothing while it does not answer."""
        if self._link is None:
            return []
        link = self._link
        try:
            async with asyncio.timeout(TIERER_WAIT_S):
                found: m.UsageFound = await unless(
                    link.call(lambda n: m.GetUsage(n, None, True)), lambda: link.heart.silence
                )
        except (TierdError, TimeoutError):
            return []
        return [sample for row in found.rows for sample in _usage(row)]

    def _process_samples(self) -> list[Sample]:
        broker, counters = self._broker, self._broker.counters
        return [
            Sample("tierd_up", 1),
            Sample("tierd_build_info", 1, (__version__,)),
            Sample("tierd_owner_epoch", broker.partitions.epoch),
            Sample("tierd_partitions", self._partitions),
            Sample("tierd_connections", broker.server.connections),
            *broker_samples(counters, lambda key: ApiKey(key).name),
            *(
                Sample("tierd_tls_certificate_expiry_timestamp_seconds", expires_ms / 1000, (name,))
                for name, expires_ms in broker.listeners.expiries_ms.items()
            ),
            *self._session_samples(),
            *self._directory_samples(),
            *self._problem_samples(),
            *self._tier_samples(),
        ]

    def _session_samples(self) -> Iterator[Sample]:
        sessions = self._broker.parts.fetch_sessions
        yield Sample("tierd_fetch_sessions", len(sessions))
        yield Sample("tierd_fetch_session_partitions", sessions.partitions)
        yield Sample("tierd_fetch_session_evictions", sessions.evicted)

    def _directory_samples(self) -> Iterator[Sample]:
        for home in self._broker.partitions.homes:
            label, space = (str(home.path),), home.space()
            yield Sample("tierd_directory_offline", int(not home.online), label)
            yield Sample("tierd_disk_free_bytes", None if space is None else space[1], label)
            if (slow := self._broker.parts.slow_disks).on:
                yield Sample("tierd_disk_pause_milliseconds", slow.pause_of(home), label)
        yield Sample("tierd_moves", len(list(self._broker.moves)))

    def _problem_samples(self) -> Iterator[Sample]:
        found = Counter(problem.kind for problem in problems(self._broker.partitions))
        for kind in Kind:
            yield Sample("tierd_problems", found[kind], (str(kind),))

    def _tier_samples(self) -> list[Sample]:
        if self._link is None:
            return []
        return [
            *(Sample("tierd_claim", int(self._link.claim.state is state), (str(state),)) for state in ClaimState),
            Sample("tierd_tierer_up", int(self._link.ready and self._link.heart.silence is None)),
            Sample("tierd_tierer_silent_milliseconds", self._link.heart.silent_ms),
            Sample("tierd_bucket_silent_milliseconds", self._link.heart.bucket_silent_ms),
            Sample("tierd_tierer_starts", 1 + self._link.restarts),
            Sample("tierd_copies_paused", int(self._link.heart.paused)),
        ]


def _usage(row: UsageRow) -> Iterator[Sample]:
    labels = (row.topic, row.operation)
    yield Sample("tierd_bucket_requests", row.requests, labels)
    if row.sent_bytes:
        yield Sample("tierd_bucket_sent_bytes", row.sent_bytes, labels)
    if row.received_bytes:
        yield Sample("tierd_bucket_received_bytes", row.received_bytes, labels)


def _in_few_words(found: Sequence[Problem]) -> Iterator[str]:
    """Each kind's first few by name: a whole disk of partitions is one sentence more, not thousands."""
    by_kind: dict[Kind, list[Problem]] = {}
    for problem in found:
        by_kind.setdefault(problem.kind, []).append(problem)
    for kind, some in by_kind.items():
        yield from map(str, some[:_NAMED])
        if len(some) > _NAMED:
            yield f"{len(some) - _NAMED} more are {kind}"
