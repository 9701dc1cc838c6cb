"""Fetch: local batches at once on the loop, remote ones through the tierer, long polls that an append wakes."""

import asyncio
from typing import NamedTuple

from tierd.broker.connection import Answer, Connection
from tierd.broker.counters import Counters
from tierd.broker.fetch_again import FetchAgain
from tierd.broker.fetch_pass import ROWS_A_TURN, FetchPass, Round
from tierd.broker.fetch_room import FetchRoom
from tierd.broker.fetch_sessions import Asked, FetchSessions
from tierd.broker.operations import Operation
from tierd.broker.partitions import Partitions
from tierd.broker.remote_reads import RemoteReads
from tierd.broker.security.asking import Asking
from tierd.broker.security.authorizer import Authorizer
from tierd.broker.sending import Reply
from tierd.broker.topic_table import name_of
from tierd.broker.turns import until
from tierd.storage.view import LogSlice
from tierd.wire.errors import ErrorCode
from tierd.wire.fetch import FetchRequest, PartitionFetched, decode_fetch, encode_fetch_response
from tierd.wire.fetch_shape import learn
from tierd.wire.header import RequestHeader
from tierd.wire.primitives import TopicKey

REMOTE_WAIT_MS = 500
"""A read from the bucket is waited for this long even when the client's own max wait is shorter (Kafka's default)."""
REMOTE_BESIDE_LOCAL_MS = 50
"""... and this long when local data is there to be sent."""


class Given(NamedTuple):
    """What an answer says, but for the records."""

    topics: list[tuple[TopicKey, list[PartitionFetched]]]
    session_id: int = 0
    error: ErrorCode = ErrorCode.NONE


