"""The short way for a fetch like the one before it on its connection: one partition, onwards, data there at once.

Whatever is not so plain (nothing to send, another tier, an error) is left to the usual way (`fetch`), which then meets
it itself.
"""

from tierd.base.errors import TierdError
from tierd.base.session import Session
from tierd.broker.counters import Counters
from tierd.broker.partition import Partition
from tierd.broker.security.authorizer import Authorizer
from tierd.broker.sending import Reply
from tierd.wire.fetch_shape import TAIL, FetchShape


class FetchAgain:
    """What a connection asks for again and again. Loop thread only."""

    __slots__ = (
        "_authorizer",
        "_committed",
        "_counters",
        "_epoch",
        "_least_bytes",
        "_most_bytes",
        "_partition",
        "_shape",
    )

    def __init__(
        self, shape: FetchShape, partition: Partition, counters: Counters, authorizer: Authorizer | None
    ) -> None:
        request, want = shape.request, shape.want
        self._shape = shape
        self._partition = partition
        self._counters = counters
        self._authorizer = authorizer
        self._epoch = want.current_leader_epoch
        self._least_bytes = max(request.min_bytes, 1)
        self._most_bytes = min(want.max_bytes, request.max_bytes)
        self._committed = request.isolation == 1

    def answer(self, frame: memoryview, session: Session) -> Reply | None:
        """The answer to *frame*; None when the usual way must decide."""
        shape, partition = self._shape, self._partition
        asked = shape.match(frame)
        if asked is None or asked[1] or partition.deleted or partition.offline:
            return None
        if self._authorizer is not None and not self._authorizer.rights(session).may_read(shape.topic):
            return None
        logged, offset = partition.log, asked[3]
        if self._epoch is not None and self._epoch != logged.leader_epoch:
            return None
        if not logged.local_start <= offset < logged.high_watermark:
            return None
        try:
            found = logged.read(offset, self._most_bytes, committed=self._committed)
        except (TierdError, OSError):
            return None
        length = found.length
        if length < self._least_bytes:
            found.release()
            return None
        self._counters.fetched_bytes += length
        aborted = found.aborted if self._committed else None
        head = shape.answer(asked, 0, logged.high_watermark, logged.last_stable, logged.log_start, aborted, length)
        return [head, found, TAIL]
