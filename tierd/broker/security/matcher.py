"""What the rules say to one request: allowed or denied, and which rule decides. Pure."""

import functools
import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tierd.broker.operations import Operation
from tierd.broker.security.acls import EVERYBODY, WILDCARD, Acl, Kind, Pattern, Permission

_IMPLIED = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Who is allowed one of these is allowed the first, too. Who is denied one of these is not."""

_UNNAMED = "hardcode"
"""Kafka asks for a resource of this name."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks from where to do what with which resource."""

    principal: str
    host: str
    operation: Operation
    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    by: Acl | None
    """The rule that decides; None: there is none, what is set for that counts (or nobody is allowed, where others
    are)."""


@dataclass(slots=True)
class _OfKind:
    """The rules of one kind of resource, by name."""

    literal: dict[str, list[Acl]] = field(default_factory=lambda: defaultdict(list))
    prefixed: dict[str, list[Acl]] = field(default_factory=lambda: defaultdict(list))
    lengths: list[int] = field(default_factory=list)
    """Of the prefixes."""

    def about(self, name: str) -> Iterator[Acl]:
        """All rules whose pattern covers the resource."""
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.lengths:
            if length > len(name):
                return
            yield from self.prefixed.get(name[:length], ())


class Rules:
    """A set of rules, indexed. Does not change: another takes its place."""

    def __init__(self, acls: Iterable[Acl], *, allow_without: bool) -> None:
        """*allow_without*: a resource about which there is no rule is open to everybody."""
        self._allow_without = allow_without
        self._by_kind: dict[Kind, _OfKind] = defaultdict(_OfKind)
        for acl in acls:
            rules = self._by_kind[acl.kind]
            (rules.literal if acl.pattern is Pattern.LITERAL else rules.prefixed)[acl.name].append(acl)
        for rules in self._by_kind.values():
            rules.lengths = sorted({len(prefix) for prefix in rules.prefixed})

    def decide(self, asked: Asked) -> Verdict:
        """A rule that denies wins over all that allow."""
        allowed, any_rule = None, False
        rules = self._by_kind.get(asked.kind)
        for acl in rules.about(asked.name) if rules is not None else ():
            any_rule = True
            if not _applies(acl, asked):
                continue
            if acl.permission is Permission.DENY:
                return Verdict(False, acl)
            allowed = allowed or acl
        if allowed is not None:
            return Verdict(True, allowed)
        return Verdict(self._allow_without and not any_rule, None)

    def decide_any(self, principal: str, host: str, operation: Operation, kind: Kind) -> bool:
        """Whether there may be a resource of the kind with which the operation is allowed.

        As Kafka has it, who may do it with a resource that no rule names may do it whatever else is denied.
        """
        if self.decide(Asked(principal, host, operation, kind, _UNNAMED)).allowed:
            return True
        allowed: list[Acl] = []
        literal: set[str] = set()
        prefixes: set[str] = set()
        for acl in self._of(kind):
            if not _speaks_to(acl, principal, host) or acl.operation not in (Operation.ALL, operation):
                continue
            if acl.permission is Permission.ALLOW:
                allowed.append(acl)
            elif acl.pattern is Pattern.PREFIXED:
                prefixes.add(acl.name)
            elif acl.name == WILDCARD:
                return False
            else:
                literal.add(acl.name)
        return any(not _overruled(acl, literal, prefixes) for acl in allowed)

    def _of(self, kind: Kind) -> Iterator[Acl]:
        rules = self._by_kind.get(kind)
        if rules is not None:
            for by_name in (rules.literal, rules.prefixed):
                for acls in by_name.values():
                    yield from acls


def _speaks_to(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERYBODY) and (acl.host in (WILDCARD, host) or acl.host in spellings(host))


@functools.lru_cache(10_000)
def spellings(host: str) -> frozenset[str]:
    """How a rule may write the address: as it is, short, or as Java does (all groups, no zeros in front)."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return frozenset({host})
    if not isinstance(address, ipaddress.IPv6Address):
        return frozenset({host})
    if address.ipv4_mapped is not None:
        return frozenset({host, str(address.ipv4_mapped)})
    groups = (f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return frozenset({host, str(address), ":".join(groups)})


def _applies(acl: Acl, asked: Asked) -> bool:
    if not _speaks_to(acl, asked.principal, asked.host):
        return False
    if acl.operation in (Operation.ALL, asked.operation):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in _IMPLIED.get(asked.operation, ())


def _overruled(acl: Acl, literal: set[str], prefixes: set[str]) -> bool:
    """Whether nothing is left of what the rule allows."""
    if acl.pattern is Pattern.LITERAL and acl.name == WILDCARD:
        return False
    if acl.pattern is Pattern.LITERAL and acl.name in literal:
        return True
    return any(acl.name.startswith(prefix) for prefix in prefixes)
