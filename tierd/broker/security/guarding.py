"""How requests are held to the rules: a guard before the handler of each API, which lets through what is allowed.

A guard takes from a request what its sender may not do, hands the rest to the handler, and puts an error in the answer
for each thing that it took. Without an authorizer there are no guards.
"""

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from tierd.broker.security.asking import Asking
from tierd.broker.security.authorizer import Authorizer
from tierd.broker.turns import in_turns
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

A_TURN: Final = 500
"""Things looked at before others are served."""

Fields = dict[str, Any]
Answer = Mapping[str, Any]
Go = Callable[[Any], Awaitable[Answer]]
"""The handler, with the header in its hand."""


Guard = Callable[[Asking, Any, Go], Awaitable[Answer]]
Handler = Callable[[RequestHeader, Any], Awaitable[Any]]


def guarded(
    table: Mapping[ApiKey, Handler], guards: Mapping[ApiKey, Guard], authorizer: Authorizer
) -> dict[ApiKey, Handler]:
    """The table with a guard before each handler. KeyError for a handler that has none: nothing is open by mistake."""

    def guard(key: ApiKey) -> Handler:
        keeper, handler = guards[key], table[key]

        async def watched(header: RequestHeader, request: Any) -> Any:
            return await keeper(authorizer.asking(header), request, lambda left: handler(header, left))

        return watched

    return {key: guard(key) for key in table}


def changed(request: Any, **fields: object) -> Any:
    """The request with other fields; those that its version lacks are left out."""
    names = {field.name for field in dataclasses.fields(request)}
    return dataclasses.replace(request, **{name: value for name, value in fields.items() if name in names})


async def split(rows: Iterable[Any], allowed: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Those that are allowed, and the others; in turns, as a client may name very many."""
    sides: tuple[list[Any], list[Any]] = [], []
    async for row in in_turns(rows, A_TURN):
        sides[not allowed(row)].append(row)
    return sides


CLUSTER_DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TOPIC_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TRANSACTION_DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
