"""What confluent-kafka's tests start a broker with: one runs already, with a listener for SASL at PEER_SASL."""

import os


class KafkaCluster:
    """Tells them how to connect; there is nothing to start, to wait for or to stop."""

    def __init__(self, **settings: object) -> None:
        user, mechanism = str(settings["sasl_users"]).split("=")[0], settings["sasl_mechanism"]
        self._conf = {
            "bootstrap.servers": os.environ["PEER_SASL"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": user,
        }

    def wait_operational(self) -> None:
        """It is."""

    def client_conf(self) -> dict[str, object]:
        return dict(self._conf)

    def stop(self, cleanup: bool) -> None:
        """Whoever started it stops it."""
