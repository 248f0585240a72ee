"""UnregisterBroker: the only way a broker's registration ends.

One transaction deletes its keys. `upkeep` then removes it from leaderships and ISRs, as after a
crash, and also from ELRs: its log no longer counts. It stays in the replica lists, as in Kafka;
reassignments change those.
"""

from tidelog.core.controller.events import UnregisterBrokerReceived
from tidelog.core.controller.metadata import keys
from tidelog.core.controller.metadata.metadata_store import ABSENT, Delete, Guard
from tidelog.core.controller.topics.topic_plans import Plan
from tidelog.core.controller.transactions import Write
from tidelog.core.controller.upkeep import Office
from tidelog.core.errors import ErrorCode


def unregister_broker(office: Office, event: UnregisterBrokerReceived) -> Plan:
    """Delete the controller's state of a broker, and the broker's own key if it is online."""
    image = office.image
    known = image.brokers.get(event.broker)
    if known is None:
        missing = f"Broker {event.broker} is not registered."
        return Plan(ErrorCode.BROKER_ID_NOT_REGISTERED, missing)
    state, own = keys.broker_state(known.id), keys.broker_id(known.id)
    session = Guard(own, known.epoch if known.online else ABSENT, "create")
    writes = [
        Write(Delete(state), (Guard(state, image.mod_rev(state)),)),
        Write(Delete(own), (session,)),
    ]
    return Plan(steps=[writes])
