"""Each administrative act and each refusal is a line of JSON, and no line says a secret."""

import asyncio
import json
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from broker.client import Client, batch
from broker.running import Running, running, settings
from broker.serving import answer_of, echo, framed, run, until
from broker.tls.secure import secured, serving, side
from kit.certificates import Authority
from kit.clock import FakeClock
from tierd.base.errors import StartRefused
from tierd.base.session import Session
from tierd.broker.operations import Operation
from tierd.broker.parts import Parts
from tierd.broker.security.acls import Kind
from tierd.broker.security.asking import Denied
from tierd.broker.security.audit import Audit, AuditFile
from tierd.broker.security.audited import audited
from tierd.config.access import Access
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_acts_are_told_with_who_and_outcome(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with running(tmp_path, access=Access(audit_file=path)) as broker, Client(broker.address) as client:
        act_everything(client)
    told = lines(path)
    assert [(line["event"], line["outcome"]) for line in told] == [
        ("create topic", "OK"),
        ("create topic", "TOPIC_ALREADY_EXISTS"),
        ("create topic", "OK"),
        ("alter settings", "OK"),
        ("add partitions", "OK"),
        ("delete records", "OK"),
        ("alter quota", "OK"),
        ("add access rule", "SECURITY_DISABLED"),
        ("delete group", "GROUP_ID_NOT_FOUND"),
        ("delete topic", "OK"),
    ]
    who = {"principal": "User:ANONYMOUS", "address": "127.0.0.1", "listener": "PLAINTEXT", "client_id": "test"}
    assert all(who.items() <= line.items() for line in told)
    assert told[0]["topic"] == "t"
    assert told[2]["on_first_mention"] is True
    assert (told[3]["resource"], told[3]["settings"]) == ("TOPIC:t", ["retention.ms"])
    assert "123456" not in path.read_text(), "values stay out of it"
    assert told[5]["partition"] == "t-0"
    assert (told[6]["entity"], told[6]["limits"]) == ({"user": "x"}, {"producer_byte_rate": 1e6})
    assert "ALLOW READ for User:x from * on TOPIC:LITERAL:t" in told[7]["rule"]
    assert path.stat().st_mode & 0o777 == 0o640


def act_everything(client: Client) -> None:
    client.create("t")
    client.create("t")
    client.call(ApiKey.METADATA, 9, topics=[{"name": "made"}], allow_auto_topic_creation=True)
    change = {"name": "retention.ms", "config_operation": 0, "value": "123456"}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
    for only_look in (True, False):
        client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=only_look)
    grown = {"name": "t", "count": 2, "assignments": None}
    client.call(ApiKey.CREATE_PARTITIONS, 3, topics=[grown], timeout=5000, validate_only=False)
    client.produce("t", batch(2))
    gone = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
    client.call(ApiKey.DELETE_RECORDS, 2, topics=gone, timeout=5000)
    entity = [{"entity_type": "user", "entity_name": "x"}]
    limits = [{"key": "producer_byte_rate", "value": 1e6, "remove": False}]
    client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": limits}], validate_only=False)
    rule = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:x",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    client.call(ApiKey.CREATE_ACLS, 3, creations=[rule])
    client.call(ApiKey.DELETE_GROUPS, 2, groups_names=["nobody"])
    client.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "t", "topic_id": None}], timeout=5000)


