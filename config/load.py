"""From the command line and tierd.toml to Settings, or one error that names every problem.

Stronger first: an option of its own (--listen) > --set > the file > built in. Relative paths in the file start
from the file's folder, those on the command line from the current one.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tierd.base.errors import Usage
from tierd.config.contradictions import contradictions
from tierd.config.listeners import Endpoint
from tierd.config.model import ARCHIVE, Settings, Where, daemon_settings
from tierd.config.places import Place, Places, Secret, absolute, absolute_bucket
from tierd.config.problem import Problem, quoted
from tierd.config.state_files import ARCHIVE_DATA
from tierd.config.topic_names import problem as name_problem
from tierd.config.topic_rules import BY_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What stood on the command line; None and empty where nothing stood."""

    config: Path | None = None
    data: tuple[Path, ...] = ()
    state: Path | None = None
    listen: str | None = None
    advertise: str | None = None
    remote: str | None = None
    mode: str | None = None
    sets: tuple[str, ...] = ()
    """KEY=VALUE each."""


class SettingsError(Usage):
    """The settings are wrong; `problems` has all of them, the text one a line."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(slots=True)
class _Draft:
    """What was read so far, and what was wrong with it."""

    daemon: dict[str, object] = field(default_factory=dict)
    """By dotted path."""
    defaults: dict[str, str] = field(default_factory=dict)
    set_overrides: dict[str, str] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, path: str, given: object, reason: str) -> None:
        self.problems.append(Problem(path, None if given is None else quoted(given), reason))


def load(options: Options, *, base: Path | None = None, need_data: bool = False) -> Settings:
    """Settings of the daemon. Raises SettingsError with every problem; reads tierd.toml and nothing else.

    *base* is what relative paths on the command line start from: the current directory. Verbs that only look for
    a daemon's files are content with a state directory; those that run one *need_data*.
    """
    here = base or Path.cwd()
    draft = _Draft()
    if options.config is not None:
        _read_file(draft, absolute(options.config, here))
    for one in options.sets:
        _read_set(draft, one, here)
    _read_options(draft, options, here)
    _place_state(draft, need_data=need_data)
    settings = _build(draft)
    if settings is not None:
        draft.problems.extend(contradictions(settings))
    if settings is None or draft.problems:
        raise SettingsError(draft.problems)
    return settings


def _read_file(draft: _Draft, path: Path) -> None:
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        draft.wrong(str(path), None, f"cannot be read: {error.strerror}")
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        draft.wrong(str(path), None, f"is not TOML: {error}")
        return
    defaults, topics = raw.pop("defaults", {}), raw.pop("topics", {})
    for name, value in _flat(raw):
        _daemon_value(draft, name, value, path.parent)
    _topic_table(draft, "defaults", defaults, draft.defaults)
    if not isinstance(topics, dict):
        draft.wrong("topics", topics, 'must be tables: [topics."NAME"]')
        return
    for topic, table in topics.items():
        if _is_name(draft, f'topics."{topic}"', topic):
            _topic_table(draft, f'topics."{topic}"', table, draft.topics.setdefault(topic, {}))


def _is_name(draft: _Draft, path: str, topic: str) -> bool:
    reason = name_problem(topic)
    if reason is not None:
        draft.wrong(path, None, reason)
    return reason is None


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    """Bare dotted keys make tables in TOML, quoted ones do not: both become one dotted path."""
    for key, value in table.items():
        path = f"{above}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{path}.")
        else:
            yield path, value


def _daemon_value(draft: _Draft, path: str, value: object, base: Path) -> None:
    where = _where(path)
    if where is None:
        draft.wrong(path, value, _unknown(path, _WHERE))
    elif isinstance(where.setting.kind, Place | Places) or path == "remote.url":
        draft.daemon[path] = _located(where, value, base)
    else:
        draft.daemon[path] = value


def _where(path: str) -> Where | None:
    """`listeners.NAME.x` is what `listener.x` is, but of another one."""
    above, _, rest = path.partition(".")
    name, _, setting = rest.partition(".")
    if above == "listeners" and LISTENER_NAME.fullmatch(name):
        return _OF_LISTENERS.get(f"listener.{setting}")
    return _WHERE.get(path)


def _located(where: Where, value: object, base: Path) -> object:
    """A path or `file:` URL made absolute; what is neither is left for the check to refuse."""
    if isinstance(where.setting.kind, Places):
        several = value if isinstance(value, list) else [value]
        return [_located_one(one, base) for one in several]
    if where.setting.path == "remote.url":
        return absolute_bucket(value, base) if isinstance(value, str) else value
    return _located_one(value, base)


def _located_one(value: object, base: Path) -> object:
    return absolute(Path(value), base) if isinstance(value, str) and value else value


def _topic_table(draft: _Draft, above: str, table: object, into: dict[str, str]) -> None:
    if not isinstance(table, dict):
        draft.wrong(above, table, "must be a table")
        return
    for name, value in _flat(table):
        _topic_value(draft, f"{above}.{name}", name, value, into)


def _topic_value(draft: _Draft, path: str, name: str, value: object, into: dict[str, str]) -> None:
    rule = BY_NAME.get(name)
    if rule is None:
        quote = "; a topic name with dots needs quotes" if path.startswith("topics.") and _ends_known(name) else ""
        draft.wrong(path, value, _unknown(name, BY_NAME) + quote)
        return
    try:
        into[name] = rule.kind.text(rule.kind.read(value))
    except ValueError as error:
        draft.wrong(path, value, f"{error} ({rule.kind.allowed})")


def _ends_known(name: str) -> bool:
    return any(name.endswith(f".{known}") for known in BY_NAME)


def _read_set(draft: _Draft, text: str, base: Path) -> None:
    path, equals, value = text.partition("=")
    path = path.strip()
    if not equals or not path:
        draft.wrong(f"--set {text}", None, "write KEY=VALUE")
    elif path in BY_NAME:
        _topic_value(draft, path, path, value, draft.set_overrides)
    elif path.startswith("defaults."):
        _topic_value(draft, path, path.removeprefix("defaults."), value, draft.set_overrides)
    elif path.startswith("topics."):
        _set_topic(draft, path, value)
    elif (where := _where(path)) is not None and isinstance(where.setting.kind, Secret):
        draft.wrong(
            path,
            None,
            "a secret on a command line can be read by everyone here: put it in tierd.toml or the environment",
        )
    elif where is not None:
        _daemon_value(draft, path, value, base)
    else:
        draft.wrong(path, value, _unknown(path, {**_WHERE, **BY_NAME}))


def _set_topic(draft: _Draft, path: str, value: str) -> None:
    rest = path.removeprefix("topics.")
    name = max((name for name in BY_NAME if rest.endswith(f".{name}")), key=len, default=None)
    if name is None:
        draft.wrong(path, value, "write topics.TOPIC.SETTING=VALUE")
        return
    topic = rest.removesuffix(f".{name}").strip("\"'")
    if _is_name(draft, path, topic):
        _topic_value(draft, path, name, value, draft.topics.setdefault(topic, {}))


def _read_options(draft: _Draft, options: Options, here: Path) -> None:
    given: dict[str, object] = {
        "data": list(map(str, options.data)) or None,
        "state": str(options.state) if options.state else None,
        "listener.address": options.listen,
        "listener.advertised": options.advertise,
        "remote.url": options.remote,
        "mode": options.mode,
    }
    for path, value in given.items():
        if value is not None:
            _daemon_value(draft, path, value, here)


def _place_archive(draft: _Draft) -> None:
    """An archive's state directory holds all that it keeps, the logs of its own topics included."""
    if draft.daemon.get("data"):
        draft.wrong("data", draft.daemon["data"], "an archive has no data directory: say --state DIR")
    if "state" not in draft.daemon:
        why = "an archive keeps the offsets of groups, and what it has read, in a directory: say --state DIR"
        draft.wrong("state", None, why)
    if "remote.url" not in draft.daemon:
        draft.wrong("remote.url", None, "say which bucket is to be read: --remote URL")
    state = draft.daemon.setdefault("state", Path("/nowhere/state"))  # apart from all that is right so far
    draft.daemon["data"] = [state / ARCHIVE_DATA] if isinstance(state, Path) else []
    draft.daemon["auto.create.topics.enable"] = False


