"""Offsets that the disk has lost: the bucket's, where a LIST shows whole copies of all that is given up for them.

Local start moves behind such a gap, and the local segments below it go. Until somebody knows, reads of it wait.
"""

import asyncio
import logging
from collections.abc import Sequence

from tierd.base.errors import CorruptFile, DiskFull, RemoteUnavailable
from tierd.broker.ongoing import Ongoing
from tierd.broker.partition import Partition
from tierd.broker.ports import RemoteTier
from tierd.storage.gaps import Gap

log = logging.getLogger(__name__)

AGAIN_S = 5.0


class GapJudge:
    """Of one partition. Loop thread only."""

    def __init__(self, partition: Partition, tier: RemoteTier | None) -> None:
        self._partition = partition
        self._tier = tier
        self._ongoing = Ongoing()
        self._judging: asyncio.Task[None] | None = None
        self._ends: dict[Gap, int] = {}
        """How far the bucket was when a gap was first looked at: a segment that was cut may be copied later."""

    async def judge(self) -> bool:
        """Decide about what was found, as far as that can be now; False when it has to be tried again.

        Raises DiskFull, OSError.
        """
        partition, logged = self._partition, self._partition.log
        theirs = [gap for gap in logged.found_gaps if self._may_be_there(gap)]
        self._decide([gap for gap in logged.found_gaps if gap not in theirs], 0, 0)
        for gap in [gap for gap in theirs if gap[1] <= logged.local_start]:
            self._decide([gap], *gap)  # left to the bucket already, with what lay below: evicted
            theirs.remove(gap)
        if not theirs:
            return True
        assert self._tier is not None
        stop = theirs[-1][1]
        try:
            whole = await self._tier.whole(partition.id, logged.local_start, stop)
        except (RemoteUnavailable, CorruptFile) as error:
            log.warning("lost offsets wait for the bucket", extra={"partition": str(partition), "why": str(error)})
            return False
        if whole:
            self._decide(theirs, min(theirs[0][0], logged.local_start), stop)
        else:
            facts = {"partition": str(partition), "start": logged.local_start, "stop": stop}
            log.error("lost offsets wait until the bucket has all of what lies there", extra=facts)
        return not logged.found_gaps  # more may have been found while the bucket was asked

    def _may_be_there(self, gap: Gap) -> bool:
        remote = self._partition.remote
        if self._tier is None or remote is None or remote.start is None or remote.copied_to is None:
            return False
        copied_to = self._ends.setdefault(gap, remote.copied_to)
        known = remote.start <= min(gap[0], self._partition.log.local_start) and gap[1] <= copied_to
        return known and not any(start < gap[1] and gap[0] < stop for start, stop in remote.lost)

    def _decide(self, asked: Sequence[Gap], start: int, stop: int) -> None:
        if not asked:
            return
        partition, logged = self._partition, self._partition.log
        healed = logged.judge_gaps(start, stop, asked)
        for gap in asked:
            facts = {"partition": str(partition), "gap": gap, "local_start": logged.local_start}
            if gap in healed:
                log.warning("lost offsets are in the bucket, and read from there", extra=facts)
            else:
                log.error("offsets are lost", extra=facts)

    def stay(self) -> None:
        """The log has begun: go on with what is not decided, and with what reads find lost from now on."""
        self._partition.log.on_loss = self._soon
        if self._partition.log.found_gaps:
            self._soon()

    def _soon(self) -> None:
        """At once where no bucket has anything of it: who reads groups or transactions takes no answer for the end."""
        if self._tier is None or self._partition.remote is None:
            self._decide(self._partition.log.found_gaps, 0, 0)
        elif self._judging is None or self._judging.done():
            self._judging = self._ongoing.begin(self._until_judged())

    async def _until_judged(self) -> None:
        partition = self._partition
        while not (partition.deleted or partition.offline):
            try:
                if await self.judge():
                    break
            except (DiskFull, OSError) as error:
                log.error("lost offsets are not decided on", extra={"partition": str(partition), "why": str(error)})
            await asyncio.sleep(AGAIN_S)
        partition.tell(self._tier)
        partition.wake()
