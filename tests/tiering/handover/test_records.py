"""Records for Kafka's topic of remote log metadata, held against those that Kafka wrote itself."""

import pytest

from kit.aiven import VARIANTS, manifests
from kit.golden import golden
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.manifest import parse_manifest
from tierd.storage.batch import walk
from tierd.storage.records import iter_records
from tierd.tiering.handover.records import metadata_partition, segment_copied

# What Kafka's RemoteLogMetadataTopicPartitioner 4.3.1 says for 1, 3, 50 and 2^31 - 1 partitions.
PARTITIONS = {
    ("pysNnPZjQveUrPTnyXRpQQ", 0): (0, 2, 31, 1631494781),
    ("pysNnPZjQveUrPTnyXRpQQ", 1): (0, 2, 16, 1883296616),
    ("pysNnPZjQveUrPTnyXRpQQ", 4096): (0, 1, 16, 556086766),
    ("GJBOKdTUQMG9eURxnMNb5A", 0): (0, 0, 0, 974005050),
    ("GJBOKdTUQMG9eURxnMNb5A", 7): (0, 1, 27, 15200827),
    ("-_________-_________-A", 0): (0, 1, 33, 465744733),
    ("-_________-_________-A", 4096): (0, 0, 21, 2015153421),
    ("AAAAAAAAAAAAAAAAAAAAAQ", 7): (0, 2, 46, 324980546),
    ("AAAAAAAAAAAAAAAAAAAAAQ", 4096): (0, 1, 27, 1143843277),
}


def recorded(variant: str) -> list[bytes]:
    raw = (golden("aiven") / f"local-{variant}" / "__remote_log_metadata-0" / f"{0:020d}.log").read_bytes()
    batches = [(header, raw[at : at + header.size_bytes]) for at, header in walk(raw)]
    return [one.value or b"" for header, batch in batches for one in iter_records(batch, header)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_they_are_those_that_kafka_wrote(variant: str) -> None:
    """All but two fields of the second: when the copy was done nobody has noted, and custom metadata repeat the key."""
    found = recorded(variant)
    made = [record for path in manifests(variant) for record in segment_copied(parse_manifest(path.read_bytes(), ""))]
    assert made[::2] == found[::2]
    for mine, theirs in zip(made[1::2], found[1::2], strict=True):
        who = len(mine) - 11 - 4  # the last fields: broker, 4 bytes, time, 8, custom metadata, state and tags
        assert mine[: who + 4] == theirs[: who + 4]
        assert mine[-3:] == b"\0\1\0"
        assert theirs[who + 12 :] == b"\0\1\0" or (variant == "txn-enc" and theirs.endswith(b"\1\0"))


def test_each_partition_has_its_place() -> None:
    for (topic_id, number), places in PARTITIONS.items():
        part = PartitionId(Uuid.parse(topic_id), number)
        assert tuple(metadata_partition(part, n) for n in (1, 3, 50, 2**31 - 1)) == places
