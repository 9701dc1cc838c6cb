"""Settings of who may do what, how much, and where it is written down."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tierd.base.session import Principal
from tierd.config.kinds import Number, Switch
from tierd.config.places import Place
from tierd.config.section import Section, Setting


@dataclass(frozen=True, slots=True)
class Principals:
    """`User:alice;User:bob`, or a list of them."""

    @property
    def allowed(self) -> str:
        return "TYPE:NAME, several with ; between them or as a list"

    def read(self, raw: object) -> tuple[Principal, ...]:
        several = raw if isinstance(raw, list | tuple) else str(raw).split(";")
        texts = [text.strip() for text in map(str, several)]
        return tuple(Principal.parse(text) for text in texts if text)

    def show(self, value: object) -> str:
        return ";".join(map(str, value)) if isinstance(value, tuple) else str(value)


class Access(Section):
    """Access rules, quotas, audit."""

    authorizer: Annotated[
        bool,
        Setting(
            "authorizer.enable",
            Switch(),
            "Hold clients to the access rules that kafka-acls makes. Off: everybody may do everything, as in Kafka "
            "without an authorizer.",
        ),
    ] = False
    super_users: Annotated[
        tuple[Principal, ...],
        Setting("super.users", Principals(), "Who may do everything whatever the rules say, such as User:admin."),
    ] = ()
    allow_without_acl: Annotated[
        bool,
        Setting(
            "allow.everyone.if.no.acl.found",
            Switch(),
            "With the authorizer: a resource about which there is no rule at all is open to everybody.",
        ),
    ] = False
    quota_windows: Annotated[
        int,
        Setting("quota.window.num", Number(1, 1000), "Windows over which the rate of a client with a quota is taken."),
    ] = 11
    quota_window_s: Annotated[
        int, Setting("quota.window.size.seconds", Number(1, 3600), "Length of each of these windows.")
    ] = 1
    audit_file: Annotated[
        Path | None,
        Setting(
            "tierd.audit.file",
            Place(),
            "File to which a line of JSON is added for each administrative act and each refusal; one that is renamed "
            "by a log rotation is made again. Not set: none.",
        ),
    ] = None
    audit_log: Annotated[
        bool, Setting("tierd.audit.log", Switch(), "Write the same lines among the daemon's own on stderr.")
    ] = False
