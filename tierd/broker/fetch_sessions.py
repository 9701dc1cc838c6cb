"""Incremental fetch sessions (KIP-227): what a client fetches is kept here, it sends and gets only what changes.

Kafka's rules, answers and evictions, with one more bound: sessions hold so many partitions in all. A client for which
there is no room gets session 0, which means that it sends everything each time. Loop thread only.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tierd.base.clock import Clock
from tierd.wire.api import API, ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.fetch import FetchPartition, FetchRequest, PartitionFetched
from tierd.wire.primitives import TopicKey

EVICT_AFTER_MS: Final = 120_000
"""A session unused for so long makes room for any other, one that is as old for a larger one."""
MOST_PARTITIONS: Final = 50_000
"""Of all sessions; some 500 bytes each."""
_LONGEST: Final = 249
"""Of a topic's name; no topic has a longer one, but a client may ask for it, and would have it kept."""
_SESSIONS_FROM: Final = 7
_FIRST_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_MOST: Final = 2**31 - 1
_TOPIC_IDS_FROM: Final = API[ApiKey.FETCH].topic_ids_from

Key = tuple[TopicKey, int]
Rank = tuple[bool, int, int]
"""What decides who stays: a follower's session, more partitions, the larger id."""
Topics = list[tuple[TopicKey, list[FetchPartition]]]


class Cached:
    """One partition of a session: what is wanted of it, and what its client has been told last."""

    __slots__ = ("high_watermark", "log_start", "name", "want")

    def __init__(self, want: FetchPartition, name: str | None) -> None:
        self.want = want
        self.name = name
        """That its topic had when the client first asked for it; None when nobody knew its id."""
        self.high_watermark = -1
        self.log_start = -1

    def note(self, row: PartitionFetched) -> bool:
        """Whether *row* tells the client something; it then has been told."""
        high = -1 if row.high_watermark is None else row.high_watermark
        start = -1 if row.log_start is None else row.log_start
        changed = row.records_length > 0 or high != self.high_watermark or start != self.log_start or row.error != 0
        # After an error the client is told again, whatever it was told before.
        self.high_watermark, self.log_start = -1 if row.error else high, start
        return changed


class FetchSession:
    """What one client fetches."""

    __slots__ = ("by_id", "created_ms", "epoch", "id", "partitions", "privileged", "size", "used_ms")

    def __init__(self, session_id: int, *, privileged: bool, by_id: bool, now_ms: int) -> None:
        self.id = session_id
        self.privileged = privileged
        """A follower's."""
        self.by_id = by_id
        """Topics go by id."""
        self.created_ms = self.used_ms = now_ms
        self.epoch = _FIRST_EPOCH + 1
        """Of the next request."""
        self.partitions: dict[Key, Cached] = {}
        """Those that have waited longest come first."""
        self.size = 0
        """Partitions when it was last used."""

    @property
    def rank(self) -> Rank:
        return self.privileged, self.size, self.id

    def topics(self) -> Topics:
        """All that is wanted, neighbours of one topic together."""
        found: Topics = []
        last: TopicKey | None = None
        for (topic, _), cached in self.partitions.items():
            if topic != last:
                found.append((topic, []))
                last = topic
            found[-1][1].append(cached.want)
        return found

    def update(self, request: FetchRequest, names: Mapping[bytes, str]) -> None:
        """Take in what *request* adds, changes and forgets. *names*: of the topics, by id."""
        for topic, rows in request.topics:
            name = topic if isinstance(topic, str) else names.get(topic)
            for want in rows:
                cached = self.partitions.get((topic, want.partition))
                if cached is None:
                    self.partitions[topic, want.partition] = Cached(want, name)
                else:
                    cached.want = want
        for topic, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((topic, index), None)

    def note(self, topic: TopicKey, row: PartitionFetched) -> bool:
        """Whether the answer must have *row*. Who has got records goes behind those who have not."""
        key = topic, row.partition
        cached = self.partitions.get(key)
        if cached is None:
            return True  # forgotten by a later request
        if row.records_length:
            del self.partitions[key]
            self.partitions[key] = cached
        return cached.note(row)


class Asked(NamedTuple):
    """How a request is to be answered."""

    request: FetchRequest
    """With all that is wanted, whether the client has named it now or earlier."""
    session: FetchSession | None = None
    """Whose partitions these are."""
    epoch: int = 0
    """What the session's epoch must be when the answer is made."""
    makes: bool = False
    """The answer makes a session, if there is room."""
    error: ErrorCode = ErrorCode.NONE
    """All of the answer, when it is not NONE."""
    may_read: Callable[[str], bool] | None = None
    """Whether its sender may read a topic; None: all."""


