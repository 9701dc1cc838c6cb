"""`kill -9` in the middle of everything: nothing acknowledged is lost or doubled, the bucket holds nothing unowned."""

from pathlib import Path

import pytest

from kit import weed
from kit.bucket import in_weed
from kit.chaos import kill_rounds
from kit.deeds import DEEDS, LONG


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_thirty_kills_lose_nothing(tmp_path: Path) -> None:
    rounds = kill_rounds(tmp_path, rounds=30, seed=1, say=print)
    assert set(DEEDS) <= set(rounds.landed), "a deed was never hit"
    assert len(rounds.ledgers[LONG].acknowledged) > 5_000
    assert rounds.ledgers[LONG].committed > 1_000


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_kills_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Every other time segments are so large that they go to the bucket in parts."""
    large = {"segment.bytes": "6MiB", "remote.part.bytes": "5MiB"} if seed % 2 else {}
    kill_rounds(tmp_path, rounds=50, seed=100 + seed, say=print, settings=large)


@pytest.mark.chaos
@pytest.mark.s3
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(4))
def test_kills_over_s3_lose_nothing(tmp_path: Path, seed: int) -> None:
    with weed.running() as server:
        settings = {"segment.bytes": "6MiB", "remote.part.bytes": "5MiB", "remote.request.timeout.ms": "2s"}
        there = in_weed(server, "kills")
        kill_rounds(tmp_path, rounds=50, seed=200 + seed, say=print, remotely=there, settings=settings)
