"""The group handlers over a fake log, requests of every version, and answers as kio entities."""

import asyncio
import datetime
import importlib
import itertools
from collections.abc import Coroutine
from typing import Any

from kio.index import load_request_schema

from kit.clock import FakeClock
from tierd.broker.groups.admin import GroupAdmin
from tierd.broker.groups.consumer.groups import ConsumerGroups
from tierd.broker.groups.consumer.handlers import ConsumerHandlers
from tierd.broker.groups.consumer.mixed import MixedGroups
from tierd.broker.groups.coordinator import Coordinator
from tierd.broker.groups.handlers import GroupHandlers
from tierd.broker.groups.model import GroupLimits
from tierd.broker.transactions.ports import Verifier
from tierd.wire.api import ApiKey
from tierd.wire.control import make_response
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

from .fake_log import FakeLog, FakeNodes, FakeTopics
from .fake_verifier import OneTransaction


class Rig:
    """Handlers over a fake log; `restart` begins again with the same log."""

    def __init__(
        self, log: FakeLog | None = None, limits: GroupLimits | None = None, verifier: Verifier | None = None
    ) -> None:
        self.log = log or FakeLog()
        self.clock = FakeClock()
        self.topics = FakeTopics()
        self.nodes = FakeNodes()
        self.coordinator = Coordinator(self.log, self.clock, limits=limits)
        ids = self._ids = itertools.count(1)
        self.consumers = ConsumerGroups(self.coordinator, self.topics)
        handlers = GroupHandlers(
            self.coordinator,
            self.topics,
            self.nodes,
            verifier=verifier or OneTransaction(),
            mixed=MixedGroups(self.coordinator, self.consumers, self.topics),
            new_id=lambda: f"id{next(ids)}",
        )
        consumers = ConsumerHandlers(self.coordinator, self.consumers, self.topics, new_id=lambda: f"id{next(ids)}")
        admin = GroupAdmin(self.coordinator, self.topics)
        self._table = {**handlers.table(), **consumers.table(), **admin.table()}

    def restart(self) -> "Rig":
        """Ids that were given out are not given out again."""
        self.close()
        again = Rig(self.log)
        for _ in range(next(self._ids) - 1):
            next(again._ids)
        return again

    def close(self) -> None:
        self.consumers.close()
        self.coordinator.close()

    async def ask(self, api_key: int, version: int, request: Any, client_id: str = "c") -> Any:
        header = RequestHeader(api_key, version, 1, client_id)
        fields = await self._table[ApiKey(api_key)](header, request)
        return make_response(api_key, version, **fields)

    def start(self, *args: Any) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.ask(*args))

    async def pass_time(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.coordinator.run_due()
        self.consumers.run_due()
        await asyncio.sleep(0)


def ms(value: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=value)


def build(entity: Any, **values: Any) -> Any:
    """An entity with those of *values* that its version has; lists become tuples of nested entities."""
    module = importlib.import_module(entity.__module__)
    fields = entity.__dataclass_fields__
    ready = {}
    for name, value in values.items():
        if name not in fields:
            continue
        if isinstance(value, list):
            nested = _nested(module, str(fields[name].type))
            value = tuple(build(nested, **item) if isinstance(item, dict) else item for item in value)
        ready[name] = value
    return entity(**ready)


def _nested(module: Any, hint: str) -> Any:
    return next((cls for name, cls in vars(module).items() if isinstance(cls, type) and f".{name}," in hint), None)


def request(api_key: int, version: int, **values: Any) -> Any:
    return build(load_request_schema(api_key, version), **values)


def join(version: int = 9, member_id: str = "", **extra: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": ms(10_000),
        "rebalance_timeout": ms(60_000),
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"meta"}],
    }
    return request(ApiKey.JOIN_GROUP, version, **(values | extra))


def sync(version: int, member_id: str, generation: int, assignments: dict[str, bytes], **extra: Any) -> Any:
    rows = [{"member_id": member, "assignment": work} for member, work in assignments.items()]
    values: dict[str, Any] = {
        "group_id": "g",
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": rows,
    }
    return request(ApiKey.SYNC_GROUP, version, **(values | extra))


def commit(version: int, offset: int, *, topic: str = "t1", metadata: str = "m", partition: int = 0, **who: Any) -> Any:
    values: dict[str, Any] = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "retention_time": ms(-1),
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_leader_epoch": 4,
                        "committed_metadata": metadata,
                    }
                ],
            }
        ],
    }
    return request(ApiKey.OFFSET_COMMIT, version, **(values | who))


async def fetched(rig: Rig, topics: Any = None, version: int = 9) -> dict[tuple[str, int], Any]:
    group = {"group_id": "g", "topics": topics, "member_id": None, "member_epoch": -1}
    values: dict[str, Any] = group | {"groups": [group], "require_stable": True}
    answer = await rig.ask(ApiKey.OFFSET_FETCH, version, request(ApiKey.OFFSET_FETCH, version, **values))
    rows = answer.groups[0].topics if version >= 8 else answer.topics
    return {(topic.name, part.partition_index): part for topic in rows for part in topic.partitions}


async def error_of_commit(rig: Rig, message: Any, version: int = 9) -> int:
    answer = await rig.ask(ApiKey.OFFSET_COMMIT, version, message)
    return int(answer.topics[0].partitions[0].error_code)


async def lonely_member(rig: Rig, version: int = 9) -> str:
    """One member in a stable group."""
    answer = await rig.ask(ApiKey.JOIN_GROUP, version, join(version))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await rig.ask(ApiKey.JOIN_GROUP, version, join(version, answer.member_id))
    assert answer.error_code == ErrorCode.NONE
    member: str = answer.member_id
    await rig.ask(ApiKey.SYNC_GROUP, 5, sync(5, member, answer.generation_id, {member: b"work"}))
    return member


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)
