"""The topics of a bucket, for a start that has nothing else to know them by. Pure but for the catalog."""

from dataclasses import replace

from tierd.base.ids import Uuid
from tierd.tiering.catalog import Catalog
from tierd.tiering.options import TopicState


def topics_there(catalog: Catalog) -> list[TopicState]:
    """Those of topic files, deleted ones, too; those of which there are only segments or heads, as adopted: what of
    their settings is lost lets nothing go. Each with as many partitions as anything in the bucket shows."""
    topics = {topic.topic_id: topic for topic in catalog.topics()}
    for row in catalog.partitions():
        topic_id = row.part.topic_id
        known = topics.get(topic_id) or _unnamed(topic_id, row.topic)
        topics[topic_id] = replace(known, partitions=max(known.partitions, row.part.partition + 1))
    return list(topics.values())


def _unnamed(topic_id: Uuid, topic: str) -> TopicState:
    return TopicState(topic=topic, topic_id=topic_id, partitions=0, config={}, created_ms=0, adopted=True)
