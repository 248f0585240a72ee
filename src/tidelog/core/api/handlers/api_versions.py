"""ApiVersions 0-4: the APIs and features that this broker offers.

The supported levels of features are those of this software, the finalised ones those of the
metadata store (controller/metadata/features.py).
"""

import re

from tidelog.core.api.context import BrokerContext, Struct
from tidelog.core.api_table import API_VERSIONS, OFFERED, Api
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.features import SUPPORTED
from tidelog.core.errors import ErrorCode

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_LEVEL_ZERO = 4
"""The first version of ApiVersions in which a feature's lowest level may be 0 (KAFKA-17011)."""


def api_versions(broker: BrokerContext, request: Struct) -> Struct:
    """List the offered APIs. From version 3 on, a client must send a valid software name."""
    if broker.version >= 3:
        names = (request["client_software_name"], request["client_software_version"])
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return _answer(ErrorCode.INVALID_REQUEST, [])
    answer = _answer(ErrorCode.NONE, list(OFFERED.values()))
    image = broker.node.image
    answer["supported_features"] = [
        {"name": name, "min_version": lowest, "max_version": highest}
        for name, lowest, highest in SUPPORTED
        if lowest or broker.version >= _LEVEL_ZERO
    ]
    answer["finalized_features"] = [
        {"name": name, "max_version_level": level, "min_version_level": level}
        for name, level in image.features.items()
    ]
    # The revision of the last change: it grows with each change, as Kafka's offset does.
    answer["finalized_features_epoch"] = image.mod_rev(keys.FEATURES)
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