def _place_state(draft: _Draft, *, need_data: bool) -> None:
    """`<realpath of data>.tierd` where that is one place beside the data; else it must be said."""
    if draft.daemon.get("mode") == ARCHIVE:
        _place_archive(draft)
        return
    data = draft.daemon.get("data")
    if data is None:
        if need_data or "state" not in draft.daemon:
            draft.wrong("data", None, 'say where the logs lie: --data DIR, or data = "DIR" in tierd.toml')
            draft.daemon.setdefault("state", Path("/"))
        draft.daemon["data"] = []
        return
    if "state" in draft.daemon:
        return
    draft.daemon["state"] = Path("/")
    if not isinstance(data, list) or len(data) != 1:
        draft.wrong("state", None, "several data directories: say --state DIR")
    elif not isinstance(data[0], Path):
        return  # the check of `data` says so
    elif os.path.ismount(data[0]):
        draft.wrong("state", None, f"{data[0]} is a mount point, so nothing can lie beside it: say --state DIR")
    else:
        draft.daemon["state"] = Path(f"{os.path.realpath(data[0])}.tierd")


def _build(draft: _Draft) -> Settings | None:
    nested: dict[str, Any] = {}
    for path, value in draft.daemon.items():
        if not path.startswith("listeners."):
            _put(nested, _WHERE[path].attributes, value)
    nested["listeners"] = _listeners(draft.daemon)
    try:
        return Settings(**nested, defaults=draft.defaults, set_overrides=draft.set_overrides, topics=draft.topics)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            path = _path_of(tuple(map(str, one["loc"])))
            where = _where(path)
            assert where is not None
            if path in draft.daemon:  # not what a listener only takes over
                given = None if isinstance(where.setting.kind, Secret) else one["input"]
                reason = one["msg"].removeprefix("Value error, ")
                draft.wrong(path, given, f"{reason} ({where.setting.kind.allowed})")
        return None


