"""CreatePartitions: a topic grows; it never shrinks."""

import logging
from collections import Counter
from typing import Any

from tierd.base.errors import DiskFull
from tierd.broker.topics import TopicRefused, Topics, replicas_problem
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)


class CreatePartitions:
    """The handler of the CreatePartitions API."""

    def __init__(self, topics: Topics, *, node_id: int) -> None:
        self._topics = topics
        self._node_id = node_id

    async def __call__(self, header: RequestHeader, request: Any) -> dict[str, object]:
        times = Counter(asked.name for asked in request.topics)
        rows = []
        for asked in {asked.name: asked for asked in request.topics}.values():
            code, message = ErrorCode.NONE, None
            try:
                if times[asked.name] > 1:
                    raise TopicRefused(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {asked.name}")
                self._check_assignments(asked)
                await self._topics.grow(asked.name, asked.count, check_only=request.validate_only)
            except TopicRefused as error:
                code, message = error.code, error.message
            except (DiskFull, OSError) as error:
                log.error("partitions not created", extra={"topic": asked.name, "why": str(error)})
                code, message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
            rows.append({"name": asked.name, "error_code": code, "error_message": message})
        return {"results": rows}

    def _check_assignments(self, asked: Any) -> None:
        given = [row.broker_ids for row in asked.assignments or ()]
        if (why := replicas_problem(-1, given, self._node_id)) is not None:
            raise TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
