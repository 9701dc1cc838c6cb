"""Requests of both group protocols to one group, in a fixed order, and what came back: for any broker.

Of partitions only how many: which ones a broker picks is its own affair. Assignments, which classic members make
themselves, are told in full.
"""

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from broker.client import Client
from tierd.broker.groups.embedded import encode_assignment, read_assignment
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.primitives import I16, I32, string

Reads = dict[str, tuple[int, ...]]


def subscription(*topics: str, owned: Mapping[str, Iterable[int]]) -> bytes:
    """Version 1."""
    reads = encode_assignment(0, [(name, n) for name, parts in owned.items() for n in parts])
    names = b"".join(map(string, topics))
    return b"".join([I16.pack(1), I32.pack(len(topics)), names, I32.pack(-1), reads[I16.size : -I32.size]])


class MixedGroup:
    """One group and its members by name; the ids of classic members are the broker's."""

    def __init__(self, client: Client, group: str, topic: str, partitions: int) -> None:
        self.said: list[tuple[Any, ...]] = []
        self._client, self._group, self._topic = client, group, topic
        self._all = tuple(range(partitions))
        self._ids: dict[str, str] = {}
        self._generations: dict[str, int] = {}
        self._reads: dict[str, Reads] = {}
        self._epochs: dict[str, int] = {}
        self._told: dict[str, Sequence[Any]] = {}

    def _note(self, *facts: Any) -> None:
        self.said.append(facts)

    # the consumer protocol

    def beat(self, name: str, epoch: int | None = None, instance: str | None = None, *, again: bool = False) -> None:
        """With what it was told to read, unless it begins *again*."""
        epoch = self._epochs.get(name, 0) if epoch is None else epoch
        starts = epoch == 0 or again
        asked = {
            "group_id": self._group, "member_id": name, "member_epoch": epoch, "instance_id": instance,
            "rack_id": None, "rebalance_timeout": datetime.timedelta(milliseconds=60_000 if starts else -1),
            "subscribed_topic_names": (self._topic,) if starts else None, "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [] if starts else [
                {"topic_id": row.topic_id, "partitions": row.partitions} for row in self._told.get(name, ())
            ],
        }  # fmt: skip
        answer = self._client.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **asked)
        given = None
        if answer.error_code == 0 and epoch >= 0:
            self._epochs[name] = answer.member_epoch
            if answer.assignment is not None:
                self._told[name] = answer.assignment.topic_partitions
                given = sum(len(row.partitions) for row in answer.assignment.topic_partitions)
        self._note("beat", name, epoch, ErrorCode(answer.error_code).name, answer.member_epoch, given)

    # the classic protocol

    def join(self, name: str, *, eager: bool = True, instance: str | None = None, **fields: Any) -> None:
        """Until it has an answer other than that it needs an id."""
        if eager:
            self._reads[name] = {}
        said = subscription(self._topic, owned=self._reads.get(name, {}))
        asked = {
            "group_id": self._group, "member_id": self._ids.get(name, ""), "group_instance_id": instance,
            "session_timeout": datetime.timedelta(seconds=30), "rebalance_timeout": datetime.timedelta(seconds=60),
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": said}], "reason": None,
        } | fields  # fmt: skip
        answer = self._client.call(ApiKey.JOIN_GROUP, 9, **asked)
        error = ErrorCode(answer.error_code)
        leads = bool(answer.member_id) and answer.leader == answer.member_id
        self._note("join", name, error.name, answer.generation_id, answer.protocol_name, leads, len(answer.members))
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            self._ids[name] = answer.member_id
            self.join(name, eager=eager, instance=instance, **fields)
        if error is ErrorCode.NONE:
            self._ids[name], self._generations[name] = answer.member_id, answer.generation_id

    def sync(self, name: str, *, take_all: bool = False, later: int = 0, **fields: Any) -> None:
        everything = [(self._topic, n) for n in self._all] if take_all else []
        rows = [{"member_id": self._ids[name], "assignment": encode_assignment(1, everything)}] if take_all else []
        asked = {
            "group_id": self._group, "generation_id": self._generations[name] + later, "member_id": self._ids[name],
            "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range", "assignments": rows,
        } | fields  # fmt: skip
        answer = self._client.call(ApiKey.SYNC_GROUP, 5, **asked)
        if not answer.error_code:
            self._reads[name] = dict(read_assignment(answer.assignment))
        reads = {topic: len(parts) for topic, parts in self._reads.get(name, {}).items()}
        self._note("sync", name, ErrorCode(answer.error_code).name, reads)

    def heartbeat(self, name: str, *, later: int = 0, instance: str | None = None) -> None:
        answer = self._client.call(
            ApiKey.HEARTBEAT, 4, group_id=self._group, generation_id=self._generations[name] + later,
            member_id=self._ids[name], group_instance_id=instance,
        )  # fmt: skip
        self._note("heartbeat", name, later, ErrorCode(answer.error_code).name)

    def leave(self, name: str) -> None:
        members = [{"member_id": self._ids.get(name, name), "group_instance_id": None, "reason": None}]
        answer = self._client.call(ApiKey.LEAVE_GROUP, 5, group_id=self._group, members=members)
        self._note("leave", name, answer.error_code, [member.error_code for member in answer.members])

    # either

    def commit(self, name: str, version: int = 9, *, later: int = 0) -> None:
        epoch = self._generations[name] if name in self._generations else self._epochs[name]
        partition = {
            "partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": "",
        }  # fmt: skip
        answer = self._client.call(
            ApiKey.OFFSET_COMMIT, version, group_id=self._group, member_id=self._ids.get(name, name),
            generation_id_or_member_epoch=epoch + later, group_instance_id=None,
            topics=[{"name": self._topic, "partitions": [partition]}],
        )  # fmt: skip
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        self._note("commit", name, version, later, error.name)

    def look(self) -> None:
        asked = {"group_ids": [self._group], "include_authorized_operations": False}
        group = self._client.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **asked).groups[0]
        facts = [ErrorCode(group.error_code).name, group.group_state, group.group_epoch, group.assignment_epoch]
        self._note("look", *facts, sorted(self._members(group)))

    def _members(self, group: Any) -> Iterator[tuple[Any, ...]]:
        names = {member_id: name for name, member_id in self._ids.items()}
        for member in group.members:
            places = (member.assignment, member.target_assignment)
            counts = [sum(len(row.partitions) for row in place.topic_partitions) for place in places]
            name = names.get(member.member_id, member.member_id)
            yield name, member.member_type, member.member_epoch, counts, sorted(member.subscribed_topic_names)


