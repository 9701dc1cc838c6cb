"""What a broker is made of, each part put together from those above it."""

from concurrent.futures import ThreadPoolExecutor

from tierd.base.clock import Clock
from tierd.base.errors import StartRefused
from tierd.base.ids import TopicPartition
from tierd.broker.cleaning import Cleaning, CleaningLimits
from tierd.broker.commits import Commits
from tierd.broker.counters import Counters
from tierd.broker.delete_records import DeleteRecords
from tierd.broker.fetch import Fetch
from tierd.broker.fetch_sessions import FetchSessions
from tierd.broker.group_ports import TopicIds
from tierd.broker.groups.consumer.groups import ConsumerGroups
from tierd.broker.groups.coordinator import Coordinator
from tierd.broker.groups.expiry import OffsetsExpiry
from tierd.broker.groups.export import GroupsTier, OffsetsExport
from tierd.broker.groups.model import GroupLimits
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.groups.txn_store import TransactionalOffsets
from tierd.broker.housekeeping import Housekeeping
from tierd.broker.internal_topic import InternalTopic
from tierd.broker.looking import Behind, InThread
from tierd.broker.markers import Markers
from tierd.broker.moves import Moves
from tierd.broker.partitions import Partitions
from tierd.broker.ports import Looker, RemoteTier, Worker
from tierd.broker.produce import Produce
from tierd.broker.produce_work import Late
from tierd.broker.producer_ids import ProducerIds
from tierd.broker.registry import Registry
from tierd.broker.remote_reads import RemoteReads
from tierd.broker.repairing import RepairThread
from tierd.broker.sasl.users import Users
from tierd.broker.security.asking import Denied
from tierd.broker.security.audit import Audit, AuditFile, AuditLog
from tierd.broker.security.authorizer import Authorizer
from tierd.broker.security.quotas import Quotas
from tierd.broker.slow_disks import SlowDisks
from tierd.broker.topics import Topics
from tierd.broker.transactions.coordinator import Limits as TransactionLimits
from tierd.broker.transactions.coordinator import Transactions
from tierd.broker.transactions.ports import STATE_TOPIC
from tierd.config.model import Settings


