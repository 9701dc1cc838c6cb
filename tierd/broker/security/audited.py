"""Which APIs are administrative acts, and what an audit line says of each, read from request and answer."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tierd.broker.operations import Operation
from tierd.broker.partitions import Partitions
from tierd.broker.security.acls import Acl, Kind, Pattern, Permission
from tierd.broker.security.audit import Audit
from tierd.broker.security.guarding import Answer, Handler
from tierd.wire.api import ApiKey
from tierd.wire.header import RequestHeader

Said = tuple[Mapping[str, object], int, object]
"""Of what, with which code, and why."""
Reading = Callable[[Any, Answer], Iterator[Said]]


def audited(table: Mapping[ApiKey, Handler], audit: Audit, partitions: Partitions) -> dict[ApiKey, Handler]:
    """The table with a watcher behind each handler that changes something."""
    watched = {key: _watched(table[key], audit, *ACTS[key]) for key in table if key in ACTS}
    return {**table, **watched, ApiKey.METADATA: _making(table[ApiKey.METADATA], audit, partitions)}


def _watched(handler: Handler, audit: Audit, act: str, read: Reading) -> Handler:
    async def watch(header: RequestHeader, request: Any) -> Any:
        answer = await handler(header, request)
        if not getattr(request, "validate_only", False):
            for what, code, why in read(request, answer):
                audit.act(header, act, what, code, why)
        return answer

    return lambda header, request: audit.whole(watch(header, request))


def _making(handler: Handler, audit: Audit, partitions: Partitions) -> Handler:
    """Metadata, which makes topics on their first mention."""

    async def made(header: RequestHeader, request: Any, absent: set[str]) -> Any:
        answer = await handler(header, request)
        for row in answer["topics"]:
            if row["name"] in absent and not row["error_code"]:
                audit.act(header, "create topic", {"topic": row["name"], "on_first_mention": True}, 0, None)
        return answer

    async def watch(header: RequestHeader, request: Any) -> Any:
        absent = {row.name for row in request.topics or () if row.name and partitions.topic(row.name) is None}
        return await (audit.whole(made(header, request, absent)) if absent else handler(header, request))

    return watch


def _rows(rows: str, label: str, name: str = "name") -> Reading:
    """Each row of the answer is of one thing."""

    def read(request: Any, answer: Answer) -> Iterator[Said]:
        for row in answer[rows]:
            yield {label: row[name]}, row["error_code"], row.get("error_message")

    return read


def _configs(request: Any, answer: Answer) -> Iterator[Said]:
    names = {(row.resource_type, row.resource_name): [one.name for one in row.configs] for row in request.resources}
    for row in answer["responses"]:
        place = row["resource_type"], row["resource_name"]
        what = {"resource": f"{_TYPES.get(place[0], place[0])}:{place[1]}", "settings": names.get(place, [])}
        yield what, row["error_code"], row["error_message"]


_TYPES: Final = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}


def _partitions(topics: str, name: str) -> Reading:
    """Partitions below their topics."""

    def read(request: Any, answer: Answer) -> Iterator[Said]:
        for topic in answer.get(topics, ()):
            for part in topic["partitions"]:
                what = {"partition": f"{topic[name]}-{part['partition_index']}"}
                yield what, part["error_code"] or answer.get("error_code", 0), part.get("error_message")

    return read


def _offsets(request: Any, answer: Answer) -> Iterator[Said]:
    if answer["error_code"]:
        yield {"group": request.group_id}, answer["error_code"], None
        return
    for what, code, why in _partitions("topics", "name")(request, answer):
        yield {"group": request.group_id, **what}, code, why


def _created_acls(request: Any, answer: Answer) -> Iterator[Said]:
    for asked, row in zip(request.creations, answer["results"], strict=True):
        place = asked.resource_type, asked.resource_pattern_type, asked.resource_name
        rule = _rule(*place, asked.principal, asked.host, asked.operation, asked.permission_type)
        yield {"rule": rule}, row["error_code"], row["error_message"]


def _deleted_acls(request: Any, answer: Answer) -> Iterator[Said]:
    for row in answer["filter_results"]:
        if row["error_code"]:
            yield {"rule": None}, row["error_code"], row["error_message"]
        for one in row.get("matching_acls", ()):
            place = one["resource_type"], one["pattern_type"], one["resource_name"]
            rule = _rule(*place, one["principal"], one["host"], one["operation"], one["permission_type"])
            yield {"rule": rule}, 0, None


_FACTS: Final = ("kind", "pattern", "name", "principal", "host", "operation", "permission")


def _rule(*facts: Any) -> str:
    """_FACTS as `Acl` shows itself, with numbers where they name nothing."""
    kind, pattern, name, principal, host, operation, permission = facts
    try:
        place = Kind(kind), Pattern(pattern), name
        return str(Acl(*place, principal, host, Operation(operation), Permission(permission)))
    except ValueError:
        return str(dict(zip(_FACTS, facts, strict=True)))


def _quotas(request: Any, answer: Answer) -> Iterator[Said]:
    for asked, row in zip(request.entries, answer["entries"], strict=True):
        entity = {one.entity_type: one.entity_name for one in asked.entity}
        limits = {op.key: None if op.remove else op.value for op in asked.ops}
        yield {"entity": entity, "limits": limits}, row["error_code"], row["error_message"]


def _moves(request: Any, answer: Answer) -> Iterator[Said]:
    targets = {(t.name, n): wish.path for wish in request.dirs for t in wish.topics for n in t.partitions}
    for topic in answer["results"]:
        for part in topic["partitions"]:
            place = topic["topic_name"], part["partition_index"]
            what = {"partition": f"{place[0]}-{place[1]}", "directory": targets.get(place)}
            yield what, part["error_code"], None


def _markers(request: Any, answer: Answer) -> Iterator[Said]:
    for marker in answer["markers"]:
        for what, code, why in _partitions("topics", "name")(request, marker):
            yield {"producer_id": marker["producer_id"], **what}, code, why


def _reassignments(request: Any, answer: Answer) -> Iterator[Said]:
    yield from _partitions("responses", "name")(request, answer)


ACTS: Final[Mapping[ApiKey, tuple[str, Reading]]] = {
    ApiKey.CREATE_TOPICS: ("create topic", _rows("topics", "topic")),
    ApiKey.DELETE_TOPICS: ("delete topic", _rows("responses", "topic")),
    ApiKey.CREATE_PARTITIONS: ("add partitions", _rows("results", "topic")),
    ApiKey.ALTER_CONFIGS: ("alter settings", _configs),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("alter settings", _configs),
    ApiKey.DELETE_RECORDS: ("delete records", _partitions("topics", "name")),
    ApiKey.DELETE_GROUPS: ("delete group", _rows("results", "group", "group_id")),
    ApiKey.OFFSET_DELETE: ("delete offsets", _offsets),
    ApiKey.CREATE_ACLS: ("add access rule", _created_acls),
    ApiKey.DELETE_ACLS: ("remove access rule", _deleted_acls),
    ApiKey.ALTER_CLIENT_QUOTAS: ("alter quota", _quotas),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("alter user", _rows("results", "user", "user")),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("move partition", _moves),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("reassign partition", _reassignments),
    ApiKey.WRITE_TXN_MARKERS: ("end transaction", _markers),
}
