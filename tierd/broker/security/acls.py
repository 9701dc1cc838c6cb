"""Access rules as values: a pattern of resources, who, from where, may or may not do what; and filters over them."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from tierd.broker.operations import Operation
from tierd.broker.registry import AclRow

WILDCARD: Final = "*"
"""Any resource (as a literal name), any host."""
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of its kind."""


class Kind(IntEnum):
    """Kafka's ResourceType; the value is on the wire."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """Kafka's PatternType. MATCH is for filters: whatever pattern a resource of that name falls under."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's AclPermissionType."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule. *principal* is text: what it names need not exist."""

    kind: Kind
    pattern: Pattern
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @classmethod
    def of_row(cls, row: AclRow) -> "Acl":
        """Raises ValueError for numbers that this tierd does not know."""
        kind, pattern, name, principal, host, operation, permission = row
        return cls(Kind(kind), Pattern(pattern), name, principal, host, Operation(operation), Permission(permission))

    @property
    def row(self) -> AclRow:
        return (
            int(self.kind),
            int(self.pattern),
            self.name,
            self.principal,
            self.host,
            int(self.operation),
            int(self.permission),
        )

    def __str__(self) -> str:
        return (
            f"{self.permission.name} {self.operation.name} for {self.principal} from {self.host} on "
            f"{self.kind.name}:{self.pattern.name}:{self.name}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules a client means; None and ANY leave a field open."""

    kind: Kind = Kind.ANY
    pattern: Pattern = Pattern.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def unknown(self) -> str | None:
        """Which part asks for what nobody knows, as Kafka names it."""
        if Kind.UNKNOWN is self.kind or Pattern.UNKNOWN is self.pattern:
            return "patternFilter"
        if Operation.UNKNOWN is self.operation or Permission.UNKNOWN is self.permission:
            return "entryFilter"
        return None

    def matches(self, acl: Acl) -> bool:
        return (
            self.kind in (Kind.ANY, acl.kind)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern is not Pattern.MATCH:
            return False
        return acl.name == WILDCARD if acl.pattern is Pattern.LITERAL else self.name.startswith(acl.name)


def problem(acl: Acl) -> str | None:
    """Why the rule cannot be made, in Kafka's words; None when it can."""
    wrong = (
        (
            acl.kind is Kind.CLUSTER and acl.name != CLUSTER_NAME,
            f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}",
        ),
        (not acl.name, "Invalid empty resource name"),
        (acl.kind <= Kind.ANY, f"Invalid resourceType {acl.kind.name}"),
        (acl.pattern not in (Pattern.LITERAL, Pattern.PREFIXED), f"Invalid patternType {acl.pattern.name}"),
        (acl.operation <= Operation.ANY, f"Invalid operation {acl.operation.name}"),
        (acl.permission <= Permission.ANY, f"Invalid permissionType {acl.permission.name}"),
        (
            ":" not in acl.principal,
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type "
            "from the principal name)",
        ),
    )
    return next((why for is_so, why in wrong if is_so), None)
