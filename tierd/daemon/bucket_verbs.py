"""What the control socket does for `tierd sweep`, `gaps`, `pause`, `resume` and `verify --heal`, as JSON values.

No verb waits for a tierer that is silent.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from tierd.base.errors import RemoteUnavailable
from tierd.base.exits import Exit
from tierd.base.ids import PartitionId, Uuid
from tierd.tiering import bucket_messages as m
from tierd.tiering.link import TierLink
from tierd.tiering.pausing import Pause, Paused
from tierd.tiering.sweep import SweepResult, SweptRow
from tierd.tiering.verbs import Outcome
from tierd.web.control import Handler, Progress, Request
from tierd.web.control import Outcome as Answer

Result = TypeVar("Result")

_LOOK_S = 0.5

EXITS = {
    Outcome.DONE: Exit.DONE,
    Outcome.PINNED: Exit.PINNED,
    Outcome.UNAVAILABLE: Exit.BUCKET_SILENT,
    Outcome.LOST: Exit.BUCKET_SILENT,
    Outcome.TIMEOUT: Exit.FAILED,
    Outcome.FAILED: Exit.FAILED,
}


class Silent(RemoteUnavailable):
    """The work was given up: there is trouble, which the text names."""


async def unless(work: Coroutine[Any, Any, Result], trouble: Callable[[], str | None]) -> Result:
    """What *work* gives. Raises Silent as soon as *trouble* has something to say."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
            why = trouble()
            if why is not None:
                raise Silent(why)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class BucketVerbs:
    """Loop thread only."""

    def __init__(self, tiered: Callable[[], TierLink]) -> None:
        """*tiered* gives the tierer, or raises what the verb ends with."""
        self._tiered = tiered

    def handlers(self) -> dict[str, Handler]:
        return {
            "sweep": self._sweep,
            "look_into": self._look_into,
            "gaps": self._gaps,
            "accept_gap": self._accept_gap,
            "pause": self._pause,
            "resume": self._resume,
        }

    async def _ask(self, make: Callable[[int], m.BucketMessage]) -> Any:
        link = self._tiered()
        return await unless(link.call(make), lambda: link.heart.silence)

    async def _sweep(self, request: Request, progress: Progress) -> Answer:
        dry, purge = bool(request.get("dry_run")), bool(request.get("purge"))
        result: SweepResult = (await self._ask(lambda n: m.SweepBucket(n, dry, purge))).result
        return Answer(
            {
                "outcome": str(result.outcome),
                "detail": result.detail,
                "found": result.found,
                "deleted": result.gone,
                "bytes": result.bytes,
                "unexplained": result.unexplained,
                "leftovers": [_leftover(row) for row in result.rows],
                "versions": result.versions,
                "version_bytes": result.version_bytes,
                "delete_refused": [asdict(one) for one in result.refused],
            },
            EXITS[result.outcome],
        )

    async def _look_into(self, request: Request, progress: Progress) -> Answer:
        """`tierd verify --heal`: {topic_id, partition, ranges: [[start, stop]]}; how many segments are read again."""
        part = PartitionId(Uuid.parse(str(request["topic_id"])), int(request["partition"]))
        ranges = [(int(start), int(stop)) for start, stop in request["ranges"]]
        segments = 0
        for start, stop in ranges:
            segments += (await self._ask(partial(m.LookInto, part=part, start=start, stop=stop))).segments
        return Answer({"segments": segments})

    async def _pause(self, request: Request, progress: Progress) -> Answer:
        """{why, since_ms}."""
        pause = Pause(since_ms=int(request["since_ms"]), why=str(request["why"]))
        return await self._set_pause(pause, request)

    async def _resume(self, request: Request, progress: Progress) -> Answer:
        return await self._set_pause(None, request)

    async def _set_pause(self, pause: Pause | None, request: Request) -> Answer:
        dry = bool(request.get("dry_run"))
        found: Paused = (await self._ask(lambda n: m.SetPause(n, pause, dry))).paused
        now = found.before if dry else found.after
        return Answer(
            {
                "paused": now is not None,
                "since_ms": None if now is None else now.since_ms,
                "why": None if now is None else now.why,
                "changed": found.before != found.after,
                "segments": found.segments,
                "bytes": found.bytes,
                "under_way": found.under_way,
            }
        )

    async def _gaps(self, request: Request, progress: Progress) -> Answer:
        return _gap_rows(await self._ask(m.GetGaps))

    async def _accept_gap(self, request: Request, progress: Progress) -> Answer:
        names = ("topic", "partition", "start", "stop", "who", "why")
        facts = {name: request[name] for name in names}
        return _gap_rows(await self._ask(partial(m.AcceptGap, **facts, dry=bool(request.get("dry_run")))))


def _gap_rows(found: m.GapsFound) -> Answer:
    return Answer([asdict(row) for row in found.gaps])


def _leftover(row: SweptRow) -> dict[str, object]:
    facts = {"kind": row.kind, "keys": list(row.keys), "bytes": row.bytes, "why": row.why}
    return {**facts, "deleted": row.gone, "refused": row.refused, "until_ms": row.until_ms}
