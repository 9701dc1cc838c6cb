"""The power of a whole tierd is cut, again and again, and everything that was not fsynced is gone. Then new produce.

What must hold at every boot: nothing that the bucket has, that was flushed, or that an earlier boot found is lost or
changed; no offset that the bucket has is given out again; bucket and log together are one history without a hole.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from crash.world import CHANGES, SMALL, STEPS, Loses, World
from kit.machine import Machine

pytestmark = pytest.mark.e2e


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(Machine(tmp_path, SMALL), Random(request.node.name))
    yield made
    print(*made.told, sep="\n")


def test_at_disk_steps(world: World) -> None:
    for part in range(10):  # one cut in each tenth of the steps
        world.live(world.work, dies_after=world.dice.randint(part * STEPS // 10, (part + 1) * STEPS // 10))
    world.reckon()


def test_at_changes_of_the_bucket(world: World) -> None:
    for number in range(1, 9):
        when = world.dice.choice(("before", "after"))
        world.live(world.work, tierer_dies=f"{when}:{number}", loses=world.dice.choice((Loses.ALL, Loses.SOME)))
    world.reckon()


def test_with_an_older_catalog_or_none(world: World) -> None:
    for number in range(4):
        world.live(world.save_and_copy)
        world.machine.restore_catalog(None if number == 2 else world.older)
    world.reckon(owned=False)


def test_when_the_disk_falls_behind_the_bucket(world: World) -> None:
    world.live(lambda life, client: world.work(life, client, deeds=5))
    world.machine.save_data(world.older)
    world.live(world.copy_more)
    world.fall_behind()
    for step in (12, 20, 28):
        world.live(world.work, dies_after=step)
    world.reckon()


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(20))
def test_anything_at_any_moment(world: World, seed: int) -> None:
    """A hundred cuts, each of another kind, and old copies that come back."""
    dice, untouched = world.dice, True
    for _ in range(100):
        kind = dice.random()
        disk = dice.randint(1, STEPS * 2) if kind < 0.6 else None
        tierer = f"{dice.choice(('before', 'after'))}:{dice.randint(1, 2 * CHANGES)}" if 0.4 < kind < 0.9 else None
        deeds = dice.choice((world.work, world.work, world.save_and_copy))
        world.live(deeds, dies_after=disk, tierer_dies=tierer, loses=dice.choice(list(Loses)))
        if deeds == world.save_and_copy and dice.random() < 0.7:
            world.machine.restore_catalog(dice.choice((None, world.older)) if world.older.exists() else None)
            untouched = False
    world.reckon(owned=untouched)