def _put(nested: dict[str, Any], attributes: Sequence[str], value: object) -> None:
    *above, last = attributes
    table = nested
    for name in above:
        table = table.setdefault(name, {})
    table[last] = value


def _listeners(daemon: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Of each that the file names: what it says, and of TLS and SASL what it leaves to `[listener]`."""
    names = {path.split(".")[1] for path in daemon if path.startswith("listeners.")}
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(names):
        table = found[name] = {}
        for path, where in _OF_LISTENERS.items():
            own = f"listeners.{name}.{path.removeprefix('listener.')}"
            shared = path if len(where.attributes) > 2 else own
            if own in daemon or shared in daemon:
                _put(table, where.attributes[1:], daemon[own if own in daemon else shared])
    return found


def _path_of(attributes: tuple[str, ...]) -> str:
    if attributes[0] != "listeners":
        return _BY_ATTRIBUTES[attributes]
    _, name, *rest = attributes
    return f"listeners.{name}." + _BY_ATTRIBUTES[("listener", *rest)].removeprefix("listener.")


def _unknown(name: str, known: Mapping[str, object]) -> str:
    if name in BY_NAME:
        return 'is a topic setting: put it under [defaults] or [topics."NAME"]'
    close = get_close_matches(name, known, n=1)
    return f"unknown setting; did you mean {close[0]}?" if close else "unknown setting"


LISTENER_NAME = re.compile("[A-Z][A-Z0-9_-]*")
_ENDPOINT = {where.setting for where in daemon_settings(Endpoint)}
_WHERE: Mapping[str, Where] = {where.setting.path: where for where in daemon_settings()}
_BY_ATTRIBUTES = {where.attributes: path for path, where in _WHERE.items()}
_OF_LISTENERS = {path: where for path, where in _WHERE.items() if where.setting in _ENDPOINT}
