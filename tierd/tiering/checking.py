"""`tierd verify` by the clock: in a daily window, within a budget, until all of the bucket has been looked at.

Where it finds damage the tierer reads those segments itself before it believes it (`suspects`), and copies them again
where the disk has them.
"""

import logging
from collections.abc import Callable

from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile, TierdError
from tierd.base.ids import PartitionId
from tierd.config.checking import Checking, DayWindow, window_of
from tierd.config.state_files import VERIFY_BY_CLOCK
from tierd.tiering.state import TierState
from tierd.tiering.verify import standing
from tierd.tiering.verify.run import Progress, Report, Verify
from tierd.tiering.verify.spending import Budget
from tierd.tiering.verify.standing import Standing
from tierd.tiering.verify.verdicts import Verdict

log = logging.getLogger(__name__)

_DONE_MS, _FOUND = "verified_ms", "verified_found"
_THREADS = 1
"""It has time."""


class Check:
    """Loop thread only; the look itself runs in a thread and writes nothing to the bucket."""

    def __init__(self, state: TierState, disk: Disk, suspect: Callable[[PartitionId, int, int], int]) -> None:
        """*suspect* is told of ranges that were found damaged."""
        self._state = state
        self._disk = disk
        self._suspect = suspect
        self._file = state.options.state_dir / VERIFY_BY_CLOCK

    async def tick(self) -> None:
        """Look for as long as the window is open, when a look is due; whether we own the bucket does not matter."""
        asked, state = self._state.options.remote.verify, self._state
        if asked.window is None or not self._is_due(asked):
            return
        window = window_of(asked.window)
        if not window.left_ms(state.clock.now_ms()):
            return
        try:
            report = await state.blocking(lambda: self._look(asked, window))
        except CorruptFile as error:
            log.warning("how far the last look at the bucket came cannot be read, the next one begins anew: %s", error)
            await state.blocking(lambda: self._disk.replace(self._file, self._file.with_suffix(".corrupt")))
            return
        except (TierdError, OSError) as error:  # the bucket is away, or the disk is full: what was found is kept
            log.warning("the look at the bucket waits: %s", error)
            return
        self._tell(report)

    def _is_due(self, asked: Checking) -> bool:
        done_ms = self._state.catalog.get(_DONE_MS)
        return done_ms is None or not 0 <= self._state.clock.now_ms() - int(done_ms) < asked.every_ms

    def _look(self, asked: Checking, window: DayWindow) -> Report:
        """In a thread."""
        state = self._state
        fresh = Standing(url=state.bucket.url, deep=asked.deep, percent=asked.sample_percent)
        begun = standing.begin(standing.load(self._file), fresh, anew=False)

        def is_open() -> bool:
            return not state.stopping and window.left_ms(state.clock.now_ms()) > 0

        def keep(now: Standing) -> None:
            standing.keep(self._disk, self._file, now)

        budget = Budget(asked.requests, asked.bytes, is_open)
        return Verify(
            state.bucket, state.clock, begun, budget=budget, threads=_THREADS, keep=keep, report=_nobody_looks
        ).run()

    def _tell(self, report: Report) -> None:
        bad = [
            (PartitionId(one.topic_id, one.partition), found)
            for one in report.standing.reports
            for found in one.ranges
            if found.verdict is Verdict.FAILURE
        ]
        for part, found in bad:
            log.error(
                "offsets %d to %d are damaged in the bucket: %s",
                found.start,
                found.stop - 1,
                "; ".join(found.reasons),
                extra={"partition": self._state.name_of(part)},
            )
            self._suspect(part, found.start, found.stop)
        for problem in report.problems:
            log.error("the bucket has a document that cannot be read: %s", problem)
        if not report.complete:
            return
        state, now = self._state, report.standing
        failures = len(bad) + len(report.problems)
        state.catalog.put(_DONE_MS, str(state.clock.now_ms()))
        state.catalog.put(_FOUND, str(failures))
        spent = {"requests": now.requests, "bytes": now.bytes}
        facts = {"verdict": report.verdict, "partitions": len(now.reports), **spent}
        log.info("all of the bucket was looked at", extra=facts)

    def note(self) -> str | None:
        """What status says of the last complete look; None when it found nothing wrong, or there was none."""
        found = self._state.catalog.get(_FOUND)
        if found in (None, "0"):
            return None
        return f"the last look by the clock found {found} ranges or documents damaged: `tierd verify` names them"


def _nobody_looks(progress: Progress) -> None:
    """By the clock nobody does."""
