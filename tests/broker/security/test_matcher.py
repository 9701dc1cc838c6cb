"""Small rules of the matcher that no comparison with Kafka shows."""

import pytest

from tierd.broker.operations import Operation
from tierd.broker.security.acls import Acl, Kind, Pattern, Permission
from tierd.broker.security.matcher import Asked, Rules, spellings


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("10.0.0.1", {"10.0.0.1"}),
        ("::1", {"::1", "0:0:0:0:0:0:0:1"}),
        ("fe80::a%eth0", {"fe80::a%eth0", "fe80::a", "fe80:0:0:0:0:0:0:a"}),
        ("::ffff:10.0.0.1", {"::ffff:10.0.0.1", "10.0.0.1"}),
        ("", {""}),
    ],
)
def test_an_address_is_found_however_it_is_written(host: str, written: set[str]) -> None:
    assert spellings(host) == written
    for one in written:
        acl = Acl(Kind.TOPIC, Pattern.LITERAL, "t", "User:x", one, Operation.READ, Permission.ALLOW)
        verdict = Rules([acl], allow_without=False).decide(Asked("User:x", host, Operation.READ, Kind.TOPIC, "t"))
        assert (verdict.allowed, verdict.by) == (True, acl)


def test_the_rule_that_decides_is_told() -> None:
    allow = Acl(Kind.TOPIC, Pattern.LITERAL, "*", "User:*", "*", Operation.ALL, Permission.ALLOW)
    deny = Acl(Kind.TOPIC, Pattern.PREFIXED, "se", "User:x", "*", Operation.READ, Permission.DENY)
    rules = Rules([allow, deny], allow_without=True)

    def by(topic: str, operation: Operation) -> Acl | None:
        return rules.decide(Asked("User:x", "h", operation, Kind.TOPIC, topic)).by

    assert by("secret", Operation.READ) is deny
    assert by("secret", Operation.WRITE) is by("open", Operation.READ) is allow
    assert str(deny) == "DENY READ for User:x from * on TOPIC:PREFIXED:se"
