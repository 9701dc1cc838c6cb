"""ApiVersions: what is served."""

from typing import Final

from tierd.wire.api import API
from tierd.wire.errors import ErrorCode

TRANSACTION_VERSION: Final = 2
"""KIP-890: every end of a transaction raises the epoch, Produce adds partitions. Clients use it only when it is
finalized here; those that do not know it go on with the older protocol."""
GROUP_VERSION: Final = 1
"""KIP-848: groups of the consumer protocol."""
FEATURES: Final = {"group.version": GROUP_VERSION, "transaction.version": TRANSACTION_VERSION}
_FEATURES_EPOCH: Final = 2
"""Raise it with every change of the features: clients take the newest."""
_ZERO_MINIMUM_FROM: Final = 4
"""Clients of older versions of this API take a feature with a minimum of 0 for an error; Kafka leaves it out."""


def api_versions(version: int, error: ErrorCode = ErrorCode.NONE) -> dict[str, object]:
    """The answer's fields; no other feature, so that no client expects more than the table says."""
    supported = [{"name": name, "min_version": 0, "max_version": level} for name, level in FEATURES.items()]
    return {
        "error_code": error,
        "api_keys": [
            {"api_key": int(key), "min_version": versions.first, "max_version": versions.last}
            for key, versions in API.items()
        ],
        "supported_features": supported if version >= _ZERO_MINIMUM_FROM else [],
        "finalized_features_epoch": _FEATURES_EPOCH,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level} for name, level in FEATURES.items()
        ],
    }
