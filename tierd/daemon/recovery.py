"""A start with nothing but the bucket (`serve --recover`): the host that wrote it is lost.

The registry notes that it goes on until all is there. A start that finds the note goes on with it, and serves nobody
before it is through: topics, then their logs behind the bucket's end, then what groups have committed.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tierd.base.clock import utc
from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.broker.broker import Broker
from tierd.broker.partitions import Partitions
from tierd.broker.recovering import restore_groups, take_topics
from tierd.broker.registry import Registry, TopicRow
from tierd.daemon.group_files import GroupFiles
from tierd.remote.view import ClaimState
from tierd.storage.directory import LogDirectory
from tierd.tiering.link import TierLink
from tierd.tiering.options import OpenReport, TopicState

log = logging.getLogger(__name__)

_NOTE, _UNDER_WAY, _DONE = "recovery", "under way", ""


@dataclass(frozen=True, slots=True)
class Recovery:
    """One that is under way. Loop thread only."""

    registry: Registry

    async def take_topics(self, partitions: Partitions, report: OpenReport) -> None:
        """Make the bucket's topics. Raises RemoteUnavailable, DiskFull, OSError."""
        if report.claim.state is not ClaimState.HELD:
            raise RemoteUnavailable(f"the bucket could not be claimed: {report.claim.detail}; start again, it goes on")
        await take_topics(partitions, _rows(report.topics))

    async def finish(self, broker: Broker, link: TierLink) -> None:
        """What groups have committed comes back; then it is over. Raises TierdError, OSError."""
        partitions = broker.partitions
        file = await GroupFiles(link).newest()
        if file is None:
            log.warning("the bucket knows of no consumer group: each begins where its clients say")
        else:
            restored = await restore_groups(file, broker.parts.coordinator, partitions)
            taken = utc(file.taken_ms)
            facts = {"groups": restored.groups, "offsets": restored.offsets, "as of": taken}
            log.info("consumer groups taken from the bucket", extra=facts)
            if restored.clamped or restored.dropped:
                facts = {"moved back": restored.clamped, "of topics that are gone": restored.dropped}
                log.warning("some offsets of groups lay behind what the bucket has", extra=facts)
        self.registry.put(_NOTE, _DONE)
        log.info("recovered from the bucket", extra={"partitions": len(partitions)})


def begin(
    registry: Registry, directories: Sequence[LogDirectory], url: str | None, *, asked_for: bool
) -> Recovery | None:
    """The recovery that this start has to do, before anything is loaded or made; None: none. Noted for the next start.

    *url* is that of the bucket. Raises StartRefused without one, and where a recovery is asked for and something is
    here already.
    """
    noted = registry.get(_NOTE) == _UNDER_WAY
    if not asked_for and not noted:
        return None
    if url is None:
        raise StartRefused("a recovery has begun here, and nothing is served before it is through: start with --remote")
    if not noted:
        _refuse_data(registry, directories)
        registry.put(_NOTE, _UNDER_WAY)
    log.warning("going on with a recovery from the bucket" if noted else "recovering from the bucket")
    return Recovery(registry)


def _refuse_data(registry: Registry, directories: Iterable[LogDirectory]) -> None:
    for directory in directories:
        if directory.logs or directory.read_only:
            raise StartRefused(
                f"{directory.path} holds partitions: --recover is for an empty data directory, when all others of this"
                " archive are lost; start without it (one disk of several is lost: --lost DIR)"
            )
    if topics := registry.topics():
        raise StartRefused(
            f"the state directory knows topics, {topics[0].name} among them: --recover is for when it is lost, too;"
            " when only the disks are, start with --lost DIR, their former path"
        )


def _rows(topics: Iterable[TopicState]) -> list[TopicRow]:
    """The living ones. Of whom nobody says whether he was adopted, nothing goes."""
    return [
        TopicRow(
            id=topic.topic_id,
            name=topic.topic,
            partitions=topic.partitions,
            created_ms=topic.created_ms,
            config=topic.config,
            adopted=topic.adopted is not False,
        )
        for topic in topics
        if topic.deleted_ms is None
    ]
