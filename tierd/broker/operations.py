"""What a client may do with a group, topic or the cluster, as answers say it when asked: a bit for each operation."""

from enum import IntEnum
from typing import Final


class Operation(IntEnum):
    """Kafka's AclOperation; the value is the bit."""

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


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


NOT_ASKED: Final = -(1 << 31)
"""The answer when the request did not ask."""
_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
GROUP_OPERATIONS: Final = bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS)
TOPIC_OPERATIONS: Final = bits(*(operation for operation in Operation if operation not in (9, 12)))
CLUSTER_OPERATIONS: Final = bits(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.IDEMPOTENT_WRITE,
    *_CONFIGS,
)
"""All that there are of each: nobody is held to less yet."""
assert TOPIC_OPERATIONS == 3576  # recorded
