"""Writes settings.md and metrics.md from the tables in the code. With --check it only says whether they are current."""

import sys
from collections.abc import Iterator
from pathlib import Path

from tierd.config.model import daemon_settings
from tierd.config.topic_rules import RULES
from tierd.web.metrics import METRICS, Kind

HERE = Path(__file__).resolve().parent
NOTE = "<!-- made by docs/generate.py (make docs); do not edit -->"

_DAEMON = (
    NOTE,
    "# Settings",
    "",
    "`tierd.toml` is given with `-c FILE`. Every setting can also be given with `--set KEY=VALUE`, except secrets.",
    "Dotted names may be written bare, quoted, or as tables.",
    "Sizes take B, KiB, MiB, GiB, TiB; durations ms, s, m, h, d, w; a plain number is bytes or milliseconds.",
    "Relative paths in the file start from the file's folder, those on the command line from the current one.",
    "",
    "`tierd config check` names every problem at once; `tierd config show --effective` prints what is in force and "
    "where it comes from.",
    "",
    "## The daemon",
    "",
    "`listener.*` is the listener that is always there. Others are tables `[listeners.NAME]`, the name in capitals:",
    "each says its own `address`, `advertised`, `security.protocol` and `allow.anonymous`, and may say any `ssl.*`,",
    "`sasl.*` and `connection*` setting that it does not take over from `[listener]`.",
    "",
    "| name | allowed | default | meaning |",
    "|---|---|---|---|",
)
_TOPICS = (
    "",
    "## Topics",
    "",
    "Kafka's own names. For all topics under `[defaults]` or with `--set NAME=VALUE`, for one topic under "
    '`[topics."NAME"]`, or by a client that creates the topic. The strongest wins:',
    "",
    'CreateTopics > `[topics."NAME"]` > adopted > `--set` > `[defaults]` > built in',
    "",
    "*Adopted* are partitions that were there when tierd first saw `--data` and that nobody has settings for:",
    "they keep everything, in both tiers, and close no segment by age.",
    "`__consumer_offsets` and Kafka's other internal topics stay compacted and local; `[defaults]` and `--set` do",
    "not touch them.",
    "",
    "A local limit is never above the total one of its unit: one from a weaker place is capped, one from the same",
    "place or a stronger one is refused.",
    "",
    "| name | allowed | default | meaning |",
    "|---|---|---|---|",
)


def pages() -> dict[Path, str]:
    return {HERE / "settings.md": "\n".join(_settings()) + "\n", HERE / "metrics.md": "\n".join(_metrics()) + "\n"}


def _settings() -> Iterator[str]:
    yield from _DAEMON
    for where in daemon_settings():
        setting = where.setting
        shown = "" if where.required or where.default is None else f"`{setting.kind.show(where.default)}`"
        yield f"| `{setting.path}` | {_cell(setting.kind.allowed)} | {shown} | {_cell(setting.doc)} |"
    yield from _TOPICS
    for rule in RULES:
        shown = "not set" if rule.name == "internal.segment.bytes" else f"`{rule.kind.show(rule.default)}`"
        yield f"| `{rule.name}` | {_cell(rule.kind.allowed)} | {shown} | {_cell(rule.doc)} |"


def _metrics() -> Iterator[str]:
    yield from (
        NOTE,
        "# Metrics",
        "",
        "Answered by the broker process at `GET /metrics` of `http.address`, as Prometheus text. Every scrape looks",
        "afresh; a number that is not known is absent.",
        "",
        "| name | kind | labels | meaning |",
        "|---|---|---|---|",
    )
    for rule in METRICS:
        name = f"{rule.name}_total" if rule.kind is Kind.COUNTER else rule.name
        yield f"| `{name}` | {rule.kind} | {', '.join(rule.labels)} | {_cell(rule.doc)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.name} is not current: make docs", file=sys.stderr)
        return 1 if stale else 0
    for path, text in pages().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
