"""The matcher and Kafka's StandardAuthorizer say the same of thousands of questions to random sets of rules."""

import random
from collections.abc import Iterator

import pytest

from kit import kafka
from tierd.broker.operations import Operation
from tierd.broker.security.acls import Acl, Kind, Pattern, Permission
from tierd.broker.security.matcher import Asked, Rules

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

NAMES = ["a", "ab", "abc", "abd", "b", "ba", "A", "", "*", "a*", "abcdefgh", "hardcode", "hard", "ä"]
PRINCIPALS = ["User:x", "User:y", "User:*", "Group:x"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]
KINDS = [Kind.TOPIC, Kind.GROUP]
OPERATIONS = [operation for operation in Operation if operation > Operation.ANY]


def rules(rng: random.Random) -> Iterator[Acl]:
    for _ in range(rng.choice([0, 1, 2, 4, 8, 20])):
        yield Acl(
            rng.choice(KINDS),
            rng.choice([Pattern.LITERAL, Pattern.PREFIXED]),
            rng.choice([name for name in NAMES if name]),
            rng.choice(PRINCIPALS),
            rng.choice(HOSTS),
            rng.choice(OPERATIONS[:8]),
            rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        )


def test_rules_mean_what_they_mean_in_kafka() -> None:
    rng = random.Random(5)
    lines: list[str] = []
    ours: list[tuple[str, bool]] = []
    for _ in range(600):
        acls = sorted(set(rules(rng)))
        without = rng.random() < 0.3
        index = Rules(acls, allow_without=without)
        lines.append(f"new\t{str(without).lower()}")
        lines += ("acl\t" + "\t".join(map(str, acl.row)) for acl in acls)
        for _ in range(25):
            principal, host = rng.choice(["User:x", "User:y", "User:z", "Group:x"]), rng.choice(HOSTS[:2])
            operation, kind = rng.choice(OPERATIONS[1:9]), rng.choice(KINDS)
            if rng.random() < 0.8:
                name = rng.choice([name for name in NAMES if name])
                lines.append(f"may\t{principal}\t{host}\t{int(operation)}\t{int(kind)}\t{name}")
                said = index.decide(Asked(principal, host, operation, kind, name)).allowed
            else:
                lines.append(f"any\t{principal}\t{host}\t{int(operation)}\t{int(kind)}")
                said = index.decide_any(principal, host, operation, kind)
            ours.append((f"{lines[-1]} of {list(map(str, acls))}, {without=}", said))
    theirs = kafka.java(kafka.JAVA / "Authorize.java", stdin="\n".join(lines) + "\n").strip().splitlines()[-1]
    assert len(theirs) == len(ours)
    wrong = [question for (question, said), other in zip(ours, theirs, strict=True) if said is not (other == "1")]
    assert not wrong, f"{len(wrong)} of {len(ours)}, such as {min(wrong, key=len)}"
    assert 0.1 < theirs.count("1") / len(theirs) < 0.9
