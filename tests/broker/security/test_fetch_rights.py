"""What a fetch in a session, or like the one before it, may do is asked each time."""

from pathlib import Path
from typing import Any

from broker.client import Client, batch
from broker.running import Running, running
from tierd.broker.operations import Operation
from tierd.broker.security.acls import CLUSTER_NAME, Acl, AclFilter, Kind, Pattern, Permission
from tierd.config.access import Access
from tierd.wire.errors import ErrorCode

DENIED = Acl(Kind.TOPIC, Pattern.LITERAL, "t", "User:ANONYMOUS", "*", Operation.READ, Permission.DENY)
BROKERS = Acl(Kind.CLUSTER, Pattern.LITERAL, CLUSTER_NAME, "User:b", "*", Operation.CLUSTER_ACTION, Permission.ALLOW)


def held(tmp_path: Path, **settings: Any) -> Any:
    return running(tmp_path, access=Access(authorizer=True, allow_without_acl=True), **settings)


def fetched(client: Client, session: int = 0, epoch: int = 0, *, replica: int = -1) -> Any:
    want = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    topics = [{"topic": "t", "partitions": [want]}]
    ids = {"replica_id": replica, "session_id": session, "session_epoch": epoch, "topics": topics}
    limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    return client.call(1, 12, forgotten_topics_data=(), rack_id="", **ids, **limits)


def code(answer: Any) -> int:
    return int(answer.error_code) or int(answer.responses[0].partitions[0].error_code)


def test_who_says_it_is_a_broker_takes_no_session_of_others(tmp_path: Path) -> None:
    with held(tmp_path, fetch_session_slots=1) as broker, Client(broker.address) as one, Client(broker.address) as two:
        one.create("t")
        one.produce("t", batch(1))
        broker.run(broker.broker.parts.authorizer.add([BROKERS]))
        session = fetched(one).session_id
        assert session
        taken = fetched(two, replica=7)
        assert (code(taken), taken.session_id) == (0, 0)
        assert code(fetched(one, session, 1)) == 0


def test_the_short_way_asks_for_rights_and_for_the_topic_each_time(tmp_path: Path) -> None:
    with held(tmp_path) as broker, Client(broker.address) as client, Client(broker.address) as other:
        client.create("t")
        client.produce("t", batch(1))
        session = fetched(client).session_id
        plain = [other.fetch("t", 0).records for _ in range(3)]
        assert plain[0] == plain[1] == plain[2]
        assert code(fetched(client, session, 1)) == 0
        assert code(fetched(client, session, 2)) == 0

        broker.run(broker.broker.parts.authorizer.add([DENIED]))
        assert code(fetched(client, session, 3)) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert other.fetch("t", 0).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        broker.run(broker.broker.parts.authorizer.remove([AclFilter(kind=Kind.TOPIC)]))
        assert code(fetched(client, session, 4)) == 0

        recreated(broker)
        assert other.fetch("t", 0).records in (None, b"")
        client.produce("t", batch(1, size=30))
        answer = other.fetch("t", 0)
        assert answer.error_code == 0
        assert bytes(answer.records) != bytes(plain[0])

        client.produce("t", batch(3))
        gone = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
        client.call(21, 2, topics=gone, timeout=5000)
        assert other.fetch("t", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def recreated(broker: Running) -> None:
    with Client(broker.address) as admin:
        admin.call(20, 6, topics=[{"name": "t", "topic_id": None}], timeout=5000)
        assert admin.create("t").error_code == 0
