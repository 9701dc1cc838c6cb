"""Who may do what: the rules in force, kept in the registry, and what they say to each client, remembered.

Loop thread only, but for the registry's writes, which threads do.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from tierd.base.errors import TierdError
from tierd.base.session import Principal, Session
from tierd.broker.ongoing import Ongoing
from tierd.broker.registry import Registry
from tierd.broker.security.acls import Acl, AclFilter
from tierd.broker.security.asking import Asking, Denied, Rights
from tierd.broker.security.matcher import Rules
from tierd.wire.header import RequestHeader

MOST_ACLS: Final = 100_000
_MOST_CLIENTS: Final = 10_000
"""Of whom is remembered what they may do."""


class TooManyAcls(TierdError):
    """There is no room for more rules."""


class Authorizer:
    """The rules in force. What is changed is durable before it counts, and counts before the change returns."""

    def __init__(
        self,
        registry: Registry,
        *,
        super_users: Collection[Principal],
        allow_without: bool,
        tell: Callable[[Denied], None] = lambda denied: None,
    ) -> None:
        """*allow_without*: where there is no rule about a resource everybody may use it. *tell*: of what was denied."""
        self._registry = registry
        self._super_users = frozenset(super_users)
        self._allow_without = allow_without
        self._tell = tell
        self._changing = asyncio.Lock()
        self._ongoing = Ongoing()
        self.acls: frozenset[Acl] = frozenset(map(Acl.of_row, registry.acls()))
        self._rights: dict[Session, Rights] = {}
        self._seen: dict[int, tuple[Session, Rights]] = {}
        """By the session's object, which is quicker to find than its value, and is kept here so that no other gets its
        place in memory."""
        self._rules = self._indexed(self.acls)

    def rights(self, session: Session) -> Rights:
        """What the client of this session may do, now."""
        known = self._seen.get(id(session))
        return self._learn(session) if known is None else known[1]

    def _learn(self, session: Session) -> Rights:
        """What equal sessions may do is found out once."""
        if len(self._seen) >= _MOST_CLIENTS:
            self._forget()
        found = self._rights.get(session)
        if found is None:
            everything = session.principal in self._super_users
            found = self._rights[session] = Rights(self._rules, session, everything=everything)
        self._seen[id(session)] = session, found
        return found

    def _forget(self) -> None:
        self._seen.clear()
        self._rights.clear()

    def asking(self, header: RequestHeader) -> Asking:
        """What the sender of this request may do."""
        return Asking(header, self.rights(header.session), self._tell)

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """Any thread."""
        return sorted(acl for acl in self.acls if wanted.matches(acl))

    async def add(self, acls: Collection[Acl]) -> None:
        """Raises TooManyAcls, DiskFull, OSError."""
        await self._ongoing.whole(self._add(acls))

    async def _add(self, acls: Collection[Acl]) -> None:
        async with self._changing:
            new = frozenset(acls) - self.acls
            if len(self.acls) + len(new) > MOST_ACLS:
                raise TooManyAcls(f"there may be {MOST_ACLS} access rules at most")
            await self._change(new, frozenset())

    async def remove(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """What each filter has removed. Raises DiskFull, OSError."""
        return await self._ongoing.whole(self._remove(filters))

    async def _remove(self, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        async with self._changing:
            found = [await asyncio.to_thread(self.matching, wanted) for wanted in filters]
            await self._change(frozenset(), frozenset(acl for acls in found for acl in acls))
            return found

    async def close(self) -> None:
        """Finish what is under way."""
        await self._ongoing.settle()

    async def _change(self, new: frozenset[Acl], gone: frozenset[Acl]) -> None:
        if not new and not gone:
            return
        rows = [acl.row for acl in new], [acl.row for acl in gone]
        await asyncio.to_thread(self._registry.change_acls, *rows)
        acls = (self.acls | new) - gone
        self._rules = await asyncio.to_thread(self._indexed, acls)
        self.acls = acls
        self._forget()

    def _indexed(self, acls: Collection[Acl]) -> Rules:
        return Rules(acls, allow_without=self._allow_without)
