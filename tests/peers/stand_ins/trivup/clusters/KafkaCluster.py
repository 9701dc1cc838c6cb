"""What confluent-kafka's tests import."""


class KafkaCluster:
    """Is only made for tests that bring their own broker."""

    def __init__(self, **settings: object) -> None:
        raise RuntimeError(f"no broker is started here: {settings}")
