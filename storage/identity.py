"""Whose a data directory is (`meta.properties`), and which topic a partition directory belongs to."""

import hashlib
import os
import time
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.errors import CorruptFile, StartRefused
from tierd.base.ids import ID_BYTES, Uuid
from tierd.storage.metadata import (
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
    parse_meta_properties,
    parse_partition_metadata,
)
from tierd.storage.names import META_PROPERTIES, PARTITION_METADATA


def identify(directory: Path, disk: Disk, node_id: int, cluster_id: str | None) -> MetaProperties:
    """Read the directory's identity, or give it one. What Kafka wrote is kept; only what is missing is added.

    Raises StartRefused when it belongs to another node or cluster.
    """
    path = directory / META_PROPERTIES
    try:
        found = parse_meta_properties(path.read_bytes(), str(path))
    except FileNotFoundError:
        found = MetaProperties(node_id=None, cluster_id=None, directory_id=None)
    except CorruptFile as error:
        raise StartRefused(
            f"{error}; put the right file back, or move it away to give the directory a new id"
        ) from error
    if found.node_id is not None and found.node_id != node_id:
        raise StartRefused(f"{path} is node {found.node_id}'s, this is node {node_id}; set node.id = {found.node_id}")
    if cluster_id is not None and found.cluster_id is not None and found.cluster_id != cluster_id:
        raise StartRefused(f"{path} belongs to cluster {found.cluster_id}, this is cluster {cluster_id}")
    whole = MetaProperties(
        node_id=node_id,
        cluster_id=found.cluster_id or cluster_id or str(_new_id()),
        directory_id=found.directory_id or _new_id(),
    )
    if whole != found:
        written = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime())
        publish(disk, path, encode_meta_properties(whole, written))
    return whole


def _new_id() -> Uuid:
    """Random, and unlike the ids with a dash in front easy to type after an option."""
    while True:
        found = Uuid(os.urandom(ID_BYTES))
        if not str(found).startswith("-"):
            return found


def topic_id_of(directory: Path) -> Uuid | None:
    """The topic id that a partition directory names; None when the file is missing or does not parse."""
    path = directory / PARTITION_METADATA
    try:
        return parse_partition_metadata(path.read_bytes(), str(path))
    except (FileNotFoundError, CorruptFile):
        return None


def stand_in_id(topic: str) -> Uuid:
    """What a topic is called by id in this process while nobody knows its own: always the same, and written nowhere."""
    return Uuid(hashlib.sha256(b"a topic without an id: " + topic.encode()).digest()[:ID_BYTES])


def write_topic_id(directory: Path, disk: Disk, topic_id: Uuid) -> None:
    """Not fsynced: the registry knows the id, and the first flush of the partition makes the name durable."""
    disk.write_new(directory / PARTITION_METADATA, encode_partition_metadata(topic_id))
