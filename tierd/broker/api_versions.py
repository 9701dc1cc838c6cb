"""ApiVersions: what is served."""

from tierd.wire.api import API
from tierd.wire.errors import ErrorCode


def api_versions(error: ErrorCode = ErrorCode.NONE) -> dict[str, object]:
    """The answer's fields; no features, so that no client expects more than the table says."""
    return {
        "error_code": error,
        "api_keys": [
            {"api_key": int(key), "min_version": versions.first, "max_version": versions.last}
            for key, versions in API.items()
        ],
    }
