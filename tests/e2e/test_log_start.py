"""Where the log begins does not depend on a checkpoint or a setting that is gone for one start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import tiers, traffic
from kit.daemon import Daemon, running

pytestmark = pytest.mark.e2e

SETTINGS = (
    *("--set", "segment.bytes=1MiB"),
    *("--set", "log.retention.check.interval.ms=100"),
    *("--set", "remote.head.interval.ms=100"),
    *("--set", "tierd.delete.delay.ms=0"),
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("start")


@pytest.fixture(scope="module")
def archive(place: Path) -> Iterator[tuple[Daemon, list[traffic.Message]]]:
    """A daemon that does not run, and what it has in the bucket alone."""
    with running(place / "data", f"file:{place / 'bucket'}", *SETTINGS) as tierd:
        sent = tiers.fill(tierd, "t", 3)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        assert tierd.partition("t")["local_start"] == len(sent)
        assert tierd.stop() == 0
        yield tierd, sent


@pytest.fixture(autouse=True)
def _ended(archive: tuple[Daemon, list[traffic.Message]]) -> Iterator[None]:
    """A test that fails leaves the next one a daemon that does not run."""
    yield
    archive[0].kill()


def _all_is_there(tierd: Daemon, place: Path, sent: list[traffic.Message]) -> None:
    """Also after the tierer has told the bucket, and looked for what may go."""
    bases = tiers.bases(place / "bucket", "t")
    epoch = tierd.status()["epoch"]
    head = tiers.until("the head", lambda: (found := tiers.head(place / "bucket", "t")).get("epoch") == epoch and found)
    assert head["log_start"] == 0
    assert tierd.partition("t")["log_start"] == 0
    assert bases[0] == 0
    assert tiers.bases(place / "bucket", "t") == bases
    tiers.read_back(tierd, "t", sent)


def test_a_lost_log_start_checkpoint_costs_nothing(archive: tuple[Daemon, list[traffic.Message]], place: Path) -> None:
    tierd, sent = archive
    (place / "data" / "log-start-offset-checkpoint").unlink()
    tierd.start()
    _all_is_there(tierd, place, sent)
    assert tierd.stop() == 0
    assert "log start was lost, taken from the bucket" in tierd.log.read_text()


def test_a_topic_that_lies_in_the_bucket_alone_stays_tiered(
    archive: tuple[Daemon, list[traffic.Message]], place: Path
) -> None:
    tierd, sent = archive
    untiered = Daemon(tierd.data, tierd.remote, None, (*SETTINGS, "--set", "remote.storage.enable=false"))
    said = tiers.refused(untiered)
    assert f"remote.storage.enable=false for t-0, but its offsets 0 to {len(sent) - 1} lie only in the bucket" in said
    tierd.start()
    _all_is_there(tierd, place, sent)
    assert tierd.stop() == 0


def test_a_bucket_that_is_not_mounted_is_no_new_bucket(
    archive: tuple[Daemon, list[traffic.Message]], place: Path
) -> None:
    tierd, sent = archive
    for path in (place / "data.tierd").glob("catalog.sqlite*"):
        path.unlink()
    (place / "bucket").rename(place / "elsewhere")
    (place / "bucket").mkdir()
    assert "holds no archive, the state directory belongs to archive" in tiers.refused(tierd)
    assert not list((place / "bucket").rglob("*.log"))
    (place / "bucket").rmdir()
    (place / "elsewhere").rename(place / "bucket")
    tierd.start()
    _all_is_there(tierd, place, sent)
    assert tierd.stop() == 0
