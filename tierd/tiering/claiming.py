"""Drives the start of a run from the loop.

The claim is held at once, pending while the bucket is silent, lost when the bucket turns out to be another's.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tierd.base.errors import CorruptFile, DiskFull, RemoteUnavailable, StartRefused
from tierd.remote import owner
from tierd.remote.errors import EpochTaken, RequestRefused
from tierd.remote.view import Claim, ClaimState
from tierd.tiering.opening import Survey, Surveyed
from tierd.tiering.options import OpenRequest
from tierd.tiering.runs import (
    Run,
    claim_of,
    new_run,
    note_run,
    noted_run,
    remember_unclaimed,
    unvouched,
    vouched,
    why_lost,
)

log = logging.getLogger(__name__)

Result = TypeVar("Result")

_LOOK_S = 0.1
_RACES = 5


@dataclass(frozen=True, slots=True)
class Taken:
    """How a start ended: the claim now, the run behind it, and segments to delete once we own the bucket."""

    claim: Claim
    run: Run
    surveyed: Surveyed | None


class Claiming:
    """One start. `begin` gives the claim to answer with; *on_settled* gets the later one if that was pending."""

    def __init__(
        self,
        survey: Survey,
        request: OpenRequest,
        *,
        silence_ms: int,
        retry_ms: int,
        blocking: Callable[[Callable[[], object]], Awaitable[object]],
        on_settled: Callable[[Taken], None],
    ) -> None:
        self._survey = survey
        self._request = request
        self._silence_ms = silence_ms
        self._retry_ms = retry_ms
        self._blocking = blocking
        self._on_settled = on_settled
        self._later: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[Any]] = set()

    async def begin(self) -> Taken:
        """Raises StartRefused. Returns after *silence_ms* without an answer of the bucket at the latest.

        A take-over raises RemoteUnavailable then, for nobody takes over from whom he cannot see; so does a start that
        has all from the bucket.
        """
        catalog = self._survey.catalog
        if self._request.claimed is not None:
            return await self._again(self._request.claimed)
        remember_unclaimed(catalog, self._request.identity.incarnation)
        surveying = self._begun(self._until_answered(lambda: self._survey.run(self._request)))
        if not await self._answered(surveying):
            if self._request.recover or self._request.lost_host:
                await self._give_up(surveying)
            run = new_run(catalog, self._request, (), waiting=unvouched(catalog, self._request))
            return self._go_on_later(run, surveying)
        surveyed = surveying.result()
        for _ in range(_RACES):
            run = new_run(catalog, self._request, surveyed.claims, outside=surveyed.outside)
            putting = self._begun(self._put(run))
            if not await self._answered(putting):
                return self._go_on_later(run, surveying)
            try:
                putting.result()
            except EpochTaken as taken:
                log.warning("epoch is taken: looking again", extra={"detail": str(taken)})
                surveyed = await self._until_answered(lambda: self._survey.run(self._request))
                continue
            return self._held(run, surveyed)
        raise StartRefused(f"{self._survey.bucket.url}: other daemons claim it faster than this one can")

    async def _again(self, claimed: Claim) -> Taken:
        """The tierer was started again in the same run: same epoch, same first appends."""
        run = noted_run(self._survey.catalog, self._request.identity.incarnation)
        if run is None:
            held = claimed.state is ClaimState.HELD
            run = replace(new_run(self._survey.catalog, self._request, ()), epoch=claimed.epoch, held=held)
            note_run(self._survey.catalog, run)
        if claimed.state is ClaimState.LOST:
            return Taken(claimed, run, None)
        surveying = self._begun(self._until_answered(lambda: self._survey.run(self._request)))
        if not await self._answered(surveying):
            return self._go_on_later(run, surveying)
        return await self._settle(run, surveying)

    async def _give_up(self, surveying: "asyncio.Future[Surveyed]") -> None:
        surveying.cancel()
        await asyncio.gather(surveying, return_exceptions=True)
        raise RemoteUnavailable(f"{self._survey.bucket.url} does not answer: it cannot be taken over now")

    def _held(self, run: Run, surveyed: Surveyed) -> Taken:
        held = replace(run, held=True)
        note_run(self._survey.catalog, held)
        self._survey.catalog.touch_heads()
        return Taken(Claim(state=ClaimState.HELD, epoch=run.epoch), held, surveyed)

    def _go_on_later(self, run: Run, surveying: "asyncio.Future[Surveyed]") -> Taken:
        self._later = asyncio.ensure_future(self._finish(run, surveying))
        self._later.add_done_callback(_not_in_silence)
        detail = f"{self._survey.bucket.url} has not answered for {self._survey.pulse.silent_ms} ms"
        return Taken(Claim(state=ClaimState.PENDING, epoch=run.epoch, detail=detail), run, None)

    async def _finish(self, run: Run, surveying: "asyncio.Future[Surveyed]") -> None:
        """Once it answers; again as often as there is no room to note what it says."""
        while True:
            try:
                self._on_settled(await self._settle(run, surveying))
            except DiskFull as error:
                log.warning("the claim waits for room: %s", error)
            else:
                return
            await asyncio.sleep(self._retry_ms / 1000)
            surveying = self._begun(self._until_answered(lambda: self._survey.run(self._request)))

    async def _settle(self, run: Run, surveying: "asyncio.Future[Surveyed]") -> Taken:
        """The bucket answers: this run's epoch and first appends as they are, or none."""
        try:
            surveyed = await surveying
            if run.waiting:
                run = vouched(run, self._survey.catalog, self._request)
            lost = why_lost(run, surveyed, self._survey.catalog, self._request)
            if lost is None:
                await self._put(run)
                return self._held(run, surveyed)
        except (StartRefused, EpochTaken, CorruptFile, RequestRefused) as refused:
            lost = str(refused)
        return Taken(Claim(state=ClaimState.LOST, epoch=run.epoch, detail=lost), run, None)

    async def _put(self, run: Run) -> None:
        bucket, request = self._survey.bucket, self._request
        claim = claim_of(run, request, self._survey.clock.now_ms())
        await self._until_answered(lambda: owner.put_claim(bucket.store, bucket.keys, claim))
        self._survey.pulse.beat()

    async def _until_answered(self, work: Callable[[], Result]) -> Result:
        """Run *work* in a thread again and again while the bucket is away."""
        pause_ms = self._retry_ms
        while True:
            try:
                return await self._blocking(work)  # type: ignore[return-value]
            except RemoteUnavailable as error:
                log.warning("the bucket does not answer", extra={"detail": str(error)})
            await asyncio.sleep(pause_ms / 1000 * random.uniform(0.5, 1))  # noqa: S311 (jitter)
            pause_ms = min(2 * pause_ms, 30 * self._retry_ms)

    async def _answered(self, work: "asyncio.Future[Result]") -> bool:
        """True when *work* is done; False when the bucket was silent for too long meanwhile."""
        while not work.done():
            await asyncio.wait({work}, timeout=_LOOK_S)
            if not work.done() and self._survey.pulse.silent_ms > self._silence_ms:
                return False
        return True

    def _begun(self, asking: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        task = asyncio.create_task(asking)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        return task

    async def close(self) -> None:
        tasks = [*self._asking] if self._later is None else [self._later, *self._asking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _not_in_silence(task: "asyncio.Task[None]") -> None:
    """What nobody expects goes to the loop's handler: a claim must not stay pending because of it."""
    if not task.cancelled():
        task.result()
