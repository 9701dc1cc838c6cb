"""Where a local log leaves the bucket's history: leader epochs of both sides, and runs that never had the bucket."""

from pathlib import Path

import pytest

from kit.folder_tier import view_of
from kit.golden import golden
from kit.remote_log import bare_segment
from tierd.base.ids import PartitionId, Uuid
from tierd.config.topic import TopicSettings
from tierd.remote.manifest import EpochStart
from tierd.remote.owner import TopicStart
from tierd.tiering.catalog import Catalog
from tierd.tiering.divergence import add_unclaimed, differs_at, forget_unclaimed, outside, unclaimed_firsts
from tierd.tiering.runs import Run, note_run, remember_unclaimed
from tierd.tiering.segments import RemoteSegment

PART = PartitionId(Uuid(b"t" * 16), 0)


def segment(base: int, stop: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return bare_segment(base, stop, Uuid(base.to_bytes(16, "big")), *epochs)


BUCKET = (segment(0, 100, (1, 0)), segment(100, 200, (1, 100), (3, 150)))


@pytest.mark.parametrize(
    ("local", "stop", "where"),
    [
        (((1, 0), (3, 150)), 200, None),
        (((1, 0), (3, 150), (7, 200)), 200, None),
        (((1, 0),), 150, None),
        (((1, 0),), 151, 150),
        (((1, 0), (2, 120)), 200, 120),
        (((1, 0), (2, 50)), 200, 50),
        (((1, 0), (2, 50)), 50, None),
        (((0, 0), (3, 150)), 200, 0),
        (((3, 150),), 200, None),  # what is older than the checkpoint nobody knows
        ((), 200, None),
    ],
)
def test_the_first_offset_in_two_epochs(local: tuple[tuple[int, int], ...], stop: int, where: int | None) -> None:
    assert differs_at([EpochStart(*one) for one in local], BUCKET, stop) == where


def test_a_segment_whose_epochs_nobody_kept_fits() -> None:
    assert differs_at([EpochStart(9, 0)], [segment(0, 100)], 100) is None


def test_the_earliest_of_several_unclaimed_runs_counts_until_one_has_the_bucket(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path / "catalog.sqlite")
    other = PartitionId(PART.topic_id, 1)
    add_unclaimed(catalog, {PART: 50, other: 7})
    add_unclaimed(catalog, {PART: 80})
    assert unclaimed_firsts(catalog) == {PART: 50, other: 7}
    forget_unclaimed(catalog)
    assert unclaimed_firsts(catalog) == {}
    catalog.close()


def test_an_unclaimed_run_may_have_written_all_of_a_partition_that_was_empty(tmp_path: Path) -> None:
    """Its epoch is one that another run has claimed meanwhile: only where it began tells its records from theirs."""
    catalog = Catalog.open(tmp_path / "catalog.sqlite")
    empty, full = PART, PartitionId(PART.topic_id, 1)
    for part in (empty, full):
        catalog.know(part, "t")
    start = TopicStart(topic="t", topic_id=PART.topic_id, first_append={1: 7})
    note_run(catalog, Run(epoch=6, incarnation=Uuid(b"a" * 16), topics=(start,)))
    remember_unclaimed(catalog, Uuid(b"b" * 16))
    assert unclaimed_firsts(catalog) == {empty: 0, full: 7}
    catalog.close()


def test_what_an_unclaimed_run_wrote_below_the_copied_end_is_outside(tmp_path: Path) -> None:
    view = view_of(golden("kafka") / "clean" / "codec-none-0", TopicSettings())
    catalog = Catalog.open(tmp_path / "catalog.sqlite")
    assert outside(catalog, [view]) == {}
    catalog.know(view.id, view.name.topic)
    catalog.set_copied_to(view.id, view.log_end)
    add_unclaimed(catalog, {view.id: view.log_end})
    assert outside(catalog, [view]) == {}, "it wrote nothing"
    add_unclaimed(catalog, {view.id: view.log_end - 5})
    assert outside(catalog, [view]) == {view.id: view.log_end - 5}
    catalog.close()
