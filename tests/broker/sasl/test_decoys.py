"""Nobody learns who exists: a name that nobody has looks as one that somebody has, also after a restart."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tierd.broker.registry import Registry
from tierd.broker.sasl.decoys import Decoys, Looks
from tierd.broker.sasl.scram import Credential, Mechanism, new_credential
from tierd.broker.sasl.users import Users, change

SHA_256, SHA_512 = Mechanism
KAFKAS = Credential(b"1k3x0q9zq8v7h2m4n5b6c7d8e9", 8192, b"s", b"k")  # as kafka-configs makes them


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    opened = Registry.open(tmp_path / "registry.sqlite")
    change(opened, {("alice", SHA_256): new_credential(SHA_256, "x"), ("bob", SHA_512): KAFKAS}, ())
    yield opened
    opened.close()


async def shown(registry: Registry, *names: str) -> list[tuple[Credential, bool]]:
    users = Users(registry)
    try:
        return [await users.shown(name, SHA_512) for name in names]
    finally:
        await users.close()


def test_strangers_look_as_users_do(registry: Registry) -> None:
    (bob, is_user), (eve, is_one_too) = asyncio.run(shown(registry, "bob", "eve"))
    assert (bob, is_user, is_one_too) == (KAFKAS, True, False)
    assert Looks.of(SHA_512, bob) == Looks.of(SHA_512, eve)


def test_strangers_look_the_same_after_a_restart(registry: Registry) -> None:
    (before, _), (after, _) = (asyncio.run(shown(registry, "eve"))[0] for _ in range(2))
    assert before.salt == after.salt


def test_passwords_of_strangers_take_as_long_as_those_of_users(registry: Registry) -> None:
    kept = {("alice", SHA_256): new_credential(SHA_256, "x"), ("bob", SHA_512): KAFKAS}
    decoys = Decoys(kept, b"secret")
    found = {(mechanism, one.iterations) for mechanism, one in map(decoys.first, map(str, range(100)))}
    assert found == {(SHA_256, 4096), (SHA_512, 8192)}


def test_without_users_there_are_strangers_all_the_same() -> None:
    decoys = Decoys({}, b"secret")
    assert Looks.of(SHA_512, decoys.of(SHA_512, "eve")) == Looks(SHA_512)
    assert decoys.first("eve")[0] is SHA_256
