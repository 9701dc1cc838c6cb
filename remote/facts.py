"""What is set on a bucket and would hurt an archive: lifecycle rules, versions, locks. Pure but for `facts_of`.

tierd changes none of it: it says what it found, at the start and in `tierd status`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tierd.remote.readonly import ReadOnlyStore
from tierd.remote.store import ObjectStore
from tierd.remote.watched import WatchedStore

_FROZEN = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes that have to be restored before they can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """An enabled lifecycle rule, as far as it matters."""

    name: str
    prefix: str
    tagged: bool
    """It is for objects with certain tags, which tierd's have not."""
    expires: bool
    """Current objects go."""
    moves_to: tuple[str, ...]
    """Storage classes that current objects are moved to."""
    old_versions_go: bool
    aborts_uploads: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFacts:
    """What could be read; None: the server does not say, or not to us (`unread`)."""

    versioning: str | None = None
    """`Enabled`, `Suspended`, or "" for never."""
    lock: str | None = None
    """Default retention of new objects in words; "" without any."""
    rules: tuple[Rule, ...] | None = None
    unread: tuple[str, ...] = ()
    """Permissions that are missing to know more."""


@runtime_checkable
class FactStore(Protocol):
    """A store that knows facts about its bucket."""

    def facts(self) -> BucketFacts:
        """Raises RemoteUnavailable."""


def facts_of(store: ObjectStore) -> BucketFacts | None:
    """None of a store that has no such facts. Raises RemoteUnavailable."""
    while isinstance(store, WatchedStore | ReadOnlyStore):
        store = store.plain
    return store.facts() if isinstance(store, FactStore) else None


def warnings(facts: BucketFacts, prefix: str) -> list[str]:
    """What the owner of the bucket should know, in sentences; *prefix* is that of tierd's keys."""
    return [*traps(facts, prefix), *_of_uploads(facts, prefix), *_of_versions(facts), *_unread(facts.unread)]


def traps(facts: BucketFacts, prefix: str) -> Iterator[str]:
    """Of these what concerns those who only read, too: rules that take objects away or out of reach."""
    for rule in facts.rules or ():
        if rule.tagged or not (rule.prefix.startswith(prefix) or prefix.startswith(rule.prefix)):
            continue
        name = f"lifecycle rule {rule.name!r} (prefix {rule.prefix!r})"
        if rule.expires:
            yield f"{name} deletes objects of this archive by age: offsets will be lost; take {prefix!r} out of it"
        frozen = [one for one in rule.moves_to if one in _FROZEN]
        if frozen:
            yield f"{name} moves objects of this archive to {', '.join(frozen)}: they must be thawed to be read"
        elif rule.moves_to:
            yield f"{name} moves objects of this archive to {', '.join(rule.moves_to)}: reads of old data cost more"


def _of_uploads(facts: BucketFacts, prefix: str) -> Iterator[str]:
    if facts.rules is not None and not any(_covers(rule, prefix) and rule.aborts_uploads for rule in facts.rules):
        yield (
            "no lifecycle rule has AbortIncompleteMultipartUpload: parts of uploads that a crash leaves are paid for "
            "until the next sweep"
        )


def _covers(rule: Rule, prefix: str) -> bool:
    return not rule.tagged and prefix.startswith(rule.prefix)


def _of_versions(facts: BucketFacts) -> Iterator[str]:
    if facts.versioning in ("Enabled", "Suspended"):
        ends = facts.rules is not None and any(rule.old_versions_go for rule in facts.rules)
        yield f"versioning is {facts.versioning.lower()}: what is deleted or replaced stays as an old version, " + (
            "until a lifecycle rule or `tierd sweep --purge-versions` takes it away"
            if ends
            else "and is paid for until `tierd sweep --purge-versions` (or remote.sweep.versions)"
        )
    if facts.lock:
        yield f"Object Lock: {facts.lock}; until then old versions cannot be purged"


def _unread(permissions: Sequence[str]) -> Iterator[str]:
    if permissions:
        yield f"not known, for lack of permissions: {', '.join(permissions)}"
