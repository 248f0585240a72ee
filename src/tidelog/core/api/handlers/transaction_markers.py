"""WriteTxnMarkers 1-2 from a client: an operator aborts a transaction that was left open (KIP-664).

Coordinators of other brokers use the internal listener (internal_dispatch.py).
"""

from tidelog.core.api.context import BrokerContext, Handling, Struct
from tidelog.core.wire.transaction_calls import markers_from_struct, markers_response_to_struct


def write_txn_markers(_broker: BrokerContext, request: Struct) -> Handling:
    """Append the markers on this broker's partitions; respond when they are committed."""
    [answer] = yield [markers_from_struct(request)]
    return markers_response_to_struct(answer)
