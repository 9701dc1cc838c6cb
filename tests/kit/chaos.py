"""Kill rounds: SIGKILL of broker, tierer or both inside produce, roll, copy, evict, retention, topic creation and
deletion, group commits and starts; then the reckoning."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from os import kill
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from kit import bucket, traffic
from kit.bucket import Remotely
from kit.daemon import Daemon, DidNotStart
from kit.deeds import DEEDS, LONG, SHORT, choose
from kit.mined import BROKER, MINE, Mine, hit_file
from kit.reckoning import Reckoning
from kit.streams import Follower, Ledger, Writer
from tierd.base.errors import TierdError
from tierd.cli.client import ask

KEPT_BYTES = 2 * 1024 * 1024
GONE_RECORDS, GONE_BYTES = 1_500, 1_000
HIT_S = 20.0
ANYTIME = "anytime"
"""A kill from outside that waits for no step at all."""
SETTINGS = {
    "segment.bytes": "1MiB",
    f"topics.{SHORT}.retention.bytes": str(KEPT_BYTES),
    f"topics.{SHORT}.local.retention.bytes": "1MiB",
    "file.delete.delay.ms": "0",
    "tierd.delete.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "log.retention.check.interval.ms": "300ms",
    "remote.head.interval.ms": "200ms",
    "remote.request.timeout.ms": "200ms",  # ten times that, and what a cut copy left may go
}


@dataclass
class Rounds:
    """One tierd over many rounds, its clients, and what all of them were promised."""

    place: Path
    remotely: Remotely
    seed: int
    say: Callable[[str], None]
    settings: dict[str, str] = field(default_factory=dict)
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    landed: Counter[str] = field(default_factory=Counter)
    """How often a kill hit each deed."""
    doomed: set[str] = field(default_factory=set)
    """Topics whose deletion was asked for and not yet seen to be done."""

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.mine = self.place / "mine.json"
        given = SETTINGS | self.remotely.settings | self.settings
        sets = [word for pair in given.items() for word in ("--set", "=".join(pair))]
        env = {MINE: str(self.mine), "PYTHONPATH": str(Path(__file__).parents[1])} | self.remotely.env
        self.daemon = Daemon(self.place / "data", self.remotely.url, None, sets, env, program=("-m", "kit.mined"))
        self.ledgers = {LONG: Ledger(LONG, 1_000), SHORT: Ledger(SHORT, 1_000)}
        self._pause = threading.Event()
        self._trying = threading.Thread()

    # --- the rounds --------------------------------------------------------------------------------------------------
    def run(self, rounds: int) -> "Rounds":
        """Kill *rounds* times, each deed about as often, then reckon and stop in order."""
        deeds = [*DEEDS, ANYTIME]
        order = [deeds[n % len(deeds)] for n in range(rounds)]
        self.dice.shuffle(order)
        try:
            self.daemon.start()
            for topic in (LONG, SHORT):
                self.create(topic)
            self._live(order)
            reckoning = Reckoning(self.daemon, self.remotely)
            reckoning.all_is_there(self.ledgers.values(), kept_bytes={SHORT: KEPT_BYTES})
            reckoning.nothing_else_is_there("gone-")
            assert self.daemon.stop() == 0
            self.daemon.start()
            reckoning.log(self.ledgers[LONG])
            assert self.daemon.stop() == 0
        finally:
            self.daemon.kill()
        return self

    def _live(self, order: list[str]) -> None:
        follower = Follower(self.daemon.address, self.ledgers[LONG], "followers")
        writer = Writer(self.daemon.address, list(self.ledgers.values()))
        try:
            for number, deed in enumerate(order):
                told = self.ledgers[LONG].committed
                how = self._round(number, deed)
                writer.await_answer()
                self.landed[deed] += 1
                acknowledged = sum(len(ledger.acknowledged) for ledger in self.ledgers.values())
                self.say(f"round {number + 1}/{len(order)}: {deed}: {how}; {acknowledged} acknowledged")
                for ledger in self.ledgers.values():
                    assert not ledger.failed, ledger.failed[:3]
                stands = traffic.committed_confluent(self.daemon.address, LONG, follower.group)
                assert max(stands, 0) >= told, f"the group went back from {told} to {stands}"
                if self.dice.random() < 0.3:  # others live on through several kills
                    writer.finish()
                    writer = Writer(self.daemon.address, list(self.ledgers.values()))
                if self.dice.random() < 0.15:
                    follower.finish()
                    follower = Follower(self.daemon.address, self.ledgers[LONG], "followers")
        finally:
            writer.finish()
            follower.finish()
        for ledger in self.ledgers.values():
            assert not ledger.failed, ledger.failed[:3]

    def _round(self, number: int, deed: str) -> str:
        """One kill inside *deed*, and everything up again; say where it hit."""
        if deed == ANYTIME:
            return self._any_time()
        mine = choose(deed, self.dice, in_folder=self.remotely.folder is not None)
        tries = range(mine.nth, 0, -1) if mine.nth < 4 else (mine.nth, mine.nth // 2, 2, 1)
        for attempt, nth in enumerate(tries):
            self.mine.unlink(missing_ok=True)  # one that was laid deeper than there are steps
            topic = f"gone-{number * 10 + attempt}"
            if deed == "delete":
                self.create(topic)
                traffic.produce_confluent(self.daemon.address, topic, self._gone(topic))
                self.verb("copy", wait=True, roll=True)
            mine = Mine(role=mine.role, step=mine.step, nth=nth, after=mine.after, victims=mine.victims)
            mine.lay(self.mine)
            if self._drive(deed, topic):
                break
        else:
            raise AssertionError(f"{deed} never came to {mine}")
        hit = hit_file(self.mine).read_text()
        if BROKER in mine.victims:
            self._start_again()
        if deed in ("create", "delete"):
            self._whole_or_gone(topic)
        return f"{' and '.join(mine.victims)} killed {hit.replace(str(self.place), '')}"

    def _any_time(self) -> str:
        threading.Thread(target=self.verb, args=("copy",), kwargs={"roll": True}, daemon=True).start()
        after_s = self.dice.uniform(0, 1)
        self._pause.wait(after_s)
        self.daemon.kill()
        self._start_again()
        return f"broker killed after {after_s:.2f} s"

    def _start_again(self) -> None:
        self.daemon.kill()
        self.daemon.start()

    # --- what brings each deed about ---------------------------------------------------------------------------------
    def _drive(self, deed: str, topic: str) -> bool:
        """Do the deed until the mine has gone off; False when it does not."""
        if deed == "start":
            return self._die_starting()
        if deed == "tierer again":
            for pid in self.daemon.tierer_pids():
                kill(pid, signal.SIGKILL)
        if deed == "create":
            self._try(lambda: self.create(topic))
        if deed == "delete":
            self.doomed.add(topic)
            self._try(lambda: self.delete(topic))
        for _ in range(int(HIT_S * 10)):
            if hit_file(self.mine).exists():
                return True
            if deed in ("roll", "copy", "evict"):
                self.verb("copy", wait=deed == "evict", roll=True, timeout_ms=5_000 if deed == "evict" else None)
            if deed == "evict":
                self.verb("evict")
            self._pause.wait(0.1)
        return False

    def _die_starting(self) -> bool:
        self.daemon.kill()
        try:
            self.daemon.start()
        except DidNotStart:
            if hit_file(self.mine).exists():
                return True
            raise
        self._pause.wait(1)  # what begins with the listener belongs to the start, too
        return hit_file(self.mine).exists()

    def verb(self, do: str, **facts: object) -> None:
        """What `tierd copy` and `tierd evict` ask for; tierd may end before it answers."""
        try:
            ask(self.place / "data.tierd" / "control.sock", do, **facts)
        except (TierdError, OSError):
            self._pause.wait(0.05)

    def _try(self, work: Callable[[], None]) -> None:
        """*work* whose answer may be lost with the broker."""
        self._trying = threading.Thread(target=_quietly, args=(work,))
        self._trying.start()
        while self._trying.is_alive() and not hit_file(self.mine).exists():
            self._trying.join(0.05)

    def create(self, topic: str) -> None:
        admin = self._admin()
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)

    def delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(30)

    def topics(self) -> set[str]:
        return set(self._admin().list_topics(timeout=30).topics)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.daemon.address, "log_level": 0})

    @staticmethod
    def _gone(topic: str) -> list[traffic.Message]:
        return list(traffic.stream(topic, 0, GONE_RECORDS, GONE_BYTES))

    def _whole_or_gone(self, topic: str) -> None:
        """After a kill inside its creation or deletion a topic is usable as it was, or not there at all."""
        self._trying.join()  # the client may ask the next broker once more, until it gives up
        deleting = topic in self.doomed
        if topic in self.topics():
            if not deleting:
                traffic.produce_confluent(self.daemon.address, topic, self._gone(topic))
            got = traffic.consume_confluent(self.daemon.address, topic, 0, GONE_RECORDS)
            assert traffic.digest(got) == traffic.digest(self._gone(topic)), topic
            self.doomed.add(topic)
            self.delete(topic)
        assert topic not in self.topics()


def _quietly(work: Callable[[], None]) -> None:
    try:
        work()
    except confluent_kafka.KafkaException:
        return  # the answer went with the broker


def kill_rounds(
    place: Path,
    rounds: int,
    seed: int,
    say: Callable[[str], None],
    *,
    remotely: Remotely | None = None,
    settings: dict[str, str] | None = None,
) -> Rounds:
    """Run *rounds*, by default with a directory as the bucket, and check everything at the end; give what was seen."""
    return Rounds(place, remotely or bucket.in_folder(place / "bucket"), seed, say, settings or {}).run(rounds)
