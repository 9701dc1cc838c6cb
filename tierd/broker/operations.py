"""What a client may do with a group, topic or the cluster: Kafka's operations, and answers' bits for them."""

from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """Kafka's AclOperation; the value is on the wire, and the bit."""

    UNKNOWN = 0
    ANY = 1
    """Only in filters."""
    ALL = 2
    """Only in rules."""
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED: Final = -(1 << 31)
"""The answer when the request did not ask."""
_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
OF_GROUP: Final = (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS)
OF_TOPIC: Final = (*OF_GROUP, Operation.WRITE, Operation.CREATE, Operation.ALTER)
OF_CLUSTER: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.IDEMPOTENT_WRITE,
    *_CONFIGS,
)
GROUP_OPERATIONS: Final = bits(*OF_GROUP)
TOPIC_OPERATIONS: Final = bits(*OF_TOPIC)
CLUSTER_OPERATIONS: Final = bits(*OF_CLUSTER)
"""All that there are of each: without access rules nobody is held to less."""
assert TOPIC_OPERATIONS == 3576  # recorded
