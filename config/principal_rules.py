"""How a certificate's name becomes that of a user: Kafka's `ssl.principal.mapping.rules`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<into>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_JAVA_GROUP = re.compile(r"\(\?<(?![=!])")
_PLACE = re.compile(r"\\(.)|\$\{(\w+)\}|\$(\d+)")


@dataclass(frozen=True, slots=True)
class Rule:
    """A name that *pattern* matches as a whole becomes *into*; without a pattern it stays as it is."""

    pattern: re.Pattern[str] | None = None
    into: str = ""
    case: str = ""
    """L or U: in lower or upper case; empty: as it is."""

    def apply(self, name: str) -> str | None:
        """None when the rule is not for *name*."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(lambda found: _filled(self.into, found), name)
        return {"L": str.lower, "U": str.upper}.get(self.case, str)(result)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Raises ValueError: what is not a rule, or no regular expression."""
    rules = []
    position = 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise ValueError(f"not a rule: {text[position:].strip()}")
        position = found.end()
        if found["default"]:
            rules.append(Rule())
            continue
        try:
            pattern = re.compile(
                found["pattern"].replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
            )
        except re.error as error:
            raise ValueError(f"{found['pattern']} is not a regular expression: {error}") from error
        rules.append(Rule(pattern, found["into"], found["case"]))
    return tuple(rules)


def mapped(rules: Sequence[Rule], name: str) -> str | None:
    """By the first rule that is for *name*; None when there is none."""
    return next((result for rule in rules if (result := rule.apply(name)) is not None), None)


def _filled(into: str, found: re.Match[str]) -> str:
    """`$1`, `${name}` and `\\x` as in Java; a number that no group has stays as it is."""

    def one(place: re.Match[str]) -> str:
        literal, name, digits = place.groups()
        if literal is not None:
            return str(literal)
        if name is not None:
            return found[name] or "" if name in found.re.groupindex else str(place[0])
        count = next((n for n in range(len(digits), 0, -1) if int(digits[:n]) <= found.re.groups), 0)
        return (found[int(digits[:count])] or "") + digits[count:] if count else str(place[0])

    return _PLACE.sub(one, into)
