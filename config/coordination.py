"""Settings of what is coordinated for clients: groups and transactions."""

from typing import Annotated

from tierd.config.kinds import BYTES, MILLIS, Number
from tierd.config.section import Section, Setting
from tierd.config.topic import DAY_MS, HOUR_MS, MAX_PARTITIONS, MIB


class Groups(Section):
    """Consumer groups."""

    initial_delay_ms: Annotated[
        int,
        Setting(
            "group.initial.rebalance.delay.ms",
            Number(0, HOUR_MS, MILLIS),
            "How long the first member of an empty group waits for others. 0 as in the configuration that Kafka ships: "
            "a lone consumer starts at once. Where many start together 3s, as in Kafka's code, saves them rebalances.",
        ),
    ] = 0
    max_size: Annotated[
        int, Setting("group.max.size", Number(1, 2**31 - 1), "Members of one group; one more is refused.")
    ] = 2**31 - 1
    offset_metadata: Annotated[
        int,
        Setting(
            "offset.metadata.max.bytes", Number(0, 32_767), "Largest metadata that goes with one committed offset."
        ),
    ] = 4096
    consumer_session_ms: Annotated[
        int,
        Setting(
            "group.consumer.session.timeout.ms",
            Number(1_000, HOUR_MS, MILLIS),
            "Consumer protocol (KIP-848): a member that is silent for so long is sent away.",
        ),
    ] = 45_000
    consumer_heartbeat_ms: Annotated[
        int,
        Setting(
            "group.consumer.heartbeat.interval.ms",
            Number(100, HOUR_MS, MILLIS),
            "Consumer protocol: how often members are told to send heartbeats; below the session timeout.",
        ),
    ] = 5_000
    consumer_max_size: Annotated[
        int,
        Setting("group.consumer.max.size", Number(1, 2**31 - 1), "Consumer protocol: members of one group."),
    ] = 2**31 - 1
    retention_minutes: Annotated[
        int,
        Setting(
            "offsets.retention.minutes",
            Number(1, 2**31 - 1),
            "Committed offsets are forgotten so many minutes after the last member of their group has left, or after "
            "their commit where the group reads other topics now.",
        ),
    ] = 7 * 24 * 60
    expiry_check_ms: Annotated[
        int,
        Setting(
            "offsets.retention.check.interval.ms",
            Number(1, DAY_MS, MILLIS),
            "Time between two looks for offsets that may be forgotten.",
        ),
    ] = 600_000
    memory_bytes: Annotated[
        int,
        Setting(
            "tierd.groups.memory.bytes",
            Number(MIB, unit=BYTES),
            "Memory of all groups, their members and offsets, counted generously (a small group is 2 KiB). Beyond it "
            "new ones are refused with POLICY_VIOLATION.",
        ),
    ] = 256 * MIB


class Transactions(Section):
    """The transaction coordinator."""

    topic_partitions: Annotated[
        int,
        Setting(
            "transaction.state.log.num.partitions",
            Number(1, MAX_PARTITIONS),
            "Partitions of __transaction_state when it is made.",
        ),
    ] = 50
    max_timeout_ms: Annotated[
        int,
        Setting(
            "transaction.max.timeout.ms",
            Number(1, 2**31 - 1, MILLIS),
            "Longest transaction.timeout.ms that a producer may ask for; a longer transaction is aborted.",
        ),
    ] = HOUR_MS // 4
    unused_ms: Annotated[
        int,
        Setting(
            "transactional.id.expiration.ms",
            Number(1, 2**31 - 1, MILLIS),
            "A transactional id that nobody uses for so long is forgotten.",
        ),
    ] = 7 * DAY_MS
    memory_bytes: Annotated[
        int,
        Setting(
            "tierd.transactions.memory.bytes",
            Number(MIB, unit=BYTES),
            "Memory of all transactional ids and their open transactions, counted generously (an id is 1 KiB). Beyond "
            "it new ones are refused with POLICY_VIOLATION.",
        ),
    ] = 128 * MIB
    producer_expiry_ms: Annotated[
        int,
        Setting(
            "producer.id.expiration.ms",
            Number(1, 2**31 - 1, MILLIS),
            "A partition forgets a producer that it has not heard of for so long, unless its transaction is open.",
        ),
    ] = DAY_MS
