"""A tierer, or a call of the bucket, that gives no answer: said first, ended later. Answers come when the test says."""

import asyncio
from collections.abc import Awaitable, Callable

from tierd.base.errors import RemoteUnavailable
from tierd.tiering.heartbeat import Heartbeat, Patience
from tierd.tiering.messages import Alive

QUICK = Patience(every_ms=1, look_ms=10, silent_ms=30, end_ms=60, bucket_silent_ms=1_000, bucket_end_ms=9_000)


def until_ended(ask: Callable[[], Awaitable[Alive]]) -> list[str | None]:
    """Let one heart beat until it ends somebody; what it says at that moment."""

    async def run() -> list[str | None]:
        ended = asyncio.Event()
        said: list[str | None] = []

        def end() -> None:
            said.append(heart.trouble)
            ended.set()

        heart = Heartbeat(ask, end, QUICK)
        beating = asyncio.ensure_future(heart.run())
        await ended.wait()
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        return said

    return asyncio.run(run())


def test_silence_is_said_before_the_tierer_is_ended() -> None:
    async def never() -> Alive:
        await asyncio.Event().wait()
        raise AssertionError

    said = until_ended(never)[0]
    assert said is not None
    assert said.startswith("the tierer has not answered for")


def test_who_is_gone_is_nobody_to_end() -> None:
    answers = [RemoteUnavailable("the tierer is not running")] * 3
    calls: list[int] = []

    async def ask() -> Alive:
        calls.append(1)
        if answers:
            raise answers.pop()
        return Alive(1, 0, QUICK.bucket_end_ms)

    until_ended(ask)
    assert len(calls) == 4


def test_a_bucket_that_does_not_answer_is_said_and_a_call_that_never_ends_is_ended() -> None:
    replies = [Alive(1, 0, 0), Alive(2, 999, 999, paused=True), Alive(3, 5_000, 5_000), Alive(4, 0, 9_000)]
    seen: list[str | None] = []
    paused: list[bool] = []

    async def ask() -> Alive:
        return replies.pop(0)

    async def run() -> None:
        ended: list[int] = []
        heart = Heartbeat(ask, lambda: ended.append(1), QUICK)
        for _ in range(4):
            await heart._beat()
            seen.append(heart.trouble)
            paused.append(heart.paused)
        assert ended == [1]
        assert paused == [False, True, False, False]

    asyncio.run(run())
    assert seen[:2] == [None, None]
    assert seen[2] == "the bucket has not answered for 5 s"
    assert seen[3] == "a call of the bucket has not come back for 9 s"
