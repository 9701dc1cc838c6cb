"""A real Kafka for tests: its broker, its tools, and somebody else's partitions opened in it.

Needs Java 17 and Maven; the jars come once from Maven Central (kit/java/pom.xml) into `$TIERD_KAFKA_HOME` or
`~/.cache/tierd-tests`. Where Java or Maven are missing a test that asks for `jars()` is skipped, with CI=true it fails.
"""

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

import pytest

from kit.answers import LATEST, Asker
from kit.ports import free_ports
from kit.tiers import until
from tierd.base.ids import Uuid
from tierd.storage import names
from tierd.storage.epochs import parse_epochs
from tierd.storage.metadata import parse_meta_properties, parse_partition_metadata

JAVA = Path(__file__).parent / "java"
NODE_ID = 1
START_S = 60
TOOL_S = 90
_STARTED = "Kafka Server started"
FLAGS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
"""A JVM that starts fast. It never gets fast: who measures must give others."""
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
)

LOADING = tuple(
    f"-Dorg.slf4j.simpleLogger.log.{name}=info" for name in ("kafka.log.LogManager", "org.apache.kafka.storage")
)
"""Let it tell in detail what it thinks of the files that it opens."""

_COMPLAINT = re.compile("WARN|ERROR|Recovering unflushed|[Rr]ebuilding (?!producer state)|[Cc]orrupt|[Tt]runcat")
_HARMLESS = re.compile(
    "controller activation|log.cleaner.enable` is deprecated|"
    "Stopped loading .* no longer the leader"  # coordinators begin before the first epoch is over, and then again
)


@functools.cache
def jars() -> Path:
    """The folder with Kafka's jars, filled at the first call; skips or fails the test when that cannot be."""
    version = re.search(r"<kafka.version>(.*)<", (JAVA / "pom.xml").read_text())
    assert version is not None
    home = Path(os.environ.get("TIERD_KAFKA_HOME") or Path.home() / ".cache" / "tierd-tests" / f"kafka-{version[1]}")
    libs = home / "libs"
    _require("java")
    if not list(libs.glob("kafka_*.jar")):
        _require("mvn")
        _download(home, libs)
    return libs


