"""One thing that is wrong with the settings, as it is told."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where (dotted path), what was given (None: nothing), and why or what is allowed."""

    path: str
    given: str | None
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" if self.given is None else f"{self.path} = {self.given}: {self.reason}"


def quoted(given: object) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, list | tuple):
        return "[" + ", ".join(map(quoted, given)) + "]"
    return str(given) if isinstance(given, int | float) else f'"{given}"'
