"""All settings of a daemon: frozen, typed, complete before start.

Each field carries its path in tierd.toml, its kind and its meaning.
`load.load` makes a Settings from the command line and tierd.toml; docs/settings.md is generated from this module.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic.fields import FieldInfo

from tierd.config.access import Access
from tierd.config.checking import Checking
from tierd.config.coordination import Groups, Transactions
from tierd.config.encryption import Encryption
from tierd.config.kinds import BYTES, MILLIS, Choice, Number, Switch
from tierd.config.listeners import Endpoint, Listener
from tierd.config.places import Address, Bucket, HostPort, Place, Places
from tierd.config.prices import Prices
from tierd.config.resolve import TopicDefaults
from tierd.config.s3 import S3 as S3
from tierd.config.section import Section, Setting
from tierd.config.state_files import CONTROL_SOCKET
from tierd.config.topic import DAY_MS, GIB, HOUR_MS, KIB, MAX_PARTITIONS, MIB

OWN, ARCHIVE = "own", "archive"


class Http(Section):
    """Where /health and /metrics are answered."""

    address: Annotated[
        HostPort | None,
        Setting("http.address", Address(), "Where /health and /metrics are answered; not set: nowhere."),
    ] = None


class Remote(Section):
    """The bucket and how hard it is used."""

    url: Annotated[
        str | None,
        Setting(
            "remote.url",
            Bucket(),
            "The bucket (--remote). The prefix goes before each key as it is: end it with /. It belongs to the data "
            "from the first start on.",
        ),
    ] = None
    copy_threads: Annotated[int, Setting("remote.copy.threads", Number(1, 64), "Segments copied at a time.")] = 2
    part_bytes: Annotated[
        int, Setting("remote.part.bytes", Number(5 * MIB, GIB, BYTES), "Size of a part of a multipart upload.")
    ] = 16 * MIB
    compression: Annotated[
        str,
        Setting(
            "remote.compression",
            Choice(("none", "zstd")),
            "zstd: new segments are compressed in the bucket, unless most of their batches are compressed already.",
        ),
    ] = "none"
    chunk_bytes: Annotated[
        int,
        Setting(
            "remote.chunk.bytes",
            Number(64 * KIB, 64 * MIB, BYTES),
            "Pieces in which segments are compressed or encrypted; a read fetches whole ones.",
        ),
    ] = MIB
    read_threads: Annotated[
        int, Setting("remote.read.threads", Number(1, 256), "Requests for reading in flight at a time.")
    ] = 16
    range_bytes: Annotated[
        int,
        Setting(
            "remote.range.bytes",
            Number(256 * KIB, 256 * MIB, BYTES),
            "Most bytes asked for at a time by a fast sequential reader; slower and newer ones ask for less.",
        ),
    ] = 16 * MIB
    first_range_bytes: Annotated[
        int,
        Setting(
            "remote.first.range.bytes",
            Number(64 * KIB, 256 * MIB, BYTES),
            "Bytes asked for by the first read at an offset, so that the first record comes early.",
        ),
    ] = 256 * KIB
    read_ahead: Annotated[
        int, Setting("remote.read.ahead", Number(0, 256), "Most such ranges ahead of a sequential reader.")
    ] = 8
    cache_bytes: Annotated[
        int,
        Setting(
            "remote.cache.bytes",
            Number(64 * MIB, unit=BYTES),
            "Disk space in the state directory for what was read from the bucket.",
        ),
    ] = 4 * GIB
    memory_bytes: Annotated[
        int,
        Setting("remote.memory.bytes", Number(16 * MIB, unit=BYTES), "Memory of all reads from the bucket together."),
    ] = 128 * MIB
    upload_per_second: Annotated[
        int | None,
        Setting(
            "remote.upload.bytes.per.second",
            Number(0, unit=BYTES, none=0),
            "Most bytes a second that go to the bucket, of each process that writes there; shared evenly by what is "
            "on its way.",
        ),
    ] = None
    download_per_second: Annotated[
        int | None,
        Setting(
            "remote.download.bytes.per.second",
            Number(0, unit=BYTES, none=0),
            "Most bytes a second that objects are read with, of each process that reads there.",
        ),
    ] = None
    requests_per_second: Annotated[
        int | None,
        Setting(
            "remote.requests.per.second",
            Number(0, none=0),
            "Most requests of all kinds a second, of each process. Those that a client waits for go first, a sweep's "
            "last.",
        ),
    ] = None
    request_timeout_ms: Annotated[
        int,
        Setting("remote.request.timeout.ms", Number(100, HOUR_MS, MILLIS), "Longest wait for an answer of the bucket."),
    ] = 30_000
    retry_max_ms: Annotated[
        int,
        Setting(
            "remote.retry.max.ms", Number(100, DAY_MS, MILLIS), "Longest pause between two tries of a copy that fails."
        ),
    ] = 60_000
    head_interval_ms: Annotated[
        int,
        Setting(
            "remote.head.interval.ms",
            Number(100, HOUR_MS, MILLIS),
            "Longest wait before a change is in the partition's head in the bucket.",
        ),
    ] = 10_000
    groups_interval_ms: Annotated[
        int,
        Setting(
            "remote.groups.interval.ms",
            Number(100, DAY_MS, MILLIS),
            "Longest wait before what consumer groups have committed is in the bucket, for `tierd serve --recover`.",
        ),
    ] = 60_000
    sweep_interval_ms: Annotated[
        int,
        Setting(
            "remote.sweep.interval.ms",
            Number(0, unit=MILLIS),
            "Time between two sweeps of the bucket for what nobody needs, looked at every hour; 0: only `tierd sweep` "
            "does it.",
        ),
    ] = DAY_MS
    sweep_versions: Annotated[
        bool,
        Setting(
            "remote.sweep.versions",
            Switch(),
            "In a versioned bucket a sweep also deletes for good what tierd has replaced or deleted (`tierd sweep "
            "--purge-versions` does it once).",
        ),
    ] = False
    verify: Checking = Checking()
    encryption: Encryption = Encryption()
    refresh_interval_ms: Annotated[
        int,
        Setting(
            "remote.refresh.interval.ms",
            Number(100, DAY_MS, MILLIS),
            "In mode archive: time between two looks for what is new in the bucket. A look lists all of it, 1000 "
            "objects a request.",
        ),
    ] = 60_000
    s3: S3 = S3()


class Cleaner(Section):
    """Compaction, in the worker process."""

    enabled: Annotated[
        bool, Setting("log.cleaner.enable", Switch(), "Compact topics whose cleanup.policy asks for it.")
    ] = True
    backoff_ms: Annotated[
        int,
        Setting(
            "log.cleaner.backoff.ms", Number(10, HOUR_MS, MILLIS), "Time between two looks when nothing was to clean."
        ),
    ] = 15_000
    memory_bytes: Annotated[
        int,
        Setting(
            "log.cleaner.dedupe.buffer.size",
            Number(MIB, unit=BYTES),
            "Memory of the worker for the keys of one cleaning, about 180 bytes each. When it is full, what is left is "
            "cleaned the next time.",
        ),
    ] = 128 * MIB


class Settings(Section):
    """Everything a daemon is told. Paths are absolute, `file:` URLs too; limits that are None do not exist."""

    data_dirs: Annotated[
        tuple[Path, ...],
        Setting("data", Places(), "Data directories (--data): Kafka-format logs, under Kafka's own names only."),
    ]
    state_dir: Annotated[
        Path,
        Setting(
            "state",
            Place(),
            "State directory (--state): registry, catalog, cache, control socket, set-aside files. "
            "Not set: <data>.tierd.",
        ),
    ]
    mode: Annotated[
        str,
        Setting(
            "mode",
            Choice((OWN, ARCHIVE)),
            "own: logs on this disk, copied to the bucket. archive: the bucket is only read, and nothing but the "
            "offsets of groups is kept here (tierd archive).",
        ),
    ] = OWN
    node_id: Annotated[int, Setting("node.id", Number(0, 2**31 - 1), "Id of this node, as clients see it.")] = 1
    auto_create_topics: Annotated[
        bool, Setting("auto.create.topics.enable", Switch(), "Make a topic when a client first asks for it.")
    ] = True
    num_partitions: Annotated[
        int,
        Setting(
            "num.partitions", Number(1, MAX_PARTITIONS), "Partitions of a topic that is made without saying how many."
        ),
    ] = 1
    offsets_topic_partitions: Annotated[
        int,
        Setting(
            "offsets.topic.num.partitions",
            Number(1, MAX_PARTITIONS),
            "Partitions of __consumer_offsets when it is made.",
        ),
    ] = 50
    disk_reserve_bytes: Annotated[
        int,
        Setting(
            "tierd.disk.reserve.bytes",
            Number(0, unit=BYTES),
            "Produce is refused below this much free disk, so that copying and eviction still have room.",
        ),
    ] = 256 * MIB
    disk_evict_bytes: Annotated[
        int | None,
        Setting(
            "tierd.disk.evict.bytes",
            Number(0, unit=BYTES, none=0),
            "Below this much free disk what the bucket has leaves that data directory early, whatever local retention "
            "says. Only above tierd.disk.reserve.bytes it comes in time.",
        ),
    ] = None
    disk_slow_bytes: Annotated[
        int | None,
        Setting(
            "tierd.disk.slow.bytes",
            Number(0, unit=BYTES, none=0),
            "Below this much free disk producers to that data directory are slowed as by a quota, by up to a second a "
            "request at tierd.disk.reserve.bytes.",
        ),
    ] = None
    retention_check_ms: Annotated[
        int,
        Setting(
            "log.retention.check.interval.ms",
            Number(100, DAY_MS, MILLIS),
            "Time between two looks for what retention releases.",
        ),
    ] = 30_000
    fetch_session_slots: Annotated[
        int,
        Setting(
            "max.incremental.fetch.session.cache.slots",
            Number(0, 100_000),
            "Incremental fetch sessions that are kept: their clients send and get only what changes. 0: none.",
        ),
    ] = 1000
    log_dirs_with_remote: Annotated[
        bool,
        Setting(
            "tierd.log.dirs.with.remote",
            Switch(),
            "Sizes that kafka-log-dirs shows are those of both tiers added up; what lies in both counts twice. Off: of "
            "the local disk, as in Kafka.",
        ),
    ] = False
    log_level: Annotated[
        str, Setting("log.level", Choice(("debug", "info", "warning", "error")), "Least weight of the lines on stderr.")
    ] = "info"
    listener: Listener = Listener()
    listeners: Mapping[str, Endpoint] = {}
    """`[listeners.NAME]` of the file, beside that one."""
    http: Http = Http()
    remote: Remote = Remote()
    cleaner: Cleaner = Cleaner()
    groups: Groups = Groups()
    transactions: Transactions = Transactions()
    access: Access = Access()
    prices: Prices = Prices()
    defaults: Mapping[str, str] = {}
    """`[defaults]` of the file: topic settings in Kafka's own form."""
    set_overrides: Mapping[str, str] = {}
    """Topic settings given with --set, in Kafka's own form."""
    topics: Mapping[str, Mapping[str, str]] = {}
    """`[topics."x"]` of the file, in Kafka's own form."""

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """All listeners by name; `listener` is the first."""
        return {self.listener.named: self.listener, **self.listeners}

    @property
    def topic_defaults(self) -> TopicDefaults:
        return TopicDefaults(
            tiering=self.remote.url is not None,
            defaults=self.defaults,
            set_overrides=self.set_overrides,
            topics=self.topics,
        )

    @property
    def is_archive(self) -> bool:
        return self.mode == ARCHIVE

    @property
    def control_socket(self) -> Path:
        return self.state_dir / CONTROL_SOCKET


@dataclass(frozen=True, slots=True)
class Where:
    """A marked field and the way to it from Settings, by attribute names."""

    setting: Setting
    attributes: tuple[str, ...]
    default: object
    required: bool


def daemon_settings(model: type[Section] = Settings, above: tuple[str, ...] = ()) -> Iterator[Where]:
    """Every setting that has a path in tierd.toml, in the order of the model."""
    for name, info in model.model_fields.items():
        setting = next((mark for mark in info.metadata if isinstance(mark, Setting)), None)
        if setting is not None:
            yield Where(setting, (*above, name), info.default, info.is_required())
        elif (section := _section(info)) is not None:
            yield from daemon_settings(section, (*above, name))


def _section(info: FieldInfo) -> type[Section] | None:
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None
