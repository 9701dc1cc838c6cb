"""Which starts recover: with something here none, and one that was cut off until it is through."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tierd.base.errors import StartRefused
from tierd.base.ids import Uuid
from tierd.broker.registry import Registry, TopicRow
from tierd.daemon import recovery


@dataclass
class Directory:
    """What is asked of a LogDirectory."""

    path: Path = Path("/data")
    logs: dict[str, object] = field(default_factory=dict)
    read_only: dict[str, object] = field(default_factory=dict)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    made = Registry.open(tmp_path / "registry.sqlite")
    yield made
    made.close()


def begin(registry: Registry, *directories: Directory, asked_for: bool = True) -> recovery.Recovery | None:
    return recovery.begin(registry, directories, "file:/bucket", asked_for=asked_for)  # type: ignore[arg-type]


def test_a_start_that_is_not_told_to_does_not(registry: Registry) -> None:
    assert begin(registry, Directory(), asked_for=False) is None


@pytest.mark.parametrize("there", [Directory(logs={"t-0": 1}), Directory(read_only={"t-0": 1})])
def test_what_is_here_is_not_recovered_over(registry: Registry, there: Directory) -> None:
    with pytest.raises(StartRefused, match="/data holds partitions"):
        begin(registry, Directory(), there)
    assert begin(registry, Directory(), asked_for=False) is None, "it has not begun"


def test_nor_is_a_registry_that_knows_topics(registry: Registry) -> None:
    registry.add(TopicRow(id=Uuid(b"t" * 16), name="t", partitions=1, created_ms=1))
    with pytest.raises(StartRefused, match=r"knows topics, t among them.*--lost DIR"):
        begin(registry, Directory())


def test_one_that_was_cut_off_goes_on_whatever_it_has_made(registry: Registry) -> None:
    assert begin(registry, Directory()) is not None
    registry.add(TopicRow(id=Uuid(b"t" * 16), name="t", partitions=1, created_ms=1))
    with pytest.raises(StartRefused, match="start with --remote"):
        recovery.begin(registry, [], None, asked_for=False)
    for asked_for in (True, False):
        assert begin(registry, Directory(logs={"t-0": 1}), asked_for=asked_for) is not None
