"""The daemon's numbers as Prometheus text, made from one snapshot at each scrape.

`METRICS` is the whole list: docs/metrics.md is generated from it, and a sample that is not in it is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class MetricRule:
    """One metric: name (counters without `_total`), kind, labels, meaning with its unit."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...] = ()


_PARTITION = ("topic", "partition")
_OPERATION = ("topic", "operation")

METRICS: tuple[MetricRule, ...] = (
    MetricRule("tierd_up", Kind.GAUGE, "1 while the broker process answers."),
    MetricRule("tierd_build_info", Kind.GAUGE, "Always 1; the version is in the label.", ("version",)),
    MetricRule("tierd_owner_epoch", Kind.GAUGE, "Leader epoch of this run."),
    MetricRule("tierd_claim", Kind.GAUGE, "1 for the state that the claim on the bucket is in.", ("state",)),
    MetricRule("tierd_tierer_up", Kind.GAUGE, "1 while the tierer process runs and answers. Absent without a bucket."),
    MetricRule("tierd_tierer_silent_milliseconds", Kind.GAUGE, "So long the tierer has left a question unanswered."),
    MetricRule("tierd_bucket_silent_milliseconds", Kind.GAUGE, "So long no call of the bucket has been answered."),
    MetricRule("tierd_tierer_starts", Kind.COUNTER, "Starts of the tierer process."),
    MetricRule("tierd_copies_paused", Kind.GAUGE, "1 while `tierd pause` holds all copies."),
    MetricRule(
        "tierd_bucket_requests",
        Kind.COUNTER,
        "Requests to the bucket since the tierer started, retries too. No topic: claims, listings of the whole bucket.",
        _OPERATION,
    ),
    MetricRule("tierd_bucket_sent_bytes", Kind.COUNTER, "Bytes of bodies sent with them.", _OPERATION),
    MetricRule("tierd_bucket_received_bytes", Kind.COUNTER, "Bytes of bodies that came back.", _OPERATION),
    MetricRule("tierd_connections", Kind.GAUGE, "Open client connections."),
    MetricRule("tierd_requests", Kind.COUNTER, "Requests, by API name.", ("api",)),
    MetricRule("tierd_bad_requests", Kind.COUNTER, "Requests that made no sense; their connections were closed."),
    MetricRule("tierd_tls_handshake_failures", Kind.COUNTER, "TLS handshakes that failed; the log says why."),
    MetricRule(
        "tierd_tls_certificate_expiry_timestamp_seconds",
        Kind.GAUGE,
        "Until when the certificate is good that new connections are shown.",
        ("listener",),
    ),
    MetricRule("tierd_authentication_failures", Kind.COUNTER, "SASL authentications that failed; the log says why."),
    MetricRule(
        "tierd_expired_sessions", Kind.COUNTER, "Connections closed because their client did not authenticate again."
    ),
    MetricRule("tierd_denied", Kind.COUNTER, "Things that clients have asked for and may not do."),
    MetricRule("tierd_throttled_requests", Kind.COUNTER, "Requests after which a client had to pause for its quota."),
    MetricRule("tierd_throttle_seconds", Kind.COUNTER, "These pauses together."),
    MetricRule("tierd_produced_bytes", Kind.COUNTER, "Bytes of batches appended."),
    MetricRule("tierd_commits", Kind.COUNTER, "Flushes that Produce requests waited for (tierd.acks.durability=disk)."),
    MetricRule("tierd_committed_requests", Kind.COUNTER, "Appends that such a flush answered."),
    MetricRule("tierd_cleanings", Kind.COUNTER, "Partitions cleaned by compaction, each time."),
    MetricRule("tierd_cleaning_failures", Kind.COUNTER, "Cleanings that failed; the log says why."),
    MetricRule("tierd_cleaned_bytes", Kind.COUNTER, "Bytes of segments that were cleaned."),
    MetricRule("tierd_kept_bytes", Kind.COUNTER, "Bytes that were left of them."),
    MetricRule("tierd_fetched_bytes", Kind.COUNTER, "Bytes of batches sent to consumers, by tier.", ("tier",)),
    MetricRule("tierd_fetch_sessions", Kind.GAUGE, "Incremental fetch sessions of clients."),
    MetricRule("tierd_fetch_session_partitions", Kind.GAUGE, "Partitions in them."),
    MetricRule("tierd_fetch_session_evictions", Kind.COUNTER, "Sessions that made room for others."),
    MetricRule("tierd_remote_read_failures", Kind.COUNTER, "Reads from the bucket that failed."),
    MetricRule("tierd_disk_free_bytes", Kind.GAUGE, "Free space of a data directory's file system.", ("directory",)),
    MetricRule(
        "tierd_disk_pause_milliseconds", Kind.GAUGE, "Pause after each Produce, for lack of room.", ("directory",)
    ),
    MetricRule("tierd_directory_offline", Kind.GAUGE, "1 for a data directory whose disk has failed.", ("directory",)),
    MetricRule(
        "tierd_problems", Kind.GAUGE, "How many things are wrong, by kind; tierd status says what and where.", ("kind",)
    ),
    MetricRule("tierd_moves", Kind.GAUGE, "Partitions on their way to another data directory."),
    MetricRule("tierd_partitions", Kind.GAUGE, "Partitions served."),
    MetricRule("tierd_log_start_offset", Kind.GAUGE, "First offset of the log, in whichever tier.", _PARTITION),
    MetricRule("tierd_local_start_offset", Kind.GAUGE, "First offset on the local disk.", _PARTITION),
    MetricRule(
        "tierd_copied_to_offset", Kind.GAUGE, "Offset after the last copied one. Absent: nothing copied.", _PARTITION
    ),
    MetricRule("tierd_log_end_offset", Kind.GAUGE, "Offset that the next record gets.", _PARTITION),
    MetricRule(
        "tierd_lost_offsets", Kind.GAUGE, "Offsets that recovery found lost in the middle of the log.", _PARTITION
    ),
    MetricRule("tierd_local_bytes", Kind.GAUGE, "Bytes of the log on the local disk.", _PARTITION),
    MetricRule("tierd_remote_bytes", Kind.GAUGE, "Bytes of the log in the bucket. Absent: not known.", _PARTITION),
    MetricRule(
        "tierd_oldest_uncopied_milliseconds",
        Kind.GAUGE,
        "Age of the oldest data that is only on the local disk. Absent: everything is copied, or nothing is to be.",
        _PARTITION,
    ),
    MetricRule(
        "tierd_dirty_ratio",
        Kind.GAUGE,
        "Of the bytes that compaction may clean, the part that it has not cleaned yet. Absent: not compacted.",
        _PARTITION,
    ),
    MetricRule("tierd_dirty_bytes", Kind.GAUGE, "Bytes of that part.", _PARTITION),
    MetricRule(
        "tierd_last_cleaned_timestamp_seconds",
        Kind.GAUGE,
        "Unix time of the last cleaning since the start. Absent: none yet.",
        _PARTITION,
    ),
    MetricRule(
        "tierd_uncleanable", Kind.GAUGE, "1 when the last cleaning of the partition failed, else 0.", _PARTITION
    ),
)

