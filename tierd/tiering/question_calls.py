"""Answers the calls of `questions` with a tierer."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tierd.base.errors import TierdError
from tierd.base.errors import Usage as WrongUsage
from tierd.base.ids import PartitionId
from tierd.remote.view import Waiting
from tierd.storage.view import SegmentView
from tierd.tiering import ahead
from tierd.tiering import questions as m
from tierd.tiering.tierer import Tierer
from tierd.tiering.usage import StoredRow, Usage
from tierd.tiering.why import Why, why_local, why_remote, why_uncopied

Handlers = dict[type, Callable[[Any], Coroutine[Any, Any, m.Question]]]


def handlers(tierer: Callable[[], Tierer], usage: Callable[[], Usage | None]) -> Handlers:
    """By message; *tierer* gives the one that is configured, or raises. An archive's process has only a *usage*."""

    async def outlook(message: m.GetOutlook) -> m.Question:
        retention = tierer().retention
        found = await retention.outlooks(message.within_ms, message.topic)
        return m.OutlookFound(message.call, retention.trouble(), found)

    async def why(message: m.GetWhy) -> m.Question:
        part, found = message.part, tierer()
        return m.WhyFound(message.call, *reasons(found, part))

    async def conditions(message: m.GetConditions) -> m.Question:
        state, notes = tierer().state, sentences(tierer())
        return m.ConditionsFound(message.call, tuple(notes), tuple(await state.blocking(state.refusals.known)))

    async def used(message: m.GetUsage) -> m.Question:
        meter = usage()
        if meter is None:
            raise TierdError("the tierer is not configured yet")
        if message.since_start:
            return m.UsageFound(message.call, tuple(meter.since_start()))
        return m.UsageFound(message.call, await meter.rows(message.month))

    async def stored(message: m.GetStored) -> m.Question:
        state = tierer().state
        rows = await state.blocking(state.catalog.stored)
        return m.StoredFound(message.call, tuple(StoredRow(*row) for row in rows))

    return {
        m.GetConditions: conditions,
        m.GetOutlook: outlook,
        m.GetWhy: why,
        m.GetUsage: used,
        m.GetStored: stored,
    }


def reasons(tierer: Tierer, part: PartitionId) -> tuple[Why | None, Why | None, Why | None]:
    """Why the next segment of *part* is not copied, the oldest local one is on the disk, the oldest remote one in the
    bucket. Raises WrongUsage when nobody knows the partition."""
    state, catalog, now_ms = tierer.state, tierer.state.catalog, tierer.state.clock.now_ms()
    view, row = state.views.get(part), catalog.partition(part)
    if view is None and row is None:
        raise WrongUsage("the tierer knows nothing of this partition")
    trouble = _trouble(tierer)
    copy = local = None
    if view is not None:
        waiting = tierer.copying.waiting(part)
        copy = why_uncopied(view, waiting, tierer.copying.uncopied(part))
        lost = {loss.segment_id for loss in state.losses.of(part)}
        committed = [(one.base, one.next_base) for one in ahead.copies(catalog, view, lost)]
        local = why_local(view, committed, now_ms=now_ms, trouble=trouble, waiting=waiting)
    remote = why_remote(
        view,
        catalog.segments(part),
        now_ms=now_ms,
        bucket_ms=state.now_ms(),
        delay_ms=ahead.delay_of(row),
        trouble=trouble,
    )
    return copy, local, remote


def _trouble(tierer: Tierer) -> Waiting | None:
    """What keeps all evictions and deletes from being done."""
    why = tierer.retention.trouble()
    return None if why is None else Waiting("clock" if tierer.state.held else "claim", why)


def sentences(tierer: Tierer) -> list[str]:
    """What is to be said of bucket and disks beside the partitions' rows."""
    state, room = tierer.state, tierer.room
    waiting: dict[Path, list[tuple[str, SegmentView]]] = {}
    for part, view in state.views.items():
        here = waiting.setdefault(view.directory.parent, [])
        if view.settings.remote_storage_enable and room.scarce(view.directory.parent):
            here += [(str(view.name), one) for one in tierer.copying.uncopied(part)]
    said = [room.note(path, backlog) for path, backlog in waiting.items()]
    paused = None if state.paused is None else str(state.paused)
    return [*state.notes, *(one for one in (*said, tierer.check.note(), paused) if one is not None)]
