"""The short way for a fetch like the one before it on its connection: one partition, onwards, data there at once.

Whatever is not so plain (nothing to send, another tier, an error) is left to the usual way (`fetch`), which then meets
it itself.
"""

from tierd.base.errors import TierdError
from tierd.base.session import Session
from tierd.broker.counters import Counters
from tierd.broker.fetch_sessions import FetchSessions
from tierd.broker.partition import Partition
from tierd.broker.security.authorizer import Authorizer
from tierd.broker.sending import Reply
from tierd.storage.log import Log
from tierd.storage.view import LogSlice
from tierd.wire.fetch import FetchPartition
from tierd.wire.fetch_shape import TAIL, FetchShape

_NO_SESSION = -1  # the epoch of a request that neither has nor wants a session


class FetchAgain:
    """What a connection asks for again and again. Loop thread only."""

    __slots__ = (
        "_authorizer",
        "_committed",
        "_counters",
        "_epoch",
        "_key",
        "_least_bytes",
        "_most_bytes",
        "_partition",
        "_sessions",
        "_shape",
    )

    def __init__(
        self,
        shape: FetchShape,
        partition: Partition,
        sessions: FetchSessions,
        counters: Counters,
        authorizer: Authorizer | None,
    ) -> None:
        request, want = shape.request, shape.want
        self._shape = shape
        self._key = shape.topic, want.partition
        self._sessions = sessions
        self._partition = partition
        self._counters = counters
        self._authorizer = authorizer
        self._epoch = want.current_leader_epoch
        self._least_bytes = max(request.min_bytes, 1)
        self._most_bytes = min(want.max_bytes, request.max_bytes)
        self._committed = request.isolation == 1

    def answer(self, frame: memoryview, session: Session) -> Reply | None:
        """The answer to *frame*; None when the usual way must decide."""
        shape = self._shape
        asked = shape.match(frame)
        if asked is None or not self._served(session):
            return None
        known = None
        _, session_id, session_epoch, offset = asked
        if session_id or session_epoch != _NO_SESSION:
            known = self._sessions.alone(session_id, session_epoch, self._key)
            if known is None:
                return None
        logged = self._partition.log
        found = self._read(logged, offset)
        if found is None:
            return None
        length, high, start = found.length, logged.high_watermark, logged.log_start
        self._counters.fetched_bytes += length
        if known is not None:
            want = shape.want
            now = tuple.__new__(FetchPartition, (want[0], offset, *want[2:]))
            self._sessions.answered(known, self._key, now, high, start)
        aborted = found.aborted if self._committed else None
        return [shape.answer(asked, session_id, high, logged.last_stable, start, aborted, length), found, TAIL]

    def _served(self, session: Session) -> bool:
        partition, authorizer = self._partition, self._authorizer
        if partition.deleted or partition.offline:
            return False
        if authorizer is not None and not authorizer.rights(session).may_read(partition.name.topic):
            return False
        return self._epoch is None or self._epoch == partition.log.leader_epoch

    def _read(self, logged: Log, offset: int) -> LogSlice | None:
        """What answers the request; None when that is not enough, or not here."""
        if not logged.local_start <= offset < logged.high_watermark:
            return None
        try:
            found = logged.read(offset, self._most_bytes, committed=self._committed)
        except (TierdError, OSError):
            return None
        if found.length >= self._least_bytes:
            return found
        found.release()
        return None
