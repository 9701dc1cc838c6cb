"""Records of `__transaction_state`: what a real Kafka wrote parses and comes out again, byte for byte."""

import contextlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.golden import golden
from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.broker.transactions.codec import decode_key, decode_transaction, encode_key, encode_transaction
from tierd.broker.transactions.model import State, Transaction
from tierd.storage.batch import walk
from tierd.storage.records import iter_records


def recorded() -> Iterator[tuple[bytes, bytes]]:
    """(key, value) of every record."""
    raw = (golden("kafka") / "clean" / "__transaction_state-0" / f"{0:020}.log").read_bytes()
    for position, header in walk(raw):
        for record in iter_records(memoryview(raw)[position : position + header.size_bytes], header):
            assert record.key is not None
            assert record.value is not None
            yield record.key, record.value


def test_recorded_records_come_out_byte_for_byte() -> None:
    states = set()
    for key, value in recorded():
        name = decode_key(key, "")
        assert name is not None
        assert encode_key(name) == key
        found = decode_transaction(value, "")
        assert encode_transaction(found) == value
        states.add(found.state)
    assert states == set(State)


IDS = st.none() | st.integers(0, 2**63 - 1)
PARTITIONS = st.frozensets(st.builds(TopicPartition, st.text("ab.", min_size=1, max_size=9), st.integers(0, 99)))


@given(
    st.builds(
        Transaction,
        producer_id=st.integers(-1, 2**63 - 1),
        producer_epoch=st.integers(-1, 2**15 - 1),
        timeout_ms=st.integers(0, 2**31 - 1),
        state=st.sampled_from([s for s in State if s is not State.EMPTY]),
        partitions=PARTITIONS,
        changed_ms=st.integers(0, 2**60),
        started_ms=IDS,
        previous_producer_id=IDS,
        next_producer_id=IDS,
        client_version=st.integers(0, 2),
    )
)
def test_any_transaction_comes_back(made: Transaction) -> None:
    assert decode_transaction(encode_transaction(made), "") == made


def test_damage_is_refused_or_read_as_something_never_more() -> None:
    dice = random.Random(7)
    samples = list(recorded())
    for _ in range(10_000):
        value = bytearray(dice.choice(samples)[1])
        for _ in range(dice.randint(1, 3)):
            value[dice.randrange(len(value))] = dice.randrange(256)
        with contextlib.suppress(CorruptFile):
            assert decode_transaction(bytes(value), "somewhere").state in State


def test_every_truncation_is_refused() -> None:
    for _, value in list(recorded())[:10]:
        for size in range(len(value)):
            with pytest.raises(CorruptFile):
                decode_transaction(value[:size], "")