class Parts:
    """Nothing runs yet: `Broker` starts and ends them."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        partitions: Partitions,
        tier: RemoteTier | None,
        clock: Clock,
        *,
        worker: Worker | None,
        looker: Looker | None,
        groups: GroupsTier | None = None,
    ) -> None:
        self.settings, self.partitions, self.tier, self._clock = settings, partitions, tier, clock
        self.counters = Counters()
        self.housekeeping = self._housekeeping()
        self.repair_thread = RepairThread(partitions, tier, self.housekeeping.fail)
        self.commits = Commits(self.counters, committed=self.housekeeping.appended, broken=self.housekeeping.fail)
        self.read_threads = ThreadPoolExecutor(4, "reads")
        self.lookup_threads = ThreadPoolExecutor(2, "lookups")

        self.users = Users(registry)
        self.topics = Topics(partitions, tier, clock)
        self.moves = Moves(partitions, tier)
        self.delete_records = DeleteRecords(partitions, tier)
        self.cleaning = None if worker is None else self._cleaning(worker)

        self.remote_reads = None if tier is None else RemoteReads(tier, clock, self.counters)
        self.audit = _audit(settings, clock)
        self.authorizer = self._authorizer(registry)
        self.quotas = Quotas(
            registry, clock, windows=settings.access.quota_windows, window_s=settings.access.quota_window_s
        )
        self.fetch_sessions = FetchSessions(clock, settings.fetch_session_slots, partitions.names)
        self.fetch = Fetch(partitions, self.remote_reads, self.counters, self.authorizer, self.fetch_sessions)

        self.topic_ids = TopicIds(partitions)
        self.offsets = self._internal(OFFSETS_TOPIC, settings.offsets_topic_partitions)
        self.coordinator = Coordinator(self.offsets, clock, limits=_group_limits(settings))
        self.consumer_groups = ConsumerGroups(self.coordinator, self.topic_ids)
        self.expiry = self._expiry()
        every_ms = settings.remote.groups_interval_ms
        self.export = None if groups is None else OffsetsExport(self.coordinator, self.offsets, groups, every_ms)

        self.producer_ids = ProducerIds(registry, clock, self._largest_producer_id)
        self.markers = self._markers()
        self.transactions = self._transactions()

        self.behind: Behind[Late] = Behind(looker or InThread())
        self.slow_disks = SlowDisks(partitions.homes, clock, settings.disk_slow_bytes, settings.disk_reserve_bytes)
        self.produce = self._produce()

    def _housekeeping(self) -> Housekeeping:
        return Housekeeping(
            self.partitions,
            self.tier,
            self._clock,
            retention_check_ms=self.settings.retention_check_ms,
            producer_expiry_ms=self.settings.transactions.producer_expiry_ms,
        )

    def _cleaning(self, worker: Worker) -> Cleaning:
        cleaner = self.settings.cleaner
        limits = CleaningLimits(
            memory_bytes=cleaner.memory_bytes,
            reserve_bytes=self.settings.disk_reserve_bytes,
            backoff_ms=cleaner.backoff_ms,
        )
        return Cleaning(
            self.partitions, worker, self.tier, self._clock, self.counters, limits, changed=self.housekeeping.appended
        )

    def _authorizer(self, registry: Registry) -> Authorizer | None:
        access = self.settings.access
        if not access.authorizer:
            return None
        return Authorizer(
            registry, super_users=access.super_users, allow_without=access.allow_without_acl, tell=self._denied
        )

    def _denied(self, denied: Denied) -> None:
        self.counters.denied += 1
        if self.audit is not None:
            self.audit.denied(denied)

    def _internal(self, name: str, default_partitions: int) -> InternalTopic:
        return InternalTopic(
            name,
            self.topics,
            self.partitions,
            self._clock,
            self.read_threads,
            appended=self.housekeeping.appended,
            commits=self.commits,
            default_partitions=default_partitions,
        )

    def _expiry(self) -> OffsetsExpiry:
        groups = self.settings.groups
        return OffsetsExpiry(
            self.coordinator, keep_ms=groups.retention_minutes * 60_000, every_ms=groups.expiry_check_ms
        )

    def _markers(self) -> Markers:
        return Markers(
            self.partitions,
            self.tier,
            self._clock,
            self.commits,
            TransactionalOffsets(self.coordinator),
            appended=self.housekeeping.appended,
        )

    def _transactions(self) -> Transactions:
        wanted = self.settings.transactions
        return Transactions(
            self._internal(STATE_TOPIC, wanted.topic_partitions),
            self.markers,
            self._clock,
            self.producer_ids.next_id,
            epoch=lambda: self.partitions.epoch,
            on_disk=self._on_disk,
            limits=TransactionLimits(
                max_timeout_ms=wanted.max_timeout_ms, unused_ms=wanted.unused_ms, memory_bytes=wanted.memory_bytes
            ),
            broken=self.housekeeping.fail,
        )

    def _produce(self) -> Produce:
        return Produce(
            self.partitions,
            self.tier,
            self._clock,
            self.counters,
            self.commits,
            self.behind,
            verifier=self.transactions,
            appended=self.slow_disks.appended(self.housekeeping.appended),
            authorizer=self.authorizer,
        )

    def _on_disk(self, place: TopicPartition) -> bool:
        """Whether what is acknowledged for the partition is on the disk."""
        found = self.partitions.get(place.topic, place.partition)
        return found is not None and found.log.commits

    def _largest_producer_id(self) -> int | None:
        ids = [largest for partition in self.partitions if (largest := partition.log.largest_producer_id) is not None]
        return max(ids, default=None)


def _audit(settings: Settings, clock: Clock) -> Audit | None:
    """None: nobody wants it. Raises StartRefused."""
    sinks: list[AuditFile | AuditLog] = [AuditLog()] if settings.access.audit_log else []
    if settings.access.audit_file is not None:
        try:
            sinks.append(AuditFile(settings.access.audit_file))
        except OSError as error:
            raise StartRefused(f"tierd.audit.file: {error}") from error
    return Audit(sinks, clock) if sinks else None


def _group_limits(settings: Settings) -> GroupLimits:
    groups = settings.groups
    return GroupLimits(
        initial_delay_ms=groups.initial_delay_ms,
        max_size=groups.max_size,
        offset_metadata=groups.offset_metadata,
        consumer_session_ms=groups.consumer_session_ms,
        consumer_heartbeat_ms=groups.consumer_heartbeat_ms,
        consumer_max_size=groups.consumer_max_size,
        memory_bytes=groups.memory_bytes,
    )
