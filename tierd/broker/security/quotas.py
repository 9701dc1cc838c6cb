"""Limits in force, kept in the registry, and how much of them each client has used. Loop thread only."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from tierd.base.clock import Clock
from tierd.base.errors import TierdError
from tierd.base.session import Session
from tierd.broker.ongoing import Ongoing
from tierd.broker.registry import Registry
from tierd.broker.security.quota_entities import Entity, Key, Limit, Limits, entity_of, limit_of, text_of
from tierd.broker.security.windows import Bucket, Windows

MOST_ENTITIES: Final = 20_000
_MOST_CLIENTS: Final = 10_000
"""Of whom is remembered what they have used, and which limit counts for them."""

_Asked = tuple[Key, str, str]
"""What of, user, client id."""
Change = tuple[Entity, Mapping[str, float | None]]
"""New values by key; None: none any more."""


class TooManyQuotas(TierdError):
    """There is no room for more limits."""


class Quotas:
    """What is changed is durable before it counts, and counts before the change returns."""

    def __init__(self, registry: Registry, clock: Clock, *, windows: int, window_s: int) -> None:
        self._registry = registry
        self._clock = clock
        self._number, self._window_ms = windows, window_s * 1000
        self._changing = asyncio.Lock()
        self._ongoing = Ongoing()
        self._known: dict[_Asked, tuple[Limit | None, Windows | None]] = {}
        self._used: dict[tuple[Key, str | None, str | None], Windows] = {}
        self._buckets: dict[tuple[str | None, str | None], Bucket] = {}
        limits: dict[Entity, dict[str, float]] = {}
        for text, key, value in registry.quotas():
            limits.setdefault(entity_of(text), {})[key] = value
        self._put(limits)

    async def change(self, changes: Iterable[Change]) -> None:
        """All or nothing. Raises TooManyQuotas, DiskFull, OSError."""
        await self._ongoing.whole(self._change(list(changes)))

    async def _change(self, changes: list[Change]) -> None:
        async with self._changing:
            limits = {entity: dict(values) for entity, values in self.limits.items()}
            added, removed = [], []
            for entity, values in changes:
                own = limits.setdefault(entity, {})
                for key, value in values.items():
                    if value is None:
                        own.pop(key, None)
                        removed.append((text_of(entity), key))
                    else:
                        own[key] = value
                        added.append((text_of(entity), key, value))
            limits = {entity: values for entity, values in limits.items() if values}
            if len(limits) > MOST_ENTITIES:
                raise TooManyQuotas(f"there may be quotas of {MOST_ENTITIES} users and client ids at most")
            await asyncio.to_thread(self._registry.change_quotas, added, removed)
            self._put(limits)

    def _put(self, limits: Limits) -> None:
        self.limits = limits
        self.any = bool(limits)
        """Without any limit nobody is looked at."""
        self._in_force = frozenset(key for values in limits.values() for key in values)
        self._known.clear()

    async def close(self) -> None:
        """Finish what is under way."""
        await self._ongoing.settle()

    def used(self, key: Key, amount: float, session: Session, client_id: str | None) -> int:
        """Note that a client has used so much more of *key*; how long it is to pause, in ms."""
        held = self._held(key, session, client_id)
        if held is None:
            return 0
        limit, windows = held
        pause_ms = windows.add(amount, limit.per_s, self._clock.monotonic_ms())
        return min(pause_ms, self._window_ms) if key is Key.REQUESTS else pause_ms

    def owed_ms(self, key: Key, session: Session, client_id: str | None) -> int:
        """How long a client still has to pause for what it has used of *key*; never longer than its windows."""
        held = self._held(key, session, client_id)
        if held is None:
            return 0
        limit, windows = held
        longest_ms = self._window_ms if key is Key.REQUESTS else round(self._span_s * 1000)
        return min(windows.owed_ms(limit.per_s, self._clock.monotonic_ms()), longest_ms)

    def most(self, key: Key, session: Session, client_id: str | None) -> int | None:
        """How much at once is no more than the windows together allow; None: there is no limit."""
        limit = self._limit(key, session, client_id)
        return None if limit is None else max(int(limit.per_s * self._span_s), 1)

    def take(self, amount: float, session: Session, client_id: str | None, *, strict: bool) -> bool:
        """Note mutations, by a token bucket. *strict*: False while there is a debt; then nothing is noted."""
        limit = self._limit(Key.MUTATIONS, session, client_id)
        if limit is None:
            return True
        now_ms = self._clock.monotonic_ms()
        full = limit.per_s * self._number * self._window_ms / 1000
        bucket = self._buckets.get(limit.whose)
        if bucket is None:
            if len(self._buckets) >= _MOST_CLIENTS:
                self._buckets.pop(next(iter(self._buckets)))
            bucket = self._buckets[limit.whose] = Bucket(full, now_ms)
        return bucket.take(amount, limit.per_s, full, now_ms, strict=strict)

    def debt_ms(self, session: Session, client_id: str | None) -> int:
        """How long mutations must pause already."""
        limit = self._limit(Key.MUTATIONS, session, client_id)
        bucket = None if limit is None else self._buckets.get(limit.whose)
        return 0 if limit is None or bucket is None else bucket.debt_ms(limit.per_s, self._clock.monotonic_ms())

    @property
    def _span_s(self) -> float:
        return max(self._number - 1, 1) * self._window_ms / 1000

    def _limit(self, key: Key, session: Session, client_id: str | None) -> Limit | None:
        asked = key, session.principal.name, client_id or ""
        return (self._known.get(asked) or self._learn(asked))[0]

    def _held(self, key: Key, session: Session, client_id: str | None) -> "tuple[Limit, Windows] | None":
        """What a client is held to for *key*; None: there is no limit."""
        if key not in self._in_force:
            return None
        asked = key, session.principal.name, client_id or ""
        limit, windows = self._known.get(asked) or self._learn(asked)
        return None if limit is None or windows is None else (limit, windows)

    def _learn(self, asked: _Asked) -> "tuple[Limit | None, Windows | None]":
        if len(self._known) >= _MOST_CLIENTS:
            self._known.clear()
        limit = limit_of(self.limits, *asked)
        found = self._known[asked] = limit, None if limit is None else self._of(asked[0], limit)
        return found

    def _of(self, key: Key, limit: Limit) -> Windows:
        place = key, *limit.whose
        found = self._used.pop(place, None) or Windows(self._number, self._window_ms)
        self._used[place] = found  # Behind all others: those in front were not asked for since longest.
        if len(self._used) > _MOST_CLIENTS:
            self._used.pop(next(iter(self._used)))
        return found
