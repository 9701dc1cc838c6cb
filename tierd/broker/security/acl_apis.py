"""DescribeAcls, CreateAcls and DeleteAcls."""

import asyncio
import logging
from collections.abc import Iterable
from itertools import groupby
from typing import Any, TypeVar

from tierd.base.errors import DiskFull
from tierd.broker.dispatch import ControlHandler
from tierd.broker.operations import Operation
from tierd.broker.security.acls import Acl, AclFilter, Kind, Pattern, Permission, problem
from tierd.broker.security.authorizer import Authorizer, TooManyAcls
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

Fields = dict[str, object]
_Enum = TypeVar("_Enum", Kind, Pattern, Permission, Operation)
_OFF = "No Authorizer is configured on the broker"


class AclApis:
    """One method per API; without an authorizer each says that there is none, as in Kafka."""

    def __init__(self, authorizer: Authorizer | None) -> None:
        self._authorizer = authorizer

    def table(self) -> dict[ApiKey, ControlHandler]:
        return {
            ApiKey.DESCRIBE_ACLS: self.describe,
            ApiKey.CREATE_ACLS: self.create,
            ApiKey.DELETE_ACLS: self.delete,
        }

    async def describe(self, header: RequestHeader, request: Any) -> Fields:
        if self._authorizer is None:
            return {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": _OFF}
        wanted = _filter(request)
        if wanted.unknown:
            return {"error_code": ErrorCode.INVALID_REQUEST, "error_message": f"Unknown {wanted.unknown}."}
        found = await asyncio.to_thread(self._authorizer.matching, wanted)
        resources = [
            {
                "resource_type": kind,
                "resource_name": name,
                "pattern_type": pattern,
                "acls": [_right(acl) for acl in acls],
            }
            for (kind, pattern, name), acls in groupby(found, lambda acl: (acl.kind, acl.pattern, acl.name))
        ]
        return {"error_code": ErrorCode.NONE, "resources": resources}

    async def create(self, header: RequestHeader, request: Any) -> Fields:
        if self._authorizer is None:
            return {"results": [_result(ErrorCode.SECURITY_DISABLED, _OFF)] * len(request.creations)}
        acls = [_acl(row) for row in request.creations]
        problems = [problem(acl) for acl in acls]
        good = [acl for acl, why in zip(acls, problems, strict=True) if why is None]
        code, message = ErrorCode.NONE, None
        try:
            await self._authorizer.add(good)
        except TooManyAcls as error:
            code, message = ErrorCode.POLICY_VIOLATION, str(error)
        except (DiskFull, OSError) as error:
            log.error("access rules not added", extra={"why": str(error)})
            code, message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
        return {
            "results": [
                _result(code, message) if why is None else _result(ErrorCode.INVALID_REQUEST, why) for why in problems
            ]
        }

    async def delete(self, header: RequestHeader, request: Any) -> Fields:
        if self._authorizer is None:
            return {"filter_results": [_result(ErrorCode.SECURITY_DISABLED, _OFF)] * len(request.filters)}
        filters = [_filter(row) for row in request.filters]
        try:
            found = iter(await self._authorizer.remove([one for one in filters if not one.unknown]))
        except (DiskFull, OSError) as error:
            log.error("access rules not removed", extra={"why": str(error)})
            return {"filter_results": [_result(ErrorCode.KAFKA_STORAGE_ERROR, str(error))] * len(filters)}
        rows = [
            _result(ErrorCode.INVALID_REQUEST, f"Unknown {one.unknown}.")
            if one.unknown
            else {**_result(ErrorCode.NONE, None), "matching_acls": _shown(next(found))}
            for one in filters
        ]
        return {"filter_results": rows}


def _known(enum: type[_Enum], value: int) -> _Enum:
    """Numbers that nobody has given out yet are unknown."""
    return enum(value) if value in enum._value2member_map_ else enum(0)


def _acl(row: Any) -> Acl:
    return Acl(
        _known(Kind, row.resource_type),
        _known(Pattern, row.resource_pattern_type),
        row.resource_name,
        row.principal,
        row.host,
        _known(Operation, row.operation),
        _known(Permission, row.permission_type),
    )


def _filter(row: Any) -> AclFilter:
    """Of a DescribeAcls request, or a row of DeleteAcls."""
    return AclFilter(
        _known(Kind, row.resource_type_filter),
        _known(Pattern, row.pattern_type_filter),
        row.resource_name_filter,
        row.principal_filter,
        row.host_filter,
        _known(Operation, row.operation),
        _known(Permission, row.permission_type),
    )


def _shown(acls: Iterable[Acl]) -> list[Fields]:
    return [
        {
            "resource_type": acl.kind,
            "resource_name": acl.name,
            "pattern_type": acl.pattern,
            **_right(acl),
        }
        for acl in acls
    ]


def _right(acl: Acl) -> Fields:
    """Whose, and to do what; where it holds is said beside it."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _result(code: ErrorCode, message: str | None) -> Fields:
    return {"error_code": code, "error_message": message}
