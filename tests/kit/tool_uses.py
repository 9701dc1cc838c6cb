"""What administrators do with Kafka's tools, in an order in which each finds what it needs. A real Kafka passes all."""

from typing import Final

from kit.tools import Use

_GROUPS, _OFFSETS, _CONFIGS = "consumer.group.ConsumerGroupCommand", "GetOffsetShell", "kafka.admin.ConfigCommand"
_PERF = "--topic jt --num-records 2000 --record-size 200 --throughput -1 --producer-props bootstrap.servers={at} "
_JT = "--alter --entity-type topics --entity-name jt"
_SHOW = "--describe --entity-type topics --entity-name jt"
_RESET = "--reset-offsets --group pc --topic jt --execute"

TOPICS: Final = (
    Use("TopicCommand", "--create --topic jt --partitions 2 --config segment.bytes=1048576", "Created topic jt"),
    Use("TopicCommand", "--create --topic jt --if-not-exists"),
    Use("TopicCommand", "--create --topic jt", "already exists", refuses=True),
    Use("TopicCommand", "--list", "^jt$"),
    Use("TopicCommand", "--describe --topic jt", r"PartitionCount: 2.*segment.bytes=1048576.*Partition: 1\s+Leader: 1"),
    Use("TopicCommand", "--alter --topic jt --partitions 3"),
    Use("TopicCommand", "--describe --topic jt", "PartitionCount: 3"),
)
RECORDS: Final = (
    Use("ProducerPerformance", _PERF + "acks=all", "2000 records sent"),
    *(
        Use("ProducerPerformance", _PERF + f"compression.type={codec}", "2000 records sent")
        for codec in ("gzip", "snappy", "lz4", "zstd")
    ),
    Use("ConsumerPerformance", "--topic jt --num-records 3000 --group pc --timeout 20000", r"[\d.]+, [3-9]\d{3,}, "),
    Use(
        "consumer.ConsoleConsumer",
        "--topic jt --from-beginning --max-messages 5 --timeout-ms 20000",
        "Processed a total of 5 messages",
    ),
    Use(
        "consumer.ConsoleConsumer",
        "--topic jt --from-beginning --max-messages 5 --isolation-level read_committed --group rc --timeout-ms 20000",
        "Processed a total of 5 messages",
    ),
    Use("VerifiableProducer", "--topic jt --max-messages 200", '"sent":200,"acked":200'),
    Use(
        "VerifiableConsumer",
        "--topic jt --group-id vcc --max-messages 100 --reset-policy earliest",
        'offsets_committed.*"success":true',
    ),
    Use(
        "VerifiableConsumer",
        "--topic jt --group-id vc --group-protocol consumer --max-messages 100 --reset-policy earliest",
        'offsets_committed.*"success":true',
    ),
    Use("EndToEndLatency", "--topic jt --num-records 200 --producer-acks all --record-size 100", "99.9th"),
)
TRANSACTIONS: Final = (
    Use(
        "ProducerPerformance",
        "--topic jt --num-records 500 --record-size 100 --throughput -1 --transaction-duration-ms 50 "
        "--producer-props bootstrap.servers={at} transactional.id=pp",
        "500 records sent",
    ),
    Use("TransactionsCommand", "list", r"^pp\s+\d+\s+\d+\s+CompleteCommit"),
    Use("TransactionsCommand", "describe --transactional-id pp", "CompleteCommit"),
    Use("TransactionsCommand", "describe-producers --topic jt --partition 0", r"ProducerId\s+ProducerEpoch.*^\d+"),
    Use("TransactionsCommand", "find-hanging --broker-id 1", r"Topic\s+Partition\s+ProducerId"),
)
OFFSETS: Final = (
    Use(_OFFSETS, "--topic jt --time latest", r"^jt:0:\d+"),
    Use(_OFFSETS, "--topic jt --time earliest", "^jt:0:0$"),
    Use(_OFFSETS, "--topic jt --time max-timestamp", r"^jt:0:\d+"),
    Use(_OFFSETS, "--topic jt --time earliest-local", r"^jt:0:\d+"),
    Use(_OFFSETS, "--topic jt --time latest-tiered"),
    Use(_OFFSETS, "--topic jt --time 1700000000000", "^jt:0:0$"),
    Use("DeleteRecordsCommand", "--offset-json-file {folder}/delete-records.json", r"jt-0\s+low_watermark: 3"),
    Use(_OFFSETS, "--topic jt --time earliest", "^jt:0:3$"),
)
DELETE_RECORDS: Final = '{"version": 1, "partitions": [{"topic": "jt", "partition": 0, "offset": 3}]}'
"""The file `delete-records.json` that one of the uses names."""
GROUPS: Final = (
    Use(_GROUPS, "--list", "^pc$"),
    Use(_GROUPS, "--list --state", r"^pc\s.*Empty"),
    Use(_GROUPS, "--list --state Stable", r"\A(?!.*^pc)"),
    Use(_GROUPS, "--list --type classic", r"\A(?!.*^vc )(?=.*^pc )"),
    Use(_GROUPS, "--list --type consumer", r"\A(?!.*^pc )(?=.*^vc )"),
    Use(_GROUPS, "--describe --group pc", r"pc\s+jt\s+0\s+\d+\s+\d+\s+\d+"),
    Use(_GROUPS, "--describe --group pc --offsets", r"pc\s+jt\s+0\s+\d+\s+\d+\s+\d+"),
    Use(_GROUPS, "--describe --group pc --state", "Empty"),
    Use(_GROUPS, "--describe --group pc --members", "has no active members"),
    Use(_GROUPS, "--describe --all-groups", r"pc\s+jt.*vcc\s+jt|vcc\s+jt.*pc\s+jt"),
    Use(_GROUPS, "--describe --all-groups --state", "Empty"),
    Use(_GROUPS, "--describe --group vc --state --verbose", r"vc .*uniform +Empty"),
    Use(_GROUPS, "--describe --group never-was", "Group never-was not found"),
    Use(_GROUPS, _RESET + " --to-latest", r"pc\s+jt\s+1\s+[1-9]\d*"),
    Use(_GROUPS, _RESET + " --shift-by -10", r"pc\s+jt\s+1\s+[1-9]\d*"),
    Use(_GROUPS, _RESET + " --to-offset 7", r"pc\s+jt\s+1\s+7"),
    Use(_GROUPS, _RESET + " --to-datetime 2020-01-01T00:00:00.000", r"pc\s+jt\s+1\s+0"),
    Use(_GROUPS, _RESET + " --by-duration PT0S", r"pc\s+jt\s+1\s+[1-9]\d*"),
    Use(_GROUPS, _RESET + " --to-earliest", r"pc\s+jt\s+1\s+0"),
    Use(_GROUPS, "--describe --group pc", r"pc\s+jt\s+1\s+0\s+[1-9]"),
    Use(_GROUPS, "--delete-offsets --group pc --topic jt:0", r"jt\s+0\s+Successful"),
    Use(_GROUPS, "--delete-offsets --group pc --topic jt", r"jt\s+2\s+Successful"),
    Use(_GROUPS, "--delete --group pc", "successful"),
    Use(_GROUPS, "--delete --group pc", "GroupIdNotFound"),
)
SETTINGS: Final = (
    Use(_CONFIGS, _SHOW + " --all", r"(?=.*retention\.ms=-1)(?=.*segment\.bytes=1048576)"),
    Use(_CONFIGS, _JT + " --add-config retention.ms=3600000", "Completed updating config for topic jt"),
    Use(_CONFIGS, _SHOW, "retention.ms=3600000"),
    Use(_CONFIGS, _JT + " --delete-config retention.ms", "Completed updating config for topic jt"),
    Use(_CONFIGS, "--describe --entity-type brokers --entity-name 1", "Dynamic configs for broker 1"),
)
CLUSTER: Final = (
    Use("LogDirsCommand", "--describe --topic-list jt", r'"partition":"jt-2","size":\d+'),
    Use("BrokerApiVersionsCommand", "", r"Fetch\(1\)"),
    Use("ClusterTool", "cluster-id", r"Cluster ID: \S{22}"),
)
ENDS: Final = (
    Use("TopicCommand", "--delete --topic jt"),
    Use("TopicCommand", "--list", r"\A(?!.*^jt$)"),
)
ALL: Final = (*TOPICS, *RECORDS, *TRANSACTIONS, *OFFSETS, *GROUPS, *SETTINGS, *CLUSTER, *ENDS)