def _require(program: str) -> None:
    if shutil.which(program):
        return
    reason = f"{program} is not installed: a real Kafka needs Java 17 and Maven"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def _download(home: Path, libs: Path) -> None:
    """Whole or not at all, also when several test runs do it at once."""
    home.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=home, prefix="libs-"))
    command = ["mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), "dependency:copy-dependencies"]
    done = subprocess.run([*command, f"-DoutputDirectory={partial}"], capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(partial)
        pytest.fail(f"Maven could not fetch Kafka's jars: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    partial.chmod(0o755)
    try:
        partial.rename(libs)
    except OSError:  # another run was first
        shutil.rmtree(partial)


def java(*arguments: str | Path, stdin: str | None = None, timeout_s: float = TOOL_S, check: bool = True) -> str:
    """Run a class with Kafka on its class path, or a single `.java` file; return what it printed.

    With *check* a run that does not exit with 0 fails the test and shows what it said.
    """
    command = ["java", *FLAGS, *_LOGGING, "-cp", f"{jars()}/*", *map(str, arguments)]
    done = subprocess.run(
        command,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if check and done.returncode:
        pytest.fail(f"{arguments[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def dump_log_segments(*files: Path) -> str:
    """What Kafka itself reads in segment, index and snapshot files."""
    named = ",".join(map(str, files))
    return java("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", named)


@dataclass(slots=True)
class Kafka:
    """One KRaft node on loopback; `home` holds its configuration, data and log. Ended by its pid, nothing else."""

    home: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = FLAGS
    port: int = 0
    _process: subprocess.Popen[str] | None = None

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.home / "broker.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def format(self) -> None:
        """Write the configuration and an empty data directory."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.port, controller = free_ports(2)
        configuration = self.home / "server.properties"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in self._configuration(controller).items()))
        cluster = Uuid(b"\x01" + os.urandom(15))  # an id must not begin with '-' on a command line
        tool = ("kafka.tools.StorageTool", "format", "--standalone", "-t", str(cluster), "-c", configuration)
        java(*tool)

    def start(self) -> "Kafka":
        """Start, or start again after `stop` or `kill`; returns when the broker answers."""
        if not (self.data / names.META_PROPERTIES).exists():
            self.format()
        jvm = ["java", *self.flags, *_LOGGING, "-cp", f"{jars()}/*"]
        command = [*jvm, "kafka.Kafka", str(self.home / "server.properties")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started: Queue[bool] = Queue()
        threading.Thread(target=self._pump, args=(self._process, started), daemon=True).start()
        try:
            answers = started.get(timeout=START_S)
        except Empty:
            answers = False
        if not answers:
            self.kill()
            pytest.fail(f"Kafka did not start:\n{self.log.read_text()[-4000:]}")
        return self

    def complaints(self) -> list[str]:
        """Every warning and error, and what it has said of recovering, rebuilding or truncating logs."""
        lines = self.log.read_text().splitlines()
        return [line for line in lines if _COMPLAINT.search(line) and not _HARMLESS.search(line)]

    def recovered_nothing(self, logs: int) -> bool:
        """Whether it has taken *logs* logs as a clean stop left them."""
        return f"Skipping recovery of {logs} logs from {self.data}" in self.log.read_text()

    def stop(self) -> None:
        """A clean stop."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def tool(self, name: str, *arguments: str, stdin: str | None = None, timeout_s: float = TOOL_S) -> str:
        """Run `org.apache.kafka.tools.<name>` against this broker."""
        tool = f"org.apache.kafka.tools.{name}"
        return java(tool, "--bootstrap-server", self.address, *arguments, stdin=stdin, timeout_s=timeout_s)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None

    def _pump(self, process: subprocess.Popen[str], started: "Queue[bool]") -> None:
        assert process.stdout is not None
        with self.log.open("a") as log, process.stdout:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if _STARTED in line:
                    started.put(True)
        started.put(False)

    def _configuration(self, controller_port: int) -> dict[str, str]:
        """Nothing is deleted, cleaned or rolled by age: whatever lies in the data directory stays as it is."""
        internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        single = {f"{topic}.{key}": "1" for topic in internal for key in ("replication.factor", "num.partitions")}
        return {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data),
            "log.retention.ms": "-1",
            "log.cleaner.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **single,
            **self.settings,
        }


@contextmanager
def running(home: Path, settings: Mapping[str, str] | None = None, flags: Sequence[str] = FLAGS) -> Iterator[Kafka]:
    """A fresh Kafka in *home*, stopped at the end. *flags* are the JVM's."""
    with _ended(Kafka(home, settings or {}, flags)) as kafka:
        yield kafka.start()


@contextmanager
def opened(
    home: Path, source: Path, topics: Sequence[str], settings: Mapping[str, str] | None = None
) -> Iterator[Kafka]:
    """A Kafka that serves copies of the partition directories of *topics* in *source*, whoever wrote them.

    Its leader epoch is above all of theirs. Checkpoints and the clean-shutdown marker are taken along where there are.
    It tells in detail what it thinks of the files (`complaints`, `recovered_nothing`).
    """
    with _ended(Kafka(home, settings or {}, (*FLAGS, *LOADING))) as kafka:
        fill(kafka, source, topics)
        kafka.start()
        until("leads every partition", lambda: _leads(kafka, source, topics), timeout_s=START_S)
        yield kafka


@contextmanager
def formatted(home: Path) -> Iterator[Kafka]:
    """A Kafka that was formatted and not started yet; it tells in detail what it thinks of the files."""
    with _ended(Kafka(home, {}, (*FLAGS, *LOADING))) as kafka:
        kafka.format()
        yield kafka


def fill(kafka: Kafka, source: Path, topics: Sequence[str]) -> None:
    """Format *kafka* and give it copies of the partition directories of *topics* in *source*."""
    kafka.format()
    meta = parse_meta_properties((kafka.data / names.META_PROPERTIES).read_bytes())
    known: list[str] = []
    for topic in topics:
        known += _topic_arguments(source, topic)
    java(JAVA / "Bootstrap.java", kafka.data, str(NODE_ID), str(meta.directory_id), *known)
    for directory in (path for topic in topics for path in _partitions(source, topic).values()):
        shutil.copytree(directory, kafka.data / directory.name)
    for name in (
        names.RECOVERY_POINT_CHECKPOINT,
        names.REPLICATION_CHECKPOINT,
        names.LOG_START_CHECKPOINT,
        names.CLEANER_CHECKPOINT,
        names.CLEAN_SHUTDOWN,
    ):
        if (source / name).exists():
            shutil.copy(source / name, kafka.data / name)


def _leads(kafka: Kafka, source: Path, topics: Sequence[str]) -> bool:
    """Whether it has settled: it says that it is started before its registration has led to a new epoch everywhere."""
    with Asker(kafka.address) as asker:
        return all(
            asker.list_offsets(topic, LATEST, partition=number).leader_epoch > _epoch(source, topic)
            for topic in topics
            for number in _partitions(source, topic)
        )


def _topic_arguments(source: Path, topic: str) -> list[str]:
    """NAME TOPIC_ID PARTITIONS LEADER_EPOCH for Bootstrap.java."""
    partitions = _partitions(source, topic)
    assert partitions, f"no partition of {topic} in {source}"
    topic_id = parse_partition_metadata((partitions[min(partitions)] / names.PARTITION_METADATA).read_bytes())
    return [topic, str(topic_id), str(max(partitions) + 1), str(_epoch(source, topic))]


def _epoch(source: Path, topic: str) -> int:
    """Above all epochs in which its partitions were written."""
    files = [directory / names.LEADER_EPOCH_CHECKPOINT for directory in _partitions(source, topic).values()]
    return (
        max((entry.epoch for file in files if file.exists() for entry in parse_epochs(file.read_bytes())), default=0)
        + 1
    )


def _partitions(source: Path, topic: str) -> dict[int, Path]:
    parsed = ((path, names.parse_partition_directory(path.name)) for path in source.iterdir() if path.is_dir())
    return {tp.partition: path for path, tp in parsed if tp is not None and tp.topic == topic}


@contextmanager
def _ended(kafka: Kafka) -> Iterator[Kafka]:
    try:
        yield kafka
    except BaseException:
        kafka.kill()
        raise
    kafka.stop()
