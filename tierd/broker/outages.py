"""Partitions that nobody gets at, since their data directory is offline: which, where, and since when.

Where every partition lies is in the registry, so that a start that must do without a directory knows what is in it
and does not make it anew.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from tierd.base.ids import PartitionId
from tierd.broker.homes import Home, Homes, Offline
from tierd.broker.registry import Registry
from tierd.broker.settling import refuse_doubles, settle_moves
from tierd.storage.log import Log

log = logging.getLogger(__name__)

NOWHERE = ""
"""The place of partitions whose directory was declared lost: they are made again."""


class Outages:
    """Loop thread only, but for what `watch` is given."""

    def __init__(self, registry: Registry, homes: Homes) -> None:
        self._registry = registry
        self._homes = homes
        self._parts: dict[PartitionId, Offline] = {}
        self._places: dict[PartitionId, str] = {}
        self._hidden: dict[PartitionId, Home] = {}
        self.unfinished: list[tuple[PartitionId, Home]] = []
        """Moves to begin anew, (partition, target), once `settle` was called."""

    def __iter__(self) -> Iterator[tuple[PartitionId, Offline]]:
        return iter(list(self._parts.items()))

    def get(self, part: PartitionId) -> Offline | None:
        return self._parts.get(part)

    def add(self, part: PartitionId, home: Home | None, log: Log | None) -> Offline:
        found = self._parts[part] = Offline(home, log)
        return found

    def forget(self, part: PartitionId) -> None:
        """Its topic was deleted; the next start that finds it removes it."""
        self._parts.pop(part, None)

    # The start.

    def settle(self) -> None:
        """Finish or undo moves that a stop interrupted. Raises StartRefused for a partition in two places; OSError."""
        settled = settle_moves(self._registry, self._homes)
        self._hidden, self.unfinished = settled.hidden, settled.again
        refuse_doubles(self._homes)
        self._places = self._registry.placements()

    def counts(self, part: PartitionId) -> bool:
        """False for a copy that may be out of date: the other one is in a directory that is offline."""
        return part not in self._hidden

    def away(self, part: PartitionId) -> Offline | None:
        """For a partition that was not found: that it is, or may be, in a directory that is offline."""
        home, is_away = self._away(part)
        return self.add(part, home, None) if is_away else None

    def _away(self, part: PartitionId) -> tuple[Home | None, bool]:
        if part in self._hidden:
            return self._hidden[part], True
        offline: Sequence[Home] = self._homes.offline
        if part in self._places:
            home = self._homes.by_id(self._places[part])
            if home is not None:
                return home, not home.online
            offline = [one for one in offline if one.id is None]
        return (offline[0] if len(offline) == 1 else None), bool(offline)

    def lost(self, part: PartitionId, *, tiered: bool) -> bool:
        """Whether it was in a directory that was declared lost; a *tiered* one also when it lay in one that is here and
        has it no more: the bucket says where it goes on."""
        place = self._places.get(part)
        if tiered and place is not None and place != NOWHERE:
            log.error("a partition's folder is gone", extra={"partition": str(part), "directory": place})
        return place == NOWHERE or (tiered and place is not None)

    def note_places(self, parts: Iterable[tuple[PartitionId, Log]]) -> None:
        """Let the registry know what was found where, and what is nowhere any more."""
        now = {part: self._homes.of(found).id or "" for part, found in parts}
        self._registry.place({part: place for part, place in now.items() if self._places.get(part) != place})
        lost = [part for part, place in self._places.items() if part not in now and part not in self._parts]
        self._registry.unplace(part for part in lost if self._is_online(self._places[part]))
        self._places = {}

    def _is_online(self, directory_id: str) -> bool:
        home = self._homes.by_id(directory_id)
        return home is not None and home.online

    # The run.

    def watch(self, call: Callable[[Callable[[], None]], object], failed: Callable[[Home], None]) -> None:
        """Tell *failed* of every directory whose disk fails from now on, or has since the start, on the loop: *call*
        runs a function there, from any thread."""
        for home in self._homes:
            if home.directory is None:
                continue
            health = home.directory.health
            health.on_failure = _caller(call, failed, home)
            if health.reason is not None:
                failed(home)

    def unwatch(self) -> None:
        """The loop is about to end."""
        for home in self._homes:
            if home.directory is not None:
                home.directory.health.on_failure = None


def _caller(
    call: Callable[[Callable[[], None]], object], failed: Callable[[Home], None], home: Home
) -> Callable[[], None]:
    def tell() -> None:
        call(lambda: failed(home))

    return tell
