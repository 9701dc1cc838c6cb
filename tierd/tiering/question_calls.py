"""Answers the calls of `questions` with a tierer."""

from collections.abc import Callable, Coroutine
from typing import Any

from tierd.tiering import questions as m
from tierd.tiering.tierer import Tierer

Handlers = dict[type, Callable[[Any], Coroutine[Any, Any, m.Question]]]


def handlers(tierer: Callable[[], Tierer]) -> Handlers:
    """By message; *tierer* gives the one that is configured, or raises."""

    async def outlook(message: m.GetOutlook) -> m.Question:
        retention = tierer().retention
        found = await retention.outlooks(message.within_ms, message.topic)
        return m.OutlookFound(message.call, retention.trouble(), found)

    return {m.GetOutlook: outlook}