_RULES = {rule.name: rule for rule in METRICS}


@dataclass(frozen=True, slots=True)
class Sample:
    """One number at the moment of the scrape. Labels in the order of the rule; a None value is left out."""

    name: str
    value: float | None
    labels: tuple[str, ...] = ()


def render(samples: Iterable[Sample]) -> bytes:
    """Prometheus text of the samples. KeyError or ValueError for a sample that METRICS does not describe."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(lambda: samples))
    return generate_latest(registry)


def partition_samples(row: Mapping[str, object]) -> Iterator[Sample]:
    """The samples of one row of `tierd status --json`."""
    labels = (str(row["topic"]), str(row["partition"]))
    for name, column in (
        ("tierd_log_start_offset", "log_start"),
        ("tierd_local_start_offset", "local_start"),
        ("tierd_copied_to_offset", "copied_to"),
        ("tierd_log_end_offset", "log_end"),
        ("tierd_local_bytes", "local_bytes"),
        ("tierd_remote_bytes", "remote_bytes"),
        ("tierd_oldest_uncopied_milliseconds", "oldest_uncopied_ms"),
    ):
        value = row.get(column)
        if isinstance(value, int):
            yield Sample(name, value, labels)
    gaps = row.get("gaps")
    if isinstance(gaps, list):
        yield Sample("tierd_lost_offsets", sum(stop - start for start, stop in gaps), labels)
    compaction = row.get("compaction")
    if isinstance(compaction, dict):
        finished_ms = compaction["finished_ms"]
        yield Sample("tierd_dirty_ratio", compaction["dirty_ratio"], labels)
        yield Sample("tierd_dirty_bytes", compaction["dirty_bytes"], labels)
        yield Sample(
            "tierd_last_cleaned_timestamp_seconds", None if finished_ms is None else finished_ms / 1000, labels
        )
        yield Sample("tierd_uncleanable", int(compaction["problem"] is not None), labels)


class BrokerNumbers(Protocol):
    """What the broker counts (tierd/broker/counters.py)."""

    @property
    def requests(self) -> Mapping[int, int]:
        """By API key."""

    @property
    def bad_requests(self) -> int: ...

    @property
    def handshakes_failed(self) -> int: ...

    @property
    def authentications_failed(self) -> int: ...

    @property
    def sessions_expired(self) -> int: ...

    @property
    def denied(self) -> int: ...

    @property
    def throttled(self) -> int: ...

    @property
    def throttled_ms(self) -> int: ...

    @property
    def produced_bytes(self) -> int: ...

    @property
    def commits(self) -> int: ...

    @property
    def committed_requests(self) -> int: ...

    @property
    def cleanings(self) -> int: ...

    @property
    def cleanings_failed(self) -> int: ...

    @property
    def cleaned_bytes(self) -> int: ...

    @property
    def kept_bytes(self) -> int: ...

    @property
    def fetched_bytes(self) -> int: ...

    @property
    def fetched_remote_bytes(self) -> int: ...

    @property
    def remote_reads_failed(self) -> int: ...


def broker_samples(numbers: BrokerNumbers, api_name: Callable[[int], str]) -> Iterator[Sample]:
    """The samples of what the broker counts since it started."""
    yield from (Sample("tierd_requests", count, (api_name(key),)) for key, count in sorted(numbers.requests.items()))
    yield Sample("tierd_bad_requests", numbers.bad_requests)
    yield Sample("tierd_tls_handshake_failures", numbers.handshakes_failed)
    yield Sample("tierd_authentication_failures", numbers.authentications_failed)
    yield Sample("tierd_expired_sessions", numbers.sessions_expired)
    yield Sample("tierd_denied", numbers.denied)
    yield Sample("tierd_throttled_requests", numbers.throttled)
    yield Sample("tierd_throttle_seconds", numbers.throttled_ms / 1000)
    yield Sample("tierd_cleanings", numbers.cleanings)
    yield Sample("tierd_cleaning_failures", numbers.cleanings_failed)
    yield Sample("tierd_cleaned_bytes", numbers.cleaned_bytes)
    yield Sample("tierd_kept_bytes", numbers.kept_bytes)
    yield Sample("tierd_produced_bytes", numbers.produced_bytes)
    yield Sample("tierd_commits", numbers.commits)
    yield Sample("tierd_committed_requests", numbers.committed_requests)
    yield Sample("tierd_fetched_bytes", numbers.fetched_bytes - numbers.fetched_remote_bytes, ("local",))
    yield Sample("tierd_fetched_bytes", numbers.fetched_remote_bytes, ("remote",))
    yield Sample("tierd_remote_read_failures", numbers.remote_reads_failed)


class _Snapshot(Collector):
    def __init__(self, samples: Callable[[], Iterable[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        found: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for sample in self._samples():
            rule = _RULES[sample.name]
            if len(sample.labels) != len(rule.labels):
                raise ValueError(f"{sample.name} has the labels {rule.labels}, got {sample.labels}")
            if sample.value is not None:
                family = found.setdefault(rule.name, _family(rule))
                family.add_metric(sample.labels, sample.value)
        return iter(found.values())


def _family(rule: MetricRule) -> CounterMetricFamily | GaugeMetricFamily:
    make = CounterMetricFamily if rule.kind is Kind.COUNTER else GaugeMetricFamily
    return make(rule.name, rule.doc, labels=rule.labels)
