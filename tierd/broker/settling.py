"""Which copy of a partition counts when a stop came in the middle of a move, decided before anything is served.

The registry's row of the move decides (moves.py writes it): until `swapped` the source has all, from then on the
target, as soon as its copy has the partition's name. What does not count is dropped. A copy whose rival lies in a
directory that is offline now is not served either: it may be the old one.
"""

import logging
from dataclasses import dataclass, field

from tierd.base.errors import StartRefused
from tierd.base.ids import PartitionId, TopicPartition
from tierd.broker.homes import Home, Homes
from tierd.broker.registry import MoveRow, Registry
from tierd.storage import names

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Settled:
    """What the moves that were under way leave to do."""

    again: list[tuple[PartitionId, Home]] = field(default_factory=list)
    """Moves to begin anew: (partition, target)."""
    hidden: dict[PartitionId, Home] = field(default_factory=dict)
    """Partitions that must not be served, though a copy is there: their home is this one, which is offline."""


def settle_moves(registry: Registry, homes: Homes) -> Settled:
    """Raises OSError."""
    settled = Settled()
    for row in registry.moves():
        source, target = homes.by_id(row.source), homes.by_id(row.target)
        if source is None or target is None:
            log.warning("a move of a directory that is not there any more is forgotten", extra={"move": str(row)})
            registry.end_move(row.part)
        else:
            _settle(registry, row, source, target, settled)
    return settled


def _settle(registry: Registry, row: MoveRow, source: Home, target: Home, settled: Settled) -> None:
    there, here = _find(source, row.part), _find(target, row.part)
    log.info("a move was under way", extra={"partition": row.folder, "from": source.path, "to": target.path})
    both_online = source.online and target.online
    if row.swapped and (here is not None or not target.online):
        _only(target, source, there, row, settled)
    elif source.online and there is None and here is not None:
        log.warning("the source of a move is gone, its copy takes its place", extra={"partition": here})
    else:
        _only(source, target, here, row, settled)
        if both_online and target.directory is not None:
            target.directory.discard(_name(row), row.folder)
            if there is not None:
                settled.again.append((row.part, target))
    if both_online:
        registry.end_move(row.part)


def _only(counts: Home, other: Home, copy: TopicPartition | None, row: MoveRow, settled: Settled) -> None:
    """What is in *counts* is the partition: the *copy* in *other* is dropped, and while *counts* is away none is served
    and none is made anew."""
    if not counts.online:
        settled.hidden[row.part] = counts
    elif copy is not None:
        _drop(other, copy)


def _find(home: Home, part: PartitionId) -> TopicPartition | None:
    if home.directory is None or not home.online:
        return None
    for name, found in home.directory.logs.items():
        if name.partition == part.partition and found.topic_id == part.topic_id:
            return name
    return None


def _drop(home: Home, name: TopicPartition | None) -> None:
    if name is not None and home.directory is not None:
        log.warning("the copy of a move that does not count is dropped", extra={"partition": name, "in": home.path})
        home.directory.remove(name)


def _name(row: MoveRow) -> TopicPartition:
    found = names.parse_marked_directory(row.folder)
    assert found is not None
    return TopicPartition(found.topic, found.partition)


def refuse_doubles(homes: Homes) -> None:
    """Raises StartRefused, with both places, when a partition lies in two directories: which counts is not known."""
    found: dict[TopicPartition, Home] = {}
    for home in homes:
        for name in home.directory.logs if home.directory is not None and home.online else ():
            if name in found:
                raise StartRefused(
                    f"{name} is in {found[name].path} and in {home.path}; move the one that is out of date away"
                )
            found[name] = home
