"""InitProducerId 0-5: an id for a producer that wants to be idempotent.

There are no transactions yet: with a transactional id the request is refused.
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.errors import ErrorCode
from tidelog.core.node.messages import InitProducerId

_NONE = -1


def init_producer_id(broker: BrokerContext, request: Struct) -> Handling:
    """A new producer id for idempotent producing, whatever id the producer had before."""
    transactional_id = request["transactional_id"]
    producer_id = request.get("producer_id", _NONE)
    producer_epoch = request.get("producer_epoch", _NONE)
    if transactional_id == "" or (producer_id == _NONE) != (producer_epoch == _NONE):
        return _producer_id(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        return _producer_id(broker.no_transactions)
    [answer] = yield [InitProducerId()]
    return _producer_id(answer.error, answer.producer_id, answer.producer_epoch)


def _producer_id(error: ErrorCode, producer_id: int = _NONE, producer_epoch: int = _NONE) -> Struct:
    return {
        "throttle_time_ms": 0,
        "error_code": error,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
