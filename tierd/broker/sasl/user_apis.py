"""DescribeUserScramCredentials, AlterUserScramCredentials (KIP-554), and what SASL requests get where none are due."""

from collections import Counter
from typing import Any

from tierd.base.errors import DiskFull, TierdError
from tierd.broker.dispatch import ControlHandler
from tierd.broker.sasl.scram import LEAST_ITERATIONS, MOST_ITERATIONS, Credential, Mechanism, credential_of
from tierd.broker.sasl.users import Key, Users
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

Fields = dict[str, object]


class Refused(ValueError):
    """One user's change cannot be; the text is Kafka's."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class UserApis:
    """The handlers; texts are those of a real Kafka."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def table(self) -> dict[ApiKey, ControlHandler]:
        return {
            ApiKey.SASL_HANDSHAKE: self._handshake,
            ApiKey.SASL_AUTHENTICATE: self._authenticate,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self._describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self._alter,
        }

    async def _handshake(self, header: RequestHeader, request: Any) -> Fields:
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": ()}

    async def _authenticate(self, header: RequestHeader, request: Any) -> Fields:
        text = "SaslAuthenticate request received after successful authentication"
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": text, "auth_bytes": b""}

    async def _describe(self, header: RequestHeader, request: Any) -> Fields:
        try:
            kept = await self._users.all()
        except (TierdError, OSError) as error:
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "error_message": str(error), "results": ()}
        by_user: dict[str, list[Fields]] = {}
        for (user, mechanism), one in sorted(kept.items()):
            by_user.setdefault(user, []).append({"mechanism": int(mechanism), "iterations": one.iterations})
        asked = Counter([row.name for row in request.users or ()] or list(by_user))
        rows = [_described(user, n, by_user) for user, n in asked.items()]
        return {"error_code": ErrorCode.NONE, "error_message": "", "results": rows}

    async def _alter(self, header: RequestHeader, request: Any) -> Fields:
        try:
            there = await self._users.all()
            kept, dropped, refused = _changes(request, there)
            if kept or dropped:
                await self._users.change(kept, dropped)
        except (TierdError, OSError) as error:
            of_disk = isinstance(error, (DiskFull, OSError))
            code = ErrorCode.KAFKA_STORAGE_ERROR if of_disk else ErrorCode.UNKNOWN_SERVER_ERROR
            names = dict.fromkeys([row.name for row in (*request.deletions, *request.upsertions)])
            return {"results": [_result(name, code, str(error)) for name in names]}
        done = dict.fromkeys(user for user, _ in (*kept, *dropped))
        rows = [_result(user, error.code, str(error)) for user, error in refused.items()]
        return {"results": [*rows, *(_result(user, ErrorCode.NONE, None) for user in done)]}


def _result(user: str, code: ErrorCode, text: str | None) -> Fields:
    return {"user": user, "error_code": code, "error_message": text}


def _described(user: str, times: int, by_user: dict[str, list[Fields]]) -> Fields:
    code, text = ErrorCode.NONE, ""
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif user not in by_user:
        code = ErrorCode.RESOURCE_NOT_FOUND
        text = f"Attempt to describe a user credential that does not exist: {user}"
    infos = by_user[user] if code is ErrorCode.NONE else ()
    return {"user": user, "error_code": code, "error_message": text, "credential_infos": infos}


def _changes(request: Any, there: dict[Key, Credential]) -> tuple[dict[Key, Credential], list[Key], dict[str, Refused]]:
    """What to keep and what to drop. All that is asked for one user is done, or nothing of it."""
    rows = (*request.deletions, *request.upsertions)
    times = Counter((row.name, row.mechanism) for row in rows)
    kept: dict[Key, Credential] = {}
    dropped: list[Key] = []
    refused: dict[str, Refused] = {}
    for row in rows:
        try:
            key = _key(row.name, row.mechanism, times)
            if hasattr(row, "iterations"):
                kept[key] = _new(key[1], row)
            elif key in there:
                dropped.append(key)
            else:
                text = "Attempt to delete a user credential that does not exist"
                raise Refused(ErrorCode.RESOURCE_NOT_FOUND, text)
        except Refused as error:
            refused.setdefault(row.name, error)
    kept = {key: one for key, one in kept.items() if key[0] not in refused}
    return kept, [key for key in dropped if key[0] not in refused], refused


def _key(user: str, mechanism: int, times: "Counter[tuple[str, int]]") -> Key:
    if not user:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in list(Mechanism):
        raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if times[(user, mechanism)] > 1:
        text = "A user credential cannot be altered twice in the same request"
        raise Refused(ErrorCode.DUPLICATE_RESOURCE, text)
    return user, Mechanism(mechanism)


def _new(mechanism: Mechanism, row: Any) -> Credential:
    if row.iterations > MOST_ITERATIONS:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if row.iterations < LEAST_ITERATIONS:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    return credential_of(mechanism, bytes(row.salted_password), bytes(row.salt), row.iterations)
