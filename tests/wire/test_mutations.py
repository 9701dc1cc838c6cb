"""A million hostile requests into the parser: a value or BadFrame, nothing else; none takes long, none takes memory."""

import random
from typing import Final

import pytest

from wire.fuzzing import fuzz, side_by_side

IN_CI: Final = 1_000_000
BY_MAKE_FUZZ: Final = 10_000_000
PROCESSES: Final = 2
LONGEST_S: Final = 1.0
"""For frames of a few KiB: nothing that a frame announces may be worked through."""
GROWS_BYTES: Final = 64 * 1024 * 1024


def attack(seeds: list[int], count: int) -> None:
    for tally in side_by_side(seeds, count // len(seeds)):
        assert tally.longest_s < LONGEST_S
        assert tally.grown_bytes < GROWS_BYTES
        # Both must happen often, or the mutations are too wild or too tame to say anything.
        assert min(tally.decoded, tally.refused) > (tally.decoded + tally.refused) // 20


@pytest.mark.timeout(600)
def test_a_million_hostile_requests_decode_or_are_refused() -> None:
    attack([20261130 + number for number in range(PROCESSES)], IN_CI)


def test_the_same_dice_fall_the_same_way() -> None:
    first, again = fuzz(1, 2_000), fuzz(1, 2_000)
    assert (first.decoded, first.refused) == (again.decoded, again.refused)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_many_more_of_them() -> None:
    attack([random.SystemRandom().randrange(2**32) for _ in range(PROCESSES)], BY_MAKE_FUZZ)
