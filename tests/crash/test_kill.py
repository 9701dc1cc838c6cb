"""`kill -9` in the middle of everything: nothing acknowledged is lost or doubled, the bucket holds nothing unowned."""

from pathlib import Path

import pytest

from kit.chaos import kill_rounds


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_thirty_kills_lose_nothing(tmp_path: Path) -> None:
    ledger = kill_rounds(tmp_path, rounds=30, seed=1, say=print)
    assert len(ledger.acknowledged) > 5_000


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(20))
def test_a_thousand_kills_lose_nothing(tmp_path: Path, seed: int) -> None:
    kill_rounds(tmp_path, rounds=50, seed=100 + seed, say=print)
