"""Requests that name one thing very often: it is shown once.

Else a request of 100 KiB makes an answer of many MiB, or of many GiB, and takes as long.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.client import Client, batch
from broker.running import Running, running
from tierd.wire.api import ApiKey

OFTEN = 3_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("often"), offsets_topic_partitions=1) as broker, Client(broker.address) as one:
        one.create("t")
        one.produce("t", batch())
        part = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        who = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        answer = one.call(ApiKey.OFFSET_COMMIT, 9, **who, topics=[{"name": "t", "partitions": [part]}])
        assert answer.topics[0].partitions[0].error_code == 0
        yield broker


TOPIC = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
NODE = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
ASKED: dict[str, tuple[ApiKey, int, dict[str, Any], str]] = {
    "settings": (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"resources": [TOPIC, NODE] * OFTEN, "include_synonyms": True, "include_documentation": True},
        "results",
    ),
    "groups": (
        ApiKey.DESCRIBE_GROUPS,
        5,
        {"groups": ["g", "h"] * OFTEN, "include_authorized_operations": False},
        "groups",
    ),
    "consumer groups": (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        {"group_ids": ["g", "h"] * OFTEN, "include_authorized_operations": False},
        "groups",
    ),
    "offsets": (
        ApiKey.OFFSET_FETCH,
        9,
        {
            "groups": [
                {"group_id": name, "member_id": None, "member_epoch": -1 - number, "topics": None}
                for number in range(OFTEN)
                for name in ("g", "h")
            ],
            "require_stable": False,
        },
        "groups",
    ),
    "transactional ids": (
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        {"transactional_ids": ["x", "y"] * OFTEN},
        "transaction_states",
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_it_is_shown_once(broker: Running, name: str) -> None:
    key, version, fields, rows = ASKED[name]
    with Client(broker.address) as client:
        assert len(getattr(client.call(key, version, **fields), rows)) == 2


def test_producers_of_a_partition_are_shown_once(broker: Running) -> None:
    with Client(broker.address) as client:
        asked = [{"name": "t", "partition_indexes": [0, 1] * OFTEN}]
        (topic,) = client.call(ApiKey.DESCRIBE_PRODUCERS, 0, topics=asked).topics
        assert [part.partition_index for part in topic.partitions] == [0, 1]
