"""One client and one request: what its sender may do, as far as it has asked."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tierd.base.session import Session
from tierd.broker.operations import Operation, bits
from tierd.broker.security.acls import CLUSTER_NAME, Acl, Kind
from tierd.broker.security.matcher import Asked, Rules, Verdict
from tierd.wire.header import RequestHeader

_MOST_ANSWERS: Final = 10_000
"""That are remembered of one client."""
_LONGEST: Final = 249
"""Of a name that is remembered: no topic has a longer one, but a client may ask for it."""
_SUPER: Final = Verdict(True, None)


class Rights:
    """What one client may do, as far as it has asked. Not kept by others: the rules may change."""

    def __init__(self, rules: Rules, session: Session, *, everything: bool) -> None:
        self._rules = rules
        self._principal = str(session.principal)
        self._host = session.host
        self._everything = everything
        self._known: dict[tuple[Operation, Kind, str], Verdict] = {}
        self.write: dict[str, bool] = {}
        """By topic; what is not in it `may_write` finds out."""
        self.read: dict[str, bool] = {}

    def verdict(self, operation: Operation, kind: Kind, name: str) -> Verdict:
        if self._everything:
            return _SUPER
        asked = operation, kind, name
        found = self._known.get(asked)
        if found is None:
            if len(self._known) >= _MOST_ANSWERS:
                self._known.clear()
            found = self._rules.decide(Asked(self._principal, self._host, operation, kind, name))
            if len(name) <= _LONGEST:
                self._known[asked] = found
        return found

    def may(self, operation: Operation, kind: Kind, name: str) -> bool:
        return self.verdict(operation, kind, name).allowed

    def may_write(self, topic: str) -> bool:
        found = self.write.get(topic)
        return self._learn(self.write, Operation.WRITE, topic) if found is None else found

    def may_read(self, topic: str) -> bool:
        found = self.read.get(topic)
        return self._learn(self.read, Operation.READ, topic) if found is None else found

    def may_any(self, operation: Operation, kind: Kind) -> bool:
        """With some resource of the kind."""
        return self._everything or self._rules.decide_any(self._principal, self._host, operation, kind)

    def bits(self, operations: Iterable[Operation], kind: Kind, name: str = CLUSTER_NAME) -> int:
        """Those of *operations* that are allowed, as answers say it."""
        return bits(*(operation for operation in operations if self.may(operation, kind, name)))

    def _learn(self, known: dict[str, bool], operation: Operation, topic: str) -> bool:
        if len(known) >= _MOST_ANSWERS:
            known.clear()
        allowed = self.may(operation, Kind.TOPIC, topic)
        if len(topic) <= _LONGEST:
            known[topic] = allowed
        return allowed


@dataclass(frozen=True, slots=True)
class Denied:
    """Something that a client asked for and may not do. *by*: the rule that says so, if one does."""

    header: RequestHeader
    operation: Operation
    kind: Kind
    name: str
    by: Acl | None


class Asking:
    """One request and what its sender may do."""

    __slots__ = ("_tell", "header", "rights")

    def __init__(self, header: RequestHeader, rights: Rights, tell: Callable[[Denied], None]) -> None:
        self.header = header
        self.rights = rights
        self._tell = tell

    def may(self, operation: Operation, kind: Kind, name: str, *, quiet: bool = False) -> bool:
        """*quiet*: nobody asked for this by name, or something else may allow it."""
        verdict = self.rights.verdict(operation, kind, name)
        if not verdict.allowed and not quiet:
            self._tell(Denied(self.header, operation, kind, name, verdict.by))
        return verdict.allowed

    def writes(self, topic: str) -> bool:
        """The hot path's question: one look-up."""
        return self.rights.may_write(topic) or self.topic(Operation.WRITE, topic)

    def reads(self, topic: str) -> bool:
        return self.rights.may_read(topic) or self.topic(Operation.READ, topic)

    def cluster(self, operation: Operation, *, quiet: bool = False) -> bool:
        return self.may(operation, Kind.CLUSTER, CLUSTER_NAME, quiet=quiet)

    def topic(self, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        return self.may(operation, Kind.TOPIC, name, quiet=quiet)

    def group(self, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        return self.may(operation, Kind.GROUP, name, quiet=quiet)

    def transaction(self, operation: Operation, name: str, *, quiet: bool = False) -> bool:
        return self.may(operation, Kind.TRANSACTIONAL_ID, name, quiet=quiet)
