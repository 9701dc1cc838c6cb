"""S3 does everything wrong while producers and consumers run: nothing acknowledged is lost or doubled, no wrong answer
is sent, nothing is left behind, and `verify --deep` is green."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kit import weed
from kit.bad_days import LARGE, BadDays
from kit.faults import Fault, Plan
from kit.weed import Weed

pytestmark = pytest.mark.s3


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_a_thousand_faults_lose_nothing(tmp_path: Path, weed_server: Weed, figure: Callable[[str], None]) -> None:
    plan = Plan(seed=1, share=0.6, most=1_000)
    days = BadDays(tmp_path, weed_server, plan, print).run()
    assert set(plan.done) == set(Fault), "a fault never happened"
    assert all(ledger.acknowledged for ledger in days.ledgers.values())
    figure(plan.words())


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_faults_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Every other time all segments are so large that they go in parts."""
    large = {} if seed % 2 else {"internal.segment.bytes": "5500KiB", "topics.bad-0.internal.segment.bytes": "32KiB"}
    with weed.running() as server:
        plan = Plan(seed=100 + seed, share=0.2 + seed / 20, most=1_000)
        days = BadDays(tmp_path, server, plan, print, settings=large).run()
        assert len(days.ledgers[LARGE].acknowledged) > 1_000