def up_and_down(group: MixedGroup, *, eager: bool) -> None:
    """One classic member is joined by consumers and another classic one, until it is alone again."""
    group.join("c")
    group.sync("c", take_all=True)
    group.commit("c")
    group.beat("a")
    group.look()
    group.heartbeat("c")
    group.sync("c")
    for _ in range(2):
        group.join("c", eager=eager)
        group.sync("c")
        group.heartbeat("c")
        group.beat("a")
    group.look()
    for version in (8, 9):
        group.commit("c", version)
        group.commit("c", version, later=-1)
    group.commit("a")
    group.heartbeat("c", later=1)
    group.sync("c", later=1)
    group.sync("c", protocol_name="other")
    group.join("d", protocol_type="connect")
    group.join("d", protocols=[{"name": "mine", "metadata": subscription("t", owned={})}])
    group.join("d", eager=eager)
    group.sync("d")
    for _ in range(3):
        group.heartbeat("c")
        group.join("c", eager=eager)
        group.sync("c")
        group.beat("a")
        group.heartbeat("d")
        group.join("d", eager=eager)
        group.sync("d")
    group.look()
    group.leave("d")
    group.leave("nobody")
    group.beat("a")
    group.heartbeat("c")
    group.join("c", eager=eager)
    group.sync("c")
    group.beat("a", -1)
    group.look()
    group.heartbeat("c")
    group.sync("c")
    group.join("c", eager=eager)
    group.sync("c", take_all=True)
    group.heartbeat("c")
    group.commit("c")
    group.beat("a", 5)


def static(group: MixedGroup) -> None:
    """A static member changes its protocol, and changes it back."""
    group.join("s", instance="i")
    group.sync("s", take_all=True, group_instance_id="i")
    group.beat("a", instance="i")
    group.look()
    group.heartbeat("s", instance="i")
    group.join("s2", instance="i")
    group.sync("s2", take_all=True, group_instance_id="i")
    group.heartbeat("s2", instance="i")
    group.look()
    group.beat("a", 2, instance="i")


def strangers(group: MixedGroup) -> None:
    """A group that is none of consumers is left alone."""
    group.join("c", protocol_type="connect")
    group.beat("a")
    group.look()
