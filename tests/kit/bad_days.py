"""Days on which S3 does everything wrong: producers, consumers and copies go on through a plan of faults; then the
reckoning."""

import bisect
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from kit import tiers
from kit.bad_s3 import BadS3, bad_s3
from kit.bucket import Remotely, in_weed
from kit.daemon import Daemon
from kit.faults import Plan
from kit.reckoning import Reckoning
from kit.streams import Follower, Ledger, Writer
from kit.weed import Weed

SMALL, LARGE = ("bad-0", "bad-1", "bad-2"), "bad-large"
SETTINGS = {
    "internal.segment.bytes": "40KiB",
    f"topics.{LARGE}.internal.segment.bytes": "5500KiB",  # goes in parts
    "remote.part.bytes": "5MiB",
    "local.retention.bytes": "64KiB",
    "log.retention.check.interval.ms": "200ms",
    "file.delete.delay.ms": "0",
    "tierd.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "remote.head.interval.ms": "100ms",
    "remote.request.timeout.ms": "500ms",
    "remote.retry.max.ms": "200ms",
    "remote.copy.threads": "8",
    "remote.cache.bytes": "64MiB",
    "remote.read.ahead": "2",
}
LIMIT_S = 3_600
_REST_S = 0.25
_ROTATED_EVERY = 150
"""Faults."""


class Reader:
    """Reads a topic from its beginning, again and again, and compares each record with the one that was written."""

    def __init__(self, address: str, ledger: Ledger, seed: int) -> None:
        self.passes = 0
        self.records = 0
        self._ledger = ledger
        self._dice = random.Random(seed)
        self._enough = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": f"reads-{ledger.topic}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._enough.is_set() and not self._ledger.failed:
                self._pass()
        finally:
            self._consumer.close()

    def _pass(self) -> None:
        """From the first record to the last one that is acknowledged when it begins."""
        stop = max(self._ledger.acknowledged.values(), default=-1) + 1
        self._consumer.assign([confluent_kafka.TopicPartition(self._ledger.topic, 0, 0)])
        times: list[int] = []
        while len(times) < stop and not self._enough.is_set() and not self._ledger.failed:
            for m in self._consumer.consume(500, timeout=0.2):
                error = m.error()
                if error is None:
                    self._compare(m, len(times))
                    times.append(m.timestamp()[1])
                elif error.code() in _WRONG:
                    self._ledger.failed.append(f"a reader of {self._ledger.topic} at {len(times)}: {error}")
        self.records += len(times)
        if times:
            self.passes += 1
            self._ask_for(self._dice.choice(times), times)
        self._enough.wait(0.2)

    def _compare(self, m: confluent_kafka.Message, offset: int) -> None:
        key, value = m.key() or b"", m.value()
        number = int(key.rpartition(b"-")[2] or -1)
        if m.offset() != offset:
            self._ledger.failed.append(f"a reader of {self._ledger.topic} got {m.offset()}, {offset} was next")
        elif number < 0 or value != self._ledger.message(number).value:
            self._ledger.failed.append(f"a reader of {self._ledger.topic} got another record at {offset}")

    def _ask_for(self, time_ms: int, times: list[int]) -> None:
        """The first offset that has this time or a later one; times ascend, as one producer writes them."""
        place = confluent_kafka.TopicPartition(self._ledger.topic, 0, time_ms)
        try:
            (found,) = self._consumer.offsets_for_times([place], timeout=10)
        except confluent_kafka.KafkaException:
            return  # the bucket is silent, and tierd says so
        right = bisect.bisect_left(times, time_ms)
        if found.error is None and found.offset != right:
            self._ledger.failed.append(f"{self._ledger.topic}: {time_ms} is at {right}, {found.offset} was told")

    def finish(self) -> None:
        self._enough.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the reader did not end"


_WRONG = frozenset({confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE, confluent_kafka.KafkaError._AUTO_OFFSET_RESET})
"""What a reader of offsets that are there must never be told, however bad the day."""


@dataclass
class BadDays:
    """One tierd before a bad S3, its clients, and what all of them were promised."""

    place: Path
    server: Weed
    plan: Plan
    say: Callable[[str], None]
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.remotely: Remotely = in_weed(self.server, self.place.name.replace("_", "-").lower()[:40] or "bad")
        self.ledgers = {topic: Ledger(topic, 1_000) for topic in SMALL} | {LARGE: Ledger(LARGE, 20_000)}
        self._pause = threading.Event()

    def run(self) -> "BadDays":
        """Until the plan's faults have all happened; then everything is held against what was promised."""
        with bad_s3(self.server.endpoint, self.plan) as bad:
            daemon = self._daemon(bad)
            try:
                daemon.start()
                for topic in self.ledgers:
                    tiers.create(daemon, topic)
                self._live(daemon, bad)
                self.plan.rest()
                self._reckon(daemon)
                assert daemon.stop() == 0
            finally:
                daemon.kill()
        return self

    def _daemon(self, bad: BadS3) -> Daemon:
        credentials = self.place / "credentials"
        bad.rotate(credentials)
        given = SETTINGS | self.remotely.settings | {"remote.s3.endpoint": bad.endpoint} | self.settings
        sets = [word for pair in given.items() for word in ("--set", "=".join(pair))]
        env = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_EC2_METADATA_DISABLED": "true"}
        return Daemon(self.place / "data", self.remotely.url, None, sets, env)

    def _live(self, daemon: Daemon, bad: BadS3) -> None:
        ledgers = list(self.ledgers.values())
        writer = Writer(daemon.address, ledgers, _REST_S)
        follower = Follower(daemon.address, ledgers[0], "followers")
        readers = [Reader(daemon.address, ledger, number) for number, ledger in enumerate(ledgers[-2:])]
        rotated = 0
        try:
            for turn in range(LIMIT_S * 10):
                if self.plan.over or any(ledger.failed for ledger in ledgers):
                    break
                self._pause.wait(0.1)
                if self.plan.done.total() // _ROTATED_EVERY > rotated:
                    rotated += 1
                    bad.rotate(self.place / "credentials")
                if turn % 100 == 99:
                    self.say(self.plan.words())
        finally:
            writer.finish()
            follower.finish()
            for reader in readers:
                reader.finish()
        for ledger in ledgers:
            assert not ledger.failed, ledger.failed[:3]
        self.say(
            f"{self.plan.words()}; {sum(one.passes for one in readers)} passes, "
            f"{sum(one.records for one in readers)} records read, "
            f"{sum(len(one.acknowledged) for one in ledgers)} acknowledged, {rotated} rotations"
        )

    def _reckon(self, daemon: Daemon) -> None:
        reckoning = Reckoning(daemon, self.remotely)
        reckoning.all_is_there(self.ledgers.values(), kept_bytes={})
        daemon.verb("sweep")
        reckoning.nothing_else_is_there("gone-")
        sets = daemon.extra
        checked = daemon.verb("verify", "--deep", "--json", "--remote", self.remotely.url, *sets)
        assert '"verdict": "OK"' in checked.stdout, checked.stdout[:2000]
