"""ApiVersions 0-4: the APIs and features that this broker offers.

The features are those of Kafka's that fit a cluster without a controller quorum. Consumer groups
of KIP-848, share groups and streams groups are supported up to level 0, which means off.
`transaction.version` is left out, because its level 0 means transactions of the first kind; and
without it Java's producers do not start those of the second kind (docs/adr/0037).
"""

import re

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api_table import API_VERSIONS, OFFERED, Api
from tidelog.core.errors import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_LEVEL_ZERO = 4
"""The first version of ApiVersions in which a feature's lowest level may be 0 (KAFKA-17011)."""
FEATURES_EPOCH = 0
"""Constant: features change only with the release. Kafka's epoch grows with each change."""
METADATA_VERSION = 30
"""Kafka's number for 4.3-IV0: the versions of messages here are those of Kafka 4.3."""
SUPPORTED = {
    "metadata.version": (METADATA_VERSION, METADATA_VERSION),
    "eligible.leader.replicas.version": (1, 1),
    "group.version": (0, 0),
    "share.version": (0, 0),
    "streams.version": (0, 0),
}
"""Lowest and highest level by name. The highest is finalised unless it is 0."""


def api_versions(broker: BrokerContext, request: Struct) -> Struct:
    """List the offered APIs. From version 3 on, a client must send a valid software name."""
    if broker.version >= 3:
        names = (request["client_software_name"], request["client_software_version"])
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return _answer(ErrorCode.INVALID_REQUEST, [])
    answer = _answer(ErrorCode.NONE, list(OFFERED.values()))
    answer["supported_features"] = [
        {"name": name, "min_version": lowest, "max_version": highest}
        for name, (lowest, highest) in SUPPORTED.items()
        if lowest or broker.version >= _LEVEL_ZERO
    ]
    answer["finalized_features"] = [
        {"name": name, "max_version_level": highest, "min_version_level": highest}
        for name, (_, highest) in SUPPORTED.items()
        if highest
    ]
    answer["finalized_features_epoch"] = FEATURES_EPOCH
    return answer


def unsupported_version() -> Struct:
    """The response to a version that is too new, to be encoded as version 0.

    Every client can read version 0. The response lists the versions of ApiVersions itself, so
    that the client can send the request again.
    """
    return _answer(ErrorCode.UNSUPPORTED_VERSION, [OFFERED[API_VERSIONS]])


def _answer(error: ErrorCode, apis: list[Api]) -> Struct:
    return {
        "error_code": error,
        "api_keys": [
            {
                "api_key": api.key,
                "min_version": api.first if api.advertised_first is None else api.advertised_first,
                "max_version": api.last,
            }
            for api in apis
        ],
        "throttle_time_ms": 0,
        "zk_migration_ready": False,
    }
