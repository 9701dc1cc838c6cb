"""What becomes of a transactional id: Kafka's tables, and whatever order things come in, no epoch has two owners."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tierd.base.ids import TopicPartition
from tierd.broker.transactions import machine
from tierd.broker.transactions.codec import decode_transaction, encode_transaction
from tierd.broker.transactions.machine import LAST_EPOCH, MAX_EPOCH, TV2, Producer, Refused
from tierd.broker.transactions.model import State, Transaction, may_become
from tierd.wire.errors import ErrorCode

T, TV1 = 1000, 0
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def transaction(state: State = State.EMPTY, epoch: int = 5, version: int = TV2, **more: object) -> Transaction:
    ongoing = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    values: dict[str, object] = {
        "producer_id": 7,
        "producer_epoch": epoch,
        "timeout_ms": 60_000,
        "state": state,
        "partitions": frozenset({A}) if ongoing else frozenset(),
        "changed_ms": T,
        "started_ms": None if state is State.EMPTY else T,
        "previous_producer_id": 7,
        "client_version": version,
    }
    return Transaction(**(values | more))  # type: ignore[arg-type]


def fresh() -> int:
    return 99


def end(old: Transaction | None, epoch: int, commit: bool, version: int = TV2, producer_id: int = 7) -> Transaction:
    return machine.end(old, Producer(producer_id, epoch), commit=commit, version=version, fresh_id=fresh, now_ms=T + 9)


def code(old: Transaction | None, epoch: int, commit: bool, version: int = TV2) -> ErrorCode | str:
    """What EndTxn answers: an error, `same` when nothing changes, `bump` when the epoch goes up."""
    try:
        value = end(old, epoch, commit, version)
    except Refused as error:
        return error.code
    if value is old:
        return "same"
    assert old is not None
    assert value.state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    return "bump" if value.producer_epoch == old.producer_epoch + 1 else "end"


PF, ITS, BUSY = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS
S = State


@pytest.mark.parametrize(
    ("state", "commit", "retried", "current"),
    [
        (S.EMPTY, False, PF, "bump"),
        (S.EMPTY, True, PF, ITS),
        (S.ONGOING, False, PF, "bump"),
        (S.ONGOING, True, PF, "bump"),
        (S.PREPARE_ABORT, False, BUSY, PF),
        (S.PREPARE_ABORT, True, ITS, PF),
        (S.PREPARE_COMMIT, False, ITS, PF),
        (S.PREPARE_COMMIT, True, BUSY, PF),
        (S.COMPLETE_ABORT, False, "same", "bump"),
        (S.COMPLETE_ABORT, True, ITS, ITS),
        (S.COMPLETE_COMMIT, False, ITS, "bump"),
        (S.COMPLETE_COMMIT, True, "same", ITS),
    ],
)
def test_end_of_version_2(state: State, commit: bool, retried: ErrorCode | str, current: ErrorCode | str) -> None:
    """KIP-890: a retry carries the epoch before the end raised it."""
    assert code(transaction(state), 4, commit) == retried
    assert code(transaction(state), 5, commit) == current
    assert code(transaction(state), 6, commit) == PF
    assert code(transaction(state), 3, commit) == PF


@pytest.mark.parametrize(
    ("state", "commit", "current"),
    [
        (S.EMPTY, False, ITS),
        (S.EMPTY, True, ITS),
        (S.ONGOING, False, "end"),
        (S.ONGOING, True, "end"),
        (S.PREPARE_ABORT, False, BUSY),
        (S.PREPARE_ABORT, True, ITS),
        (S.PREPARE_COMMIT, False, ITS),
        (S.PREPARE_COMMIT, True, BUSY),
        (S.COMPLETE_ABORT, False, "same"),
        (S.COMPLETE_ABORT, True, ITS),
        (S.COMPLETE_COMMIT, False, ITS),
        (S.COMPLETE_COMMIT, True, "same"),
    ],
)
def test_end_of_older_clients(state: State, commit: bool, current: ErrorCode | str) -> None:
    """The epoch stays, and a retry looks like the request itself."""
    assert code(transaction(state, version=TV1), 5, commit, TV1) == current
    assert code(transaction(state, version=TV1), 4, commit, TV1) == PF


def test_an_end_of_older_clients_is_no_retry_of_version_2() -> None:
    """Who had epoch 4 was shut out by who has 5, and must not be given 5."""
    assert code(transaction(S.COMPLETE_COMMIT, version=TV1), 4, True) == PF


def test_an_id_that_is_not_known() -> None:
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert code(None, 0, True) == code(None, 0, True, TV1) == mapping
    with pytest.raises(Refused) as refused:
        end(transaction(S.ONGOING), 5, True, producer_id=8)
    assert refused.value.code is mapping
    with pytest.raises(Refused) as refused:
        machine.add(None, Producer(7, 5), [A], TV2, T)
    assert refused.value.code is mapping


def test_when_epochs_run_out_the_end_switches_to_another_producer_id() -> None:
    ongoing = transaction(S.ONGOING, LAST_EPOCH)
    prepared = end(ongoing, LAST_EPOCH, True)
    assert (prepared.producer_id, prepared.producer_epoch) == (7, MAX_EPOCH)  # Markers carry it.
    assert prepared.told == (99, 0)
    assert code(prepared, LAST_EPOCH, True) == BUSY
    done = machine.complete(prepared, T)
    assert done.told == (done.producer_id, done.producer_epoch) == (99, 0)
    assert done.next_producer_id is None
    assert end(done, LAST_EPOCH, True) is done
    assert code(done, LAST_EPOCH, False) == ITS
    again = machine.add(done, Producer(99, 0), [A], TV2, T)
    assert code(again, LAST_EPOCH, True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_first_init() -> None:
    made = machine.init(None, Producer(3, 3), 60_000, fresh, T)
    assert (made.told, made.state, made.timeout_ms) == ((99, 0), S.EMPTY, 60_000)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT])
def test_init_raises_the_epoch(state: State) -> None:
    old = transaction(state, last_epoch=4)
    for given in (None, Producer(7, 5)):
        made = machine.init(old, given, 10, fresh, T + 1)
        assert (made.told, made.state, made.timeout_ms, made.partitions) == ((7, 6), S.EMPTY, 10, frozenset())
        assert may_become(old.state, made.state)
        # The same request once more: only who went on may have the same epoch again.
        if given is None:
            assert machine.init(made, None, 10, fresh, T).told == (7, 7)
            with pytest.raises(Refused, match="epoch 5"):
                machine.init(made, Producer(7, 5), 10, fresh, T)
        else:
            assert machine.init(made, given, 10, fresh, T).told == (7, 6)
    assert machine.init(old, Producer(7, 4), 10, fresh, T).told == (7, 5)


@pytest.mark.parametrize("given", [Producer(7, 3), Producer(7, 6), Producer(8, 5), Producer(8, LAST_EPOCH)])
def test_init_shuts_out_who_is_not_the_newest(given: Producer) -> None:
    with pytest.raises(Refused) as refused:
        machine.init(transaction(last_epoch=4), given, 10, fresh, T)
    assert refused.value.code is PF


@pytest.mark.parametrize("given", [None, Producer(7, LAST_EPOCH)])
def test_init_with_no_epoch_left(given: Producer | None) -> None:
    made = machine.init(transaction(epoch=LAST_EPOCH), given, 10, fresh, T)
    assert made.told == (99, 0)
    retried = Producer(7, LAST_EPOCH)
    if given is None:
        with pytest.raises(Refused):
            machine.init(made, retried, 10, fresh, T)
    else:
        assert machine.init(made, retried, 10, fresh, T).told == (99, 0)


@pytest.mark.parametrize("version", [TV1, TV2])
def test_init_aborts_what_goes_on(version: int) -> None:
    ongoing = transaction(S.ONGOING, version=version)
    aborting = machine.init(ongoing, None, 10, fresh, T)
    assert (aborting.state, aborting.producer_epoch, aborting.partitions) == (S.PREPARE_ABORT, 6, frozenset({A}))
    for given in (None, Producer(7, 5), Producer(7, 6)):
        with pytest.raises(Refused) as refused:
            machine.init(aborting, given, 10, fresh, T)
        assert refused.value.code is BUSY
    done = machine.complete(aborting, T)
    with pytest.raises(Refused) as refused:
        machine.add(done, Producer(7, 5), [A], version, T)
    assert refused.value.code is PF
    assert code(done, 5, True, version) == (ITS if version == TV2 else PF)
    # The one whose transaction it was may go on, until another one has a newer epoch.
    assert machine.init(done, Producer(7, 5), 10, fresh, T).told == (7, 6)
    newer = machine.init(done, None, 10, fresh, T)
    assert newer.told == (7, 7)
    for epoch in (5, 6):
        with pytest.raises(Refused):
            machine.init(newer, Producer(7, epoch), 10, fresh, T)


@pytest.mark.parametrize("epoch", [LAST_EPOCH, MAX_EPOCH])
def test_fencing_stops_at_the_last_epoch(epoch: int) -> None:
    done = machine.complete(machine.fence(transaction(S.ONGOING, epoch), T), T)
    assert (done.producer_id, done.producer_epoch) == (7, MAX_EPOCH)
    assert machine.init(done, None, 10, fresh, T).told == (99, 0)


def test_add() -> None:
    owner = Producer(7, 5)
    begun = machine.add(transaction(), owner, [A], TV2, T + 1)
    assert (begun.state, begun.partitions, begun.started_ms) == (S.ONGOING, frozenset({A}), T + 1)
    assert machine.add(begun, owner, [A], TV2, T + 2) is begun
    more = machine.add(begun, owner, [A, B], TV2, T + 2)
    assert (more.partitions, more.started_ms, more.changed_ms) == (frozenset({A, B}), T + 1, T + 2)
    done = machine.complete(end(more, 5, True), T + 3)
    assert machine.add(done, Producer(7, 6), [B], TV2, T + 4).started_ms == T + 4
    for state in (S.PREPARE_ABORT, S.PREPARE_COMMIT):
        with pytest.raises(Refused) as refused:
            machine.add(transaction(state), owner, [A], TV2, T)
        assert refused.value.code is BUSY


def test_verify() -> None:
    ongoing = transaction(S.ONGOING)
    assert machine.verify(ongoing, Producer(7, 5), [A, B]) == {B}
    assert machine.verify(transaction(), Producer(7, 5), [A]) == {A}
    for old, given, why in [
        (ongoing, Producer(7, 4), PF),
        (ongoing, Producer(8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (transaction(S.PREPARE_COMMIT), Producer(7, 5), BUSY),
    ]:
        with pytest.raises(Refused) as refused:
            machine.verify(old, given, [A])
        assert refused.value.code is why


def test_time() -> None:
    ongoing = transaction(S.ONGOING)
    assert not machine.timed_out(ongoing, T + 60_000)
    assert machine.timed_out(ongoing, T + 60_001)
    assert machine.timed_out(transaction(S.ONGOING, started_ms=None), T + 60_001)
    assert not machine.timed_out(transaction(S.PREPARE_ABORT), T + 99_999)
    assert not machine.expired(ongoing, T + 10**9, 100)
    assert not machine.expired(transaction(S.PREPARE_COMMIT), T + 10**9, 100)
    for state in (S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT):
        assert not machine.expired(transaction(state), T + 99, 100)
        assert machine.expired(transaction(state), T + 100, 100)


def test_a_fence_that_took_the_last_epoch_leaves_another_id_to_go_on_with() -> None:
    fenced = machine.complete(machine.fence(transaction(S.ONGOING, LAST_EPOCH), T), T)
    assert fenced.producer_epoch == MAX_EPOCH
    assert code(fenced, LAST_EPOCH, False) == PF
    made = machine.init(fenced, Producer(7, LAST_EPOCH), 10, fresh, T)
    assert made.told[1] == 0
    assert made.told[0] != 7
    assert machine.init(made, Producer(7, LAST_EPOCH), 10, fresh, T).told == made.told, "a retry of the same request"


class Sequences(RuleBasedStateMachine):
    """Several clients with one transactional id, answers lost, time-outs and restarts, near the end of the epochs."""

    def __init__(self) -> None:
        super().__init__()
        ids = itertools.count(100)
        self.fresh = lambda: next(ids)
        self.value: Transaction | None = None
        self.now_ms = T
        self.owner: dict[tuple[int, int], int] = {}
        """Which client was told which producer id and epoch."""
        self.has: dict[int, tuple[int, int]] = {}

    @rule(epoch=st.sampled_from([0, LAST_EPOCH - 3, LAST_EPOCH - 1, LAST_EPOCH]))
    @precondition(lambda self: self.value is None)
    def begin(self, epoch: int) -> None:
        first = machine.init(None, None, 60_000, self.fresh, self.now_ms)
        self.value = replace(first, producer_epoch=epoch)
        self.give(0, self.value.told)

    def take(self, value: Transaction) -> None:
        assert self.value is not None
        old, self.value = self.value, value
        if value is old:
            return
        assert may_become(old.state, value.state)
        assert value.producer_id != old.producer_id or value.producer_epoch >= old.producer_epoch
        if old.deciding:
            assert value.decided, "what is decided is ended before anything else"
            assert value.commits is old.commits

    def give(self, client: int, told: tuple[int, int]) -> None:
        assert self.owner.setdefault(told, client) == client, f"{told} has two owners"
        assert told[1] <= LAST_EPOCH
        self.has[client] = told

    @rule(client=st.integers(0, 2), new=st.booleans(), lost=st.booleans())
    @precondition(lambda self: self.value is not None)
    def init(self, client: int, new: bool, lost: bool) -> None:
        given = None if new or client not in self.has else Producer(*self.has[client])
        try:
            value = machine.init(self.value, given, 60_000, self.fresh, self.now_ms)
        except Refused:
            return
        self.take(value)
        if not value.deciding and not lost:
            self.give(client, value.told)
        elif not value.deciding:
            assert self.owner.get(value.told, client) == client

    @rule(client=st.integers(0, 2), partition=st.sampled_from([A, B]), version=st.sampled_from([TV1, TV2]))
    @precondition(lambda self: self.value is not None)
    def add(self, client: int, partition: TopicPartition, version: int) -> None:
        if client in self.has:
            try:
                self.take(machine.add(self.value, Producer(*self.has[client]), [partition], version, self.now_ms))
            except Refused:
                return
            assert self.value is not None
            assert self.value.told == self.has[client]

    @rule(client=st.integers(0, 2), commit=st.booleans(), lost=st.booleans(), version=st.sampled_from([TV1, TV2]))
    @precondition(lambda self: self.value is not None)
    def end(self, client: int, commit: bool, lost: bool, version: int) -> None:
        if client not in self.has:
            return
        given = Producer(*self.has[client])
        try:
            value = machine.end(
                self.value, given, commit=commit, version=version, fresh_id=self.fresh, now_ms=self.now_ms
            )
        except Refused:
            return
        self.take(value)
        assert value.commits is commit
        if not lost:
            self.give(client, value.told if version == TV2 else (given.id, given.epoch))

    @rule()
    @precondition(lambda self: self.value is not None and self.value.deciding)
    def complete(self) -> None:
        assert self.value is not None
        self.take(machine.complete(self.value, self.now_ms))

    @rule()
    @precondition(lambda self: self.value is not None and self.value.state is S.ONGOING)
    def time_out(self) -> None:
        assert self.value is not None
        self.take(machine.fence(self.value, self.now_ms))

    @rule()
    @precondition(lambda self: self.value is not None)
    def restart(self) -> None:
        assert self.value is not None
        self.value = decode_transaction(encode_transaction(self.value), "")

    @rule(by_ms=st.integers(0, 1000))
    def later(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @invariant()
    def what_is_stored_comes_back(self) -> None:
        if self.value is not None:
            stored = decode_transaction(encode_transaction(self.value), "")
            assert stored == replace(self.value, last_epoch=None)
            assert 0 <= self.value.producer_epoch <= MAX_EPOCH


Sequences.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestSequences = Sequences.TestCase
