"""A member of a consumer group, as a client sees it."""

import importlib
import uuid
from typing import Any

from kio.index import load_request_schema

from broker.groups.rig import Rig, build, ms, request
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

BEAT, DESCRIBE = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE


class Consumer:
    """A member that does what it is told; `reads` is by topic name."""

    def __init__(self, rig: Rig, name: str, *topics: str, version: int = 1, **more: Any) -> None:
        self.rig, self.name, self.epoch, self.version = rig, name, 0, version
        self.reads: dict[str, set[int]] = {}
        self.topics = topics
        self.more = more

    async def beat(self, *, obey: bool = True, **fields: Any) -> Any:
        """Says what it reads; unless *obey* it then does not do what it is told."""
        values = {"group_id": "g", "member_id": self.name, "member_epoch": self.epoch, "rebalance_timeout": ms(60_000)}
        owned = [
            {"topic_id": uuid_of(self.rig, topic), "partitions": tuple(sorted(parts))}
            for topic, parts in self.reads.items()
        ]
        told = {
            "instance_id": None,
            "rack_id": None,
            "subscribed_topic_names": self.topics or None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": rows(owned, self.version),
        }
        asked = build(load_request_schema(BEAT, self.version), **(values | told | self.more | fields))
        answer = await self.rig.ask(BEAT, self.version, asked, "client")
        if answer.error_code == ErrorCode.NONE and obey:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.reads = named(self.rig, answer.assignment)
        return answer

    async def error(self, **fields: Any) -> int:
        return int((await self.beat(obey=False, **fields)).error_code)


def rows(owned: list[dict[str, Any]], version: int) -> Any:
    module = importlib.import_module(load_request_schema(BEAT, version).__module__)
    return tuple(module.TopicPartitions(**row) for row in owned)


def uuid_of(rig: Rig, topic: str) -> uuid.UUID:
    return uuid.UUID(bytes=rig.topics.ids[topic].raw)


def named(rig: Rig, assignment: Any) -> dict[str, set[int]]:
    names = {uuid_of(rig, name): name for name in rig.topics.ids}
    return {names[row.topic_id]: set(row.partitions) for row in assignment.topic_partitions}


async def shown(rig: Rig, version: int = 1, group: str = "g") -> Any:
    message = request(DESCRIBE, version, group_ids=(group,), include_authorized_operations=False)
    answer = await rig.ask(DESCRIBE, version, message)
    return answer.groups[0]
