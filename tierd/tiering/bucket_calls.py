"""Answers the calls of `bucket_messages` with a tierer."""

from collections.abc import Callable, Coroutine
from typing import Any

from tierd.tiering import bucket_messages as m
from tierd.tiering.tierer import Tierer

Handlers = dict[type, Callable[[Any], Coroutine[Any, Any, m.BucketMessage]]]


def handlers(tierer: Callable[[], Tierer]) -> Handlers:
    """By message; *tierer* gives the one that is configured, or raises."""

    async def sweep(message: m.SweepBucket) -> m.BucketMessage:
        result = await tierer().sweep.run(dry=message.dry, purge=message.purge, retry=True)
        return m.Swept(message.call, result)

    async def look_into(message: m.LookInto) -> m.BucketMessage:
        return m.Looking(message.call, tierer().look_into(message.part, message.start, message.stop))

    async def gaps(message: m.GetGaps) -> m.BucketMessage:
        return m.GapsFound(message.call, await tierer().gaps.known())

    async def accept(message: m.AcceptGap) -> m.BucketMessage:
        accepted = await tierer().gaps.accept(
            message.topic,
            message.partition,
            message.start,
            message.stop,
            who=message.who,
            why=message.why,
            dry=message.dry,
        )
        return m.GapsFound(message.call, accepted)

    async def keep_groups(message: m.KeepGroups) -> m.BucketMessage:
        await tierer().keep_groups(message.raw)
        return m.GroupsKept(message.call, None)

    async def get_groups(message: m.GetGroups) -> m.BucketMessage:
        return m.GroupsKept(message.call, await tierer().kept_groups())

    async def pause(message: m.SetPause) -> m.BucketMessage:
        return m.PauseSet(message.call, await tierer().pause(message.pause, dry=message.dry))

    return {
        m.SetPause: pause,
        m.SweepBucket: sweep,
        m.LookInto: look_into,
        m.GetGaps: gaps,
        m.AcceptGap: accept,
        m.KeepGroups: keep_groups,
        m.GetGroups: get_groups,
    }