class FetchSessions:
    """All sessions."""

    def __init__(
        self, clock: Clock, slots: int, names: Mapping[bytes, str], most_partitions: int = MOST_PARTITIONS
    ) -> None:
        """*names*: of the topics, by id."""
        self._clock = clock
        self._names = names
        self._slots = slots
        self._most = most_partitions
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""
        self.partitions = 0
        """Of all sessions."""
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, version: int, request: FetchRequest) -> Asked:
        """What *request* wants, and of which session it is."""
        session_id, epoch = request.session_id, request.session_epoch
        if version < _SESSIONS_FROM or (session_id == 0 and epoch == _FINAL_EPOCH):
            return Asked(request)
        if epoch in (_FIRST_EPOCH, _FINAL_EPOCH):
            self._remove(session_id)
            return Asked(request, makes=epoch == _FIRST_EPOCH)
        session = self._sessions.get(session_id)
        if session is None:
            return Asked(request, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return Asked(request, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != (version >= _TOPIC_IDS_FROM):
            return Asked(request, error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._go_on(session, request)

    def _go_on(self, session: FetchSession, request: FetchRequest) -> Asked:
        if not _fits(request):
            self._remove(session.id)
            return Asked(request, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.update(request, self._names)
        if not session.partitions:
            self._remove(session.id)
            return Asked(request)
        if self.partitions - session.size + len(session.partitions) > self._most:
            self._remove(session.id)
            return Asked(
                request, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            )  # it sends everything again, and stays out
        self.touch(session)
        return Asked(request._replace(topics=session.topics()), session, session.epoch)

    def alone(self, session_id: int, epoch: int, key: Key) -> FetchSession | None:
        """The session, when the request that names it goes on with it and *key* is all that it has."""
        session = self._sessions.get(session_id)
        if session is None or session.epoch != epoch or len(session.partitions) != 1 or key not in session.partitions:
            return None
        return session

    def touch(self, session: FetchSession) -> None:
        """A request goes on with *session*."""
        del self._sessions[session.id]
        self._sessions[session.id] = session
        session.used_ms = self._clock.monotonic_ms()
        session.epoch = 1 if session.epoch == _MOST else session.epoch + 1
        self.partitions += len(session.partitions) - session.size
        session.size = len(session.partitions)

    def make(
        self,
        version: int,
        request: FetchRequest,
        answers: Mapping[Key, PartitionFetched],
    ) -> int:
        """A session for *request*, which is answered with *answers*: its id, or 0 when there is no room."""
        size = len(answers)
        privileged = request.replica_id is not None
        now_ms = self._clock.monotonic_ms()
        if size > self._most or not _fits(request):
            return 0
        while len(self._sessions) >= self._slots or self.partitions + size > self._most:
            if not self._evict((privileged, size, 0), now_ms):
                return 0
        session = FetchSession(self._new_id(), privileged=privileged, by_id=version >= _TOPIC_IDS_FROM, now_ms=now_ms)
        session.update(request._replace(forgotten=[]), self._names)  # there was nothing to forget
        for key, row in answers.items():
            session.partitions[key].note(row)
        session.size = size
        self.partitions += size
        self._sessions[session.id] = session
        return session.id

    def answered(
        self, session: FetchSession, key: Key, want: FetchPartition, high_watermark: int, log_start: int
    ) -> None:
        """A request of a session that has nothing but *key*, now *want*, is answered with records and this."""
        cached = session.partitions[key]
        cached.want, cached.high_watermark, cached.log_start = want, high_watermark, log_start
        self.touch(session)

    def _new_id(self) -> int:
        while True:
            made = 1 + secrets.randbelow(_MOST)
            if made not in self._sessions:
                return made

    def _remove(self, session_id: int) -> None:
        gone = self._sessions.pop(session_id, None)
        if gone is not None:
            self.partitions -= gone.size

    def _evict(self, rank: Rank, now_ms: int) -> bool:
        """Make room for a session of *rank*, if one of those that are there is worth less."""
        gone = worth_less(list(self._sessions.values()), rank, now_ms)
        if gone is None:
            return False
        self._remove(gone.id)
        self.evicted += 1
        return True


def _fits(request: FetchRequest) -> bool:
    """Whether its topics can be kept."""
    return max([len(topic) for topic, _ in request.topics], default=0) <= _LONGEST


def worth_less(sessions: Sequence[FetchSession], rank: Rank, now_ms: int) -> FetchSession | None:
    """Which of *sessions*, least recently used first, goes when one of *rank* wants its place; None: it gets none."""
    if not sessions:
        return None
    if now_ms - sessions[0].used_ms > EVICT_AFTER_MS:
        return sessions[0]
    old = [one for one in sessions if one.used_ms - one.created_ms > EVICT_AFTER_MS or (rank[0] and not one.privileged)]
    least = min(old, key=lambda one: one.rank, default=None)
    return None if least is None or rank < least.rank else least
