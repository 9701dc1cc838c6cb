"""What each API answers to who may do nothing, and to who may do this or that: the same questions to tierd and Kafka.

Everybody is User:ANONYMOUS here; who asks is told by the address that it comes from. MASTER may do everything.
`python -m kit.access RECORDING` (with tests/ on the path) asks a real Kafka and writes down what it says.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kio.index import load_response_schema

from broker.client import Client, batch
from kit.access_cases import T1, T2, Case, Grant, IdOf, cases, cluster
from kit.kafka import Kafka
from kit.tiers import until
from tierd.broker.operations import Operation as Op
from tierd.broker.security.acls import CLUSTER_NAME, Kind, Pattern, Permission
from tierd.wire.api import API, ApiKey, has_flexible_header
from tierd.wire.schema import Input, reader, shapes

MASTER, USER = "127.0.0.2", "127.0.0.1"
EVERYBODY_ELSE = "User:ANONYMOUS"
RECORDING = Path(__file__).parent.parent / "broker" / "security" / "kafka-access.json"

_SHOWN = {"name", "topic", "topic_name", "group_id", "transactional_id", "resource_name"}
_SHOWN |= {"user", "key"}
_SHOWN |= {"partition_index", "index", "partition"}


def outline(entity: Any) -> Any:
    """What an answer says of errors and permissions, and of what."""
    kept: dict[str, Any] = {}
    for shape in shapes(type(entity)):
        value = getattr(entity, shape.name)
        if shape.name == "configs":
            continue  # which settings there are is nobody's right
        if shape.array and shape.entity is not None:
            rows = [outline(row) for row in value or ()]
            kept[shape.name] = sorted((row for row in rows if not _own(row)), key=json.dumps)
        elif shape.name.endswith("error_code") or shape.name.endswith("authorized_operations"):
            kept[shape.name] = int(value)
        elif shape.name in _SHOWN:
            kept[shape.name] = value
    return {name: value for name, value in kept.items() if value not in ([], {})}


def _own(row: dict[str, Any]) -> bool:
    """Of the broker's own topics."""
    return str(row.get("name") or row.get("topic") or "").startswith("__")


class Asker:
    """One broker, who may do everything there, and who may do what is granted."""

    def __init__(self, address: tuple[str, int], stack: ExitStack) -> None:
        self.master = stack.enter_context(Client(address, MASTER))
        self.user = stack.enter_context(Client(address, USER))

    def prepare(self) -> None:
        """Topics, a group with offsets, a transactional id; from here on the user may do nothing."""
        for name in (T1, T2):
            self.master.create(name)
        for name in (T1, T2):
            # a real Kafka needs a moment to lead a new partition
            until(name, lambda name=name: self.master.produce(name, batch(2)).error_code == 0)  # type: ignore[misc]
        shown = self.master.call(ApiKey.METADATA, 12, topics=[{"name": name} for name in (T1, T2)]).topics
        self._ids = {row.name: row.topic_id for row in shown}
        first = (ApiKey.FIND_COORDINATOR, ApiKey.OFFSET_COMMIT, ApiKey.INIT_PRODUCER_ID)
        for case in (case for key in first for case in cases() if case.key is key):
            until(case.key.name, lambda case=case: self._codes(case) == {0}, timeout_s=30)  # type: ignore[misc]
        every = [(Op.ALL, kind, CLUSTER_NAME if kind is Kind.CLUSTER else "*") for kind in list(Kind)[2:6]]
        # A Kafka speaks to its own controller from there, also of these rules.
        self._change([*(_row(grant, MASTER) for grant in every), _row(cluster(Op.CLUSTER_ACTION), USER)])

    def ask(self, case: Case) -> Iterator[tuple[str, Any]]:
        """What is granted, and the outline of the answer then."""
        for grants in [[], *case.grants]:
            rows = [_row(grant, USER) for grant in grants]
            self._change(rows)
            answer = self._call(self.user, case)
            self._change(rows, gone=True)
            said = ", ".join(f"{op.name} {kind.name} {name}" for op, kind, name in grants)
            yield said or "nothing", outline(answer)

    def _call(self, client: Client, case: Case) -> Any:
        version = API[case.key].last if case.version is None else case.version
        client.send(case.key, version, **self._with_ids(case.fields))
        raw = memoryview(client.frame())
        schema = load_response_schema(case.key, version)
        head = 5 if has_flexible_header(case.key, version) else 4
        return reader(schema)(Input(raw, head))  # kio reads no time of -1, which is how some answers say "none"

    def _with_ids(self, value: Any) -> Any:
        if isinstance(value, IdOf):
            return self._ids[value.name]
        if isinstance(value, dict):
            return {name: self._with_ids(field) for name, field in value.items()}
        return [self._with_ids(row) for row in value] if isinstance(value, list) else value

    def _codes(self, case: Case) -> set[int]:
        return set(_codes(outline(self._call(self.master, case))))

    def _change(self, rows: list[dict[str, Any]], *, gone: bool = False) -> None:
        """Returns when the broker holds itself to it."""
        if not rows:
            return
        if gone:
            self.master.call(ApiKey.DELETE_ACLS, 3, filters=[_filter(row) for row in rows])
        else:
            self.master.call(ApiKey.CREATE_ACLS, 3, creations=rows)
        for row in rows:
            until("the rule", lambda row=row: bool(self._described(row)) is not gone, timeout_s=30)  # type: ignore[misc]

    def _described(self, row: dict[str, Any]) -> Any:
        return self.master.call(ApiKey.DESCRIBE_ACLS, 3, **_filter(row)).resources


def _codes(kept: Any) -> Iterator[int]:
    for name, value in kept.items():
        if name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for row in value:
                yield from _codes(row)


def _row(grant: Grant, host: str) -> dict[str, Any]:
    operation, kind, name = grant
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": Pattern.LITERAL,
        "principal": EVERYBODY_ELSE,
        "host": host,
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }


def _filter(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "resource_type_filter": row["resource_type"],
        "resource_name_filter": row["resource_name"],
        "pattern_type_filter": row["resource_pattern_type"],
        "principal_filter": row["principal"],
        "host_filter": row["host"],
        "operation": row["operation"],
        "permission_type": row["permission_type"],
    }


def said_by(address: tuple[str, int], wanted: Sequence[Case] | None = None) -> dict[str, dict[str, Any]]:
    """All answers, by case and grant."""
    with ExitStack() as stack:
        asker = Asker(address, stack)
        asker.prepare()
        return {case.name: dict(asker.ask(case)) for case in wanted or cases()}


SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "true",
}


def said_by_kafka(home: Path) -> dict[str, dict[str, Any]]:
    kafka = Kafka(home, SETTINGS).start()
    try:
        return said_by(("127.0.0.1", kafka.port))
    finally:
        kafka.kill()  # a clean stop needs rights that it does not have here


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        said = said_by_kafka(Path(folder))
    Path(sys.argv[1]).write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
