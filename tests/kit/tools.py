"""Kafka's own command-line tools in one JVM (java/Tools.java): starting it costs more than all they do."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kit import kafka

_LIMIT_S = 60
"""For one use of a tool."""
_PACKAGE = "org.apache.kafka.tools."
_NEEDS_NO_ADDRESS = frozenset({"ProducerPerformance"})
_VERB_FIRST = frozenset({"ClusterTool"})


class Said(NamedTuple):
    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Use:
    """A tool, what it is asked, and what its answer must contain."""

    tool: str
    words: str
    """Separated by blanks; `{at}` is the broker's address, `{folder}` where files for tools are."""
    expect: str = ""
    """Found in the output as a regular expression, `^` and `$` at lines, `.` over lines."""
    refuses: bool = False
    """The tool is to end with another status than 0."""

    def shortfall(self, said: Said) -> str | None:
        """What is wrong with the answer; None: nothing."""
        if (said.status == 0) is not self.refuses and re.search(self.expect, said.text, re.MULTILINE | re.DOTALL):
            return None
        return f"{self.tool} {self.words}: status {said.status}, said {said.text[-1500:]!r}"


class Tools:
    """Runs uses against the broker at *address*, one after the other."""

    def __init__(self, jvm: "subprocess.Popen[bytes]", address: str, folder: Path) -> None:
        self._jvm = jvm
        self.address = address
        self._places = {"{at}": address, "{folder}": str(folder)}

    def run(self, tool: str, *words: str) -> Said:
        """*tool* is a class below org.apache.kafka.tools, or a full name."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        name = tool if tool.startswith("kafka.") else _PACKAGE + tool
        at = () if tool in _NEEDS_NO_ADDRESS else ("--bootstrap-server", self.address)
        first, rest = (words[:1], words[1:]) if tool in _VERB_FIRST else ((), words)
        self._jvm.stdin.write("\t".join([name, *first, *at, *rest]).encode() + b"\n")
        self._jvm.stdin.flush()
        head = self._jvm.stdout.readline().split()
        assert len(head) == 2, f"the JVM ended while it ran {name}"
        return Said(int(head[0]), self._jvm.stdout.read(int(head[1])).decode(errors="replace"))

    def use(self, use: Use) -> str | None:
        """Run it; what is wrong with the answer."""
        words = use.words
        for name, place in self._places.items():
            words = words.replace(name, place)
        return use.shortfall(self.run(use.tool, *words.split()))


@contextmanager
def running(address: str, folder: Path) -> Iterator[Tools]:
    """Skips the test without Java, as `kafka.java` does."""
    command = ["java", *kafka.FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    command += ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
    command += ["-cp", f"{kafka.jars()}/*", str(kafka.JAVA / "Tools.java"), str(_LIMIT_S)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as jvm:
        yield Tools(jvm, address, folder)
        assert jvm.stdin is not None
        jvm.stdin.close()
        assert jvm.wait(_LIMIT_S) == 0
