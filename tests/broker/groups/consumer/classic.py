"""A consumer of the classic protocol, as a client sees it: joins, leads if it is told to, syncs, sends heartbeats."""

from typing import Any

from broker.groups.rig import Rig, join, ms, request, sync
from kit.mixed_group import subscription
from tierd.broker.groups.embedded import encode_assignment, read_assignment
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

PARTITIONS = 3


class ClassicConsumer:
    """`reads` is by topic name. An eager one gives everything up before it joins again."""

    def __init__(self, rig: Rig, *topics: str, eager: bool = True, protocol: str = "range", **more: Any) -> None:
        self.rig, self.topics, self.eager, self.protocol, self.more = rig, topics, eager, protocol, more
        self.id, self.generation = "", -1
        self.reads: dict[str, set[int]] = {}

    async def ask_to_join(self, **fields: Any) -> Any:
        if self.eager:
            self.reads = {}
        return await self.rig.ask(ApiKey.JOIN_GROUP, 9, join(9, self.id, **self.said(**fields)))

    def said(self, **fields: Any) -> dict[str, Any]:
        """What it says in a join."""
        metadata = subscription(*self.topics, owned=self.reads)
        usual = {"protocols": [{"name": self.protocol, "metadata": metadata}], "session_timeout": ms(10_000)}
        return self.more | usual | fields

    async def join(self) -> Any:
        """All of it, until it reads."""
        answer = await self.ask_to_join()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            answer = await self.ask_to_join()
        if answer.error_code == ErrorCode.NONE:
            self.id, self.generation = answer.member_id, answer.generation_id
            shares: dict[str, bytes] = {}
            if answer.leader == self.id:
                everything = [(topic, n) for topic in self.topics for n in range(PARTITIONS)]
                shares = {
                    member.member_id: encode_assignment(1, everything[at :: len(answer.members)])
                    for at, member in enumerate(answer.members)
                }
            assert await self.sync(shares) == ErrorCode.NONE
        return answer

    async def sync(self, shares: dict[str, bytes] | None = None, **fields: Any) -> int:
        fields = {"protocol_name": self.protocol, "group_instance_id": self.more.get("group_instance_id"), **fields}
        answer = await self.rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, self.id, self.generation, shares or {}, **fields))
        if answer.error_code == ErrorCode.NONE:
            self.reads = {topic: set(parts) for topic, parts in read_assignment(answer.assignment).items()}
        return int(answer.error_code)

    async def heartbeat(self, generation: int | None = None) -> int:
        message = request(
            ApiKey.HEARTBEAT,
            4,
            group_id="g",
            generation_id=self.generation if generation is None else generation,
            member_id=self.id,
            group_instance_id=self.more.get("group_instance_id"),
        )
        return int((await self.rig.ask(ApiKey.HEARTBEAT, 4, message)).error_code)

    async def leave(self) -> int:
        message = request(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": self.id}])
        return int((await self.rig.ask(ApiKey.LEAVE_GROUP, 5, message)).members[0].error_code)
