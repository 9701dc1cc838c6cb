"""A tierd that lives through many power cuts, a client that works with it, and what must be true at every boot."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from random import Random

from broker.client import Client
from kit import bucket
from kit.history import Batch, History, archived, batches
from kit.machine import Life, Machine, hang_up
from kit.model_disk import ModelDisk, PowerCut
from tierd.base.ids import Uuid
from tierd.wire.errors import ErrorCode

SMALL = {"internal.segment.bytes": "4000", "index.interval.bytes": "500", "file.delete.delay.ms": "1000"}
KEPT, SHORT = "kept", "short"
SHORT_SETTINGS = {"retention.bytes": "30000", "local.retention.bytes": "1"}
MAX_WAIT_MS = 20_000
STEPS = 200
"""About as many disk steps as a boot and some work take."""
CHANGES = 25
"""Of the bucket, likewise."""


class Loses(Enum):
    """What a cut takes of what was written and not fsynced."""

    ALL = auto()
    SOME = auto()
    """A random part, as file systems do: closed segments may come back short, with others behind them."""
    NOTHING = auto()
    """`kill -9`: the page cache lives."""


class Wire(Client):
    """A client whose calls end when the power goes: there is nobody left to answer."""

    def __init__(self, address: tuple[str, int], life: Life) -> None:
        super().__init__(address)
        life.on_cut.append(lambda: hang_up(self._sock))
        if life.off:  # meanwhile
            hang_up(self._sock)


@dataclass
class World:
    machine: Machine
    dice: Random
    histories: dict[str, History] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    maybe: str | None = None
    """A topic whose creation was asked for, and nobody answered."""
    epoch: int = -1
    producer_id: int = -1
    warm: ModelDisk | None = None
    """After a `kill -9`: the disk still has things to lose."""
    holes: bool = False
    """A cut may have left some above the floors, and no boot has been looked at since."""
    recover: bool = False
    """The machine is new: it starts with the bucket alone."""
    told: list[str] = field(default_factory=list)
    """Where the power went, in words."""

    # -- one boot after the other --

    def live(
        self,
        deeds: Callable[[Life, Wire], None],
        *,
        dies_after: int | None = None,
        tierer_dies: str | None = None,
        loses: Loses = Loses.ALL,
    ) -> None:
        """Boot, check, do *deeds*; the power goes at the given step or else at their end."""
        life = Life(self.machine, dies_after=dies_after, tierer_dies=tierer_dies, disk=self.warm, recover=self.recover)
        try:
            with booted(life) as client:
                self.check(life, client)
                deeds(life, client)
                life.cut()
        except (PowerCut, ConnectionError):
            if not life.off:
                raise
        finally:
            life.end()
            self.told.append(f"{loses.name} {tierer_dies or ''} step {life.disk.steps}, after {life.disk.trace[-6:]}")
        if not self.holes:
            self._raise_floors(life)
        self.warm = life.disk if loses is Loses.NOTHING else None
        if self.warm is None:
            life.disk.lose_unsynced(self.dice if loses is Loses.SOME else None)
            self.machine.spoil_cache(self.dice)
            self.holes = self.holes or loses is Loses.SOME

    def check(self, life: Life, client: Wire) -> None:
        """All that is promised of a boot."""
        assert life.epoch > self.epoch
        self.epoch = life.epoch
        self._find_topics(client)
        for topic, history in self.histories.items():
            found = archived(self.machine.bucket, topic, self.ids[topic], 0)
            self._check_topic(client, topic)
            history.check_bucket(found)
            if self.warm is None:
                history.floor = history.end  # a boot must not endanger what lay safely on the disk
        self.holes = False
        producer_id = client.call(22, 4, transactional_id=None, transaction_timeout_ms=0).producer_id
        assert producer_id > self.producer_id, "a producer id was given out again"
        self.producer_id = producer_id

    def _raise_floors(self, life: Life) -> None:
        """What was flushed, or lies in the bucket, must be there from now on."""
        flushed = {topic: log.recovery_point for (topic, _), log in life.logs().items()}
        for topic, history in self.histories.items():
            history.floor = max(history.floor, flushed.get(topic, 0), self.bucket_end(topic))

    def _find_topics(self, client: Wire) -> None:
        """Topics whose creation was acknowledged are there, under their ids."""
        there = {topic.name: str(Uuid(topic.topic_id.bytes)) for topic in client.call(3, 12, topics=None).topics}
        if self.maybe is not None and self.maybe in there:
            self.histories[self.maybe] = History()
        self.maybe = None
        for topic in self.histories:
            assert topic in there, f"{topic} is gone"
            assert self.ids.setdefault(topic, there[topic]) == there[topic]

    def _check_topic(self, client: Wire, topic: str) -> None:
        """Read all of it; the producer's last batch is known as a duplicate."""
        history = self.histories[topic]
        start, end = (client.list_offsets(topic, which).offset for which in (-2, -1))
        history.survived(read(client, topic, start, end), start, end, holes=self.holes)
        if history.sent and history.end == end:
            again = client.produce(topic, history.sent[-1].raw)
            assert (again.error_code, again.base_offset) == (0, history.sent[-1].first)

    def bucket_end(self, topic: str) -> int:
        found = archived(self.machine.bucket, topic, self.ids.get(topic, ""), 0)
        return found[-1].next_base if found else 0

    # -- deeds --

    def create(self, client: Wire, topic: str, config: dict[str, str] | None = None) -> None:
        self.maybe = topic
        made = client.create(topic, 1, **(config or {}))
        assert made.error_code == 0
        self.histories[topic], self.maybe = History(), None
        self.ids[topic] = str(Uuid(made.topic_id.bytes))

    def produce(self, life: Life, client: Wire, topic: str, count: int) -> None:
        history = self.histories[topic]
        for _ in range(count):
            now_ms = self.machine.clock.now_ms()
            raw = history.make(self.dice.randint(1, 5), self.dice.randint(20, 800), now_ms, life.epoch)
            answer = client.produce(topic, raw)
            assert answer.error_code == 0, ErrorCode(answer.error_code)
            history.acknowledged(answer.base_offset)
            history.log_start = max(history.log_start, answer.log_start_offset)

    def copy(self, life: Life, *, roll: bool) -> None:
        life.verb("copy", roll=roll, wait=True, timeout_ms=MAX_WAIT_MS)

    def work(self, life: Life, client: Wire, *, deeds: int = 40) -> None:
        """This and that, until the power goes or so many deeds are done."""
        for topic, config in ((KEPT, {}), (SHORT, SHORT_SETTINGS)):
            if topic not in self.histories:
                self.create(client, topic, config)
        choice: list[Callable[[], object]] = [
            lambda: self.produce(life, client, KEPT, self.dice.randint(1, 12)),
            lambda: self.produce(life, client, SHORT, self.dice.randint(1, 12)),
            lambda: self.copy(life, roll=self.dice.random() < 0.5),
            lambda: life.verb("copy", roll=True),
            lambda: life.verb("evict"),
            lambda: self.machine.clock.advance(10_000),
            lambda: self.create(client, f"new-{len(self.histories)}"),
        ]
        for _ in range(deeds):
            self.dice.choices(choice, (4, 3, 2, 1, 2, 2, 0.3))[0]()

    def save_and_copy(self, life: Life, client: Wire) -> None:
        """A copy of the catalog is made, then the bucket gets more."""
        self.work(life, client, deeds=3)
        self.machine.save_catalog(self.older)
        self.copy_more(life, client)

    def copy_more(self, life: Life, client: Wire) -> None:
        for topic in (KEPT, SHORT):
            self.produce(life, client, topic, 8)
        self.copy(life, roll=True)
        self.work(life, client, deeds=3)

    @property
    def older(self) -> Path:
        return self.machine.place / "older"

    def fall_behind(self) -> None:
        """The data directory is an older one; of what came since only the bucket's part must come back."""
        self.machine.restore_data(self.older)
        for history in self.histories.values():
            history.floor = 0

    def reckon(self, *, owned: bool = True) -> None:
        """The last boot: all goes to the bucket, and all comes back from there. *owned*: no object is left over."""
        life = Life(self.machine, disk=self.warm)
        try:
            with booted(life) as client:
                self.check(life, client)
                self.work(life, client, deeds=4)
                for topic in self.histories:
                    self.produce(life, client, topic, 3)
                self.copy(life, roll=True)
                life.verb("evict")
                for topic, history in self.histories.items():
                    assert self.bucket_end(topic) == life.logs()[topic, 0].local_start == history.end
                    self._check_topic(client, topic)
                    history.check_bucket(archived(self.machine.bucket, topic, self.ids[topic], 0))
        finally:
            life.end(clean=True)
        if owned:
            assert bucket.unowned(bucket.in_folder(self.machine.bucket), self.machine.state) == []


@contextmanager
def booted(life: Life) -> Iterator[Wire]:
    client = Wire(life.start(), life)
    with client:
        yield client


def read(client: Wire, topic: str, start: int, end: int) -> list[Batch]:
    """Everything in [start, end), from whichever tier has it."""
    found: list[Batch] = []
    while start < end:
        answer = client.fetch(topic, start, max_wait=MAX_WAIT_MS)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        got = batches(answer.records or b"")
        assert got, f"nothing comes at {start} of {topic}, which ends at {end}"
        found += got
        start = got[-1][0].next_offset
    return found
