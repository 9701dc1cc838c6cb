"""`tierd restore --kafka`: into a data directory that `kafka-storage.sh format` has made, for Kafka to start on."""

from collections.abc import Mapping
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.errors import StartRefused
from tierd.broker.registry import TopicRow
from tierd.config.topic_rules import BY_NAME
from tierd.remote.view import ArchivedTopic
from tierd.storage import names
from tierd.storage.metadata import parse_meta_properties
from tierd.tiering.restore.bootstrap import BootTopic, with_topics
from tierd.tiering.restore.fresh import EPOCH
from tierd.tiering.restore.journal import Journal
from tierd.tiering.restore.plan import Plan, TopicPlan

BOOTSTRAP = "bootstrap.checkpoint"
METADATA = "__cluster_metadata-0"
FORMATTED = frozenset({names.META_PROPERTIES, BOOTSTRAP, METADATA})
"""All that it has made."""
_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_OFFSETS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
"""As Kafka makes that topic."""
_TIERED = ("tierd.", "remote.", "local.")


def check_formatted(to: Path) -> None:
    """Raises StartRefused unless a Kafka that is started on *to* reads the file for the first time."""
    missing = sorted(name for name in FORMATTED - {METADATA} if not (to / name).is_file())
    if missing:
        what = f"{to} has no {' and no '.join(missing)}"
        raise StartRefused(f"{what}: format it with kafka-storage.sh first, for a broker that is a controller, too")
    if list((to / METADATA).glob("*.log")):
        raise StartRefused(f"a Kafka has been started on {to}, and reads {BOOTSTRAP} no more: format another place")


def write_bootstrap(disk: Disk, to: Path, plan: Plan, begun: Journal, groups: TopicRow | None) -> None:
    """Let Kafka know the topics, and the one where *groups* have their offsets.

    Raises CorruptFile, StartRefused, DiskFull, OSError.
    """
    meta = parse_meta_properties((to / names.META_PROPERTIES).read_bytes(), str(to / names.META_PROPERTIES))
    if meta.node_id is None or meta.directory_id is None:
        raise StartRefused(
            f"{to / names.META_PROPERTIES} lacks node.id or directory.id: format it with Kafka 3.7 or later"
        )
    path = to / BOOTSTRAP
    topics = [_told(one, begun, by_tierd=plan.by_tierd) for one in plan.topics]
    if groups is not None:
        epochs = [EPOCH + 1] * groups.partitions
        topics.append(BootTopic(name=groups.name, topic_id=groups.id, config=_OFFSETS, leader_epochs=epochs))
    publish(disk, path, with_topics(path.read_bytes(), str(path), meta.node_id, meta.directory_id, topics))


def _told(plan: TopicPlan, begun: Journal, *, by_tierd: bool) -> BootTopic:
    return BootTopic(
        name=plan.topic.name,
        topic_id=begun.new_id(plan.topic.topic_id),
        config=kafka_config(plan.topic, by_tierd=by_tierd),
        leader_epochs=[one.epochs[-1].epoch + 1 if one.epochs else 0 for one in plan.partitions],
    )


def kafka_config(topic: ArchivedTopic, *, by_tierd: bool) -> Mapping[str, str]:
    """Its settings without those of tiering. Nothing goes of what nobody has set a limit for: Kafka's own is a week."""
    known = {name: value for name, value in topic.config.items() if name in BY_NAME and not name.startswith(_TIERED)}
    return _FOREVER | known if by_tierd else _FOREVER
