"""What groups are told of transactions."""

from collections.abc import Iterable

from tierd.base.ids import TopicPartition
from tierd.wire.errors import ErrorCode


class OneTransaction:
    """Every producer has one, or is refused with *answer*; says what it was asked."""

    def __init__(self, answer: ErrorCode = ErrorCode.NONE) -> None:
        self.answer = answer
        self.asked: list[tuple[str, bool]] = []

    def covers(self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition]) -> bool:
        return False

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition], *, add: bool
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked += [(str(place), add) for place in partitions]
        return {} if self.answer is ErrorCode.NONE else dict.fromkeys(partitions, self.answer)
