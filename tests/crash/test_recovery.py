"""A host is lost, and the one that recovers its archive from the bucket is cut off at one step after the other."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from crash.world import KEPT, SMALL, Loses, Wire, World
from kit import bucket, tiers
from kit.machine import Life, Machine
from tierd.broker.registry import Registry
from tierd.config.state_files import REGISTRY
from tierd.remote.groups import parse_groups
from tierd.remote.topics import list_topic_keys
from tierd.tiering.group_files import newest_groups

pytestmark = pytest.mark.e2e


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Of a new machine beside the bucket of one that is gone."""
    (tmp_path / "lost").mkdir()
    dice = Random(request.node.name)
    before = World(Machine(tmp_path / "lost", SMALL), dice)
    before.live(lambda life, client: all_is_told(before, life, client))
    machine = Machine(tmp_path, SMALL, before.machine.clock)
    machine.bucket = before.machine.bucket
    made = World(machine, dice, before.histories, before.ids, epoch=before.epoch, producer_id=before.producer_id)
    for history in made.histories.values():
        history.floor = 0
    made.recover = True
    yield made
    print(*made.told, sep="\n")


def all_is_told(world: World, life: Life, client: Wire) -> None:
    """This and that; then the bucket hears of every topic and of a group at the end of the log."""
    world.work(life, client, deeds=6)
    world.copy(life, roll=True)
    world.produce(life, client, KEPT, 3)  # not copied
    end = world.histories[KEPT].end
    rows = [{"partition_index": 0, "committed_offset": end, "committed_leader_epoch": -1, "committed_metadata": ""}]
    done = client.call(
        8,
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": KEPT, "partitions": rows}],
    )
    assert done.topics[0].partitions[0].error_code == 0
    there = bucket.in_folder(world.machine.bucket).bucket

    def told() -> bool:
        raw = newest_groups(there)
        files = {key.topic for key in list_topic_keys(there.store, there.keys)}
        return raw is not None and bool(parse_groups(raw, "it").groups) and files >= world.histories.keys()

    tiers.until("the bucket knows all", told)


def nothing(life: Life, client: Wire) -> None:
    """The start alone."""


def is_through(world: World) -> bool:
    """Whether the recovery is over, and the option refused."""
    path = world.machine.state / REGISTRY
    if not path.exists():
        return False
    registry = Registry.open(path)
    try:
        return registry.get("recovery") == ""
    finally:
        registry.close()


def gone_on(world: World) -> None:
    """What came back, and that it is one that others can go on from: also without being told again."""
    world.recover = False

    def group(life: Life, client: Wire) -> None:
        topics = [{"name": KEPT, "partition_indexes": [0]}]
        found = client.call(9, 7, group_id="g", topics=topics, require_stable=False).topics[0].partitions[0]
        assert found.committed_offset == world.bucket_end(KEPT) == world.histories[KEPT].end
        world.produce(life, client, KEPT, 3)

    world.live(group)
    world.reckon(owned=False)  # nobody knows what the lost host left half copied, before a sweep


def test_it_goes_on_after_every_cut(world: World) -> None:
    """Behind the claim, at the files of a new data directory, the logs of topics, what groups are kept in."""
    world.live(nothing, tierer_dies="after:1")
    for step, loses in ((3, Loses.ALL), (30, Loses.NOTHING), (150, Loses.ALL)):
        world.live(nothing, dies_after=step, loses=loses)
    gone_on(world)


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(10))
def test_at_every_step(world: World, seed: int) -> None:
    for _ in range(40):
        step = world.dice.randint(1, 500) if world.dice.random() < 0.8 else None
        tierer = None if step else f"{world.dice.choice(('before', 'after'))}:{world.dice.randint(1, 8)}"
        world.live(nothing, dies_after=step, tierer_dies=tierer, loses=world.dice.choice(list(Loses)))
        world.recover = not is_through(world)
    gone_on(world)
