"""What consumer groups have committed, to the bucket and back: the broker's GroupsTier, by way of the tierer."""

from tierd.remote.groups import GroupFile, parse_groups
from tierd.remote.view import Claim
from tierd.tiering import bucket_messages as m
from tierd.tiering.link import TierLink


class GroupFiles:
    """Loop thread only. Raises RemoteUnavailable."""

    def __init__(self, link: TierLink) -> None:
        self._link = link

    @property
    def claim(self) -> Claim:
        return self._link.claim

    async def keep_groups(self, raw: bytes) -> None:
        """Write a group file."""
        await self._link.call(lambda number: m.KeepGroups(number, raw))

    async def newest(self) -> GroupFile | None:
        """The newest one in the bucket; None when there is none."""
        raw: bytes | None = (await self._link.call(m.GetGroups)).raw
        return None if raw is None else parse_groups(raw, "the newest group file")
