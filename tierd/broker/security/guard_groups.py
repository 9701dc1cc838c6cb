"""Guards of the group APIs."""

from typing import Any

from tierd.broker.operations import OF_GROUP, Operation
from tierd.broker.security.acls import Kind
from tierd.broker.security.asking import Asking
from tierd.broker.security.guarding import (
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    Answer,
    Fields,
    Go,
    Guard,
    changed,
    split,
)
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_GROUP_ERROR_FROM = 2
"""OffsetFetch: before, each partition has the error of its group."""
_NOBODY: Fields = {"node_id": -1, "host": "", "port": -1}


def table() -> dict[ApiKey, Guard]:
    return {
        ApiKey.FIND_COORDINATOR: find_coordinator,
        ApiKey.JOIN_GROUP: join,
        ApiKey.SYNC_GROUP: member({"error_code": GROUP_DENIED}),
        ApiKey.HEARTBEAT: member({"error_code": GROUP_DENIED}),
        ApiKey.LEAVE_GROUP: member({"error_code": GROUP_DENIED}),
        ApiKey.OFFSET_COMMIT: commit,
        ApiKey.OFFSET_FETCH: fetch,
        ApiKey.LIST_GROUPS: list_groups,
        ApiKey.DESCRIBE_GROUPS: describe,
        ApiKey.DELETE_GROUPS: delete,
        ApiKey.OFFSET_DELETE: delete_offsets,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_describe,
    }


async def find_coordinator(asking: Asking, request: Any, go: Go) -> Answer:
    kind = getattr(request, "key_type", _GROUP_KEY)

    def allowed(key: str) -> bool:
        if kind == _GROUP_KEY:
            return asking.group(Operation.DESCRIBE, key)
        return kind != _TRANSACTION_KEY or asking.transaction(Operation.DESCRIBE, key)

    error = GROUP_DENIED if kind == _GROUP_KEY else TRANSACTION_DENIED
    denied = {"error_code": error, "error_message": None, **_NOBODY}
    if asking.header.version < 4:
        return await go(request) if allowed(request.key) else denied
    keys, refused = await split(request.coordinator_keys, allowed)
    answer = await go(changed(request, coordinator_keys=tuple(keys)))
    return {**answer, "coordinators": [*answer["coordinators"], *({"key": key, **denied} for key in refused)]}


def member(refusal: Fields) -> Guard:
    async def guard(asking: Asking, request: Any, go: Go) -> Answer:
        return await go(request) if asking.group(Operation.READ, request.group_id) else refusal

    return guard