class Fetch:
    """The handler of the Fetch API."""

    def __init__(
        self,
        partitions: Partitions,
        reads: RemoteReads | None,
        counters: Counters,
        authorizer: Authorizer | None,
        sessions: FetchSessions,
    ) -> None:
        self._authorizer = authorizer
        self._partitions = partitions
        self._reads = reads
        self._counters = counters
        self._sessions = sessions
        self._pass = FetchPass(partitions, reads, counters)
        self.room = FetchRoom()
        self._stopping = False

    def __call__(self, header: RequestHeader, frame: memoryview, position: int, connection: Connection) -> Answer:
        request = decode_fetch(frame, position, header.version)
        connection.fetched = self._learnt(header, frame, position, request)
        return self.answer(header, request)

    def _learnt(
        self, header: RequestHeader, frame: memoryview, position: int, request: FetchRequest
    ) -> FetchAgain | None:
        shape = learn(frame, header, position, request)
        if shape is None:
            return None
        name = name_of(shape.topic, self._partitions.names)
        partition = None if name is None else self._partitions.get(name, shape.want.partition)
        return (
            None
            if partition is None
            else FetchAgain(shape, partition, self._sessions, self._counters, self._authorizer)
        )

    def answer(self, header: RequestHeader, request: FetchRequest) -> Answer:
        asked = self._sessions.open(header.version, request)
        if asked.error:
            return encode_fetch_response(header.correlation_id, header.version, [], error=asked.error)[0]
        if self._authorizer is not None:
            asked = self._held_to_rules(asked, self._authorizer.asking(header))
        if asked.request.rows > ROWS_A_TURN:
            return self._wait(header, asked)
        done = self._pass.once(asked)
        if not done.remote and (self._enough(done, asked) or request.max_wait_ms <= 0):
            return self._reply(header, asked, done)
        # A task that is cancelled before its first step could not give back what it was handed: it looks again itself.
        done.release()
        return self._wait(header, asked)

    def _held_to_rules(self, asked: Asked, asking: Asking) -> Asked:
        """Only brokers get a session in the place of others'; who merely says it is one is as all others."""
        request = asked.request
        if asked.makes and request.replica_id is not None and not asking.cluster(Operation.CLUSTER_ACTION, quiet=True):
            request = request._replace(replica_id=None)
        return asked._replace(request=request, may_read=asking.reads)

    def stop(self) -> None:
        """Answer waiting fetches with what there is, now and from now on."""
        self._stopping = True
        for partition in (*self._partitions, *self._partitions.read_only):
            partition.wake()

    def _enough(self, done: Round, asked: Asked) -> bool:
        request = asked.request
        return done.failed or done.got_bytes >= request.min_bytes or self._stopping or not request.topics

    # Waiting.

    async def _wait(self, header: RequestHeader, asked: Asked) -> Reply:
        rows = asked.request.rows
        if rows <= ROWS_A_TURN:
            return await self._waited(header, asked)
        await self.room.enter(rows)
        try:
            return await self._waited(header, asked)
        finally:
            self.room.leave(rows)

    async def _waited(self, header: RequestHeader, asked: Asked) -> Reply:
        begun, request = asyncio.get_running_loop().time(), asked.request
        done = await self._pass.in_turns(asked)
        if done.remote:
            try:
                await self._read_remote(asked, done, begun)
            except BaseException:
                done.release()
                raise
        elif request.max_wait_ms > 0 and not self._enough(done, asked):
            done = await self._poll(asked, done, begun + request.max_wait_ms / 1000)
        given = self._settled(header, asked, done)
        if sum([len(rows) for _, rows in given.topics]) <= ROWS_A_TURN:
            return self._with_records(_encoded(header, given), done)
        try:
            chunks = await asyncio.to_thread(_encoded, header, given)
        except BaseException:
            done.release()
            raise
        return self._with_records(chunks, done)

    async def _poll(self, asked: Asked, done: Round, deadline: float) -> Round:
        """Pass again on every wake-up until there is enough or the time is over; nothing is held while waiting."""
        event = asyncio.Event()
        if asked.request.rows > ROWS_A_TURN:
            event.set()  # Something may have been appended during the long pass.
        watched = self._pass.watched(asked)
        for partition in watched:
            partition.wait(event.set)
        over = False

        def expire() -> None:
            nonlocal over  # Asked instead of the clock: a timer may fire a little early, and only once.
            over = True
            event.set()

        timer = asyncio.get_running_loop().call_at(deadline, expire)
        if asked.request.rows > ROWS_A_TURN:
            self.room.idle(expire)
        try:
            while not (over or done.remote or self._enough(done, asked)):
                done.release()
                await event.wait()
                event.clear()  # What is appended during a long pass calls for one more.
                done = await self._pass.in_turns(asked)
            return done
        finally:
            timer.cancel()
            self.room.busy(expire)
            for partition in watched:
                partition.forget(event.set)

    async def _read_remote(self, asked: Asked, done: Round, begun: float) -> None:
        """Read what the pass planned, all at once; whatever is not there in time stays empty and lands in the cache."""
        assert self._reads is not None
        request = asked.request
        wait_ms = max(request.max_wait_ms, REMOTE_WAIT_MS)
        if done.got_bytes >= request.min_bytes and done.got_bytes > 0:
            wait_ms = min(wait_ms, REMOTE_BESIDE_LOCAL_MS)
        tasks = [(place, want, self._reads.begin(want)) for *place, want in done.remote]
        deadline = begun + wait_ms / 1000
        try:
            await until(deadline, [task for _, _, task in tasks])
        except asyncio.CancelledError:
            for _, want, task in tasks:
                self._reads.leave(want, task)
            raise
        committed = request.isolation == 1
        unanswered = False
        for (topic, index), want, task in tasks:
            done.left_bytes += want.max_bytes
            if not task.done():
                self._reads.leave(want, task)
                continue
            wanted = request.topics[topic][1][index]
            row = self._pass.landed(done, (topic, index), want, wanted, committed, task)
            unanswered = unanswered or row is None
            if row is not None:
                done.rows[topic][index] = row
        if unanswered and not self._enough(done, asked):
            # Refused at once: an empty answer now would only make the client ask again at once.
            await until(begun + request.max_wait_ms / 1000, [])

    # Answering.

    def _reply(self, header: RequestHeader, asked: Asked, done: Round) -> Reply:
        return self._with_records(_encoded(header, self._settled(header, asked, done)), done)

    def _settled(self, header: RequestHeader, asked: Asked, done: Round) -> Given:
        """What the answer says: in a session only what has changed."""
        request, session = asked.request, asked.session
        topics = [(topic, rows) for (topic, _), rows in zip(request.topics, done.rows, strict=True)]
        if session is None:
            if not asked.makes:
                return Given(topics)
            answers = {(topic, row.partition): row for topic, rows in topics for row in rows}
            return Given(topics, self._sessions.make(header.version, request, answers))
        if session.epoch != asked.epoch:
            done.release()
            return Given([], session.id, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        changed = [(topic, [row for row in rows if session.note(topic, row)]) for topic, rows in topics]
        return Given([(topic, rows) for topic, rows in changed if rows], session.id)

    def _with_records(self, chunks: list[bytes], done: Round) -> Reply:
        if not done.slices:
            return chunks[0]
        self._counters.fetched_bytes += done.got_bytes
        reply: list[bytes | LogSlice] = []
        for chunk, place in zip(chunks, sorted(done.slices), strict=False):
            reply.append(chunk)
            reply.append(done.slices[place])
        reply.append(chunks[-1])
        return reply


def _encoded(header: RequestHeader, given: Given) -> list[bytes]:
    return encode_fetch_response(
        header.correlation_id, header.version, given.topics, error=given.error, session_id=given.session_id
    )
