"""Which names a topic may have: Kafka's rules and words."""

import re

MAX_CHARS = 249
KRAFT_LOG = "__cluster_metadata"
"""Where Kafka's controller keeps the cluster's metadata, in the same directories; nobody's topic."""
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem(name: str) -> str | None:
    """Why *name* is no topic name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_CHARS:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_CHARS}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    if name == KRAFT_LOG:
        return f"Topic name is invalid: '{name}' is kept for Kafka's own metadata log"
    return None


def collision_key(name: str) -> str:
    """Names with the same key collide, for metric names do not tell '.' from '_'."""
    return name.replace(".", "_")
