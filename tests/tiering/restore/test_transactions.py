"""Where logs may end so that every transaction is whole or not there, over made-up histories of producers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from tierd.tiering.restore.transactions import Transaction, settle


@dataclass
class History:
    """Producers write transactions, one after the other each, into logs that others write to, too."""

    raises: bool
    """Whether the end of a transaction raises its producer's epoch."""
    logs: dict[int, list[Transaction]] = field(default_factory=lambda: {part: [] for part in range(3)})
    ends: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(3), 0))
    names: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """Which transaction begins in a log at an offset."""
    open: dict[int, dict[int, Transaction]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    now_ms: int = 0
    ahead_ms: int = 0
    """The clients' clock."""

    def write(self, producer: int, part: int) -> None:
        self.now_ms += 10
        at = self.ends[part]
        self.ends[part] += 1
        mine = self.open.setdefault(producer, {})
        if not mine:
            self.begun[producer] = self.begun.get(producer, 0) + 1
        if part not in mine:
            self.names[part, at] = (producer, self.begun[producer])
            epoch = self.epochs.setdefault(producer, 0)
            mine[part] = Transaction(
                producer_id=producer,
                epoch=epoch,
                open_ms=self.now_ms,
                began_ms=self.now_ms + self.ahead_ms,
                first=at,
                stop=None,
            )

    def end(self, producer: int) -> None:
        mine = self.open.pop(producer, {})
        self.epochs[producer] = epoch = self.epochs.get(producer, 0) + self.raises
        self.now_ms += 10
        for part, one in mine.items():
            self.now_ms += 1
            self.ends[part] += 1
            self.logs[part].append(replace(one, stop=self.ends[part], ended_epoch=epoch, ended_ms=self.now_ms))

    def close(self) -> None:
        """What is open stays so."""
        for mine in self.open.values():
            for part, one in mine.items():
                self.logs[part].append(one)

    def named(self, part: int, one: Transaction) -> tuple[int, int]:
        return self.names[part, one.first]

    def truth(self, cuts: dict[int, int]) -> dict[int, int]:
        """The same with the transactions' names known."""
        cuts = dict(cuts)
        while True:
            gone = {
                self.named(part, one) for part, own in self.logs.items() for one in own if one.is_cut_at(cuts[part])
            }
            lower = {
                part: min([cuts[part], *(one.first for one in own if self.named(part, one) in gone)])
                for part, own in self.logs.items()
            }
            if lower == cuts:
                return cuts
            cuts = lower


DEEDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=60)


def made(deeds: Sequence[tuple[int, int]], *, raises: bool, ahead_ms: int = 0) -> History:
    history = History(raises, ahead_ms=ahead_ms)
    for producer, what in deeds:
        if what < 3:
            history.write(producer, what)
        elif what == 3:
            history.end(producer)
        else:
            history.ends[what - 4] += 1  # somebody without a transaction
    history.close()
    return history


@given(DEEDS, st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_the_highest_offsets_without_a_part_of_a_transaction(deeds: list[tuple[int, int]], asked: list[int]) -> None:
    history = made(deeds, raises=True)
    cuts = {part: min(asked[part], end) for part, end in history.ends.items()}
    assert settle(cuts, history.logs) == history.truth(cuts)


@given(DEEDS, st.lists(st.integers(0, 20), min_size=3, max_size=3), st.sampled_from([0, -1_000_000, 1_000_000]))
def test_epochs_that_stay(deeds: list[tuple[int, int]], asked: list[int], ahead_ms: int) -> None:
    """As older clients have it: times tell, and more may go than must, but never a part, whatever their clock says."""
    history = made(deeds, raises=False, ahead_ms=ahead_ms)
    cuts = {part: min(asked[part], end) for part, end in history.ends.items()}
    settled = settle(cuts, history.logs)
    truth = history.truth(cuts)
    assert all(settled[part] <= truth[part] for part in cuts)
    if not ahead_ms and not history.open:
        assert settled == truth, "nobody's clock is wrong: nothing goes that need not"
    kept: dict[tuple[int, int], set[bool]] = {}
    for part, own in history.logs.items():
        for one in own:
            whole = not one.is_cut_at(settled[part])
            assert whole or one.first >= settled[part]
            kept.setdefault(history.named(part, one), set()).add(whole)
    assert all(len(found) == 1 for found in kept.values())


def test_transactions_of_other_times_and_producers_are_others() -> None:
    one = Transaction(producer_id=1, epoch=0, open_ms=0, first=5, stop=9, ended_epoch=0, ended_ms=1_000)
    later = replace(one, ended_ms=900_000)
    stranger = replace(one, producer_id=2)
    for other in (later, stranger):
        assert settle({"a": 7, "b": 20}, {"a": [one], "b": [other]}) == {"a": 5, "b": 20}
    assert settle({"a": 7, "b": 20}, {"a": [one], "b": [replace(one, ended_ms=1_500)]}) == {"a": 5, "b": 5}
    fenced = replace(one, ended_epoch=1, ended_ms=1_500)
    assert settle({"a": 7, "b": 20}, {"a": [one], "b": [fenced]}) == {"a": 5, "b": 20}
