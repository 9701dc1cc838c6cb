"""Claims: one run an epoch, and a loser that can tell."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.clock import FakeClock
from tierd.base.ids import PartitionId, Uuid
from tierd.remote import owner
from tierd.remote.errors import ClaimLost, EpochTaken, RemoteUnavailable
from tierd.remote.keys import Keys
from tierd.remote.memory import MemoryStore
from tierd.remote.owner import CLAIM, Holder, OwnerClaim, TopicStart

KEYS = Keys("tier/")
ME = Holder(directory_id="dir", machine_id="machine", inode=7)
TOPIC_ID = Uuid(bytes(range(16)))


def claim(epoch: int, run: int = 1, holder: Holder = ME) -> OwnerClaim:
    start = TopicStart(topic="t", topic_id=TOPIC_ID, first_append={0: 120, 2: 5})
    return OwnerClaim(
        epoch=epoch, incarnation=Uuid(bytes([run]) * 16), holder=holder, host="h", claimed_ms=9, topics=(start,)
    )


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(FakeClock())


def test_an_unclaimed_bucket(store: MemoryStore) -> None:
    assert owner.newest_claim(store, KEYS) is None
    assert owner.next_epoch(owner.claimed_epochs(store, KEYS), None, []) == 0


@pytest.mark.parametrize(
    ("claimed", "own", "local", "next_"), [([3], 5, [4], 6), ([9], None, [2], 10), ([], 1, [8], 9)]
)
def test_the_next_epoch_is_above_all_that_is_known(claimed: list[int], own: int, local: list[int], next_: int) -> None:
    assert owner.next_epoch(claimed, own, local) == next_


def test_a_claim_holds_against_others_and_not_against_itself(store: MemoryStore) -> None:
    owner.put_claim(store, KEYS, claim(4))
    owner.put_claim(store, KEYS, claim(4))
    with pytest.raises(EpochTaken, match="host h, directory dir"):
        owner.put_claim(store, KEYS, claim(4, run=2))
    assert owner.newest_claim(store, KEYS) == claim(4)


def test_a_lost_answer_is_settled_by_reading(store: MemoryStore) -> None:
    def lose(operation: str, key: str) -> None:
        store.after = lambda *_: None
        raise RemoteUnavailable("no answer")

    store.after = lose
    with pytest.raises(RemoteUnavailable):
        owner.put_claim(store, KEYS, claim(4))
    owner.put_claim(store, KEYS, claim(4))


def test_only_later_claims_make_a_loser(store: MemoryStore) -> None:
    for epoch in (2, 4, 11):
        owner.put_claim(store, KEYS, claim(epoch, run=epoch))
    owner.require_newest(store, KEYS, 11)
    assert owner.claimed_epochs(store, KEYS, after=2) == [4, 11]
    with pytest.raises(ClaimLost, match="epoch 11"):
        owner.require_newest(store, KEYS, 4)


def test_strange_objects_beside_the_claims_are_ignored(store: MemoryStore) -> None:
    owner.put_claim(store, KEYS, claim(4))
    store.keep(KEYS.owner_folder + "zzz.json", b"?", None)
    assert owner.claimed_epochs(store, KEYS) == [4]
    owner.require_newest(store, KEYS, 4)


@pytest.mark.parametrize("changed", [{"directory_id": "x"}, {"machine_id": "x"}, {"inode": 8}])
def test_a_copy_is_foreign(changed: dict[str, str | int]) -> None:
    assert not owner.is_foreign(claim(4), ME)
    assert owner.is_foreign(claim(4), replace(ME, **changed))  # type: ignore[arg-type]


def test_first_appends() -> None:
    starts = claim(4)
    assert starts.first_append(PartitionId(TOPIC_ID, 0)) == 120
    assert starts.first_append(PartitionId(TOPIC_ID, 1)) == 0
    assert starts.first_append(PartitionId(Uuid(bytes(16)), 0)) is None


@given(st.integers(0, 2**31 - 1), st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**62)))
def test_round_trip(epoch: int, first: dict[int, int]) -> None:
    start = TopicStart(topic="t", topic_id=TOPIC_ID, first_append=first)
    whole = replace(claim(epoch), topics=(start,))
    assert CLAIM.parse(CLAIM.encode(whole), "x") == whole
