"""Claims: which run may write to the bucket (LAYOUT.md, "One writer").

An epoch is claimed once, by creating `tierd/owner/<epoch>.json`. A claim above the own epoch means that this run has
lost the bucket. A run goes on from a claim of its own holder; a foreign holder's newest claim refuses the start.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tierd.base.clock import utc
from tierd.base.ids import PartitionId
from tierd.remote.documents import Document, Id
from tierd.remote.errors import ClaimLost, EpochTaken, NotFound, PreconditionFailed
from tierd.remote.keys import Keys, OwnerKey
from tierd.remote.store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Which data directory on which host. A copied directory differs in inode, a moved disk in machine id."""

    directory_id: str
    machine_id: str
    inode: int
    """Of the first data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStart:
    """Where a topic's partitions began in a run."""

    topic: str
    topic_id: Id
    first_append: Mapping[int, int]
    """Partition -> offset of the run's first append; a partition that is missing here starts at 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerClaim:
    """The body of a claim."""

    epoch: int
    incarnation: Id
    """Random for each start of the daemon."""
    holder: Holder
    host: str
    claimed_ms: int
    topics: tuple[TopicStart, ...] = field(default=())
    """Every topic of registry and bucket, offline ones too."""

    def first_append(self, part: PartitionId) -> int | None:
        """Where this run's records of a partition start; None when the claim does not name the topic."""
        for topic in self.topics:
            if topic.topic_id == part.topic_id:
                return topic.first_append.get(part.partition, 0)
        return None

    def describe(self) -> str:
        """For messages: who and when."""
        when = utc(self.claimed_ms)
        return f"epoch {self.epoch}, host {self.host}, directory {self.holder.directory_id}, at {when}"


CLAIM = Document(OwnerClaim)


def next_epoch(claimed: Iterable[int], own_last: int | None, local: Iterable[int]) -> int:
    """1 + the largest of the bucket's claims, the last one of this state directory and the local checkpoints'."""
    known = [*claimed, *local, -1 if own_last is None else own_last]
    return 1 + max(known)


def is_foreign(claim: OwnerClaim, holder: Holder) -> bool:
    """True when another data directory, or a copy of ours, made *claim*."""
    return claim.holder != holder


def claimed_epochs(store: ObjectStore, keys: Keys, after: int | None = None) -> list[int]:
    """Epochs with a claim (above *after*), ascending."""
    start_after = None if after is None else keys.owner(after)
    found = (keys.parse(info.key) for info in store.list(keys.owner_folder, start_after=start_after))
    return sorted(key.epoch for key in found if isinstance(key, OwnerKey) and (after is None or key.epoch > after))


def read_claim(store: ObjectStore, keys: Keys, epoch: int) -> OwnerClaim | None:
    """The claim of *epoch*; None when there is none (any more)."""
    try:
        return CLAIM.get(store, keys.owner(epoch))[0]
    except NotFound:
        return None


def newest_claim(store: ObjectStore, keys: Keys) -> OwnerClaim | None:
    """The claim that counts now; None in a bucket that nobody ever claimed."""
    for epoch in reversed(claimed_epochs(store, keys)):
        claim = read_claim(store, keys, epoch)
        if claim is not None:
            return claim
    return None


def require_newest(store: ObjectStore, keys: Keys, epoch: int) -> None:
    """Before each batch of evictions or deletes and each CAS: raises ClaimLost after a later claim. One LIST."""
    later = claimed_epochs(store, keys, after=epoch)
    if later:
        claim = read_claim(store, keys, later[-1])
        raise ClaimLost(f"the bucket is claimed by {claim.describe() if claim else f'epoch {later[-1]}'}")


def put_claim(store: ObjectStore, keys: Keys, claim: OwnerClaim) -> None:
    """Claim the epoch. Repeating it for the same incarnation is fine.

    Raises EpochTaken when another run has it: look at the newest claim again, then try the next epoch.
    """
    key = keys.owner(claim.epoch)
    try:
        CLAIM.put(store, key, claim, if_none_match=True)
    except PreconditionFailed as taken:
        other = read_claim(store, keys, claim.epoch)
        if other is None or other.incarnation != claim.incarnation:
            raise EpochTaken(claim.epoch, "just gone" if other is None else other.describe()) from taken
