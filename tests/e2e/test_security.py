"""Real clients through every kind of listener, each with every mechanism; what they are refused, and what is logged."""

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from kit import tiers, tools
from kit.secured import MECHANISMS, PASSWORD, USER, Secured, running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
WAYS = [("TLS", None), ("MUTUAL", None), *(("SASL", one) for one in MECHANISMS), *(("BOTH", one) for one in MECHANISMS)]
Way = tuple[str, str | None]
LIFETIME_S = 4


@pytest.fixture(scope="module")
def tierd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with running(tmp_path_factory.mktemp("security"), f'connections.max.reauth.ms = "{LIFETIME_S}s"') as secured:
        yield secured
        assert secured.daemon.stop() == 0
        said = secured.daemon.log.read_text()
        assert PASSWORD not in said
        assert "eyJ" not in said  # no token
        assert "Traceback" not in said


def ids(way: object) -> str:
    return "-".join(map(str, way)) if isinstance(way, tuple) else str(way)


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_confluent_kafka(tierd: Secured, way: Way) -> None:
    conf = tierd.librdkafka(*way)
    topic = f"c-{'-'.join(filter(None, way))}"
    producer = Producer(conf)
    for number in range(100):
        producer.produce(topic, b"%d" % number * 500)
    assert producer.flush(30) == 0
    consumer = Consumer(conf | {"group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(got) < 100 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            got.append(message.value())
    consumer.close()
    assert got == [b"%d" % number * 500 for number in range(100)]


class Provider(AbstractTokenProvider):
    def __init__(self, secured: Secured) -> None:
        self._secured = secured

    def token(self) -> str:
        return self._secured.token()


def python_settings(tierd: Secured, listener: str, mechanism: str | None) -> dict[str, Any]:
    conf: dict[str, Any] = {"bootstrap_servers": tierd.address(listener)}
    conf["security_protocol"] = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}[listener]
    conf["ssl_cafile"] = str(tierd.authority.file)
    if listener == "MUTUAL":
        conf |= {"ssl_certfile": str(tierd.shown.certificate), "ssl_keyfile": str(tierd.shown.key)}
    if mechanism == "OAUTHBEARER":
        return conf | {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Provider(tierd)}
    named = {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return conf | (named if mechanism else {})


@pytest.mark.parametrize("way", WAYS, ids=ids)
def test_kafka_python(tierd: Secured, way: Way) -> None:
    conf = python_settings(tierd, *way)
    topic = f"p-{'-'.join(filter(None, way))}"
    producer = KafkaProducer(**conf)
    sent = [producer.send(topic, b"%d" % number * 500) for number in range(50)]
    assert [one.get(30).offset for one in sent] == list(range(50))
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **conf)
    got = [next(consumer).value for _ in range(50)]
    consumer.close()
    assert got == [b"%d" % number * 500 for number in range(50)]


class AioProvider(AioTokenProvider):
    def __init__(self, secured: Secured) -> None:
        self._secured = secured

    async def token(self) -> str:
        return self._secured.token()


@pytest.mark.parametrize("way", [way for way in WAYS if way[0] != "SASL"], ids=ids)
def test_aiokafka(tierd: Secured, way: Way) -> None:
    listener, mechanism = way
    shown = (str(tierd.shown.certificate), str(tierd.shown.key)) if listener == "MUTUAL" else (None, None)
    conf: dict[str, Any] = {
        "bootstrap_servers": tierd.address(listener),
        "security_protocol": "SSL" if mechanism is None else "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=str(tierd.authority.file), certfile=shown[0], keyfile=shown[1]),
    }
    if mechanism == "OAUTHBEARER":
        conf |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": AioProvider(tierd)}
    elif mechanism is not None:
        named = {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        conf |= named

    async def there_and_back() -> list[bytes | None]:
        topic = f"a-{'-'.join(filter(None, way))}"
        async with AIOKafkaProducer(**conf) as producer:
            for number in range(20):
                await producer.send_and_wait(topic, b"%d" % number * 500)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **conf) as consumer:
            return [(await consumer.getone()).value for _ in range(20)]

    got = asyncio.run(asyncio.wait_for(there_and_back(), 60))
    assert got == [b"%d" % number * 500 for number in range(20)]


@pytest.mark.kafka
def test_kafkas_own_tools(tierd: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{tierd.folder}/token"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", token)
    with tools.running(tierd.daemon.address, tmp_path) as kafkas:
        for listener, mechanism in WAYS:
            if listener == "SASL":
                continue  # the same without TLS
            kafkas.address = tierd.address(listener)
            file = str(tierd.java(listener, mechanism))
            topic = f"j-{listener}-{mechanism}"
            said = kafkas.run("VerifiableProducer", "--topic", topic, "--max-messages", "20", "--command-config", file)
            assert '"acked":20' in said.text.replace(" ", ""), (listener, mechanism, said)
            if mechanism != "SCRAM-SHA-512":
                continue  # it takes a second each
            words = ("--topic", topic, "--from-beginning", "--max-messages", "20", "--command-config", file)
            said = kafkas.run("consumer.ConsoleConsumer", *words)
            assert re.findall(r"^\d+$", said.text, re.MULTILINE) == [str(number) for number in range(20)], said
        manage_users(tierd, kafkas)


def manage_users(tierd: Secured, kafkas: tools.Tools) -> None:
    """kafka-configs makes, shows and removes a user, through a listener that asks for one."""
    file = str(tierd.java("BOTH", "SCRAM-SHA-512"))
    whom = ("--command-config", file, "--entity-type", "users", "--entity-name", "zoe")
    made = "SCRAM-SHA-256=[iterations=8192,password=zoes]"
    said = kafkas.run("kafka.admin.ConfigCommand", "--alter", *whom, "--add-config", made)
    assert said.status == 0, said
    listed = tierd.daemon.verb("users", "list").stdout
    assert "zoe    SCRAM-SHA-256  8192 iterations" in listed, listed
    zoe = tierd.librdkafka("SASL", "SCRAM-SHA-256") | {"sasl.username": "zoe", "sasl.password": "zoes"}
    assert AdminClient(zoe).list_topics(timeout=20).brokers
    said = kafkas.run("kafka.admin.ConfigCommand", "--describe", *whom)
    assert "SCRAM credential configs for user-principal 'zoe' are SCRAM-SHA-256=iterations=8192" in said.text, said
    said = kafkas.run("kafka.admin.ConfigCommand", "--alter", *whom, "--delete-config", "SCRAM-SHA-256")
    assert said.status == 0, said
    assert "zoe" not in tierd.daemon.verb("users", "list").stdout
    said = kafkas.run("kafka.admin.ConfigCommand", "--alter", *whom, "--delete-config", "SCRAM-SHA-256")
    assert said.status != 0
    wrong = str(tierd.java("BOTH", "PLAIN", password="wrong"))
    said = kafkas.run("kafka.admin.ConfigCommand", "--describe", "--command-config", wrong, "--entity-type", "topics")
    assert "Authentication failed: Invalid username or password" in said.text, said


def refusal(conf: dict[str, Any]) -> str:
    """What librdkafka says first of why it gets nowhere."""
    said: list[KafkaError] = []
    client = Producer(conf | {"error_cb": said.append, "log_level": 0})
    deadline = time.monotonic() + 60
    while not said and time.monotonic() < deadline:
        client.poll(0.1)
    return said[0].str()


def test_what_a_user_is_told_who_is_set_up_wrongly(tierd: Secured) -> None:
    sasl = tierd.librdkafka("SASL", "PLAIN")
    assert "Invalid username or password" in refusal(sasl | {"sasl.password": "wrong"})
    scram = tierd.librdkafka("BOTH", "SCRAM-SHA-256")
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in refusal(scram | {"sasl.username": "nobody"})
    refusal({"bootstrap.servers": tierd.address("TLS")})
    refusal(tierd.librdkafka("TLS") | {"bootstrap.servers": tierd.address("SASL")})
    refusal(tierd.librdkafka("TLS") | {"bootstrap.servers": tierd.address("MUTUAL")})
    expected = {
        "no such user, or wrong password",
        "no such user",
        "that is no TLS: is the client set to PLAINTEXT or SASL_PLAINTEXT?",
        "HTTP or TLS spoken to a plain Kafka port?",
        "the client shows no certificate",
    }
    for why in expected:  # a client may hear of the end before the log has the reason
        tiers.until(why, lambda why=why: why in tierd.daemon.log.read_text(), timeout_s=30)  # type: ignore[misc]


def test_clients_authenticate_again_before_their_time_is_over(tierd: Secured) -> None:
    errors: list[KafkaError] = []
    failed: list[KafkaError] = []
    producer = Producer(tierd.librdkafka("BOTH", "SCRAM-SHA-256") | {"error_cb": errors.append, "log_level": 0})
    began = time.monotonic()
    while time.monotonic() < began + LIFETIME_S + 1:
        producer.produce("again", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.05)
    assert producer.flush(30) == 0
    assert (errors, failed) == ([], [])


def test_renewed_certificates_are_taken_up(tierd: Secured) -> None:
    tierd.authority.sign("renewed", file="server")
    renewed = "certificates were renewed"
    tiers.until(renewed, lambda: renewed in tierd.daemon.log.read_text(), timeout_s=30)
    assert AdminClient(tierd.librdkafka("TLS")).list_topics(timeout=20).brokers


def test_a_user_is_removed_while_connected(tierd: Secured, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("brief")
    tierd.daemon.verb("users", "add", "brief", "--password-file", str(tmp_path / "password"))
    conf = tierd.librdkafka("SASL", "SCRAM-SHA-512") | {"sasl.username": "brief", "sasl.password": "brief"}
    client = AdminClient(conf | {"log_level": 0})
    assert client.list_topics(timeout=20).brokers
    tierd.daemon.verb("users", "remove", "brief")
    with pytest.raises(KafkaException):
        client.list_topics(timeout=1)
    assert "its user was removed" in tierd.daemon.log.read_text()
