"""What the control socket does for `tierd status`, `copy` and `evict`; results and progress as JSON values."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tierd.base.errors import RemoteUnavailable, Usage
from tierd.broker.broker import Broker
from tierd.broker.status import status
from tierd.daemon.asking_verbs import AskingVerbs, conditions
from tierd.daemon.bucket_verbs import EXITS, BucketVerbs, Silent, unless
from tierd.daemon.user_verbs import UserVerbs
from tierd.daemon.why_verb import WhyVerb
from tierd.storage import ballast
from tierd.tiering.link import TierLink
from tierd.tiering.verbs import Outcome, Report, VerbProgress, VerbResult
from tierd.web.control import Handler, Progress, Request
from tierd.web.control import Outcome as Answer

_GRACE_S = 2.0


class Verbs:
    """Loop thread only."""

    def __init__(self, broker: Broker, link: TierLink | None, state_dir: Path) -> None:
        self._broker = broker
        self._link = link
        self._state_dir = state_dir

    def handlers(self) -> dict[str, Handler]:
        own: dict[str, Handler] = {"status": self._status, "copy": self._copy, "evict": self._evict}
        own |= {"keys": self._keys, "rotate keys": self._rotate}
        users = UserVerbs(self._broker.parts.users, self._broker.parts.audit)
        asking = AskingVerbs(self._broker, self._link, self._tiered)
        own |= {**asking.handlers(), **WhyVerb(self._broker, self._link, self._tiered).handlers()}
        return {**own, **users.handlers(), **BucketVerbs(self._tiered).handlers()}

    async def _status(self, request: Request, progress: Progress) -> Answer:
        document = await status(self._broker.partitions, self._link)
        bucket = await conditions(self._link, archive=self._broker.settings.is_archive)
        slowed = self._broker.parts.slow_disks.slowed()
        said = [f"{home.path} has little room: producers are slowed (tierd.disk.slow.bytes)" for home in slowed]
        if self._link is not None and self._link.trouble is not None:
            said.insert(0, self._link.trouble)
        return Answer({**document, "trouble": "; ".join(said) or None, "bucket": bucket})

    async def _copy(self, request: Request, progress: Progress) -> Answer:
        link = self._tiered()
        if request.get("dry_run"):
            roll = bool(request.get("roll"))
            await self._broker.housekeeping.catch_up()
            if roll:
                self._broker.housekeeping.tell_active()
            return _answer(await _unless(link.plan("copy", roll=roll), lambda: link.heart.silence))
        if request.get("roll"):
            await self._broker.housekeeping.roll()
        await self._broker.housekeeping.catch_up()  # "all" includes what was closed a moment ago
        timeout_ms = request.get("timeout_ms")
        work = link.copy(wait=bool(request.get("wait")), timeout_ms=timeout_ms, report=_reporter(progress))
        try:
            # The tierer keeps the time itself; one that hangs must not keep the verb.
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000 + _GRACE_S):
                return _answer(await _unless(work, lambda: link.heart.silence))
        except TimeoutError:
            return _answer(VerbResult(outcome=Outcome.TIMEOUT, detail="the tierer does not answer"))

    async def _evict(self, request: Request, progress: Progress) -> Answer:
        link = self._tiered()
        await asyncio.get_running_loop().run_in_executor(None, ballast.keep, self._state_dir)  # room to note it
        work = link.plan("evict") if request.get("dry_run") else link.evict(report=_reporter(progress))
        return _answer(await _unless(work, lambda: link.trouble))

    async def _keys(self, request: Request, progress: Progress) -> Answer:
        rows = [
            {"id": one.key_id, "active": one.active, "file": one.file, "segments": one.segments, "bytes": one.bytes}
            for one in await self._tiered().keys()
        ]
        return Answer(rows)

    async def _rotate(self, request: Request, progress: Progress) -> Answer:
        link = self._tiered()
        work = link.plan("rotate") if request.get("dry_run") else link.rotate_keys(report=_reporter(progress))
        return _answer(await _unless(work, lambda: link.heart.silence))

    def _tiered(self) -> TierLink:
        if self._link is None:
            raise Usage("this tierd runs without a bucket; start it with --remote URL")
        if self._broker.settings.is_archive:
            raise Usage("this is an archive: its bucket is only read, and nothing of it is on this disk")
        if not self._link.ready:
            raise RemoteUnavailable("the tierer is being started again; try again")
        return self._link


async def _unless(work: Coroutine[Any, Any, VerbResult], trouble: Callable[[], str | None]) -> VerbResult:
    """What *work* gives; it is given up when *trouble* has something to say: a verb never waits for who is silent."""
    try:
        return await unless(work, trouble)
    except Silent as silent:
        return VerbResult(outcome=Outcome.UNAVAILABLE, detail=str(silent))


def _reporter(progress: Progress) -> Report:
    def report(now: VerbProgress) -> None:
        progress(
            {
                "segments_done": now.segments_done,
                "segments": now.segments,
                "bytes_done": now.bytes_done,
                "bytes": now.bytes,
                "detail": "",
            }
        )

    return report


def _answer(result: VerbResult) -> Answer:
    left = [
        {
            "topic": row.topic,
            "partition": row.part.partition,
            "copied_to": row.copied_to,
            "reason": row.waiting.reason,
            "detail": row.waiting.detail,
        }
        for row in result.left
    ]
    planned = [
        {
            "topic": row.topic,
            "partition": row.part.partition,
            "start": row.start,
            "stop": row.stop,
            "segments": row.segments,
            "bytes": row.bytes,
        }
        for row in result.planned
    ]
    facts = {
        "outcome": str(result.outcome),
        "detail": result.detail,
        "segments": result.segments,
        "bytes": result.bytes,
    }
    return Answer({**facts, "left": left, "planned": planned}, EXITS[result.outcome])
