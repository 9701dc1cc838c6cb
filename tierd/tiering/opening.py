"""The start of a run at the bucket: whose it is, what it holds beyond the catalog, and our claim on it.

Order (remote/LAYOUT.md, "One writer"): archive id -> claims -> one LIST of every partition's folder -> unsettled
copies -> claim PUT. All of it blocks; `claiming` drives it from the loop and knows what a silent bucket means.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tierd.base.clock import Clock
from tierd.base.errors import CorruptFile, StartRefused
from tierd.base.ids import PartitionId, Uuid
from tierd.remote import owner
from tierd.remote.archive_id import Archive, check_archive, create_archive, read_archive
from tierd.remote.documents import NewerFormat
from tierd.remote.heads import Head, list_heads, read_head
from tierd.remote.keys import HeadKey, SegmentName, TopicFileKey
from tierd.remote.open import Bucket
from tierd.remote.owner import OwnerClaim
from tierd.remote.topics import TopicFile, list_topic_keys, read_topic
from tierd.tiering.catalog import Catalog
from tierd.tiering.choice import Lineage, RunStart, choose
from tierd.tiering.divergence import outside
from tierd.tiering.intake import Found, list_segments, named_row, row_of
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.losses import Losses, faults_of
from tierd.tiering.options import OpenRequest, TopicState
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.settling import settle
from tierd.tiering.whose import check_empty, check_owner, topic_folders

log = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 8
ARCHIVE, _OFFERED, HELD_EPOCH = "archive_id", "archive_offered", "held_epoch"
HEADS_MS = "heads_ms"
"""When heads were written last, by the bucket's clock."""
_CLOCKS_DIFFER_MS = 5_000
"""Between servers of one bucket. What is taken for newer and is not costs a longer look."""


@dataclass(slots=True)
class Pulse:
    """When the bucket last answered; written by threads, read by the loop."""

    clock: Clock
    answered_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self.answered_ms = self.clock.monotonic_ms()

    def beat(self) -> None:
        self.answered_ms = self.clock.monotonic_ms()

    @property
    def silent_ms(self) -> int:
        return self.clock.monotonic_ms() - self.answered_ms


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What the bucket says about its owners, and segments that lost against others (to be deleted once we own it)."""

    claims: tuple[OwnerClaim, ...]
    losers: tuple[CatalogSegment, ...]
    outside: tuple[PartitionId, ...] = ()
    """Partitions whose local log has left the bucket's history; what it holds is given up for what the bucket has."""
    newer: tuple[TopicState, ...] = ()
    """Topics whose settings are newer in the bucket than in the registry: that one comes from a backup, or is new."""
    faulty: tuple["Faulty", ...] = ()
    rotten: Mapping[PartitionId, str] = field(default_factory=dict)
    """Partitions whose head does not parse, and why: the manifests alone said what the bucket has of them."""

    @property
    def claimed_ms(self) -> int | None:
        """The latest time of a claim, by its holder's clock."""
        return max((claim.claimed_ms for claim in self.claims), default=None)

    @property
    def newest(self) -> OwnerClaim | None:
        return self.claims[-1] if self.claims else None


@dataclass(frozen=True, slots=True)
class Faulty:
    """A segment that counts, though it is not whole in the bucket: nothing else there has its offsets."""

    row: CatalogSegment
    why: str


@dataclass(frozen=True, slots=True)
class _Part:
    """What the objects of one partition come to."""

    losers: tuple[CatalogSegment, ...]
    faulty: tuple[Faulty, ...]


