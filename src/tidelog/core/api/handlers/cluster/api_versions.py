"""ApiVersions 0-4: what this broker offers.

No features are finalised: a client then keeps to what every Kafka since 2.1 does, and Java's
does not begin the second version of transactions.
"""

import re

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api.offered import API_VERSIONS, OFFERED
from tidelog.core.errors import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NO_FEATURES_EPOCH = -1


def api_versions(broker: BrokerContext, request: Struct) -> Struct:
    """Everything offered; from version 3 on a client has to name itself properly."""
    if broker.version >= 3:
        names = (request["client_software_name"], request["client_software_version"])
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return _answer(ErrorCode.INVALID_REQUEST, [])
    return _answer(ErrorCode.NONE, list(OFFERED))


def unsupported_version() -> Struct:
    """To a version that is too new: to be encoded as version 0, which every client reads.

    It names the versions of ApiVersions itself, so that the client can ask again.
    """
    return _answer(ErrorCode.UNSUPPORTED_VERSION, [API_VERSIONS])


def _answer(error: ErrorCode, api_keys: list[int]) -> Struct:
    return {
        "error_code": error,
        "api_keys": [
            {
                "api_key": key,
                "min_version": OFFERED[key].advertised_first,
                "max_version": OFFERED[key].last,
            }
            for key in api_keys
        ],
        "throttle_time_ms": 0,
        "supported_features": [],
        "finalized_features_epoch": _NO_FEATURES_EPOCH,
        "finalized_features": [],
        "zk_migration_ready": False,
    }
