"""Users and what is kept of their passwords: in the registry, read afresh each time, so that it is the only truth."""

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tierd.broker.ongoing import Ongoing
from tierd.broker.registry import Registry
from tierd.broker.sasl.decoys import Decoys
from tierd.broker.sasl.scram import Credential, Mechanism, matches

_T = TypeVar("_T")
Key = tuple[str, Mechanism]
_DECOYS = "decoys"
"""Where the registry has what decoys are made from: who comes again after a restart sees the same."""


class Users:
    """Loop thread only; waits are for threads of its own."""

    def __init__(self, registry: Registry, removed: Callable[[Collection[str]], None] = lambda _: None) -> None:
        """*removed*: told of those who have no password any more."""
        self._registry = registry
        self.removed = removed
        self._ongoing = Ongoing()
        self._decoys: Decoys | None = None  # of the users as they are; only for the thread that looks
        self._secret = os.urandom(32)
        self._looking = ThreadPoolExecutor(1, "users")
        self._hashing = ThreadPoolExecutor(1, "passwords")

    def nobody(self) -> bool:
        """Whether there are no users at all. Reads the registry at once."""
        return not self._registry.passwords()

    async def credential(self, user: str, mechanism: Mechanism) -> Credential | None:
        """Raises OSError, TierdError."""
        return (await self._look(lambda: credentials(self._registry, user))).get((user, mechanism))

    async def shown(self, user: str, mechanism: Mechanism) -> tuple[Credential, bool]:
        """The credential, or what looks as one, and which of them. Raises OSError, TierdError."""

        def look() -> tuple[Credential, bool]:
            decoy = self._decoys_now().of(mechanism, user)
            kept = credentials(self._registry, user).get((user, mechanism))
            return kept or decoy, kept is not None

        return await self._look(look)

    async def check(self, user: str, password: str) -> bool:
        """Whether it is the user's password, still; it takes as long when there is no such user."""

        def look() -> tuple[Mechanism, Credential, bool]:
            decoy = self._decoys_now().first(user)
            kept = credentials(self._registry, user)
            mechanism = min((one for _, one in kept), default=None)
            return (*decoy, False) if mechanism is None else (mechanism, kept[user, mechanism], True)

        mechanism, tried, known = await self._look(look)
        right = await self._in(self._hashing, lambda: matches(mechanism, tried, password))
        return right and known and await self.credential(user, mechanism) == tried

    async def all(self) -> dict[Key, Credential]:
        """Raises OSError, TierdError."""
        return await self._look(lambda: credentials(self._registry))

    async def change(self, kept: Mapping[Key, Credential], dropped: Collection[Key]) -> None:
        """All of it or nothing, durable when it returns. Raises DiskFull, OSError, TierdError."""
        await self._ongoing.whole(self._change(kept, dropped))

    async def _change(self, kept: Mapping[Key, Credential], dropped: Collection[Key]) -> None:
        def work() -> None:
            self._decoys = None
            change(self._registry, kept, dropped)

        await self._look(work)
        left = {user for user, _ in await self.all()}
        self.removed({user for user, _ in dropped} - left)

    async def close(self) -> None:
        """Finish what is under way."""
        await self._ongoing.settle()
        self._looking.shutdown(wait=False)
        self._hashing.shutdown(wait=False, cancel_futures=True)

    def _decoys_now(self) -> Decoys:
        if self._decoys is None:
            secret = bytes.fromhex(self._registry.get(_DECOYS) or "") or self._secret
            self._decoys = Decoys(credentials(self._registry), secret)
        return self._decoys

    async def _look(self, work: Callable[[], _T]) -> _T:
        return await self._in(self._looking, work)

    async def _in(self, threads: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)


def credentials(registry: Registry, user: str | None = None) -> dict[Key, Credential]:
    """Of one user or of all."""
    return {
        (name, Mechanism(mechanism)): Credential(salt, iterations, stored_key, server_key)
        for name, mechanism, salt, iterations, stored_key, server_key in registry.passwords(user)
    }


def change(registry: Registry, kept: Mapping[Key, Credential], dropped: Collection[Key]) -> None:
    """All of it or nothing."""
    if registry.get(_DECOYS) is None:
        registry.put(_DECOYS, os.urandom(32).hex())
    registry.change_passwords(
        [
            (user, int(mechanism), one.salt, one.iterations, one.stored_key, one.server_key)
            for (user, mechanism), one in kept.items()
        ],
        [(user, int(mechanism)) for user, mechanism in dropped],
    )
