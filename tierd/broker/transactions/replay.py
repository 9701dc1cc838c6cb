"""What one partition of `__transaction_state` says, read from its first batch to its last. Pure; runs in a thread."""

from collections.abc import Iterator

from tierd.base.errors import CorruptFile
from tierd.broker.damage import sound_records
from tierd.broker.transactions.codec import decode_key, decode_transaction
from tierd.broker.transactions.model import Transaction
from tierd.storage.records import Record


class TransactionReplay:
    """Feed whole batches in order; then `found` is what holds, by transactional id."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.found: dict[str, Transaction] = {}
        self.damaged: dict[str, str] = {}
        """Ids whose last record cannot be decoded, and why: an older one says nothing about them."""
        self._nameless: list[str] = []

    @property
    def wrong(self) -> Iterator[str]:
        """What could not be decoded, a line each."""
        yield from self._nameless
        for transactional_id, why in self.damaged.items():
            yield f"{why}; transactional id {transactional_id!r} is not served, the others are"

    def feed(self, chunk: bytes | memoryview) -> None:
        """Raises DamagedRecords."""
        for header, record in sound_records(chunk, self.where):
            if not header.control and record.key is not None:
                self._take(record, bytes(record.key))

    def _take(self, record: Record, raw_key: bytes) -> None:
        try:
            key = decode_key(raw_key, self.where)
        except CorruptFile as error:
            self._nameless.append(f"offset {record.offset}: {error.reason}; the record is passed over")
            return
        if key is None:
            return
        self.found.pop(key, None)
        self.damaged.pop(key, None)
        if record.value is None:
            return
        try:
            self.found[key] = decode_transaction(record.value, self.where)
        except CorruptFile as error:
            self.damaged[key] = f"offset {record.offset}: {error.reason}"
