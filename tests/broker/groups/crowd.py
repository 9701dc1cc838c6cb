"""Members of one classic group, each with a client's own sense: join, sync, beat, and begin again when told."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any, Final

from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

from .rig import Rig, join, ms, request, sync

PARTITIONS: Final = 2_000
MOST_ROUNDS: Final = 100
_STEPS: Final = 10
_MOST_STEPS: Final = 2_000
"""Of the loop in one round; the more while nobody is answered: the log is being read."""
_HOUR: Final = ms(3_600_000)
_AGAIN: Final = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
_AGAIN |= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class Crowd:
    """The group and its members; `rig` may be another one after a restart."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.members: list[Member] = []
        self._busy: dict[Member, asyncio.Task[bool]] = {}

    def come(self, count: int, *, static: bool = False) -> None:
        """New members begin to join."""
        first = len(self.members)
        new = [Member(self, f"i{first + number}" if static else None) for number in range(count)]
        self.members += new
        self._busy |= {member: asyncio.create_task(member.settle()) for member in new}

    def restart(self) -> None:
        """The broker begins again: whoever waited for an answer has lost its connection."""
        for task in self._busy.values():
            task.cancel()
        self._busy.clear()
        self.rig = self.rig.restart()

    async def go(self, gone: "Iterable[Member]") -> None:
        for member in list(gone):
            rows = [{"member_id": member.id, "group_instance_id": member.instance_id, "reason": None}]
            await self.rig.ask(ApiKey.LEAVE_GROUP, 5, request(ApiKey.LEAVE_GROUP, 5, group_id="g", members=rows))
            self.members.remove(member)

    async def calm(self) -> None:
        """Everybody beats, and joins again where told, until nothing moves; then each partition has one reader."""
        for _ in range(MOST_ROUNDS):
            if not await self.round():
                break
        else:
            raise AssertionError(f"no calm after {MOST_ROUNDS} rounds")
        assert len({member.generation for member in self.members}) == 1
        assert sorted(place for member in self.members for place in member.work) == list(range(PARTITIONS))

    async def round(self) -> bool:
        """One beat of each that does not wait for an answer; whether anybody waits or had to join again."""
        for member in self.members:
            if member not in self._busy:
                self._busy[member] = asyncio.create_task(member.beat())
        for step in range(_MOST_STEPS):
            await asyncio.sleep(0)
            if step > _STEPS and any(task.done() for task in self._busy.values()):
                break
        done = [member for member, task in self._busy.items() if task.done()]
        moved = [self._busy.pop(member).result() for member in done]
        return any(moved) or bool(self._busy)


class Member:
    """One client."""

    def __init__(self, crowd: Crowd, instance_id: str | None) -> None:
        self._crowd = crowd
        self.instance_id = instance_id
        self.id = ""
        self.generation = -1
        self.work: list[int] = []

    async def settle(self) -> bool:
        """Join and sync until it has its work."""
        while not await self._joined():
            await asyncio.sleep(0)
        return True

    async def _joined(self) -> bool:
        asked = join(9, self.id, group_instance_id=self.instance_id, rebalance_timeout=_HOUR)
        answer = await self._crowd.rig.ask(ApiKey.JOIN_GROUP, 9, asked)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            return False
        if not self._is_well(answer.error_code):
            return False
        self.id, self.generation = answer.member_id, answer.generation_id
        leads = answer.leader == self.id and not answer.skip_assignment
        plan = share([row.member_id for row in answer.members]) if leads else {}
        told = sync(5, self.id, self.generation, plan, group_instance_id=self.instance_id)
        synced = await self._crowd.rig.ask(ApiKey.SYNC_GROUP, 5, told)
        if not self._is_well(synced.error_code):
            return False
        self.work = json.loads(synced.assignment)
        return True

    def _is_well(self, code: int) -> bool:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        else:
            assert code in _AGAIN or code == ErrorCode.NONE, ErrorCode(code)
        return code == ErrorCode.NONE

    async def beat(self) -> bool:
        """Whether it had to join again."""
        who: dict[str, Any] = {"member_id": self.id, "generation_id": self.generation}
        asked = request(ApiKey.HEARTBEAT, 4, group_id="g", group_instance_id=self.instance_id, **who)
        answer = await self._crowd.rig.ask(ApiKey.HEARTBEAT, 4, asked)
        if self._is_well(answer.error_code):
            return False
        return await self.settle()


def share(members: list[str]) -> dict[str, bytes]:
    """What a leader says: each gets every so manieth partition."""
    count = len(members)
    return {
        member: json.dumps(list(range(number, PARTITIONS, count))).encode() for number, member in enumerate(members)
    }
