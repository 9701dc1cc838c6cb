"""What groups are told of transactions."""

from tierd.base.ids import TopicPartition
from tierd.broker.transactions.ports import Question
from tierd.wire.errors import ErrorCode


class OneTransaction:
    """Every producer has one, or is refused with *answer*; says what it was asked."""

    def __init__(self, answer: ErrorCode = ErrorCode.NONE) -> None:
        self.answer = answer
        self.asked: list[tuple[str, bool]] = []

    def covers(self, question: Question) -> bool:
        return False

    async def verify(self, question: Question, *, add: bool) -> dict[TopicPartition, ErrorCode]:
        self.asked += [(str(place), add) for place in question.partitions]
        return {} if self.answer is ErrorCode.NONE else dict.fromkeys(question.partitions, self.answer)