async def join(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.group(Operation.READ, request.group_id):
        return await go(request)
    name = None if asking.header.version >= 7 else ""
    return {"error_code": GROUP_DENIED, "generation_id": -1, "protocol_name": name}


async def commit(asking: Asking, request: Any, go: Go) -> Answer:
    if not asking.group(Operation.READ, request.group_id):
        return {"topics": [denied_rows(topic, GROUP_DENIED) for topic in request.topics]}
    return await committed(asking, request, go)


async def committed(asking: Asking, request: Any, go: Go) -> Answer:
    """Offsets of the topics that the client may read; also those of a transaction."""
    allowed, refused = await split(request.topics, lambda topic: asking.topic(Operation.READ, topic.name))
    answer = await go(changed(request, topics=tuple(allowed)))
    return {**answer, "topics": [*answer["topics"], *(denied_rows(topic, TOPIC_DENIED) for topic in refused)]}


def denied_rows(topic: Any, error: ErrorCode) -> Fields:
    rows = [{"partition_index": part.partition_index, "error_code": error} for part in topic.partitions]
    return {"name": topic.name, "partitions": rows}


async def fetch(asking: Asking, request: Any, go: Go) -> Answer:
    if asking.header.version < 8:
        if not asking.group(Operation.DESCRIBE, request.group_id):
            shown = _no_offsets(request, GROUP_DENIED)
            return shown if asking.header.version < _GROUP_ERROR_FROM else {**shown, "topics": ()}
        allowed, refused = await _described(asking, request.topics)
        answer = await go(changed(request, topics=allowed))
        return _with_refused(asking, answer, refused)
    groups, denied = await split(request.groups, lambda group: asking.group(Operation.DESCRIBE, group.group_id))
    seen = [(group, *await _described(asking, group.topics)) for group in groups]
    left = tuple(changed(group, topics=allowed) for group, allowed, _ in seen)
    answer = await go(changed(request, groups=left))
    rows = [_with_refused(asking, row, refused) for row, (_, _, refused) in zip(answer["groups"], seen, strict=True)]
    rows += ({**_no_offsets(group, GROUP_DENIED), "topics": (), "group_id": group.group_id} for group in denied)
    return {**answer, "groups": rows}


async def _described(asking: Asking, topics: Any) -> tuple[Any, list[Any]]:
    """None: all topics, of which the answer is to be looked through."""
    if topics is None:
        return None, []
    allowed, refused = await split(topics, lambda topic: asking.topic(Operation.DESCRIBE, topic.name))
    return tuple(allowed), refused


def _with_refused(asking: Asking, answer: Answer, refused: list[Any]) -> Answer:
    if answer["error_code"]:
        return answer
    shown = [row for row in answer["topics"] if asking.topic(Operation.DESCRIBE, row["name"], quiet=True)]
    return {**answer, "topics": [*shown, *(_not_shown(topic, TOPIC_DENIED) for topic in refused)]}


def _no_offsets(asked: Any, error: ErrorCode) -> Fields:
    return {"topics": [_not_shown(topic, error) for topic in asked.topics or ()], "error_code": error}


def _not_shown(topic: Any, error: ErrorCode) -> Fields:
    rows = [
        {
            "partition_index": index,
            "committed_offset": -1,
            "committed_leader_epoch": -1,
            "metadata": "",
            "error_code": error,
        }
        for index in topic.partition_indexes
    ]
    return {"name": topic.name, "partitions": rows}


async def list_groups(asking: Asking, request: Any, go: Go) -> Answer:
    answer = await go(request)
    if answer["error_code"] or asking.cluster(Operation.DESCRIBE, quiet=True):
        return answer
    shown, _ = await split(answer["groups"], lambda row: asking.group(Operation.DESCRIBE, row["group_id"], quiet=True))
    return {**answer, "groups": shown}


async def describe(asking: Asking, request: Any, go: Go) -> Answer:
    allowed, refused = await split(request.groups, lambda name: asking.group(Operation.DESCRIBE, name))
    answer = await go(changed(request, groups=tuple(allowed)))
    asked = getattr(request, "include_authorized_operations", False)
    shown = [_with_bits(asking, row) if asked else row for row in answer["groups"]]
    return {**answer, "groups": [*({"group_id": name, "error_code": GROUP_DENIED} for name in refused), *shown]}


def _with_bits(asking: Asking, row: Fields) -> Fields:
    return {**row, "authorized_operations": asking.rights.bits(OF_GROUP, Kind.GROUP, row["group_id"])}


async def delete(asking: Asking, request: Any, go: Go) -> Answer:
    allowed, refused = await split(request.groups_names, lambda name: asking.group(Operation.DELETE, name))
    answer = await go(changed(request, groups_names=tuple(allowed)))
    denied = ({"group_id": name, "error_code": GROUP_DENIED} for name in refused)
    return {**answer, "results": [*answer["results"], *denied]}


async def delete_offsets(asking: Asking, request: Any, go: Go) -> Answer:
    if not asking.group(Operation.DELETE, request.group_id):
        return {"error_code": GROUP_DENIED}
    allowed, refused = await split(request.topics, lambda topic: asking.topic(Operation.READ, topic.name))
    answer = await go(changed(request, topics=tuple(allowed)))
    if answer["error_code"]:
        return answer
    return {**answer, "topics": [*answer["topics"], *(denied_rows(topic, TOPIC_DENIED) for topic in refused)]}


async def heartbeat(asking: Asking, request: Any, go: Go) -> Answer:
    """A member may only subscribe to topics that it may see."""
    if not asking.group(Operation.READ, request.group_id):
        return {"error_code": GROUP_DENIED}
    topics = request.subscribed_topic_names or ()
    _, refused = await split(topics, lambda name: asking.topic(Operation.DESCRIBE, name))
    if refused:
        return {"error_code": TOPIC_DENIED}
    return await go(request)


async def consumer_describe(asking: Asking, request: Any, go: Go) -> Answer:
    """A group is shown to who may see all topics that its members read."""
    allowed, refused = await split(request.group_ids, lambda name: asking.group(Operation.DESCRIBE, name))
    answer = await go(changed(request, group_ids=tuple(allowed)))
    shown = [_shown(asking, row) for row in answer["groups"]]
    if request.include_authorized_operations:
        shown = [row if row["error_code"] else _with_bits(asking, row) for row in shown]
    denied = [{"group_id": name, "error_code": GROUP_DENIED, "error_message": None} for name in refused]
    return {**answer, "groups": [*denied, *shown]}


def _shown(asking: Asking, row: Fields) -> Fields:
    names = {
        place["topic_name"]
        for member in row.get("members", ())
        for which in ("assignment", "target_assignment")
        for place in member[which]["topic_partitions"]
    }
    if all([asking.topic(Operation.DESCRIBE, name, quiet=True) for name in names]):
        return row
    why = "The group has described topic(s) that the client is not authorized to describe."
    return {**row, "error_code": TOPIC_DENIED, "error_message": why, "members": ()}
