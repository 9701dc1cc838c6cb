"""What one partition of `__transaction_state` says, read from its first batch to its last. Pure; runs in a thread."""

from tierd.broker.transactions.codec import decode_key, decode_transaction
from tierd.broker.transactions.model import Transaction
from tierd.storage.batch import walk
from tierd.storage.records import iter_records


class Replay:
    """Feed whole batches in order; then `found` is what holds, by transactional id."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.found: dict[str, Transaction] = {}

    def feed(self, chunk: bytes | memoryview) -> None:
        """Raises CorruptFile."""
        view = memoryview(chunk)
        for position, header in walk(view, self.where):
            if header.control:
                continue
            for record in iter_records(view[position : position + header.size_bytes], header, self.where):
                key = None if record.key is None else decode_key(record.key, self.where)
                if key is None:
                    continue
                if record.value is None:
                    self.found.pop(key, None)
                else:
                    self.found[key] = decode_transaction(record.value, self.where)
