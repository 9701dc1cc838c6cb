"""Partition directories that are not what their names say."""

import shutil
from pathlib import Path

import pytest

from broker.client import Client, batch
from broker.file_tier import FileTier
from broker.running import Running, running, settings
from kit.clock import FakeClock
from tierd.base.errors import StartRefused


@pytest.mark.parametrize("name", ["t.bak-0", "a-1"])
@pytest.mark.parametrize("registry", [True, False])
def test_a_copy_of_a_partition_under_another_name_is_refused_and_named(
    tmp_path: Path, name: str, registry: bool
) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t")
    shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "data" / name)
    if not registry:
        for path in (tmp_path / "state").glob("registry*"):
            path.unlink()
    started = Running(started.config, None, FakeClock())
    with pytest.raises(StartRefused, match=r"-\d has the id of topic \S+ \(.*: it is a copy"):
        started.start()
    started.call(lambda: started.directories[0].close(False))
    started.registry.close()
    started.end()
    shutil.rmtree(tmp_path / "data" / name)
    with running(tmp_path) as started, Client(started.address) as client:
        assert client.produce("t", batch()).base_offset == 0


def _refused(root: Path, match: str) -> None:
    """Twice: what the end of the first start writes makes no stranger known."""
    for _ in range(2):
        started = Running(settings(root), None, FakeClock())
        with pytest.raises(StartRefused, match=match):
            started.start()
        started.call(lambda: started.directories[0].close(clean=True))  # noqa: B023 (called at once)
        started.registry.close()
        started.end()


def _forget_registry(root: Path) -> None:
    for path in (root / "state").glob("registry*"):
        path.unlink()


@pytest.mark.parametrize("registry", [True, False])
@pytest.mark.parametrize("number", [1, 5])
def test_a_copy_of_a_partition_under_another_number_is_refused_and_named(
    tmp_path: Path, number: int, registry: bool
) -> None:
    original, copy = tmp_path / "data" / "t-0", tmp_path / "data" / f"t-{number}"
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t")
        client.produce("t", batch())
        shutil.copytree(original, tmp_path / "copy")
        assert client.produce("t", batch()).base_offset > 0, "the original goes on"
    if not registry:
        _forget_registry(tmp_path)
    (tmp_path / "copy").rename(copy)
    _refused(tmp_path, rf"t-{number} has the records of \S+t-0: if it is a copy")
    shutil.rmtree(copy)
    with running(tmp_path) as started:
        assert len(started.partitions.topic("t").partitions) == 1  # type: ignore[union-attr]


def test_a_number_that_leaves_some_out_is_refused_of_a_topic_that_was_made_here(tmp_path: Path) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t")
    shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "data" / "t-2")
    _refused(tmp_path, "t-2 has a number that leaves out t-1, and the registry does not know it")
    (tmp_path / "data" / "t-2").rename(tmp_path / "data" / "t-1")  # the registry may be older than this one
    with running(tmp_path) as started:
        assert sorted(started.partitions.topic("t").partitions) == [0, 1]  # type: ignore[union-attr]


def test_a_topic_whose_making_was_cut_off_is_made_whole(tmp_path: Path) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t", partitions=6)
        started.call(lambda: started.registry.unplace(started.registry.placements()))
    for number in (1, 2, 5):
        shutil.rmtree(tmp_path / "data" / f"t-{number}")
    with running(tmp_path) as started:
        assert sorted(started.partitions.topic("t").partitions) == list(range(6))  # type: ignore[union-attr]


def test_numbers_may_be_missing_where_a_cluster_had_the_others(tmp_path: Path) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t", partitions=6)
        for number in range(6):
            client.produce("t", batch(1 + number), partition=number)
    _forget_registry(tmp_path)
    data = tmp_path / "data"
    (data / "t-3").rename(tmp_path / "t-3")
    for number in (0, 1, 2, 4):
        shutil.rmtree(data / f"t-{number}")
    with running(tmp_path) as started:
        assert sorted(started.partitions.topic("t").partitions) == [5]  # type: ignore[union-attr]
    (tmp_path / "t-3").rename(data / "t-3")
    with running(tmp_path) as started:
        assert sorted(started.partitions.topic("t").partitions) == [3, 5]  # type: ignore[union-attr]


def test_an_adopted_partition_whose_folder_is_gone_goes_on_from_the_bucket(tmp_path: Path) -> None:
    tier = FileTier(tmp_path / "held")
    with running(tmp_path, tier) as started, Client(started.address) as client:
        client.create("t", internal_segment_bytes="1000")
        for _ in range(20):
            client.produce("t", batch())
    _forget_registry(tmp_path)
    with running(tmp_path, tier) as started:
        end = started.log("t").closed()[-1].next_base
        started.give_to_tier("t", end)
    shutil.rmtree(tmp_path / "data" / "t-0")
    with running(tmp_path, tier) as started, Client(started.address) as client:
        partition = started.partitions.get("t", 0)
        assert partition is not None
        assert (partition.copied_to, started.partitions.waiting) == (end, {partition.id}), "for its producers"
        assert client.fetch("t", 0).error_code == 0
