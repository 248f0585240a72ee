"""UpdateFeatures 0-2: change feature levels, such as after an upgrade of all brokers.

Levels change all or none in every version, as in Kafka 4. Versions 0 and 1 also list each feature
in the response.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.controller.events import UpdateFeaturesReceived, UpgradeType
from tidelog.core.controller.metadata.cluster_image import ClusterImage
from tidelog.core.controller.metadata.features import BEFORE_FEATURES
from tidelog.core.errors import ErrorCode

_CODES = {kind.value: kind for kind in UpgradeType}
_ALL_FAILED = "The update failed for all features since the following feature had an error: "


def update_features(broker: BrokerContext, request: Struct) -> Handling:
    """Pass the new levels to the controller, unless its software is too old to know the request."""
    wanted = request["feature_updates"]
    names = [each["feature"] for each in wanted]
    if len(set(names)) < len(names):
        return _answer(ErrorCode.INVALID_REQUEST, "A feature is named more than once.")
    if (refusal := _old_controller(broker.node.image)) is not None:
        return _answer(ErrorCode.UNSUPPORTED_VERSION, refusal)
    updates = tuple((each["feature"], each["max_version_level"], _kind(each)) for each in wanted)
    validate_only = request.get("validate_only", False)
    [answer] = yield [UpdateFeaturesReceived(0, updates, validate_only)]
    if answer.error:
        text = _ALL_FAILED + answer.message if answer.message else None
        return _answer(answer.error, text)
    return _answer(ErrorCode.NONE, None, names if broker.version <= 1 else [])


def _kind(update: Struct) -> UpgradeType:
    """The direction of a change: version 0 only knows whether a downgrade is allowed."""
    if "upgrade_type" in update:
        return _CODES.get(update["upgrade_type"], UpgradeType.UNKNOWN)
    return UpgradeType.SAFE_DOWNGRADE if update["allow_downgrade"] else UpgradeType.UPGRADE


def _old_controller(image: ClusterImage) -> str | None:
    claim = image.controller
    known = None if claim is None else image.brokers.get(claim.broker)
    if known is None or known.features != BEFORE_FEATURES:
        return None
    return (
        f"The controller, broker {known.id}, runs software that is older than feature levels:"
        " upgrade it first."
    )


def _answer(error: ErrorCode, message: str | None, names: list[str] | None = None) -> Struct:
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "error_message": message,
        "results": [
            {"feature": name, "error_code": ErrorCode.NONE, "error_message": None}
            for name in names or []
        ],
    }