def test_who_may_not_is_told_of_at_each_doubling(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    held = Access(audit_file=path, authorizer=True)
    with running(tmp_path, access=held) as broker, Client(broker.address) as client:
        for _ in range(5):
            assert client.produce("t", batch(1)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert client.create("t").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        client.call(ApiKey.METADATA, 9, topics=None)  # nobody has asked for a topic by name
    told = lines(path)
    assert [line["times"] for line in told if line.get("api") == "PRODUCE"] == [1, 2, 4]
    (made,) = [line for line in told if line["event"] == "create topic"]
    assert (made["topic"], made["outcome"]) == ("t", "TOPIC_AUTHORIZATION_FAILED")
    (denied,) = [line for line in told if line.get("api") == "CREATE_TOPICS"]
    assert (denied["operation"], denied["resource"], denied["rule"]) == ("CREATE", "TOPIC:t", None)


def test_a_renamed_file_is_begun_anew_and_a_lost_one_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    sink = AuditFile(path)
    sink.write("1")
    path.rename(tmp_path / "audit.log.1")
    sink.write("2")
    path.unlink()
    sink.write("3")
    assert ((tmp_path / "audit.log.1").read_text(), path.read_text()) == ("1\n", "3\n")
    sink.close()


def test_a_file_that_cannot_be_written_stops_no_act(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    sink = AuditFile(folder / "audit.log")
    (folder / "audit.log").unlink()
    folder.rmdir()
    with caplog.at_level(logging.ERROR):
        sink.write("lost")
        sink.write("lost")
        sink.write("lost")
    assert [record.times for record in caplog.records] == [1, 2]  # type: ignore[attr-defined]
    folder.mkdir()
    sink.write("kept")
    assert (folder / "audit.log").read_text() == "kept\n"
    sink.close()


def test_a_start_without_its_audit_file_is_refused(broker: Running, tmp_path: Path) -> None:
    wanted = settings(tmp_path, access=Access(audit_file=tmp_path / "nowhere" / "audit.log"))
    with pytest.raises(StartRefused, match=r"tierd\.audit\.file"):
        broker.call(
            lambda: Parts(wanted, broker.registry, broker.partitions, None, broker.clock, worker=None, looker=None)
        )


def test_whoever_asks_for_very_much_fills_no_disk(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    clock = FakeClock()
    audit = Audit([AuditFile(path)], clock)
    header = RequestHeader(int(ApiKey.METADATA), 9, 1, "x", Session(host="127.0.0.1"))
    for minute in range(2):
        for number in range(2000):
            audit.denied(Denied(header, Operation.DESCRIBE, Kind.TOPIC, f"{minute}-{number}", None))
        clock.advance(60_000)
    told = lines(path)
    assert len(told) == 1200
    assert [line["left_out"] for line in told if "left_out" in line] == [1400]
    audit.act(header, "create topic", {"topic": "t"}, 0, None)
    assert lines(path)[-1]["left_out"] == 1400
    asyncio.run(audit.close())


def test_whoever_tries_very_much_in_vain_fills_no_disk(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with running(tmp_path, access=Access(audit_file=path)) as broker, Client(broker.address) as client:
        groups = ["x" * 1200 + str(number) for number in range(2000)]
        client.call(ApiKey.DELETE_GROUPS, 2, groups_names=groups)
        client.create("t")
    told = lines(path)
    assert [line["event"] for line in told] == ["delete group"] * 600 + ["create topic"]
    assert told[-1]["left_out"] == 1400
    assert max(len(line["group"]) for line in told[:-1]) < 1100


def test_who_leaves_before_the_answer_is_told_of(broker: Running, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    header = RequestHeader(int(ApiKey.DELETE_TOPICS), 6, 1, "x", Session(host="127.0.0.1"))

    async def scenario() -> None:
        audit, durable = Audit([AuditFile(path)], FakeClock()), asyncio.Event()

        async def delete(header: RequestHeader, request: object) -> dict[str, object]:
            await durable.wait()
            return {"responses": [{"name": "t", "error_code": 0, "error_message": None}]}

        table = audited({ApiKey.DELETE_TOPICS: delete, ApiKey.METADATA: delete}, audit, broker.partitions)
        waits = asyncio.ensure_future(table[ApiKey.DELETE_TOPICS](header, None))
        await asyncio.sleep(0)
        waits.cancel()  # as a connection does when its client is gone
        durable.set()
        await audit.close()

    run(scenario())
    (line,) = lines(path)
    assert (line["event"], line["topic"], line["outcome"]) == ("delete topic", "t", "OK")


def test_a_full_disk_ends_neither_a_line_nor_the_daemon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    sink = AuditFile(path)
    sink.write("lost")
    path.unlink()
    sink.write("kept")
    assert path.read_text() == "kept\n"
    path.unlink()
    path.symlink_to("/dev/full")
    sink.write("lost")
    sink.close()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_a_certificate_that_is_refused_is_told_of_and_a_scan_is_not(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    authority = Authority(tmp_path / "ca")
    tls = side(authority.sign("server"), ca=authority.file, client_auth="required")

    async def scenario() -> None:
        async with serving(echo, tls) as (served, _, port):
            served.audit = Audit([AuditFile(path)], FakeClock())
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):  # noqa: PT012
                async with secured(port, authority.client(None)) as (reader, writer):
                    writer.write(framed(b"x"))
                    await answer_of(reader)
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            await until(lambda: served.counters.handshakes_failed == 2)
            writer.close()
            await served.audit.close()

    run(scenario())
    (line,) = lines(path)
    assert (line["event"], line["address"], line["user"]) == ("authentication", "127.0.0.1", None)
    assert "no certificate" in line["why"]


def test_no_text_of_a_client_breaks_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    audit = Audit([AuditFile(path)], FakeClock())
    nasty = 'x"\n\x00\u2028\ud800'
    header = RequestHeader(int(ApiKey.PRODUCE), 9, 1, nasty, Session(host="127.0.0.1"))
    audit.denied(Denied(header, Operation.WRITE, Kind.TOPIC, nasty, None))
    audit.authentication_failed(header.session, nasty, "no such user", 1)
    told = lines(path)
    assert [line["event"] for line in told] == ["denied", "authentication"]
    assert told[0]["client_id"] == told[1]["user"] == nasty
    asyncio.run(audit.close())
