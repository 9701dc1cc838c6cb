"""The suites: how each is pointed at a broker, and which of its tests cannot pass here."""

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kit.franz import go
from kit.secured import PASSWORD, USER, Secured
from peers.environment import HERE, python
from peers.outcome import Outcome, Reasons, of_go, of_junit

RUN_S: Final = 1800
AIOKAFKAS_PASSWORD: Final = "abcdefgh"
EACH_S: Final = 100
"""For one test of a Python client."""


class CannotRun(Exception):
    """Something that the suite needs is not here."""


@dataclass(frozen=True, slots=True)
class Job:
    """Where a suite is to run: the broker, a folder of its own, and a folder with checkouts of the clients."""

    address: str
    work: Path
    checkouts: Path | None
    secured: Secured | None = None

    def checkout(self, name: str) -> Path:
        """The checkout of that name. Raises CannotRun."""
        if self.checkouts is None or not (self.checkouts / name).is_dir():
            raise CannotRun(f"no checkout of {name}: its package has no tests; say --checkouts FOLDER")
        return self.checkouts / name


@dataclass(frozen=True, slots=True)
class Suite:
    """A client's tests; *settings* are tierd's."""

    name: str
    module: str
    """What tells the version: a Go module or a Python distribution."""
    run: Callable[[Job], list[Outcome]]
    reasons: Reasons
    settings: Sequence[str] = field(default=())
    secured: bool = False
    """Whether it needs listeners with TLS and SASL, too."""


