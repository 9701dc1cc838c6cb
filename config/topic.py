"""Every topic setting under Kafka's own topic-level name and meaning, with tierd's defaults (an archive keeps)."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MAX_PARTITIONS = 10_000
"""Of one topic, whoever makes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings in force for one topic. A limit of None means none (Kafka's -1)."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int | None = None
    flush_ms: int | None = None
    index_interval_bytes: int = 4 * KIB
    internal_segment_bytes: int | None = None
    """Overrides segment_bytes without its floor of 1 MiB, as in Kafka; for tests."""
    local_retention_bytes: int | None = None
    local_retention_ms: int | None = DAY_MS
    max_compaction_lag_ms: int | None = None
    max_message_bytes: int = MIB + 12
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int | None = None
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = True
    retention_bytes: int | None = None
    retention_ms: int | None = None
    segment_bytes: int = GIB
    segment_index_bytes: int = 10 * MIB
    segment_jitter_ms: int = 0
    segment_ms: int | None = 7 * DAY_MS
    tierd_acks_durability: str = "cache"
    tierd_archive_max_age_ms: int | None = HOUR_MS
    tierd_delete_delay_ms: int = DAY_MS
    tierd_validate_records: str = "batch"

    @property
    def roll_bytes(self) -> int:
        """A segment is rolled before it would grow above this."""
        return self.internal_segment_bytes if self.internal_segment_bytes is not None else self.segment_bytes

    @property
    def visible_when_durable(self) -> bool:
        """Readers get to see a batch once it is on the disk; else as soon as it is in the page cache."""
        return self.tierd_acks_durability == "disk" or self.flush_messages == 1

    @property
    def roll_ms(self) -> int | None:
        """A segment that is older is rolled: `segment.ms`, or less where records must become cleanable sooner."""
        if not self.compacted or self.max_compaction_lag_ms is None:
            return self.segment_ms
        return (
            self.max_compaction_lag_ms if self.segment_ms is None else min(self.segment_ms, self.max_compaction_lag_ms)
        )

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy
