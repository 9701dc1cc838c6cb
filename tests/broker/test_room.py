"""Room for requests: the bound holds, every request gets through whatever the others do, the small are not held up."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.broker.room import Room
from tierd.wire.frame import FIRST_BYTES, LENGTH_BYTES, STEADY_BYTES

MIB = 1024 * 1024
LARGEST = 100 * MIB


def room(limit_bytes: int = 256 * MIB) -> Room[str]:
    return Room(limit_bytes, LARGEST)


@pytest.mark.parametrize("limit", [LARGEST, 200 * MIB, 256 * MIB, 1024 * MIB])
def test_no_more_than_the_limit_is_given_out_where_it_leaves_room_beside_the_largest(limit: int) -> None:
    assert room(limit).bound_bytes <= max(limit, LARGEST + LENGTH_BYTES + limit // 4)


@given(
    st.lists(st.one_of(st.integers(1, 3 * MIB), st.integers(1, LARGEST)), min_size=1, max_size=60),
    st.sampled_from([LARGEST, 200 * MIB, 256 * MIB]),
    st.randoms(use_true_random=False),
)
def test_every_request_gets_through_and_the_bound_holds(sizes: list[int], limit: int, dice: random.Random) -> None:
    shared: Room[int] = Room(limit, LARGEST)
    capacity = dict.fromkeys(range(len(sizes)), FIRST_BYTES)
    going = list(capacity)
    while capacity:
        assert going, "all wait for each other"
        who = dice.choice(going)
        needed = sizes[who] + LENGTH_BYTES
        if capacity[who] >= needed:
            del capacity[who]
            going.remove(who)
            shared.leave(who)
            going += shared.next()
            continue
        wanted = needed if shared.seated(who) else min(needed, 2 * capacity[who])
        if shared.grow(who, wanted, needed):
            capacity[who] = wanted
        else:
            going.remove(who)
        assert shared.used_bytes <= shared.bound_bytes
    assert shared.used_bytes == shared.waiting == 0


def test_requests_that_stand_still_leave_seats_for_small_ones() -> None:
    filled = room()
    for number in range(900):
        capacity = FIRST_BYTES
        while capacity < 512 * 1024 and filled.grow(f"huge {number}", 2 * capacity, 90 * MIB):
            capacity *= 2
    assert filled.waiting > 500
    for number in range(100):
        assert filled.grow(f"small {number}", 2 * FIRST_BYTES, 256 * 1024)
    assert filled.grow("a batch of a mebibyte", STEADY_BYTES, MIB)


def test_the_smallest_is_let_in_first_and_the_large_seat_goes_by_arrival() -> None:
    filled = room()
    assert all(filled.grow(f"{n}", 2 * STEADY_BYTES, 90 * MIB) for n in range(124))
    assert filled.grow("sits", 2 * STEADY_BYTES, 90 * MIB)
    assert filled.seated("sits")
    assert filled.grow("takes the seats", 2 * STEADY_BYTES, 32 * MIB)
    for name, size in {"first": 95 * MIB, "second": 94 * MIB, "medium": 20 * MIB, "small": 10 * MIB}.items():
        assert not filled.grow(name, 2 * STEADY_BYTES, size)
        assert filled.waits(name)
    filled.leave("takes the seats")
    assert filled.next() == ["small", "medium"]
    filled.leave("sits")
    assert filled.next() == ["first"]
    assert filled.waits("second")


def test_growth_for_speed_alone_ends_where_others_wait() -> None:
    filled = room()
    assert filled.like("busy", STEADY_BYTES)
    assert filled.grow("large", 61 * MIB + 3 * STEADY_BYTES, 90 * MIB)
    assert not filled.like("another", STEADY_BYTES)
    assert filled.grow("another", STEADY_BYTES, STEADY_BYTES)


def test_what_is_settled_is_free_again() -> None:
    shared = room()
    assert shared.grow("one", MIB, MIB)
    shared.settle("one", STEADY_BYTES)
    assert shared.used_bytes == STEADY_BYTES - FIRST_BYTES
    assert shared.holds("one")
    shared.settle("one", FIRST_BYTES)
    assert not shared.holds("one")
    assert shared.used_bytes == 0
