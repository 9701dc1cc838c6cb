"""What the control socket does for `tierd users`."""

import base64
from collections.abc import Collection, Mapping

from tierd.broker.sasl.scram import Credential, Mechanism
from tierd.broker.sasl.users import Key, Users
from tierd.broker.security.audit import Audit
from tierd.web.control import Handler, Outcome, Progress, Request


class UserVerbs:
    """Loop thread only."""

    def __init__(self, users: Users, audit: Audit | None) -> None:
        self._users = users
        self._audit = audit

    def handlers(self) -> dict[str, Handler]:
        return {"users": self._all, "change users": self._change}

    async def _all(self, request: Request, progress: Progress) -> Outcome:
        there = await self._users.all()
        return Outcome([[user, int(mechanism), one.iterations] for (user, mechanism), one in sorted(there.items())])

    async def _change(self, request: Request, progress: Progress) -> Outcome:
        kept = {
            (user, Mechanism(mechanism)): Credential(
                base64.b64decode(salt), iterations, base64.b64decode(stored), base64.b64decode(server)
            )
            for user, mechanism, iterations, salt, stored, server in request["kept"]
        }
        dropped = [(user, Mechanism(mechanism)) for user, mechanism in request["dropped"]]
        if self._audit is None:
            await self._users.change(kept, dropped)
        else:
            await self._audit.whole(self._told(self._audit, kept, dropped))
        return Outcome(None)

    async def _told(self, audit: Audit, kept: Mapping[Key, Credential], dropped: Collection[Key]) -> None:
        await self._users.change(kept, dropped)
        for user in sorted({user for user, _ in [*kept, *dropped]}):
            audit.by_hand("alter user", {"user": user})
