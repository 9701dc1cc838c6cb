"""What is remembered of clients has a bound, however many there are."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.serving import run
from kit.clock import FakeClock
from tierd.base.session import Principal, Session
from tierd.broker.operations import Operation
from tierd.broker.registry import Registry
from tierd.broker.security import asking, authorizer, quotas
from tierd.broker.security.acls import Acl, Kind, Pattern, Permission
from tierd.broker.security.authorizer import Authorizer, TooManyAcls
from tierd.broker.security.quota_entities import Key
from tierd.broker.security.quotas import Quotas, TooManyQuotas


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    opened = Registry.open(tmp_path / "registry.sqlite")
    yield opened
    opened.close()


def session(number: int) -> Session:
    return Session(Principal("User", f"u{number}"))


def test_uses_of_quotas(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(quotas, "_MOST_CLIENTS", 10)
        held = Quotas(registry, FakeClock(), windows=11, window_s=1)
        limits = dict.fromkeys(("producer_byte_rate", "controller_mutation_rate"), 100.0)
        await held.change([((("user", None),), limits)])
        for number in range(1000):
            assert held.used(Key.PRODUCED, 900, session(number), f"c{number}") == 0
            assert held.take(1, session(number), None, strict=True)
        assert max(len(held._used), len(held._buckets), len(held._known)) <= 10
        assert held.used(Key.PRODUCED, 900, session(999), "another client of the same user") > 0

    run(scenario())


def test_rights(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(authorizer, "_MOST_CLIENTS", 10)
        monkeypatch.setattr(asking, "_MOST_ANSWERS", 10)
        held = Authorizer(registry, super_users=(), allow_without=True)
        for number in range(100):
            rights = held.rights(session(number))
            for topic in range(100):
                assert rights.may_read(f"t{topic}")
                assert rights.may_write(f"t{topic}")
            assert max(len(rights._known), len(rights.read), len(rights.write)) <= 10
        assert len(held._rights) <= len(held._seen) <= 10
        assert held.rights(session(5)) is held.rights(session(5)), "equal sessions share what is known"

    run(scenario())


def test_names_that_no_topic_has_are_not_kept(registry: Registry) -> None:
    held = Authorizer(registry, super_users=(), allow_without=True)
    rights = held.rights(session(1))
    for length in (249, 250, 1 << 20):
        assert rights.may_read("r" * length)
        assert rights.may_write("w" * length)
    assert {len(name) for name in (*rights.read, *rights.write)} == {249}
    assert {len(name) for _, _, name in rights._known} == {249}


def test_rules_and_limits(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(authorizer, "MOST_ACLS", 3)
        monkeypatch.setattr(quotas, "MOST_ENTITIES", 3)
        held = Authorizer(registry, super_users=(), allow_without=True)
        acls = [
            Acl(Kind.TOPIC, Pattern.LITERAL, f"t{number}", "User:x", "*", Operation.READ, Permission.ALLOW)
            for number in range(4)
        ]
        await held.add(acls[:3])
        with pytest.raises(TooManyAcls):
            await held.add(acls)
        await held.add(acls[:3])
        limits = Quotas(registry, FakeClock(), windows=11, window_s=1)
        entities = [((("user", f"u{number}"),), {"producer_byte_rate": 1.0}) for number in range(4)]
        await limits.change(entities[:3])
        with pytest.raises(TooManyQuotas):
            await limits.change(entities)
        assert len(registry.acls()) == len(registry.quotas()) == 3, "durable once it is answered, and nothing else is"
        await limits.close()
        await held.close()

    run(scenario())
