"""DescribeClientQuotas and AlterClientQuotas."""

import logging
from typing import Any, Final

from tierd.base.errors import DiskFull, TierdError
from tierd.broker.dispatch import ControlHandler
from tierd.broker.security.quota_entities import CLIENT_ID, USER, Entity, entity_problem, value_problem
from tierd.broker.security.quotas import Change, Quotas, TooManyQuotas
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

Fields = dict[str, object]
_EXACT, _DEFAULT, _ANY = range(3)
_TYPES: Final = (USER, CLIENT_ID, "ip")
"""Kafka has limits of addresses too; here there are none, which may be asked."""


class _BadFilter(TierdError):
    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class QuotaApis:
    """One method per API."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas

    def table(self) -> dict[ApiKey, ControlHandler]:
        return {ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe, ApiKey.ALTER_CLIENT_QUOTAS: self.alter}

    async def describe(self, header: RequestHeader, request: Any) -> Fields:
        try:
            wanted = _filter(request)
        except _BadFilter as error:
            return {"error_code": error.code, "error_message": str(error), "entries": None}
        entries = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
                "values": [{"key": key, "value": value} for key, value in sorted(values.items())],
            }
            for entity, values in self._quotas.limits.items()
            if _matches(dict(entity), wanted, strict=request.strict)
        ]
        return {"error_code": ErrorCode.NONE, "error_message": None, "entries": entries}

    async def alter(self, header: RequestHeader, request: Any) -> Fields:
        """All that is right is done, or nothing where it cannot be kept; what is wrong is said of each."""
        rows: list[tuple[Any, str | None]] = []
        changes: list[Change] = []
        seen: set[Entity] = set()
        for entry in request.entries:
            entity = _entity(entry)
            why = "Ignoring duplicate entity" if entity in seen else _problem(entity, entry)
            seen.add(entity)
            rows.append((entry, why))
            if why is None:
                changes.append((entity, {op.key: None if op.remove else op.value for op in entry.ops}))
        code, message = ErrorCode.NONE, None
        try:
            if not request.validate_only:
                await self._quotas.change(changes)
        except TooManyQuotas as error:
            code, message = ErrorCode.POLICY_VIOLATION, str(error)
        except (DiskFull, OSError) as error:
            log.error("quotas not changed", extra={"why": str(error)})
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        return {
            "entries": [
                _answered(entry, code, message) if why is None else _answered(entry, ErrorCode.INVALID_REQUEST, why)
                for entry, why in rows
            ]
        }


def _filter(request: Any) -> dict[str, tuple[int, str | None]]:
    """By type, how it is to match and what. Raises _BadFilter."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for row in request.components:
        kind, how, match = row.entity_type, row.match_type, row.match
        if kind not in _TYPES:
            code = ErrorCode.UNSUPPORTED_VERSION if kind else ErrorCode.INVALID_REQUEST
            raise _BadFilter(code, f"Unsupported entity type {kind}" if kind else "Invalid empty entity type.")
        if kind in wanted:
            why = f"Entity type {kind} cannot appear more than once in the filter."
            raise _BadFilter(ErrorCode.INVALID_REQUEST, why)
        if how not in (_EXACT, _DEFAULT, _ANY):
            raise _BadFilter(ErrorCode.INVALID_REQUEST, f"Unknown match type {how}")
        if (match is None) is (how == _EXACT):
            raise _BadFilter(ErrorCode.INVALID_REQUEST, "Only an exact match has a string to match, and it needs one.")
        wanted[kind] = how, match
    if "ip" in wanted and len(wanted) > 1:
        why = "IP filter component should not be used with user or clientId filter component."
        raise _BadFilter(ErrorCode.INVALID_REQUEST, f"Invalid entity filter component combination. {why}")
    return wanted


def _matches(entity: dict[str, str | None], wanted: dict[str, tuple[int, str | None]], *, strict: bool) -> bool:
    if strict and len(entity) != len(wanted):
        return False
    return all(kind in entity and (how == _ANY or entity[kind] == match) for kind, (how, match) in wanted.items())


def _entity(entry: Any) -> Entity:
    rows = [(row.entity_type, row.entity_name) for row in entry.entity]
    return tuple(sorted(rows, key=lambda row: (row[0], row[1] or "")))


def _problem(entity: Entity, entry: Any) -> str | None:
    keys = [op.key for op in entry.ops]
    if len(set(keys)) != len(keys):
        return "Duplicate quota key"
    return entity_problem(entity) or next(
        (why for op in entry.ops if not op.remove and (why := value_problem(op.key, op.value))), None
    )


def _answered(entry: Any, code: ErrorCode, message: str | None) -> Fields:
    entity = [{"entity_type": row.entity_type, "entity_name": row.entity_name} for row in entry.entity]
    return {"error_code": code, "error_message": message, "entity": entity}
