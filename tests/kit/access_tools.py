"""What kafka-acls and kafka-configs are asked of rules and quotas, and what they say then, to tierd and to Kafka.

`python -m kit.access_tools RECORDING` (with tests/ on the path) asks a real Kafka and writes down what they say.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from kit import tools
from kit.kafka import Kafka
from kit.tools import Tools

RECORDING: Final = Path(__file__).parent.parent / "e2e" / "kafka-access-tools.json"
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_BOB: Final = "--allow-principal User:bob"
_CONFIGS: Final = "kafka.admin.ConfigCommand"
_USER: Final = "--entity-type users --entity-name bob"
_CLIENT: Final = "--entity-type clients --entity-name app"

RULES: Final = (
    "--list",
    f"--add {_BOB} --operation Read --operation Write --topic jt",
    f"--add {_BOB} --operation Read --operation Write --topic jt",
    "--add --deny-principal User:eve --deny-host 10.0.0.9 --operation All --topic jt",
    f"--add {_BOB} --allow-host 10.0.0.1 --allow-host 10.0.0.2 --operation Describe --topic jt --group g",
    f"--add {_BOB} --producer --topic out",
    f"--add {_BOB} --producer --topic out --transactional-id tx --idempotent",
    f"--add {_BOB} --consumer --topic in --group g",
    "--add --allow-principal User:* --operation Read --topic test- --resource-pattern-type prefixed",
    f"--add {_BOB} --operation Create --operation Alter --operation DescribeConfigs --cluster",
    f"--add {_BOB} --operation Describe --delegation-token t",
    f"--add {_BOB} --operation CreateTokens --user-principal User:carol",
    f"--add {_BOB} --operation Read --topic *",
    f"--add {_BOB} --operation Create --topic jt --cluster kafka-cluster",
    "--add --allow-principal bob --operation Read --topic jt",
    "--list",
    "--list --topic jt",
    "--list --topic test-7",
    "--list --topic test-7 --resource-pattern-type match",
    "--list --topic test- --resource-pattern-type prefixed",
    "--list --topic test- --resource-pattern-type any",
    "--list --principal User:bob",
    "--list --principal User:eve --topic jt",
    "--list --group g",
    "--list --cluster",
    "--list --transactional-id tx",
    f"--remove {_BOB} --operation Write --topic jt --force",
    f"--remove {_BOB} --consumer --topic in --group g --force",
    "--remove --topic test- --resource-pattern-type prefixed --force",
    "--remove --topic jt --force",
    "--list",
)
QUOTAS: Final = (
    "--describe --entity-type users",
    f"--alter {_USER} --add-config producer_byte_rate=1048576,consumer_byte_rate=2097152",
    "--alter --entity-type users --entity-default --add-config request_percentage=200.5",
    f"--alter {_CLIENT} --add-config producer_byte_rate=1000",
    "--alter --entity-type clients --entity-default --add-config consumer_byte_rate=5000,controller_mutation_rate=10",
    f"--alter {_USER} {_CLIENT} --add-config producer_byte_rate=77",
    f"--alter {_USER} --entity-type clients --entity-default --add-config producer_byte_rate=78",
    "--alter --entity-type users --entity-default --entity-type clients --entity-default "
    "--add-config consumer_byte_rate=79",
    "--describe --entity-type users",
    f"--describe {_USER}",
    "--describe --entity-type users --entity-default",
    "--describe --entity-type clients",
    f"--describe {_CLIENT}",
    f"--describe {_USER} {_CLIENT}",
    "--describe --entity-type users --entity-type clients",
    "--describe --user bob",
    "--describe --client-defaults",
    f"--alter {_USER} --delete-config consumer_byte_rate",
    f"--alter {_USER} --delete-config consumer_byte_rate",
    f"--alter {_USER} --add-config producer_byte_rate=0",
    f"--alter {_USER} --add-config producer_byte_rate=many",
    f"--alter {_USER} --add-config retention.ms=5",
    f"--describe {_USER}",
)


def said_by(kafka: Tools) -> dict[str, list[object]]:
    """Status and lines of each use; in any order, as the tools go through sets."""
    said: dict[str, list[object]] = {}
    for tool, uses in (("AclCommand", RULES), (_CONFIGS, QUOTAS)):
        for number, words in enumerate(uses):
            status, text = kafka.run(tool, *words.split())
            said[f"{tool.rpartition('.')[2]} {number:02} {words}"] = [
                status,
                *_lines(text.replace(kafka.address, "{at}")),
            ]
    return said


def _lines(text: str) -> list[str]:
    """Without where an exception was thrown, and without the order of what one line lists."""
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("at ", "... ", "Caused by"))]
    return sorted(", ".join(sorted(line.split(", "))) for line in kept)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        kafka = Kafka(Path(folder) / "kafka", SETTINGS).start()
        try:
            with tools.running(kafka.address, Path(folder)) as asked:
                said = said_by(asked)
        finally:
            kafka.kill()
    Path(sys.argv[1]).write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
