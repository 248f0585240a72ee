"""FindCoordinator 0-6 and InitProducerId 0-5: what Kafka's coordinators answer.

There is no group and no transaction coordinator here yet. FindCoordinator is offered all the
same, because librdkafka compresses with lz4 only where it is.

Whoever needs a coordinator is to fail at once, and says so best on UNSUPPORTED_VERSION: Java's
client, kafka-python and aiokafka would try COORDINATOR_NOT_AVAILABLE again for ever, and Java's
transactional producers show the text that comes with it. librdkafka asks in version 2, and for
every consumer, also one that assigns its partitions by hand and needs nobody: it must not fail,
and any other error than COORDINATOR_NOT_AVAILABLE ends up in its application. Its transactional
producers give up on TRANSACTIONAL_ID_AUTHORIZATION_FAILED and on nothing milder.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import InitProducerId

_TRANSACTION = 1
_LIBRDKAFKA = 2
"""The version that librdkafka asks in, and hardly anyone else."""
_NOBODY = -1
_NONE = -1


def find_coordinator(broker: BrokerContext, request: Struct) -> Struct:
    """Nobody; one key up to version 3, many from version 4 on."""
    if request.get("key_type", 0) == _TRANSACTION:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        message = "This cluster has no transactions yet; leave transactional.id out."
    else:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        message = "This cluster has no consumer groups yet; assign partitions by hand."
    if broker.version != _LIBRDKAFKA:
        error = ErrorCode.UNSUPPORTED_VERSION
    nobody = {
        "node_id": _NOBODY,
        "host": "",
        "port": _NOBODY,
        "error_code": error,
        "error_message": message,
    }
    keys = request.get("coordinator_keys", [])
    return {
        "throttle_time_ms": 0,
        **nobody,
        "coordinators": [{"key": key, **nobody} for key in keys],
    }


def init_producer_id(_broker: BrokerContext, request: Struct) -> Handling:
    """A new producer id for idempotent producing, whatever id the producer had before."""
    transactional_id = request["transactional_id"]
    producer_id = request.get("producer_id", _NONE)
    producer_epoch = request.get("producer_epoch", _NONE)
    if transactional_id == "" or (producer_id == _NONE) != (producer_epoch == _NONE):
        return _producer_id(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        return _producer_id(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    [answer] = yield [InitProducerId()]
    return _producer_id(answer.error, answer.producer_id, answer.producer_epoch)


def _producer_id(error: ErrorCode, producer_id: int = _NONE, producer_epoch: int = _NONE) -> Struct:
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
