"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: topic settings at run time, the daemon's to look at."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tierd.base.errors import DiskFull
from tierd.broker.entrances import Advertised
from tierd.broker.partitions import Partitions, Topic
from tierd.broker.topics import TopicRefused, Topics
from tierd.broker.turns import in_turns
from tierd.config.model import Settings, daemon_settings
from tierd.config.places import Secret
from tierd.config.resolve import Source
from tierd.config.topic_rules import BY_NAME
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

TOPIC, BROKER = 2, 4
"""Resource types on the wire."""
_A_TURN = 10
"""Resources looked at before others are served; named more than once, they are shown once."""
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Settings of Kafka's that tierd never has, and that may be deleted all the same."""
_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
_SOURCES = {Source.TOPIC: _DYNAMIC_TOPIC, Source.BUILT_IN: _DEFAULT}
_STRING = 2
_LISTS = frozenset(
    {"cleanup.policy", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)


class DescribeConfigs:
    """The handler of the DescribeConfigs API."""

    def __init__(self, partitions: Partitions, settings: Settings, advertised: Advertised) -> None:
        self._partitions = partitions
        self._settings = settings
        self._advertised = advertised

    async def __call__(self, header: RequestHeader, request: Any) -> dict[str, object]:
        documented = getattr(request, "include_documentation", False)
        each = in_turns(dict.fromkeys(request.resources), _A_TURN)
        return {"results": [self._one(asked, request.include_synonyms, documented) async for asked in each]}

    def _one(self, asked: Any, synonyms: bool, documented: bool) -> dict[str, object]:
        try:
            rows = self._rows(asked, synonyms, documented)
        except TopicRefused as error:
            return _result(asked, error.code, error.message, configs=())
        wanted = asked.configuration_keys
        shown = [row for row in rows if wanted is None or row["name"] in wanted]
        return _result(asked, ErrorCode.NONE, "", configs=shown)

    def _rows(self, asked: Any, synonyms: bool, documented: bool) -> list[dict[str, object]]:
        if asked.resource_type == TOPIC:
            return self._of_topic(_topic(self._partitions, asked.resource_name), synonyms, documented)
        if asked.resource_type == BROKER:
            if asked.resource_name not in ("", str(self._settings.node_id)):
                raise TopicRefused(ErrorCode.INVALID_REQUEST, f"Unexpected broker id: {asked.resource_name}")
            return list(self._of_broker(documented)) if asked.resource_name else []
        raise TopicRefused(ErrorCode.INVALID_REQUEST, f"Resource type {asked.resource_type} has no settings here.")

    def _of_topic(self, topic: Topic, synonyms: bool, documented: bool) -> list[dict[str, object]]:
        rows = []
        for setting in self._partitions.defaults.in_force(topic.name, topic.row.config, adopted=topic.row.adopted):
            rule, source = BY_NAME[setting.name], _SOURCES.get(setting.source, _STATIC_BROKER)
            also = [{"name": setting.name, "value": setting.text, "source": source}] if synonyms else ()
            row = _setting(setting.name, setting.text, source, rule.wire_type, rule.doc if documented else None)
            rows.append({**row, "synonyms": also})
        return rows

    def _of_broker(self, documented: bool) -> Iterable[dict[str, object]]:
        doc = "What clients of each listener are told to connect to." if documented else None
        row = _setting("advertised.listeners", self._told(), _STATIC_BROKER, _STRING, doc)
        yield {**row, "read_only": True, "is_sensitive": False}
        for where in daemon_settings():
            value: Any = self._settings
            for attribute in where.attributes:
                value = getattr(value, attribute)
            secret = isinstance(where.setting.kind, Secret)
            text = None if value is None or secret else where.setting.kind.show(value)
            source = _DEFAULT if value == where.default and not where.required else _STATIC_BROKER
            row = _setting(where.setting.path, text, source, _STRING, where.setting.doc if documented else None)
            yield {**row, "read_only": True, "is_sensitive": secret}

    def _told(self) -> str:
        """As Kafka writes it: `NAME://host:port`, with commas."""
        told = ((name, *self._advertised(name)) for name in self._settings.endpoints)
        return ",".join(f"{name}://{host}:{port}" for name, host, port in told)


class AlterConfigs:
    """The handler of IncrementalAlterConfigs and of the older AlterConfigs, which gives all settings at once."""

    def __init__(self, topics: Topics, partitions: Partitions) -> None:
        self._topics = topics
        self._partitions = partitions

    async def __call__(self, header: RequestHeader, request: Any) -> dict[str, object]:
        each = in_turns(request.resources, _A_TURN)
        return {"responses": [await self._one(asked, request.validate_only) async for asked in each]}

    async def _one(self, asked: Any, validate_only: bool) -> dict[str, object]:
        try:
            if asked.resource_type == BROKER and all(_deletes(change) for change in asked.configs):
                # Nothing is set there; kafka-reassign-partitions makes sure that no throttle stays.
                return _result(asked, ErrorCode.NONE, None)
            if asked.resource_type != TOPIC:
                raise TopicRefused(ErrorCode.INVALID_REQUEST, "Only topics have settings that change at run time.")
            topic = _topic(self._partitions, asked.resource_name)
            config = _changed(topic.row.config, asked.configs, self._lists(topic))
            await self._topics.reconfigure(topic, config, check_only=validate_only)
        except TopicRefused as error:
            return _result(asked, error.code, error.message)
        except (DiskFull, OSError) as error:
            log.error("settings not changed", extra={"topic": asked.resource_name, "why": str(error)})
            return _result(asked, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return _result(asked, ErrorCode.NONE, None)

    def _lists(self, topic: Topic) -> dict[str, str]:
        """What is in force of each list: words come and go there, whoever has set it."""
        found = self._partitions.defaults.in_force(topic.name, topic.row.config, adopted=topic.row.adopted)
        return {setting.name: setting.text for setting in found if setting.name in _LISTS and setting.text is not None}


def _deletes(change: Any) -> bool:
    return getattr(change, "config_operation", _SET) == _DELETE


def _changed(config: Mapping[str, str], asked: Sequence[Any], lists: Mapping[str, str]) -> dict[str, str]:
    """The settings after the change; *lists* are those in force. Raises TopicRefused."""
    names = [change.name for change in asked]
    if len(set(names)) != len(names):
        raise TopicRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if not all(hasattr(change, "config_operation") for change in asked):
        return {change.name: _given(change) for change in asked}
    changed = dict(config)
    for change in asked:
        if change.config_operation == _DELETE:
            if change.name not in BY_NAME and change.name not in _THROTTLES:
                raise TopicRefused(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {change.name}")
            changed.pop(change.name, None)
        elif change.config_operation == _SET:
            changed[change.name] = _given(change)
        else:
            changed[change.name] = _of_list(change, lists.get(change.name))
    return changed


def _of_list(change: Any, now: str | None) -> str:
    """APPEND and SUBTRACT, which only lists know, of the words in *now*."""
    if change.name not in _LISTS or change.config_operation not in (_APPEND, _SUBTRACT):
        raise TopicRefused(
            ErrorCode.INVALID_CONFIG, f"Can't {change.config_operation} to config {change.name}: it is not a list"
        )
    have = [word for word in (now or "").split(",") if word]
    given = [word.strip() for word in _given(change).split(",")]
    if change.config_operation == _APPEND:
        return ",".join([*have, *(word for word in given if word not in have)])
    return ",".join(word for word in have if word not in given)


def _given(change: Any) -> str:
    if change.value is None:
        raise TopicRefused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    value: str = change.value
    return value


def _topic(partitions: Partitions, name: str) -> Topic:
    topic = partitions.topic(name)
    if topic is None:
        raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return topic


def _setting(name: str, text: str | None, source: int, kind: int, doc: str | None) -> dict[str, object]:
    return {
        "name": name,
        "value": text,
        "read_only": False,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": (),
        "config_type": kind,
        "documentation": doc,
    }


def _result(asked: Any, code: ErrorCode, message: str | None, **fields: object) -> dict[str, object]:
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": asked.resource_type,
        "resource_name": asked.resource_name,
        **fields,
    }
