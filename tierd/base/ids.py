"""16-byte ids as Kafka writes them: 22 characters of URL-safe base64 without padding."""

import base64
import binascii
from dataclasses import dataclass
from typing import Self

ID_BYTES = 16
ID_CHARS = 22


@dataclass(frozen=True, slots=True, order=True)
class Uuid:
    """A topic, segment, directory or cluster id."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != ID_BYTES:
            raise ValueError(f"an id has {ID_BYTES} bytes, got {len(self.raw)}")

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self.raw)[:ID_CHARS].decode("ascii")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raise ValueError unless *text* is exactly 22 characters of URL-safe base64."""
        if len(text) != ID_CHARS:
            raise ValueError(f"an id has {ID_CHARS} characters, got {text!r}")
        try:
            return cls(base64.b64decode(text + "==", altchars=b"-_", validate=True))
        except binascii.Error as error:
            raise ValueError(f"not an id: {text!r}: {error}") from error


NO_ID = Uuid(bytes(ID_BYTES))
"""Stands for no id on the wire and in Kafka's records."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by name; what clients speak of."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True)
class PartitionId:
    """A partition by topic id; what the catalog and the bucket speak of (names come back, ids never)."""

    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"
