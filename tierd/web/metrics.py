"""The daemon's numbers as Prometheus text, made from one snapshot at each scrape.

`METRICS` is the whole list: docs/metrics.md is generated from it, and a sample that is not in it is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

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

METRICS: tuple[MetricRule, ...] = (
    MetricRule("tierd_up", Kind.GAUGE, "1 while the broker process answers."),
    MetricRule("tierd_build_info", Kind.GAUGE, "Always 1; the version is in the label.", ("version",)),
    MetricRule("tierd_owner_epoch", Kind.GAUGE, "Leader epoch of this run."),
    MetricRule("tierd_claim", Kind.GAUGE, "1 for the state that the claim on the bucket is in.", ("state",)),
    MetricRule("tierd_tierer_up", Kind.GAUGE, "1 while the tierer process runs. Absent without a bucket."),
    MetricRule("tierd_tierer_starts", Kind.COUNTER, "Starts of the tierer process."),
    MetricRule("tierd_connections", Kind.GAUGE, "Open client connections."),
    MetricRule("tierd_in_flight_bytes", Kind.GAUGE, "Bytes of requests held."),
    MetricRule("tierd_requests", Kind.COUNTER, "Requests answered, by API name.", ("api",)),
    MetricRule(
        "tierd_request_errors", Kind.COUNTER, "Partition or request errors answered, by Kafka's error code.", ("code",)
    ),
    MetricRule("tierd_received_bytes", Kind.COUNTER, "Bytes received from clients."),
    MetricRule("tierd_sent_bytes", Kind.COUNTER, "Bytes sent to clients."),
    MetricRule("tierd_produced_bytes", Kind.COUNTER, "Bytes of batches appended."),
    MetricRule(
        "tierd_fetched_bytes",
        Kind.COUNTER,
        "Bytes of batches sent to consumers, by the tier they came from.",
        ("tier",),
    ),
    MetricRule("tierd_disk_free_bytes", Kind.GAUGE, "Free space of a data directory's file system.", ("directory",)),
    MetricRule("tierd_set_aside_files", Kind.GAUGE, "Files set aside because they were damaged or unknown."),
    MetricRule("tierd_partitions", Kind.GAUGE, "Partitions served."),
    MetricRule("tierd_log_start_offset", Kind.GAUGE, "First offset of the log, in whichever tier.", _PARTITION),
    MetricRule("tierd_local_start_offset", Kind.GAUGE, "First offset on the local disk.", _PARTITION),
    MetricRule(
        "tierd_copied_to_offset", Kind.GAUGE, "Offset after the last copied one. Absent: nothing copied.", _PARTITION
    ),
    MetricRule("tierd_log_end_offset", Kind.GAUGE, "Offset that the next record gets.", _PARTITION),
    MetricRule("tierd_local_bytes", Kind.GAUGE, "Bytes of the log on the local disk.", _PARTITION),
    MetricRule("tierd_remote_bytes", Kind.GAUGE, "Bytes of the log in the bucket. Absent: not known.", _PARTITION),
    MetricRule(
        "tierd_oldest_uncopied_milliseconds",
        Kind.GAUGE,
        "Age of the oldest data that is only on the local disk. Absent: everything is copied, or nothing is to be.",
        _PARTITION,
    ),
    MetricRule("tierd_copied_bytes", Kind.COUNTER, "Bytes of segments committed in the bucket."),
    MetricRule("tierd_copied_segments", Kind.COUNTER, "Segments committed in the bucket."),
    MetricRule("tierd_copy_failures", Kind.COUNTER, "Tries to copy a segment that failed."),
    MetricRule("tierd_evicted_segments", Kind.COUNTER, "Local segments dropped because the bucket has them."),
    MetricRule("tierd_remote_requests", Kind.COUNTER, "Requests to the bucket, by operation.", ("operation",)),
    MetricRule("tierd_remote_read_bytes", Kind.COUNTER, "Bytes read from the bucket."),
    MetricRule("tierd_cache_bytes", Kind.GAUGE, "Bytes of the cache of remote reads on disk."),
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