@dataclass(slots=True)
class Survey:
    """One look at the bucket. The catalog takes in what it finds; repeating it is fine."""

    bucket: Bucket
    catalog: Catalog
    clock: Clock
    pulse: Pulse
    settle_ms: int
    on_part: Callable[[int, int], None] = lambda done, total: None
    """Told of a look at the whole bucket: partitions done, of how many."""
    _rotten: dict[PartitionId, str] = field(default_factory=dict)

    def everything(self, archive_id: Uuid | None) -> None:
        """Take in all that lies there, whoever owns it. Raises WrongBucket when it is not that archive."""
        check_archive(read_archive(self.bucket.store, self.bucket.keys), archive_id, self.bucket.url)
        if archive_id is not None:
            self.catalog.put(ARCHIVE, str(archive_id))
        self._take_topics()
        self._take_all(self._claims())

    def run(self, request: OpenRequest) -> Surveyed:
        """Raises StartRefused (wrong bucket, foreign claim, an archive that is not ours) or RemoteUnavailable."""
        found = read_archive(self.bucket.store, self.bucket.keys)
        self.pulse.beat()
        known = self.catalog.get(ARCHIVE)
        check_archive(found, request.archive_id if known is None else Uuid.parse(known), self.bucket.url)
        claims = self._claims()
        newest = claims[-1] if claims else None
        check_owner(self.bucket, newest, request, self._server_ms)
        if known is None:
            self._take_archive(found, request)
        newer = self._take_topics(request.topics if request.claimed is None else (), request.registry_epoch)
        self._rotten = {}
        parts = self._take_in(request, claims)
        losers = tuple(row for part in parts for row in part.losers)
        self._settle_started({row.remote.segment_id for row in losers})
        outside = () if request.claimed is not None else self._outside(request)
        faulty = tuple(one for part in parts for one in part.faulty)
        return Surveyed(tuple(claims), losers, outside, newer, faulty, self._rotten)

    def _outside(self, request: OpenRequest) -> tuple[PartitionId, ...]:
        found = outside(self.catalog, request.views)
        names = {view.id: f"{view.name} from offset {found[view.id]}" for view in request.views if view.id in found}
        if found and not request.recover:
            raise StartRefused(
                f"{self.bucket.url} has other records than this disk: {', '.join(names.values())}."
                " A run that never got the bucket has written here; both were acknowledged, and no log can have both."
                " `tierd serve --take-over` goes on with what the bucket has and sets the local files aside"
            )
        for name in names.values():
            log.warning("local records that the bucket does not know are set aside", extra={"partition": name})
        return tuple(found)

    # --- whose bucket ------------------------------------------------------------------------------------------------
    def _take_archive(self, found: Archive | None, request: OpenRequest) -> None:
        """A new state directory: make the bucket's archive id, or take the one that is there."""
        offered = self.catalog.get(_OFFERED)
        known = request.archive_id is not None  # and it is that one: only the catalog was lost
        if not known and (found is None or str(found.archive_id) != offered):
            check_empty(self.bucket, found, request)
        if found is None:
            found = self._create(offered)
        self.catalog.put(ARCHIVE, str(found.archive_id))

    def _create(self, offered: str | None) -> Archive:
        """The id is noted before it is sent, so that a crash in between does not make our own archive foreign."""
        offer = Uuid(os.urandom(16)) if offered is None else Uuid.parse(offered)
        self.catalog.put(_OFFERED, str(offer))
        return create_archive(
            self.bucket.store, self.bucket.keys, Archive(archive_id=offer, created_ms=self.clock.now_ms())
        )

    def _claims(self) -> list[OwnerClaim]:
        epochs = owner.claimed_epochs(self.bucket.store, self.bucket.keys)
        self.pulse.beat()
        claims = self._all(lambda epoch: owner.read_claim(self.bucket.store, self.bucket.keys, epoch), epochs)
        return [claim for claim in claims if claim is not None]

    # --- what it holds -----------------------------------------------------------------------------------------------
    def _take_in(self, request: OpenRequest, claims: list[OwnerClaim]) -> list[_Part]:
        tiered = [view for view in request.views if view.settings.remote_storage_enable]
        if self._wrote_last(claims, request):
            parts = self._take_newer(claims, {view.id: view.name.topic for view in tiered})
        else:
            parts = self._take_all(claims)
        for view in tiered:  # not before the look is over: a row says that the catalog knows how far the bucket is
            self.catalog.know(view.id, view.name.topic, view.settings.tierd_delete_delay_ms)
        return parts

    def _wrote_last(self, claims: list[OwnerClaim], request: OpenRequest) -> bool:
        """Whether nobody has written to the bucket since this catalog did: not when it is a copy or from a backup,
        and the run that it tells of went on."""
        held, newest = self.catalog.get(HELD_EPOCH), claims[-1] if claims else None
        if held is None or newest is None or newest.epoch != int(held):
            return False
        if owner.is_foreign(newest, request.identity.holder):
            return False
        heads = self.bucket.store.list(self.bucket.keys.partitions_folder)
        written_ms = max((info.modified_ms for info in heads), default=0)
        self.pulse.beat()
        return written_ms <= int(self.catalog.get(HEADS_MS) or 0) + _CLOCKS_DIFFER_MS

    def _take_topics(
        self, topics: Iterable[TopicState] = (), registry_epoch: int | None = None
    ) -> tuple[TopicState, ...]:
        """Every topic file; of the *topics* that are known here, the ones that were written later than the registry."""
        told = {topic.topic_id: topic for topic in topics}
        newer = []
        for file in self._all(self._topic_file, list_topic_keys(self.bucket.store, self.bucket.keys)):
            if file is None:
                continue
            topic = TopicState(
                topic=file.topic,
                topic_id=file.topic_id,
                partitions=file.partitions,
                config=dict(file.config),
                created_ms=file.created_ms,
                deleted_ms=file.deleted_ms,
                adopted=file.adopted,
            )
            self.catalog.take_topic(topic)
            here = told.get(topic.topic_id)
            if here is not None and self._is_newer(topic, file.epoch, here, registry_epoch):
                adopted = here.adopted if topic.adopted is None else topic.adopted
                newer.append(replace(here, config=topic.config, adopted=adopted))
        return tuple(newer)

    def _topic_file(self, key: TopicFileKey) -> TopicFile | None:
        """None when it was swept meanwhile, or does not parse: one such file is no reason to serve no topic at all."""
        try:
            return read_topic(self.bucket.store, self.bucket.keys, key.topic, key.topic_id)
        except CorruptFile as error:
            log.error("a topic file does not parse, what the registry says counts: %s", error)
            return None

    def _is_newer(self, there: TopicState, epoch: int, here: TopicState, registry_epoch: int | None) -> bool:
        """A later run than the registry's last one wrote it; or the same one did, but nothing of ours is on its way."""
        known = self.catalog.topic(here.topic_id)
        made_here = registry_epoch is None and (here.adopted, there.adopted) == (True, False)  # its registry was lost
        same = there.config == here.config and not made_here
        if here.deleted_ms is not None or there.deleted_ms is not None or same or known is None:
            return False
        now, dirty = known
        if now.config != here.config:  # a client has changed them since this run began
            return False
        return registry_epoch is None or epoch > registry_epoch or not dirty

    def _take_newer(self, claims: list[OwnerClaim], here: Mapping[PartitionId, str]) -> list[_Part]:
        """The last writer was this catalog: only what lies at or behind its last segment can be new."""
        parts = {**here, **{row.part: row.topic for row in self.catalog.partitions()}}
        lost = Losses(self.catalog)
        return self._all(lambda one: self._take_newer_of(*one, claims, lost), parts.items())

    def _take_newer_of(self, part: PartitionId, topic: str, claims: list[OwnerClaim], lost: Losses) -> _Part:
        keys = self.bucket.keys
        folder = keys.partition_folder(topic, part.topic_id, part.partition)
        last = self.catalog.last(part)
        start_after = None if last is None else f"{folder}{last.remote.base:020d}"
        listed = list_segments(self.bucket.store, keys, folder, start_after)
        faults = {loss.segment_id: loss.why for loss in lost.of(part)}
        return self._take_part(part, listed, None, claims, faults)

    def _take_all(self, claims: list[OwnerClaim]) -> list[_Part]:
        """Another run wrote since, or the catalog is new: every folder and head."""
        store, keys = self.bucket.store, self.bucket.keys
        log.info("taking in the whole bucket", extra={"url": self.bucket.url})
        heads = dict(self._all(self._head, list_heads(store, keys)))
        folders = self._all(lambda folder: list_segments(store, keys, folder), topic_folders(self.bucket))
        by_part: dict[PartitionId, list[Found]] = {part: [] for part in heads}
        for found in (one for folder in folders for one in folder):
            by_part.setdefault(found.part, []).append(found)
        return self._all(
            lambda one: self._take_part(one[0], one[1], heads.get(one[0]), claims),
            by_part.items(),
            lambda done: self.on_part(done, len(by_part)),
        )

    def _head(self, key: HeadKey) -> tuple[PartitionId, Head | None]:
        """One that does not parse is as none: log start is then what the disk says, or lower, and more is kept."""
        part = PartitionId(key.topic_id, key.partition)
        try:
            stored = read_head(self.bucket.store, self.bucket.keys, key.topic, key.topic_id, key.partition)
        except NewerFormat:
            raise
        except CorruptFile as error:
            log.error("a head does not parse, the manifests say what the bucket has of its partition: %s", error)
            self._rotten[part] = str(error)
            return part, None
        return part, None if stored is None else stored.head

    def _take_part(
        self,
        part: PartitionId,
        listed: list[Found],
        head: Head | None,
        claims: list[OwnerClaim],
        faults: Mapping[Uuid, str] | None = None,
    ) -> _Part:
        """Make rows of one partition's unknown segments, and sort out those that do not count.

        *faults*: the known segments that are not whole; None: *listed* is all that the bucket has, and shows it.
        """
        rows = {row.remote.segment_id: row for row in self.catalog.segments(part)}
        known = {key for key, row in rows.items() if row.state is not CopyState.COPY_STARTED}
        # A copy that was cut off is judged with the new ones.
        finished = [row for row in rows.values() if row.state is CopyState.COPY_FINISHED]
        named = {entry.segment_id: entry for entry in head.entries} if head else {}
        fresh = [
            row_of(self.bucket.store, self.bucket.keys, found, named)
            for found in listed
            if found.name.segment_id not in known
        ]
        new = [row for row in fresh if row is not None]
        if head is not None:
            new += self._only_named(head, {*known, *(row.remote.segment_id for row in new)})
            self.catalog.gaps.add(part, [(gap.start, gap.stop) for gap in head.gaps])
        gaps = self.catalog.gaps  # what is left of a segment there does not count again
        new = [row for row in new if not gaps.covers(part, row.remote.base, row.remote.next_base)]
        if faults is None:
            faults = faults_of([*finished, *new], (info for one in listed for info in one.objects.values()))
        runs = [(claim.epoch, claim.first_append(part)) for claim in claims]
        choice = choose(
            [*finished, *new],
            Lineage(
                runs=[RunStart(epoch, first) for epoch, first in runs if first is not None],
                head_epoch=head.epoch if head else None,
                named=frozenset(named),
                faulty=frozenset(faults),
            ),
        )
        counted = [row for row in choice.counting if row.remote.segment_id not in known]
        if counted:
            self.catalog.finished(*counted)  # makes the partition's row, too: no row is there without its copied end
        if listed or head:
            self.catalog.know(part, listed[0].name.topic if listed else head.topic if head else "")
        if head is not None:
            self._remember(part, head)
        needed = [row for row in choice.counting if head is None or row.remote.next_base > head.log_start]
        faulty = [Faulty(row, faults[row.remote.segment_id]) for row in needed if row.remote.segment_id in faults]
        # A head may have named what lost without it: only what this catalog had counted before has to go.
        lost = [row for row in choice.lost if part not in self._rotten or row.remote.segment_id in rows]
        return _Part(tuple(lost), tuple(faulty))

    def _only_named(self, head: Head, known: set[Uuid]) -> list[CatalogSegment]:
        """What the head names and nothing else shows: ranges without records, and segments above log start that have
        lost an object. Nothing else must take their place: what they held may be on the disk still, or come back."""
        return [
            named_row(
                self.bucket.keys,
                SegmentName(head.topic, head.topic_id, head.partition, entry.base, entry.segment_id),
                entry,
            )
            for entry in head.entries
            if entry.segment_id not in known and (entry.size_bytes == 0 or entry.next_base > head.log_start)
        ]

    def _remember(self, part: PartitionId, head: Head) -> None:
        if head.log_start:
            self.catalog.set_log_start(part, head.log_start)
            self.catalog.release(part, head.log_start, self._server_ms())  # when it was released nobody kept
        if head.copied_to is not None:
            self.catalog.set_copied_to(part, head.copied_to)

    def _server_ms(self) -> int:
        server_ms = self.bucket.store.now_ms()
        return self.clock.now_ms() if server_ms is None else server_ms

    def _settle_started(self, losers: Collection[Uuid]) -> None:
        """A crash left these between their first byte and the catalog's last word: the manifest decides.

        *losers* are committed, but do not count.
        """
        started = self.catalog.in_state(CopyState.COPY_STARTED)
        left = [row for row in started if row.remote.segment_id not in losers]
        self._all(lambda row: settle(self.bucket, self.catalog, self.clock, row, self.settle_ms), left)

    def _all(
        self,
        work: Callable[[Item], Result],
        items: Iterable[Item],
        on_done: Callable[[int], None] = lambda done: None,
    ) -> list[Result]:
        """*work* on every item in a few threads; each answer is a beat of the pulse. *on_done* hears how many there are
        so far."""
        results: list[Result] = []
        with ThreadPoolExecutor(_THREADS, "survey") as pool:
            for result in pool.map(work, items):
                self.pulse.beat()
                results.append(result)
                on_done(len(results))
        return results