def _kgo(job: Job) -> list[Outcome]:
    if shutil.which("go") is None:
        raise CannotRun("go is not installed")
    binary = job.work / "kgo.test"
    go("test", "-c", "-o", str(binary), f"{FRANZ}/pkg/kgo")
    source = Path(go("list", "-m", "-f", "{{.Dir}}", FRANZ).strip(), "pkg", "kgo")
    env = {"KGO_SEEDS": job.address, "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "5000"}
    if job.secured is not None:
        env |= {"KGO_TEST_SCRAM": f"{USER}:{PASSWORD}", "KGO_TEST_SCRAM_SEEDS": job.secured.address("SASL")}
    return of_go(_say(job, [str(binary), "-test.v", f"-test.timeout={RUN_S}s"], source, env))


def _kafka_python(job: Job) -> list[Outcome]:
    empty = job.work / "no-kafka"
    empty.mkdir()
    env = {"KAFKA_VERSION": "4.3.1", "KAFKA_URI": f"kafka://{job.address}", "KAFKA_ROOT": str(empty)}
    return _pytest(job, _copy(job, "kafka-python", "test", "kafka"), ["test/integration"], env)


def _aiokafka(job: Job) -> list[Outcome]:
    host, _, port = job.address.rpartition(":")
    files = ("admin", "client", "conn", "consumer", "coordinator", "pep492", "producer", "sasl", "sender")
    tests = [f"tests/test_{name}.py" for name in (*files, "transactional_consumer", "transactional_producer")]
    options = ["-p", "as_aiokafka_wants", "--docker-image", "apache:2.13_4.3.1", "-W", "ignore"]
    env = {"PEER_HOST": host, "PEER_PORT": port}
    place = _copy(job, "aiokafka", "tests")
    if job.secured is not None:
        _secure(job.secured, place / "tests" / "ssl_cert")
        for name, listener in (("SSL", "TLS"), ("SASL", "SASL"), ("BOTH", "BOTH")):
            env[f"PEER_{name}_PORT"] = job.secured.address(listener).rpartition(":")[2]
    return _pytest(job, place, [*options, *tests], env)


def _secure(secured: Secured, folder: Path) -> None:
    """The user and the files that aiokafka's tests know by name."""
    _user(secured, "test")
    client = secured.authority.sign("client", password=AIOKAFKAS_PASSWORD)
    folder.mkdir()
    shutil.copy(secured.authority.file, folder / "ca.crt")
    shutil.copy(client.certificate, folder / "client.crt")
    shutil.copy(client.key, folder / "client.key")


def _user(secured: Secured, name: str) -> None:
    """One whose password is the name."""
    password = secured.folder / f"password-of-{name}"
    password.write_text(name)
    secured.daemon.verb("users", "add", name, "--password-file", str(password))


def _confluent(protocol: str) -> Callable[[Job], list[Outcome]]:
    def run(job: Job) -> list[Outcome]:
        tests = [f"tests/integration/{name}" for name in ("admin", "consumer", "producer")]
        env = {"BROKERS": job.address, "TEST_CONSUMER_GROUP_PROTOCOL": protocol}
        if job.secured is not None:
            _user(job.secured, "sasl_user")
            env["PEER_SASL"] = job.secured.address("SASL")
        return _pytest(job, _copy(job, "confluent-kafka-python", "tests"), tests, env)

    return run


def _copy(job: Job, name: str, *folders: str) -> Path:
    """A copy of the parts of a checkout that are needed: its tests write beside themselves."""
    source, target = job.checkout(name), job.work / name
    for folder in folders:
        shutil.copytree(source / folder, target / folder)
    return target


def _pytest(job: Job, place: Path, words: Sequence[str], env: Mapping[str, str]) -> list[Outcome]:
    report = job.work / "report.xml"
    limits = [f"--timeout={EACH_S}", "--timeout-method=signal", "-p", "no:cacheprovider"]
    command = [str(python()), "-m", "pytest", "-q", f"--junitxml={report}", *limits, *words]
    said = _say(job, command, place, {**env, "PYTHONPATH": str(HERE / "stand_ins")})
    if not report.exists():
        raise RuntimeError(f"the suite did not run: {said[-2000:]}")
    return of_junit(report.read_text())


def _say(job: Job, command: Sequence[str], place: Path, env: Mapping[str, str]) -> str:
    """What a suite printed, which is kept beside its other files; that tests fail is no error here."""
    output = job.work / "output.txt"
    with output.open("wb") as out:
        subprocess.run(
            command, cwd=place, env={**os.environ, **env}, stdout=out, stderr=out, timeout=RUN_S, check=False
        )
    return output.read_text(errors="replace")


FRANZ: Final = "github.com/twmb/franz-go"
_SECURE: Final = "needs a second listener (TLS, SASL), which the suite starts a broker of its own for"
_MIN_ISR: Final = (
    "expects min.insync.replicas, which a Kafka sets for its cluster, among the settings that are not defaults, and "
    "not remote.storage.enable=false, which a tierd without a bucket sets"
)
_RULES: Final = ("authorizer.enable=true", "super.users=User:ANONYMOUS", "allow.everyone.if.no.acl.found=true")
_SHARE: Final = "share groups (KIP-932) are not served"
SUITES: Final = (
    Suite(
        "franz-go kgo",
        FRANZ,
        _kgo,
        {
            "Share": _SHARE,
            "OAuth": "sends tokens that nobody has signed, which are refused here",
            "TestIssueProduceBrokerTooOldFailsRecords": "only for brokers before 2.1",
        },
        secured=True,
    ),
    Suite(
        "kafka-python",
        "kafka-python",
        _kafka_python,
        {
            "test_sasl|SASL|SSL|ssl": _SECURE,
            "test_kafka_consumer_offsets_for_time_old": "only for brokers before 0.10.1",
            r"test_group$": "fails with Kafka 4.3.1, too: no stable group within its 15 s",
        },
        ("num.partitions=4", "node.id=0", *_RULES),
    ),
    Suite(
        "aiokafka",
        "aiokafka",
        _aiokafka,
        {"gssapi": "needs a Kerberos server", "test_sasl_unknown_topic_describe": "only for brokers before 1.0"},
        ("num.partitions=2", "node.id=0", *_RULES),
        secured=True,
    ),
    Suite(
        "confluent-kafka, classic groups",
        "confluent-kafka",
        _confluent("classic"),
        {
            "test_incremental_alter_configs": _MIN_ISR,
            "upgrade": "only for the consumer protocol",
        },
        ("node.id=0", *_RULES),
        secured=True,
    ),
    Suite(
        "confluent-kafka, consumer groups",
        "confluent-kafka",
        _confluent("consumer"),
        {
            "test_incremental_alter_configs": _MIN_ISR,
            "test_consume_error": "the suite itself skips it: it sets a session time-out, which is the broker's there",
        },
        ("node.id=0", *_RULES),
        secured=True,
    ),
)
