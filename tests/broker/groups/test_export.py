"""What groups have committed goes to the bucket when it has changed, and comes back."""

from dataclasses import dataclass, field

from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import Uuid
from tierd.broker.groups.export import OffsetsExport, Restored, restore
from tierd.remote.groups import GroupFile, GroupOffset, GroupOffsets, parse_groups
from tierd.remote.view import Claim, ClaimState

from .rig import Rig, commit, error_of_commit, fetched, run


@dataclass
class Tier:
    """Keeps the files that it is given."""

    claim: Claim = field(default_factory=lambda: Claim(state=ClaimState.HELD, epoch=1))
    kept: list[bytes] = field(default_factory=list)
    away: bool = False

    async def keep_groups(self, raw: bytes) -> None:
        if self.away:
            raise RemoteUnavailable("away")
        self.kept.append(raw)


def offsets(raw: bytes) -> dict[str, list[tuple[str, int, int]]]:
    return {
        group.group: [(one.topic, one.partition, one.offset) for one in group.offsets]
        for group in parse_groups(raw, "x").groups
    }


def test_it_is_written_when_something_was_committed_and_the_bucket_is_ours() -> None:
    async def scenario() -> None:
        rig, tier = Rig(), Tier()
        export = OffsetsExport(rig.coordinator, rig.log, tier, 60_000)
        await export.step()
        assert tier.kept == [], "nothing is there"
        await error_of_commit(rig, commit(9, 5))
        tier.claim = Claim(state=ClaimState.PENDING, epoch=1)
        await export.step()
        tier.claim, tier.away = Claim(state=ClaimState.HELD, epoch=1), True
        await export.step()
        assert tier.kept == []
        tier.away = False
        await export.step()
        await export.step()
        assert [offsets(raw) for raw in tier.kept] == [{"g": [("t1", 0, 5)]}]
        await error_of_commit(rig, commit(9, 6, topic="t2"))
        await export.step()
        assert offsets(tier.kept[-1]) == {"g": [("t1", 0, 5), ("t2", 0, 6)]}

    run(scenario())


def test_groups_that_nobody_has_asked_for_since_the_start_are_in_it() -> None:
    async def scenario() -> None:
        rig = Rig()
        await error_of_commit(rig, commit(9, 5))
        again, tier = rig.restart(), Tier()
        await OffsetsExport(again.coordinator, again.log, tier, 60_000).step()
        assert offsets(tier.kept[0]) == {"g": [("t1", 0, 5)]}

    run(scenario())


def test_what_comes_back_stays_within_the_logs_and_can_come_twice() -> None:
    t1 = Uuid(b"1" * 16)
    rows = (
        GroupOffset("t1", t1, 0, 70, 3, "m", 1),
        GroupOffset("t1", None, 1, 20, None, "", 1),
        GroupOffset("t1", Uuid(b"0" * 16), 2, 1, 3, "", 1),
        *(GroupOffset("many", None, number, 1, 3, "", 1) for number in range(1000)),
    )
    file = GroupFile(1, (GroupOffsets("g", rows), GroupOffsets("gone", (GroupOffset("t9", None, 0, 1, 0, "", 1),))))

    def end_of(one: GroupOffset) -> int | None:
        return 50 if one.topic in ("t1", "many") and one.topic_id in (None, t1) else None

    async def scenario() -> None:
        rig = Rig()
        for _ in range(2):
            done = await restore(file, rig.coordinator, end_of)
            assert done == Restored(groups=1, offsets=1002, clamped=1, dropped=2)
        again = rig.restart()
        got = await fetched(again)
        assert [got["t1", 0].committed_offset, got["t1", 1].committed_offset] == [50, 20]
        assert "gone" not in (await again.coordinator.shard("gone")).names()

    run(scenario())
